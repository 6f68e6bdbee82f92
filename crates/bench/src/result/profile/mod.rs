//! Division of CPU time: samples by `perf`, of a run of its own that is in no figure.
//!
//! [`record_words`] samples a process until it ends, [`script_words`] puts the samples into text, [`parse`] reads it, [`split`] says what each sample was doing, [`groups`](fn@groups) says it in finer kinds, [`flamegraph`] draws them. There are no
//! hardware counters on many virtual machines: the event is `cpu-clock`, a timer.

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

/// Samples a second of CPU time; no divisor of the timers that programs have.
const FREQUENCY: &str = "997";
/// A timer of the CPU time that a process uses: many virtual machines have no hardware counters.
pub const EVENT: &str = "cpu-clock";

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

/// Samples of a process, divided in two ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// By the four parts that every program has.
    pub split: Split,
    /// By groups of functions.
    pub groups: Groups,
}

impl Division {
    /// Division of these samples.
    #[must_use]
    pub fn of(stacks: &[Stack<'_>]) -> Division {
        Division { split: split(stacks), groups: groups(stacks) }
    }
}

/// Method by which perf finds the callers of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chains {
    /// By frame pointers, which Go always has.
    FramePointers,
    /// From a copy of the stack with each sample, by the tables for unwinding: compilers of Rust and C
    /// leave frame pointers out.
    Dwarf,
}

impl Chains {
    /// Method that works for the program in this file.
    #[must_use]
    pub fn of(file: &Path) -> Chains {
        let mut head = Vec::new();
        // A file that cannot be read is not one of Go's.
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

/// The note of Go's linker in an ELF file: of type 4 (build ID), by "Go". It is among the first bytes.
const GO: &[u8] = b"\x04\0\0\0Go\0\0";
const HEAD: u64 = 16 << 10;
/// Most bytes of samples kept of a process: that is about half a minute of CPU time with copies of stacks.
const MOST: &str = "256M";

/// `perf record` of a process that runs, with call chains, until it ends (or `perf` gets SIGINT or
/// SIGTERM). It samples when it is told to by `control`, as perf-record(1) writes it.
#[must_use]
pub fn record_words(pid: u32, data: &str, control: &str, chains: Chains) -> Vec<String> {
    let pid = pid.to_string();
    let (begin, chains) = (["perf", "record", "-q", "-e", EVENT, "-F", FREQUENCY], chains.option());
    let rest = ["--call-graph", chains, "--max-size", MOST, "-D", "-1", "--control", control];
    let end = ["-p", &pid, "-o", data];
    [&begin[..], &rest, &end].concat().into_iter().map(str::to_owned).collect()
}

/// `perf script` of what was recorded, as [`parse`] reads it.
#[must_use]
pub fn script_words(data: &str) -> Vec<String> {
    let fields = "comm,pid,tid,time,event,ip,sym,dso";
    let words = ["perf", "script", "--no-inline", "-F", fields, "-i", data];
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests;
