//! Counts of verdicts and of other events, summed over the CPUs.

use serde::Serialize;

use super::{Control, reading};
use crate::abi;
use crate::error::Result;
use crate::reason::Reason;

/// Number of packets to a service whose verdict has a certain reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CounterRow {
    /// The service's name.
    pub service: String,
    /// The service's index.
    pub service_index: u32,
    /// The reason for the verdict.
    pub reason: Reason,
    /// Number of packets with this reason.
    pub packets: u64,
    /// Number of UDP payload bytes in these packets.
    pub bytes: u64,
    /// Number of packets that were dropped. It is less than `packets` in a dry run, and 0 if the
    /// reason does not drop.
    pub dropped: u64,
    /// Number of packets that were answered in the server's name. The server does not receive them.
    /// It is less than `packets` in a dry run, and 0 if the reason does not answer.
    pub answered: u64,
}

/// Counts of events that are not verdicts, since the gateway was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tallies {
    /// Number of entries added to the map `sources`.
    pub sources_created: u64,
    /// Number of entries added to the map `handshakes`.
    pub handshakes_created: u64,
    /// Number of entries added to the map `prefixes`.
    pub prefixes_created: u64,
    /// Number of sources that newer ones evicted.
    pub sources_evicted: u64,
    /// Number of handshakes that newer ones evicted, or that a later attempt of the same client
    /// replaced.
    pub handshakes_evicted: u64,
    /// Number of prefixes that newer ones evicted.
    pub prefixes_evicted: u64,
    /// Number of packets whose UDP header the host may be able to parse although the XDP program
    /// cannot. With `drop_deep_headers` they are dropped, otherwise they pass.
    pub deep_headers: u64,
    /// Number of drop events that were lost because the ring was full.
    pub events_lost: u64,
    /// Number of lookups that ignored a ledger because its lease had expired.
    pub stale_ledger: u64,
    /// Number of packets that were refused because other CPUs kept changing the same shared state,
    /// such as a rate's token bucket.
    pub contended: u64,
}

/// All counts, read at the same time.
pub(super) struct Counted {
    pub(super) rows: Vec<CounterRow>,
    pub(super) tallies: Tallies,
    pub(super) sources: usize,
    pub(super) handshakes: usize,
    pub(super) prefixes: usize,
}

impl Control {
    /// Returns the number of packets for each service and reason that occurred.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn counters(&self) -> Result<Vec<CounterRow>> {
        self.rows(&self.totals()?)
    }

    /// Returns counts of events that are not verdicts.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn tallies(&self) -> Result<Tallies> {
        Ok(self.counted()?.tallies)
    }

    pub(super) fn counted(&self) -> Result<Counted> {
        // The totals are read before the entries, so that an entry created in between does not
        // count as evicted.
        let totals = self.totals()?;
        let sources = self.maps.sources.entries().map_err(reading("the sources"))?.len();
        let handshakes = self.maps.handshakes.entries().map_err(reading("the handshakes"))?.len();
        let prefixes = self.maps.prefixes.entries().map_err(reading("the prefixes"))?.len();
        let tally = |which: u32| {
            totals.get((abi::EQUIC_TALLY_BASE + which) as usize).map_or(0, |c| c.packets)
        };
        let sources_created = tally(abi::EQUIC_TALLY_SOURCES_CREATED);
        let handshakes_created = tally(abi::EQUIC_TALLY_HANDSHAKES_CREATED);
        let prefixes_created = tally(abi::EQUIC_TALLY_PREFIXES_CREATED);
        let tallies = Tallies {
            sources_created,
            handshakes_created,
            prefixes_created,
            sources_evicted: sources_created.saturating_sub(sources as u64),
            handshakes_evicted: handshakes_created.saturating_sub(handshakes as u64),
            prefixes_evicted: prefixes_created.saturating_sub(prefixes as u64),
            deep_headers: tally(abi::EQUIC_TALLY_DEEP_HEADERS),
            events_lost: tally(abi::EQUIC_TALLY_EVENTS_LOST),
            stale_ledger: tally(abi::EQUIC_TALLY_STALE_LEDGER),
            contended: tally(abi::EQUIC_TALLY_CONTENDED),
        };
        Ok(Counted { rows: self.rows(&totals)?, tallies, sources, handshakes, prefixes })
    }

    /// Returns the number of entries ever added to the table of sources.
    pub(super) fn sources_created(&self) -> Result<u64> {
        let at = (abi::EQUIC_TALLY_BASE + abi::EQUIC_TALLY_SOURCES_CREATED) as usize;
        Ok(self.totals()?.get(at).map_or(0, |counter| counter.packets))
    }

    /// Returns every element of `counters`, summed over the CPUs.
    fn totals(&self) -> Result<Vec<abi::equic_counter>> {
        let (cpus, values) = self.maps.counters.read_all().map_err(reading("the counters"))?;
        let sum = |all: abi::equic_counter, one: &abi::equic_counter| abi::equic_counter {
            packets: all.packets + one.packets,
            bytes: all.bytes + one.bytes,
            dropped: all.dropped + one.dropped,
        };
        Ok(values
            .chunks(cpus)
            .map(|chunk| chunk.iter().fold(abi::equic_counter::default(), sum))
            .collect())
    }

    fn rows(&self, totals: &[abi::equic_counter]) -> Result<Vec<CounterRow>> {
        let mut rows = Vec::new();
        for (index, name) in self.service_names().into_iter().enumerate() {
            for reason in Reason::all() {
                let at = index * abi::EQUIC_REASONS_MAX as usize + reason.number() as usize;
                let Some(counter) = totals.get(at).filter(|counter| counter.packets != 0) else {
                    continue;
                };
                // The XDP program counts every packet as dropped that it does not pass to the host.
                // This includes answered packets.
                let withheld = counter.dropped;
                rows.push(CounterRow {
                    service: name.clone(),
                    service_index: index as u32,
                    reason,
                    packets: counter.packets,
                    bytes: counter.bytes,
                    dropped: if reason.drops() { withheld } else { 0 },
                    answered: if reason.answers() { withheld } else { 0 },
                });
            }
        }
        Ok(rows)
    }
}
