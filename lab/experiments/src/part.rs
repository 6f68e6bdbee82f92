//! The parts of an experiment, and their clock. A part is a child process in a network namespace
//! that prints JSON lines.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equic_harness::{ProcessPlacement, Program, Streams};
use equic_load::Sample;
use equic_netns::Namespace;
use nix::libc;
use nix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::product;

/// Number of lines of a child process's standard error that are kept, to explain a failure.
const LAST_WORDS: usize = 10;

/// Subcommands of the program `equic`. All other subcommands belong to this program.
const PRODUCT: [&str; 3] = ["gateway", "get", "serve"];
/// Timeout for starting and for stopping a child process. Both normally take far less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two polls of a child process's output.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the time in seconds of CLOCK_MONOTONIC, which is the clock of the samples.
pub(crate) fn now() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|error| Failure::because("the monotonic clock is not available", error))?;
    Ok(Duration::from(time).as_secs_f64())
}

/// A line that a child process printed to standard output.
enum Line {
    /// A JSON line with a schema, and the time at which it was read.
    Event(Instant, Value),
    /// A request that a load generator reports.
    Sample(Sample),
}

/// Where a child process runs: its network namespace, CPU and priority.
pub(crate) struct Placement<'a> {
    /// Network namespace of the child process.
    pub host: &'a Namespace,
    /// The only CPU that the child process may use.
    pub cpu: usize,
    /// True if the process yields the CPU to all processes of the experiment for which this is
    /// false.
    pub nice: bool,
}

/// A child process of an experiment. Dropping it kills the process.
pub(crate) struct Part {
    name: String,
    program: Program,
    lines: Receiver<Line>,
    errors: Arc<Mutex<VecDeque<String>>>,
    listener: Option<JoinHandle<()>>,
    /// Requests that the process has reported and that [`Part::take_samples`] has not returned yet.
    samples: Vec<Sample>,
    events: Vec<(Instant, Value)>,
}

/// Exit status and output of a child process that has ended.
pub(crate) struct Ended {
    /// Exit status of the process.
    pub status: ExitStatus,
    /// Requests that the process reported and that were not taken before its end.
    pub samples: Vec<Sample>,
    events: Vec<(Instant, Value)>,
}

impl Ended {
    /// Returns the last line of the process with this value of `event`, and the time at which the
    /// line was read.
    pub(crate) fn event(&self, event: &str) -> Option<(Instant, &Value)> {
        let found = self.events.iter().rev().find(|(_, value)| value["event"] == event);
        found.map(|(at, value)| (*at, value))
    }

    /// Returns the value with this name in the last line of the process.
    pub(crate) fn reported<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let missing = || {
            Failure::new(format!(
                "a process of the experiment ended without printing its {name} ({})",
                self.status
            ))
        };
        let (_, done) = self.event("done").ok_or_else(missing)?;
        serde_json::from_value(done[name].clone()).map_err(|error| {
            Failure::because(
                format_args!("a process of the experiment printed an invalid {name}"),
                error,
            )
        })
    }
}

impl Part {
    /// Starts a subcommand of `equic`, or one of this same program.
    pub(crate) fn start(
        name: impl Into<String>,
        placement: &Placement<'_>,
        args: &[String],
    ) -> Result<Part> {
        let name = name.into();
        let failed = |error| Failure::because(format_args!("cannot start the {name}"), error);
        let program = match args.first() {
            Some(command) if PRODUCT.contains(&command.as_str()) => product::program()?,
            _ => std::env::current_exe().map_err(failed)?,
        };
        let mut words = vec![program.to_string_lossy().into_owned()];
        words.extend_from_slice(args);
        let placement = ProcessPlacement {
            namespace: Some(placement.host),
            cpus: &[placement.cpu],
            nice: placement.nice,
            ..ProcessPlacement::default()
        };
        let streams =
            Streams { stdin: Stdio::null(), stdout: Stdio::piped(), stderr: Stdio::piped() };
        let mut program = Program::start(&words, &placement, streams).map_err(failed)?;
        let (sender, lines) = channel();
        if let Some(stdout) = program.take_stdout() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Lines of other kinds are ignored, because experiments do not use them.
                    if let Some(line) = understand(&line)
                        && sender.send(line).is_err()
                    {
                        break;
                    }
                }
            });
        }
        let errors = Arc::default();
        let listener = program.take_stderr().map(|stderr| {
            let errors = Arc::clone(&errors);
            std::thread::spawn(move || listen(stderr, &errors))
        });
        Ok(Part { name, program, lines, errors, listener, samples: Vec::new(), events: Vec::new() })
    }

    /// Returns the process ID of the part.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Waits until the process reports that it is ready. Returns that report.
    pub(crate) fn ready(&mut self) -> Result<Value> {
        let mut patience = Patience::new();
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(Line::Event(_, value)) if value["event"] == "ready" => return Ok(value),
                Ok(line) => self.keep(line),
                Err(RecvTimeoutError::Timeout) if patience.lasts() => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.late("did not become ready")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.dead()),
            }
        }
    }

    /// Reads the output of the process so far. Fails if the process has ended with an error. If
    /// `may_end` is false, also fails if it has ended without an error.
    pub(crate) fn look(&mut self, may_end: bool) -> Result {
        while let Ok(line) = self.lines.try_recv() {
            self.keep(line);
        }
        if !self.program.has_ended() {
            return Ok(());
        }
        let ended = self.program.join().map_err(|error| {
            Failure::because(format_args!("cannot check the {}", self.name), error)
        })?;
        if may_end && ended.status.success() { Ok(()) } else { Err(self.dead()) }
    }

    /// Returns true if the process has reported that it is ready. [`Part::look`] reads the report.
    pub(crate) fn is_ready(&self) -> bool {
        self.events.iter().any(|(_, value)| value["event"] == "ready")
    }

    /// Returns the requests that the process has reported since the last call.
    pub(crate) fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    /// Returns true if the process has ended.
    pub(crate) fn ended(&self) -> bool {
        self.program.has_ended()
    }

    /// Makes the process yield the CPU to other processes from now on.
    pub(crate) fn yield_cpu(&self) -> Result {
        self.program.yield_cpu().map_err(|error| {
            Failure::because(format_args!("cannot give the {} a lower priority", self.name), error)
        })
    }

    /// Asks the process to end, with SIGTERM.
    pub(crate) fn stop(&self) {
        self.program.terminate();
    }

    /// Waits for the end of the process. It is not an error if the SIGTERM of [`Part::stop`] ended
    /// it.
    pub(crate) fn finish(mut self) -> Result<Ended> {
        let mut patience = Patience::new();
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => self.keep(line),
                Err(RecvTimeoutError::Timeout) if patience.lasts() => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.late("did not end")),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let ended = self.program.join().map_err(|error| {
            Failure::because(format_args!("cannot wait for the {}", self.name), error)
        })?;
        let status = ended.status;
        if !status.success() && status.signal() != Some(libc::SIGTERM) {
            return Err(self.dead());
        }
        let (samples, events) =
            (std::mem::take(&mut self.samples), std::mem::take(&mut self.events));
        Ok(Ended { status, samples, events })
    }

    fn keep(&mut self, line: Line) {
        match line {
            Line::Event(at, value) => self.events.push((at, value)),
            Line::Sample(sample) => self.samples.push(sample),
        }
    }

    fn late(&self, what: &str) -> Failure {
        let (name, seconds, standing) = (&self.name, PATIENCE.as_secs(), self.program.standing());
        let told = self.events.last().map_or_else(String::new, |(at, event)| {
            format!(", {:.1} s after it reported `{}`", at.elapsed().as_secs_f64(), event["event"])
        });
        let words = self.last_words();
        Failure::new(format!("the {name} {what} within {seconds} s{told} ({standing}){words}"))
    }

    /// Returns the error for a process that has ended, with its last output.
    fn dead(&mut self) -> Failure {
        // The process has ended or has closed its standard output, so the rest of its output is
        // available at once.
        let ended = self.program.stop(Duration::ZERO);
        let status = ended.map_or_else(|e| e.to_string(), |ended| ended.status.to_string());
        if let Some(listener) = self.listener.take() {
            // The thread that reads the output does not panic, and ends when the child ends.
            let _ = listener.join();
        }
        let words = self.last_words();
        Failure::new(format!("the {} ended unexpectedly ({status}){words}", self.name))
    }

    fn last_words(&self) -> String {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.is_empty() {
            return "; the process printed no errors".to_owned();
        }
        let lines: Vec<&str> = errors.iter().map(String::as_str).collect();
        format!("; its last errors:\n  {}", lines.join("\n  "))
    }
}

/// A timeout of [`PATIENCE`]. Between two polls, the remaining time decreases by at most two poll
/// intervals. Without this, the timeout could expire because the machine, or this process together
/// with the part, was suspended.
struct Patience {
    looked: Instant,
    left: Duration,
}

impl Patience {
    fn new() -> Patience {
        Patience { looked: Instant::now(), left: PATIENCE }
    }

    fn lasts(&mut self) -> bool {
        self.lasts_at(Instant::now())
    }

    fn lasts_at(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.left = self.left.saturating_sub(since.min(2 * LOOK));
        !self.left.is_zero()
    }
}

fn understand(line: &str) -> Option<Line> {
    let at = Instant::now();
    let value: Value = serde_json::from_str(line).ok()?;
    if value.get("schema").is_some() {
        return Some(Line::Event(at, value));
    }
    serde_json::from_value(value).ok().map(Line::Sample)
}

fn listen(stderr: impl Read, errors: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() == LAST_WORDS {
            errors.pop_front();
        }
        errors.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_not_used_up_by_a_clock_jump() {
        let mut patience = Patience::new();
        let begun = patience.looked;
        assert!(patience.lasts_at(begun + 10 * PATIENCE));
        let looks = PATIENCE.as_millis() as u32 / LOOK.as_millis() as u32;
        let lasted = (1..=2 * looks)
            .take_while(|&look| patience.lasts_at(begun + 10 * PATIENCE + look * LOOK))
            .count();
        // The jump of the clock counts as two polls, and at the last poll no time is left.
        assert_eq!(lasted as u32, looks - 3);
    }
}
