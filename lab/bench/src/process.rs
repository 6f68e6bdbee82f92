//! A running server or client: its output, its last lines on standard error, and whether it is at
//! rest.

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
use equic_netns::measure::cpu_time;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes that are kept of each output of a program. The rest is discarded.
const MAX_OUTPUT: u64 = 64 << 10;
/// Maximum CPU time that a program at rest uses during `RESTING`.
const REST: Duration = Duration::from_millis(2);
const RESTING: Duration = Duration::from_millis(200);
/// Maximum time to wait until a program is at rest. After that, it is measured anyway.
const RESTLESS: Duration = Duration::from_secs(10);
/// Number of lines of standard error that are kept. `MAX_WORDS` is the number of characters kept of
/// each line.
const LAST_WORDS: usize = 3;
const MAX_WORDS: usize = 300;
/// Pause between two checks whether all output of an ended program was read.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum time for reading the rest of the output of an ended program. Reading normally takes far
/// less.
const HEARD: Duration = Duration::from_secs(5);

/// Environment in which a program is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub words: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub folder: Option<PathBuf>,
    /// File for samples of the program, if it is sampled. Not supported on machines of a testbed.
    pub sampled: Option<PathBuf>,
}

/// Memory and CPU time of a program at rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// Memory that is not backed by a file, in bytes.
    pub anonymous: u64,
    /// CPU time used so far, in seconds.
    pub cpu_seconds: f64,
    /// True if the program never came to rest, that is, if it uses CPU time without any client.
    pub restless: bool,
}

/// The kept output of a program.
#[derive(Default)]
struct ProgramOutput {
    /// The last lines that the program printed to standard error.
    last: VecDeque<String>,
    /// Standard output and standard error together, up to the limit.
    all: String,
}

/// A running program. If this value is dropped or this process ends, the program's process group is
/// killed.
pub(crate) struct Program {
    program: equic_harness::Program,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Arc<Mutex<ProgramOutput>>,
    listener: Option<JoinHandle<()>>,
}

impl Program {
    pub(crate) fn start(words: &[String], placement: &ProcessPlacement<'_>) -> io::Result<Program> {
        let mut placement = placement.clone();
        // Disables backtraces. The last lines then show the reason of a panic, and a panic uses
        // little CPU time.
        placement.environment.entry("RUST_BACKTRACE".to_owned()).or_insert_with(|| "0".to_owned());
        let streams =
            Streams { stdin: Stdio::piped(), stdout: Stdio::piped(), stderr: Stdio::piped() };
        let mut program = equic_harness::Program::start(words, &placement, streams)?;
        let (sender, lines) = channel();
        let said = Arc::<Mutex<ProgramOutput>>::default();
        if let Some(stdout) = program.take_stdout() {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                read_lines(stdout, |line| {
                    note(&said, &line);
                    // The receiver may have been dropped. The rest of the output must be read
                    // anyway, because the program would block otherwise.
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

    /// Returns the process ID of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Waits until the program uses almost no CPU time, for at most [`RESTLESS`]. Returns `None` if
    /// the program has ended. The memory excludes pages of files: the program's share of these
    /// would fall when a client of the same program starts.
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

    /// Returns everything that the program has printed so far, up to the limit.
    pub(crate) fn said(&mut self) -> String {
        self.hear_out();
        self.said.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// Returns true if the program has ended. The process is not reaped yet, so its ID is not
    /// reused.
    pub(crate) fn has_ended(&self) -> bool {
        self.program.has_ended()
    }

    /// Returns the next line of output, or `None` if no line arrives within `timeout`. Returns an
    /// error after the end of the output.
    pub(crate) fn line(&self, timeout: Duration) -> Result<Option<String>, ()> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// Closes the program's standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Reads the program's peak memory use again.
    pub(crate) fn peak_memory(&mut self) {
        self.program.peak_memory();
    }

    /// Returns the program's last lines on standard error. If the program has ended, all of its
    /// output is read first.
    pub(crate) fn final_output(&mut self) -> String {
        self.hear_out();
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.last.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    fn hear_out(&mut self) {
        if self.program.ended().is_some()
            && let Some(listener) = self.listener.take()
        {
            // A descendant in another process group may hold the output open. The output that was
            // read so far is then enough.
            let deadline = Instant::now() + HEARD;
            while !listener.is_finished() && Instant::now() < deadline {
                sleep(LOOK);
            }
        }
    }

    /// Asks the program to end if it runs, and kills it after `grace`. Then kills the rest of its
    /// process group.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        self.program.stop(grace)
    }
}

fn note(said: &Mutex<ProgramOutput>, line: &str) {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    said.all.push_str(line);
    said.all.push('\n');
}

/// Reads output and passes it on line by line up to a limit. Discards the rest.
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
    // Discards the rest of the output. It must be read to its end, because the program would block
    // otherwise.
    let _ = io::copy(&mut rest, &mut io::sink());
}
