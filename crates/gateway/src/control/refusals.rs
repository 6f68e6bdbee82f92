//! Counts of refusals per source, the evidence for bans.
//!
//! For each source and service, the program counts the packets that it refused for one of the
//! counted reasons (`equic_load.counted_reasons`), exactly and not sampled. This module reads those
//! counters. [`crate::ban`] decides about bans.

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
    /// The service's index.
    pub service: u32,
    /// Time at which the source's entry was created. An entry that was evicted and created again
    /// has a new one.
    pub entry_ns: u64,
    /// Packets refused for counted reasons since then. Wraps.
    pub refused: u32,
    /// True if the source holds a connection that a server has counted.
    pub connected: bool,
}

/// All counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// Sources with at least one refusal.
    pub sources: Vec<RefusedSource>,
    /// Number of entries in the table of sources.
    pub entries: u64,
    /// Number of entries ever created in it. The difference gives the evictions.
    pub created: u64,
}

impl Control {
    /// Returns the reasons of the refusals that the program counts. They are fixed when it is
    /// loaded.
    pub fn counted_reasons(&self) -> Vec<Reason> {
        let mask = self.maps.load.counted_reasons;
        Reason::all()
            .filter(|reason| mask.checked_shr(reason.number()).unwrap_or(0) & 1 == 1)
            .collect()
    }

    /// Returns the number of packets refused for counted reasons, of all sources together. While it
    /// does not change, [`Control::refusals`] returns nothing new. Cheap.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
    pub fn refused_in_all(&self) -> Result<u64> {
        let mask = self.maps.load.counted_reasons;
        let counted =
            |row: &&super::CounterRow| mask.checked_shr(row.reason.number()).unwrap_or(0) & 1 == 1;
        Ok(self.counters()?.iter().filter(counted).map(|row| row.packets).sum())
    }

    /// Returns the counters of every source that was refused. Walks the table of sources.
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
