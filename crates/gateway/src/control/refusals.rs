//! Counts of refusals per source: the evidence for bans.
//!
//! The program counts, per source and service, the packets it refused for one of the reasons it was
//! told to count (`equic_load.counted_reasons`): exactly, not sampled. Here those counters are read;
//! what they amount to is decided in [`crate::ban`].

use std::collections::HashSet;

use ipnet::IpNet;

use super::{Control, reading};
use crate::abi;
use crate::error::Result;
use crate::ledger::source::Source;
use crate::prefix::source_prefix;
use crate::reason::Reason;

/// The counter of one source and service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedSource {
    /// The source.
    pub prefix: IpNet,
    /// The service's number.
    pub service: u32,
    /// Time at which the source's entry was made: a source that was pushed out of the table has a new one.
    pub entry_ns: u64,
    /// Packets refused for counted reasons since; wraps.
    pub refused: u32,
    /// True if the source holds a connection that a server has counted.
    pub connected: bool,
}

/// All of them at one moment.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// Sources with at least one.
    pub sources: Vec<RefusedSource>,
    /// Entries in the table of sources.
    pub entries: u64,
    /// Entries ever made in it: how many were pushed out follows.
    pub created: u64,
}

impl Control {
    /// Reasons of the refusals that the program counts, as it was loaded.
    pub fn counted_reasons(&self) -> Vec<Reason> {
        let mask = self.maps.load.counted_reasons;
        Reason::all()
            .filter(|reason| mask.checked_shr(reason.number()).unwrap_or(0) & 1 == 1)
            .collect()
    }

    /// Number of packets refused for counted reasons, of all sources together: while this stays,
    /// [`Control::refusals`] has nothing new. Cheap.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
    pub fn refused_in_all(&self) -> Result<u64> {
        let mask = self.maps.load.counted_reasons;
        let counted =
            |row: &&super::CounterRow| mask.checked_shr(row.reason.number()).unwrap_or(0) & 1 == 1;
        Ok(self.counters()?.iter().filter(counted).map(|row| row.packets).sum())
    }

    /// The counters of every source that was refused: a walk through the table of sources.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
    pub fn refusals(&self) -> Result<Refusals> {
        let held: HashSet<Source> = self.connections()?.into_keys().collect();
        let services = self.maps.services.read();
        let mut all = Refusals { created: self.sources_created()?, ..Refusals::default() };
        let visit = |key: abi::equic_source, state: abi::equic_source_state| {
            all.entries += 1;
            if state.refused == 0 {
                return;
            }
            let group = services.get(key.service as usize).map_or(0, |service| service.group);
            all.sources.push(RefusedSource {
                prefix: source_prefix(key.addr, &self.maps.load),
                service: key.service,
                entry_ns: state.first_ns,
                refused: state.refused,
                connected: held.contains(&Source::of_bytes(key.addr, group)),
            });
        };
        self.maps.sources.visit(visit).map_err(reading("the sources"))?;
        Ok(all)
    }
}
