//! A program of a cell: the lines that it prints, its last words, and when it is at rest.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use equic_harness::Streams;
pub(crate) use equic_harness::{Ended, ProcessPlacement};
use equic_lab::measure::cpu_time;
use serde::{Deserialize, Serialize};

/// Most bytes read of each of a program's outputs; the rest is thrown away.
const MAX_OUTPUT: u64 = 64 << 10;
/// A program is at rest when it used no more CPU time than this in so long.
const REST: Duration = Duration::from_millis(2);
const RESTING: Duration = Duration::from_millis(200);
/// Whoever is not at rest after this long is measured as it is.
const RESTLESS: Duration = Duration::from_secs(10);
/// Lines of standard error that are kept, and characters of each.
const LAST_WORDS: usize = 3;
const MAX_WORDS: usize = 300;
/// Pause between two looks whether all was heard of a program that ended.
const LOOK: Duration = Duration::from_millis(10);
/// Far longer than it takes to read what a program that ended has left in a pipe.
const HEARD: Duration = Duration::from_secs(5);

/// Program to be started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub words: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub folder: Option<PathBuf>,
    /// Path for samples of the program, if such are taken; not on a machine of a testbed.
    pub sampled: Option<PathBuf>,
}

/// A program at rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// Memory that is not of files, in bytes.
    pub anonymous: u64,
    /// CPU time that it has used so far.
    pub cpu_seconds: f64,
    /// True if it never came to rest: it uses CPU time although nothing is asked of it.
    pub restless: bool,
}

/// Output of a program.
#[derive(Default)]
struct Said {
    /// The last lines of standard error.
    last: VecDeque<String>,
    /// All of both, as far as it was read.
    all: String,
}

/// A program at work. Dropping it kills its group; the end of this process does so, too.
pub(crate) struct Program {
    program: equic_harness::Program,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Arc<Mutex<Said>>,
    listener: Option<JoinHandle<()>>,
}

impl Program {
    pub(crate) fn start(words: &[String], placement: &ProcessPlacement<'_>) -> io::Result<Program> {
        let mut placement = placement.clone();
        // Of what it says last the reason is kept, not the end of a backtrace; and none is charged to it.
        placement.environment.entry("RUST_BACKTRACE".to_owned()).or_insert_with(|| "0".to_owned());
        let streams =
            Streams { stdin: Stdio::piped(), stdout: Stdio::piped(), stderr: Stdio::piped() };
        let mut program = equic_harness::Program::start(words, &placement, streams)?;
        let (sender, lines) = channel();
        let said = Arc::<Mutex<Said>>::default();
        if let Some(stdout) = program.take_stdout() {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                read_lines(stdout, |line| {
                    note(&said, &line);
                    // Nobody listens any more: it is read all the same, or the program would wait.
                    let _ = sender.send(line);
                });
            });
        }
        let listener = program.take_stderr().map(|stderr| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                read_lines(stderr, |line| {
                    note(&said, &line);
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    if said.last.len() == LAST_WORDS {
                        said.last.pop_front();
                    }
                    said.last.push_back(line.chars().take(MAX_WORDS).collect());
                });
            })
        });
        let stdin = program.take_stdin();
        Ok(Program { program, stdin, lines, said, listener })
    }

    /// Process ID of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Waits until it uses no CPU time any more, but at most [`RESTLESS`]. Returns `None` if it has ended. (The
    /// memory is without files, because its share of the program's own pages would fall when a client of the same
    /// program starts.)
    pub(crate) fn settle(&self) -> Option<Rest> {
        let deadline = Instant::now() + RESTLESS;
        let mut before = cpu_time(self.pid());
        let mut restless = true;
        while Instant::now() < deadline {
            sleep(RESTING);
            let now = cpu_time(self.pid());
            match (before, now) {
                (Some(before), Some(now)) if now.saturating_sub(before) > REST => {}
                _ => {
                    restless = false;
                    break;
                }
            }
            before = now;
        }
        let cpu_seconds = cpu_time(self.pid())?.as_secs_f64();
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Rest { anonymous: kilobytes.checked_mul(1024)?, cpu_seconds, restless })
    }

    /// All that it said, as far as it was read.
    pub(crate) fn said(&mut self) -> String {
        self.hear_out();
        self.said.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// True if the program has ended. It is not waited for yet, so its id stays its own.
    pub(crate) fn has_ended(&self) -> bool {
        self.program.has_ended()
    }

    /// The next line it prints, if one comes in time; an error: none will come.
    pub(crate) fn line(&self, timeout: Duration) -> Result<Option<String>, ()> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// Closes its standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Looks at the most memory it has had.
    pub(crate) fn peak_memory(&mut self) {
        self.program.peak_memory();
    }

    /// The program's last lines on standard error. Of a program that has ended, all of it has been heard.
    pub(crate) fn last_words(&mut self) -> String {
        self.hear_out();
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.last.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    fn hear_out(&mut self) {
        if self.program.ended().is_some()
            && let Some(listener) = self.listener.take()
        {
            // A descendant in another group may hold it open: what there is will do then.
            let deadline = Instant::now() + HEARD;
            while !listener.is_finished() && Instant::now() < deadline {
                sleep(LOOK);
            }
        }
    }

    /// Asks it to end unless it has, and makes it end after `grace`; then whatever it left of its
    /// group.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        self.program.stop(grace)
    }
}

fn note(said: &Mutex<Said>, line: &str) {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    said.all.push_str(line);
    said.all.push('\n');
}

/// Hands on what is said, line by line, up to a limit, and throws away the rest.
fn read_lines(from: impl Read, mut take: impl FnMut(String)) {
    let mut reader = BufReader::new(from.take(MAX_OUTPUT));
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => take(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }
    let mut rest = reader.into_inner().into_inner();
    // Its end is all that matters.
    let _ = io::copy(&mut rest, &mut io::sink());
}
