//! Reads how many packets of each source were refused, as the evidence for bans.
//!
//! For each source and service, the XDP program counts the packets that it refused for one of the
//! counted reasons (`equic_load.counted_reasons`). The counts are exact, not sampled. This module
//! reads them. [`crate::ban`] decides about bans.

use std::collections::HashSet;

use ipnet::IpNet;

use super::{Control, reading};
use crate::abi;
use crate::error::Result;
use crate::ledger::source::Source;
use crate::prefix::source_prefix;
use crate::reason::Reason;

/// The count of refusals of one source and service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedSource {
    /// The source.
    pub prefix: IpNet,
    /// The service's index.
    pub service: u32,
    /// Time at which the source's entry was created. If an entry was evicted and created again,
    /// this time differs.
    pub entry_ns: u64,
    /// Number of packets refused for counted reasons since the entry was created. Wraps.
    pub refused: u32,
    /// True if the source holds a connection that a server has counted.
    pub connected: bool,
}

/// The refusal counts of all sources at one time.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// The sources with at least one refusal.
    pub sources: Vec<RefusedSource>,
    /// Number of entries in the table of sources.
    pub entries: u64,
    /// Number of entries ever created in the table. From its growth, the number of evictions can be
    /// computed.
    pub created: u64,
}

impl Control {
    /// Returns the reasons of refusals that the XDP program counts. They are fixed when the program
    /// is loaded.
    pub fn counted_reasons(&self) -> Vec<Reason> {
        let mask = self.maps.load.counted_reasons;
        Reason::all()
            .filter(|reason| mask.checked_shr(reason.number()).unwrap_or(0) & 1 == 1)
            .collect()
    }

    /// Returns the number of packets refused for counted reasons, of all sources together. While it
    /// does not change, [`Control::refusals`] returns nothing new. The call is cheap.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn refused_in_all(&self) -> Result<u64> {
        let mask = self.maps.load.counted_reasons;
        let counted =
            |row: &&super::CounterRow| mask.checked_shr(row.reason.number()).unwrap_or(0) & 1 == 1;
        Ok(self.counters()?.iter().filter(counted).map(|row| row.packets).sum())
    }

    /// Returns the counts of every source that was refused. Walks the whole table of sources.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
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
