//! The report of the process that manages a gateway. Any process can read it for `status`.
//!
//! The report is JSON in a separate map that is bound to the XDP program. It can be found through
//! the program in any mount namespace, does not depend on free disk space, and disappears with the
//! program. One process writes it. Readers copy a consistent version.
//!
//! A file below `/run` would be missing in another mount namespace, stale after a crash, and not
//! written when the disk is full. A socket would not answer while the process hangs.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};

use super::Control;
use crate::abi;
use crate::config::BanConfig;
use crate::error::{Error, Result};
use crate::sync::atomic::fence;
use crate::sys;
use crate::sys::region::{Shared, atomic};

/// Severity of a reported problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The state differs from the configuration, but everything is protected.
    Warning,
    /// Part of the traffic is not protected.
    Error,
}

/// A problem that is reported until it is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Subject of the condition, such as `interface eth0`, `reload` or `ban state`. A subject has
    /// at most one condition.
    pub about: String,
    /// Severity of the condition.
    pub level: Level,
    /// Says what is wrong, and what to do.
    pub message: String,
    /// Time at which the condition began, in milliseconds of Unix time.
    pub since_ms: u64,
}

/// State of a configured interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// State of the interface: `attached`, `missing`, `taken` (by another XDP program), `refused`
    /// (by the driver or the kernel), `detached` (by an operator), or `same` (another name of an
    /// interface that is already configured).
    pub state: String,
    /// Details about the interface's state, as text.
    pub detail: String,
}

/// The last attempt to reload the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Number of this reload, counted since the process started.
    pub number: u64,
    /// True if the reload succeeded. If it failed, the configuration has not changed.
    pub ok: bool,
    /// Time of the reload, in milliseconds of Unix time.
    pub at_ms: u64,
    /// The changes that the reload made, or the problems that prevented it.
    pub lines: Vec<String>,
}

/// Numbers of bans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BanTotals {
    /// True if bans are only reported and not imposed.
    pub dry_run: bool,
    /// Number of active bans.
    pub active: u64,
    /// Number of bans imposed since the start. In a dry run, the number that would have been
    /// imposed.
    pub imposed: u64,
    /// Number of bans that expired.
    pub expired: u64,
    /// Number of bans that an operator lifted.
    pub lifted: u64,
    /// Number of bans that were not imposed because the operator has an entry for the prefix.
    pub spared: u64,
    /// Number of watched sources.
    pub watched: u64,
    /// Number of watched sources that were dropped to make room for others.
    pub evicted: u64,
}

/// The report of the process that manages a gateway.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// ID of the process, in its pid namespace. [`Control::publish`] sets this field and the next
    /// one.
    pub pid: u32,
    /// Start time of the process, in clock ticks since boot. Together with the process ID, it
    /// identifies the process uniquely.
    pub start_ticks: u64,
    /// Time at which the report was written, in milliseconds of Unix time.
    pub written_ms: u64,
    /// Path of the process's configuration file, which it reads again on SIGHUP.
    pub config: Option<String>,
    /// Current problems, the worst first.
    pub conditions: Vec<Condition>,
    /// The configured interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// The last reload, or `None` if there was no reload.
    pub reload: Option<Reload>,
    /// Numbers of bans, or `None` if bans are off.
    pub bans: Option<BanTotals>,
    /// Rules for bans, or `None` if bans are off.
    pub ban_rules: Option<BanConfig>,
}

impl Report {
    /// Returns true if the process that wrote the report is running, as far as this pid namespace
    /// can see.
    pub fn is_alive(&self) -> bool {
        sys::alive(self.pid, self.start_ticks)
    }
}

/// Number of attempts after which a reader assumes that the writer died while it was writing.
const ATTEMPTS: u32 = 1_000;

type Memory = Shared<abi::equic_report>;

impl Control {
    /// Publishes a report, which replaces the previous one. If it is too long, its lists are cut.
    ///
    /// # Errors
    /// Fails if the gateway was loaded without a map for reports.
    pub fn publish(&self, report: &Report) -> Result<()> {
        let memory = self.maps.report.as_ref().ok_or_else(|| self.no_report())?;
        let mut cut = report.clone();
        cut.pid = std::process::id();
        cut.start_ticks = sys::start_ticks(cut.pid).unwrap_or(0);
        let text = loop {
            let text = serde_json::to_vec(&cut).map_err(|error| Error::System {
                doing: "writing the report".to_owned(),
                source: error.into(),
            })?;
            if text.len() <= capacity() {
                break text;
            }
            let shorten = |len: usize| len / 2;
            cut.conditions.truncate(shorten(cut.conditions.len()));
            cut.interfaces.truncate(shorten(cut.interfaces.len()));
            if let Some(reload) = &mut cut.reload {
                reload.lines.truncate(shorten(reload.lines.len()));
                reload.lines.iter_mut().for_each(|line| *line = line.chars().take(500).collect());
            }
        };
        write(memory, &text);
        Ok(())
    }

    /// Returns the last report of the process that manages the gateway. Returns `None` if there is
    /// no complete report.
    pub fn report(&self) -> Option<Report> {
        let text = self.maps.report.as_ref().and_then(read)?;
        serde_json::from_slice(&text).ok()
    }

    fn no_report(&self) -> Error {
        let why = "the program has no map `equic_report`".to_owned();
        Error::ForeignProgram { program: self.program, why }
    }
}

fn capacity() -> usize {
    abi::equic_report::default().text.len()
}

fn write(memory: &Memory, text: &[u8]) {
    let pointer = memory.pointer();
    let sequence = atomic!(AtomicU64, pointer, sequence);
    let odd = sequence.load(Relaxed) | 1;
    sequence.store(odd, Relaxed);
    fence(Release);
    atomic!(AtomicU64, pointer, length).store(text.len() as u64, Relaxed);
    for (at, byte) in text.iter().enumerate().take(capacity()) {
        atomic!(AtomicU8, pointer, text[at]).store(*byte, Relaxed);
    }
    sequence.store(odd.wrapping_add(1), Release);
}

fn read(memory: &Memory) -> Option<Vec<u8>> {
    let pointer = memory.pointer();
    for _ in 0..ATTEMPTS {
        let before = atomic!(AtomicU64, pointer, sequence).load(Acquire);
        if before & 1 == 1 {
            std::thread::yield_now();
            continue;
        }
        let length = atomic!(AtomicU64, pointer, length).load(Relaxed) as usize;
        let text: Vec<u8> = (0..length.min(capacity()))
            .map(|at| atomic!(AtomicU8, pointer, text[at]).load(Relaxed))
            .collect();
        fence(Acquire);
        if atomic!(AtomicU64, pointer, sequence).load(Relaxed) == before {
            return Some(text);
        }
    }
    None
}
