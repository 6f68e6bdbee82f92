//! Where CPU time goes: samples by `perf`, of a run of its own that is in no figure.
//!
//! [`record_command`] samples a process until it ends, [`script_command`] puts the samples into text,
//! [`parse`] reads it, [`split`] says what each sample was doing, [`flamegraph`] draws them. There are no
//! hardware counters on many virtual machines: the event is `cpu-clock`, a timer.

mod classify;
mod flame;
mod script;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::ResultError;
use super::read::PROFILES;
use super::summary::Profiled;

pub use classify::{Part, classify, split};
pub use flame::{flamegraph, folded};
pub use script::{Frame, Stack, parse};

/// Samples a second of CPU time; no divisor of the timers that programs have.
const FREQUENCY: &str = "997";

/// Samples of a process by what it was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Ciphers, hashes, signatures.
    pub crypto: u64,
    /// Datagrams between the program and the network: system calls and what the kernel does for them.
    pub packet_io: u64,
    /// The rest of the program.
    pub protocol: u64,
    /// All else: memory, scheduling and files in the kernel, and what has no name.
    pub other: u64,
}

impl Split {
    /// All samples.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.crypto + self.packet_io + self.protocol + self.other
    }
}

/// `perf record` of a process that runs, with call chains, until it ends (or `perf` gets SIGINT).
#[must_use]
pub fn record_command(pid: u32, data: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-F", FREQUENCY, "-g", "-p"]);
    command.arg(pid.to_string()).arg("-o").arg(data);
    command
}

/// `perf script` of what was recorded, as [`parse`] reads it.
#[must_use]
pub fn script_command(data: &Path) -> Command {
    let mut command = Command::new("perf");
    let fields = "comm,pid,tid,time,event,ip,sym,dso";
    command.args(["script".as_ref(), "--no-inline".as_ref(), "-F".as_ref(), OsStr::new(fields)]);
    command.arg("-i").arg(data);
    command
}

/// Adds a profile to a run's folder: `profiles.jsonl`, which everything else reads.
///
/// # Errors
/// [`ResultError::Write`] when the file cannot be written.
pub fn append(dir: &Path, profiled: &Profiled) -> Result<(), ResultError> {
    let path = dir.join(PROFILES);
    let json = serde_json::to_string(profiled)
        .map_err(|error| ResultError::Json { path: path.clone(), reason: error.to_string() })?;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{json}\n").as_bytes()))
        .map_err(|source| equic_report::WriteError { path, source }.into())
}

#[cfg(test)]
mod tests;
