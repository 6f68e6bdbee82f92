//! Report of the process that looks after a gateway on itself, for `status` of any process.
//!
//! It is JSON in a map of its own that is bound to the program: whoever finds the program finds the
//! report, in whatever mount namespace and however full the disks are, and it is gone with the
//! program. One process writes; readers take a copy that is whole.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};

use super::Control;
use crate::abi;
use crate::config::BanConfig;
use crate::error::{Error, Result};
use crate::sync::atomic::fence;
use crate::sys;
use crate::sys::region::{Shared, atomic};

/// Severity of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Something is not as it was asked for; what is protected stays protected.
    Warning,
    /// Something is not protected.
    Error,
}

/// Something that is not as it should be, until it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Subject of the condition, one of each: `interface eth0`, `reload`, `ban state`.
    pub about: String,
    /// Severity of the condition.
    pub level: Level,
    /// Description of what is wrong, and of what mends it.
    pub message: String,
    /// Time at which the condition began, in milliseconds of Unix time.
    pub since_ms: u64,
}

/// An interface as the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// `attached`, `missing`, `taken` (by another XDP program), `refused` (by the driver or the
    /// kernel), `detached` (by an operator), `same` (another name of an interface that is configured
    /// already).
    pub state: String,
    /// The rest, for a person.
    pub detail: String,
}

/// The last time the configuration was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Counts the attempts since the start.
    pub number: u64,
    /// True if the reload succeeded; if not, everything is as before.
    pub ok: bool,
    /// Time of the reload, in milliseconds of Unix time.
    pub at_ms: u64,
    /// Changes that the reload made, or problems that kept it from that.
    pub lines: Vec<String>,
}

/// Bans in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BanTotals {
    /// True if bans are only told of and not imposed.
    pub dry_run: bool,
    /// Number of bans in force.
    pub active: u64,
    /// Imposed since the start (in a dry run: that would have been).
    pub imposed: u64,
    /// Ended by themselves.
    pub expired: u64,
    /// Ended by an operator.
    pub lifted: u64,
    /// Not imposed because the operator listed the prefix.
    pub spared: u64,
    /// Sources that are watched.
    pub watched: u64,
    /// Sources that were forgotten for others.
    pub evicted: u64,
}

/// The process's words.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Its process id, in its pid namespace. It and the next are filled in by [`Control::publish`].
    pub pid: u32,
    /// Time at which the process started, in clock ticks since boot: with the id, names it for good.
    pub start_ticks: u64,
    /// Time at which the report was written, in milliseconds of Unix time.
    pub written_ms: u64,
    /// The configuration file it goes by: SIGHUP makes it read that again.
    pub config: Option<String>,
    /// Conditions that are not as they should be; the worst first.
    pub conditions: Vec<Condition>,
    /// The interfaces it was told to protect.
    pub interfaces: Vec<InterfaceReport>,
    /// The last reload.
    pub reload: Option<Reload>,
    /// Numbers of bans; `None` if bans are off.
    pub bans: Option<BanTotals>,
    /// Rules of the bans, as the process goes by them; `None` if bans are off.
    pub ban_rules: Option<BanConfig>,
}

impl Report {
    /// True if the process that wrote the report runs, as far as can be seen from this pid namespace.
    pub fn is_alive(&self) -> bool {
        sys::alive(self.pid, self.start_ticks)
    }
}

/// Number of times a reader tries before it gives up on a writer that died in the middle.
const ATTEMPTS: u32 = 1_000;

type Memory = Shared<abi::equic_report>;

impl Control {
    /// Publishes a report in place of the last one. Lists in it are cut to what there is room for.
    ///
    /// # Errors
    /// The gateway was loaded without a place for reports.
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

    /// Last report of the process that looks after the gateway; none: there is none, or no whole one.
    pub fn report(&self) -> Option<Report> {
        let text = self.maps.report.as_ref().and_then(read)?;
        serde_json::from_slice(&text).ok()
    }

    /// Notes a fingerprint of the configuration file whose settings are in force, for whoever wants to
    /// change that file; 0: none. It is the caller's which function of the text that is.
    pub fn note_config(&self, fingerprint: u64) {
        if let Some(notes) = &self.maps.notes {
            atomic!(AtomicU64, notes.pointer(), file).store(fingerprint, Release);
        }
    }

    /// The fingerprint that was noted last; none: there is no file, or it is not known.
    pub fn noted_config(&self) -> Option<u64> {
        let notes = self.maps.notes.as_ref()?;
        Some(atomic!(AtomicU64, notes.pointer(), file).load(Acquire)).filter(|noted| *noted != 0)
    }

    fn no_report(&self) -> Error {
        let why = "it has no map `equic_report`".to_owned();
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
