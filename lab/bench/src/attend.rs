//! Waits for the server and the client of an attempt, and interprets their output and exit status.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::clock::Passage;
use crate::context::{CellContext, CellError, failed};
use crate::process::Ended;
use crate::site::Endpoint;
use crate::stall::StallDetector;
use crate::workload::Figure;
use crate::{Answer, Effective, Failure, Workload};

/// Exit status of a program that does not support the workload.
const UNSUPPORTED: i32 = 127;
/// Exit status of a client that received bytes other than those that the server sent.
const CORRUPTED: i32 = 3;
/// Maximum time until a server listens. `ENDING` is the maximum time until a program has ended.
pub(crate) const BEGINNING: Duration = Duration::from_secs(20);
pub(crate) const ENDING: Duration = Duration::from_secs(10);
/// Pause between two polls of a client. It is long, because polling takes CPU time from the client.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Maximum time to read a client's answer after the client has ended, on a busy machine. The end of
/// its output may never be seen, because a child process of the client can hold the output open.
const HEARING: Duration = Duration::from_secs(5);

/// Waits until the server prints its address.
pub(crate) fn ready(context: &CellContext<'_>, server: &mut Endpoint) -> Result<String, CellError> {
    let deadline = Instant::now() + BEGINNING;
    loop {
        interrupted(context)?;
        match server.line(LOOK) {
            Ok(Some(line)) => match line.strip_prefix("ready ") {
                Some(address) => return Ok(address.trim().to_owned()),
                None => {
                    let why = format!("the server printed {:?} instead of `ready`", shown(&line));
                    return failed(Failure::Start, why);
                }
            },
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => {
                return failed(
                    Failure::Start,
                    format!("the server was not ready within {BEGINNING:?}"),
                );
            }
            Err(()) => {
                // The server may only have closed its output, so this waits for its end.
                end(server, "server", ENDING)?;
                return Err(died(server, "server"));
            }
        }
    }
}

/// Returns true if a server had to be killed because it did not end after SIGTERM.
pub(crate) fn was_killed(server: &Ended) -> bool {
    server.status.signal() == Some(Signal::SIGKILL as i32)
}

/// Output of a client, and observations of the runner until the client's end.
pub(crate) struct ClientOutput {
    pub lines: Vec<String>,
    /// Memory of the server while all connections were open, in bytes. `None` for workloads other
    /// than `idle`.
    pub held: Option<u64>,
    /// Time at which the runner noticed that the client had ended.
    pub ended: Instant,
    /// Lower bound of the time in which the bytes arrived, in seconds. `None` if the runner did not
    /// observe it.
    pub passage: Option<f64>,
}

/// Waits until the client has ended, and returns its output.
pub(crate) fn attend(
    context: &CellContext<'_>,
    what: Workload,
    (server, client): (&mut Endpoint, &mut Endpoint),
    mut passage: Passage,
) -> Result<ClientOutput, CellError> {
    let patience = Duration::from_secs_f64(what.patience(&context.size, context.least_rate));
    let deadline = Instant::now() + patience;
    let (mut lines, mut held, mut over) = (Vec::new(), None, None);
    let lasted = |passage: &Passage| passage.lasted().map(|lasted| lasted.as_secs_f64());
    let mut detector =
        (what.figure() == Figure::BitsPerSecond).then(|| StallDetector::new(context));
    loop {
        interrupted(context)?;
        // Checks for the client's end before it reads the output. All output before the end is then
        // read.
        over = over.or_else(|| client.has_ended().then(Instant::now));
        match client.line(LOOK) {
            Ok(Some(line)) if line == "held" && what == Workload::Idle && held.is_none() => {
                held = server.settle().map(|rest| rest.anonymous);
                client.peak_memory();
                client.close_stdin();
            }
            Ok(Some(line)) => lines.push(line),
            // The client has closed its output, so it has ended or is about to end.
            Err(()) if client.has_ended() => {
                let ended = over.unwrap_or_else(Instant::now);
                return Ok(ClientOutput { lines, held, ended, passage: lasted(&passage) });
            }
            Err(()) => sleep(Duration::from_millis(1)),
            Ok(None) => {
                // The output is not complete: either a child process of the client holds it open,
                // or the last lines were not read yet.
                let heard = |ended: &Instant| answered(&lines) || ended.elapsed() >= HEARING;
                if let Some(ended) = over.filter(heard) {
                    return Ok(ClientOutput { lines, held, ended, passage: lasted(&passage) });
                }
            }
        }
        client.peak_memory();
        if lines.is_empty() {
            passage.look(context);
        }
        if server.has_ended() {
            return Err(died(server, "server"));
        }
        // A client that has printed its answer may take some time to end.
        let transfers = detector.as_mut().filter(|_| lines.is_empty());
        if let Some(why) = transfers.and_then(|detector| detector.why(context)) {
            return failed(Failure::Stalled, why);
        }
        if Instant::now() >= deadline {
            let why = format!("stalled: the client had not ended after {patience:.0?}");
            return failed(Failure::Stalled, why);
        }
    }
}

pub(crate) fn interrupted(context: &CellContext<'_>) -> Result<(), CellError> {
    if context.stop.load(Ordering::Relaxed) {
        failed(Failure::Interrupted, "interrupted")
    } else {
        Ok(())
    }
}

pub(crate) fn end(program: &mut Endpoint, role: &str, grace: Duration) -> Result<Ended, CellError> {
    program.stop(grace).map_err(|error| {
        CellError::Failed(Failure::Crashed, format!("the {role} cannot be waited for: {error}"))
    })
}

/// Returns the failure to report for a program that ended too early, with its exit status.
pub(crate) fn died(program: &mut Endpoint, role: &str) -> CellError {
    let status = match end(program, role, Duration::ZERO) {
        Ok(ended) => ended.status,
        Err(error) => return error,
    };
    let words = program.final_output();
    if status.code() == Some(UNSUPPORTED) {
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        return CellError::Unsupported(format!("the {role} does not support it{words}"));
    }
    let corrupted = status.code() == Some(CORRUPTED) && words.contains("corrupted");
    let failure = if corrupted { Failure::Corrupted } else { Failure::Crashed };
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    CellError::Failed(failure, format!("the {role} ended ({status}){words}"))
}

/// Returns true if the last line is a client's answer.
fn answered(lines: &[String]) -> bool {
    lines.last().is_some_and(|line| serde_json::from_str::<Answer>(line).is_ok())
}

/// Parses the client's answer, which is the last line of its output.
pub(crate) fn parse_answer(client: &mut Endpoint, lines: &[String]) -> Result<Answer, CellError> {
    let Some(line) = lines.iter().rfind(|line| !line.is_empty()) else {
        let words = client.final_output();
        let why = format!("the client ended without an answer {words}").trim_end().to_owned();
        return failed(Failure::Lied, why);
    };
    serde_json::from_str(line).map_err(|error| {
        let why = format!("the client's answer is invalid ({error}): {:?}", shown(line));
        CellError::Failed(Failure::Lied, why)
    })
}

/// Returns the settings in force at a server that has ended, from its last report. A server reports
/// its settings before its first connection, and may report them again when it knows more.
pub(crate) fn effective(server: &mut Endpoint) -> Option<Effective> {
    let mut last = None;
    // The rest of the output arrives at once, unless a child of the server holds the output open.
    while let Ok(Some(line)) = server.line(LOOK) {
        let told = line.strip_prefix("effective ").and_then(|json| serde_json::from_str(json).ok());
        last = told.or(last);
    }
    last
}

/// Shortens a line of output for an error message.
fn shown(line: &str) -> String {
    line.chars().take(80).collect()
}
