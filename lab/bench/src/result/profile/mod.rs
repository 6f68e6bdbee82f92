//! Divides CPU time by kind of work, from samples of `perf`. The samples come from additional
//! attempts, whose figures do not count.
//!
//! * [`record_words`]: the command that samples a process until it ends. [`script_words`]: the
//!   command that converts the samples to text. [`parse`]: reads this text.
//! * [`split`]: the kind of work of each sample. [`groups`](fn@groups): a finer division.
//!   [`flamegraph`]: a picture of the samples.
//!
//! Many virtual machines have no hardware counters, so the event is `cpu-clock`, a timer.

mod classify;
mod flame;
mod groups;
mod script;

use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use classify::{Part, classify, split};
pub use flame::{flamegraph, folded};
pub use groups::{Group, Groups, group, groups};
pub use script::{Frame, Stack, parse};

/// Samples per second of CPU time. The number is a prime, so that sampling does not coincide with
/// timers of the programs.
const FREQUENCY: &str = "997";
/// perf event: a timer of a process's CPU time. Many virtual machines have no hardware counters.
pub const EVENT: &str = "cpu-clock";

/// Number of samples of a process by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Samples in cryptography: ciphers, hashes, signatures.
    pub crypto: u64,
    /// Samples in the transfer of datagrams between the program and the network: system calls and
    /// the kernel's work for them.
    pub packet_io: u64,
    /// All other work of the program.
    pub protocol: u64,
    /// All other samples: memory, scheduling and files in the kernel, and functions without names.
    pub other: u64,
}

impl Split {
    /// Returns the number of all samples.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.crypto + self.packet_io + self.protocol + self.other
    }
}

/// Samples of a process, divided in two ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Samples by the four parts of [`Split`].
    pub split: Split,
    /// Samples by groups of functions.
    pub groups: Groups,
}

impl Division {
    /// Divides these samples in both ways.
    #[must_use]
    pub fn of(stacks: &[Stack<'_>]) -> Division {
        Division { split: split(stacks), groups: groups(stacks) }
    }
}

/// Method by which perf finds the callers of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chains {
    /// perf follows frame pointers. Go programs always have them.
    FramePointers,
    /// perf unwinds a copy of the stack in each sample, with unwinding tables. It is needed for
    /// Rust and C, because their compilers omit frame pointers.
    Dwarf,
}

impl Chains {
    /// Returns the method that works for the program at this path.
    #[must_use]
    pub fn of(file: &Path) -> Chains {
        let mut head = Vec::new();
        // If the file cannot be read, the program is treated as not built by Go.
        let _ = std::fs::File::open(file).and_then(|file| file.take(HEAD).read_to_end(&mut head));
        if head.windows(GO.len()).any(|window| window == GO) {
            Chains::FramePointers
        } else {
            Chains::Dwarf
        }
    }

    const fn option(self) -> &'static str {
        match self {
            Chains::FramePointers => "fp",
            Chains::Dwarf => "dwarf,8192",
        }
    }
}

/// The note of Go's linker in an ELF file: type 4 (build ID), name "Go". It is near the beginning
/// of the file.
const GO: &[u8] = b"\x04\0\0\0Go\0\0";
const HEAD: u64 = 16 << 10;
/// Maximum size of the samples of a process. It is enough for about half a minute of CPU time with
/// copies of stacks.
const MOST: &str = "256M";

/// Returns the `perf record` command that samples a running process with call chains, until the
/// process ends or `perf` gets SIGINT or SIGTERM. Sampling starts when a command arrives through
/// `control`, see perf-record(1).
#[must_use]
pub fn record_words(pid: u32, data: &str, control: &str, chains: Chains) -> Vec<String> {
    let pid = pid.to_string();
    let (begin, chains) = (["perf", "record", "-q", "-e", EVENT, "-F", FREQUENCY], chains.option());
    let rest = ["--call-graph", chains, "--max-size", MOST, "-D", "-1", "--control", control];
    let end = ["-p", &pid, "-o", data];
    [&begin[..], &rest, &end].concat().into_iter().map(str::to_owned).collect()
}

/// Returns the `perf script` command that prints the recorded samples in the format that [`parse`]
/// reads.
#[must_use]
pub fn script_words(data: &str) -> Vec<String> {
    let fields = "comm,pid,tid,time,event,ip,sym,dso";
    let words = ["perf", "script", "--no-inline", "-F", fields, "-i", data];
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests;
