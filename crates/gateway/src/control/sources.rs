//! Sources of packets: those with the most packets, bytes, drops or connections.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::members::Member;
use super::{Control, ListAction, reading};
use crate::abi;
use crate::config::{ServiceConfig, service_from_abi};
use crate::error::Result;
use crate::ledger::source::{Keying, Source};
use crate::overrides::connections_limit;
use crate::prefix::{prefix_text, source_prefix};
use crate::reason::Reason;
use crate::sys;

/// Count by which sources are sorted, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortBy {
    /// Packets seen.
    #[default]
    Packets,
    /// Bytes of UDP payload seen.
    Bytes,
    /// Packets whose verdict was a drop.
    Drops,
    /// Open connections.
    Connections,
}

impl std::str::FromStr for SortBy {
    type Err = crate::quantity::QuantityError;

    fn from_str(text: &str) -> std::result::Result<SortBy, Self::Err> {
        match text {
            "packets" => Ok(SortBy::Packets),
            "bytes" => Ok(SortBy::Bytes),
            "drops" => Ok(SortBy::Drops),
            "connections" => Ok(SortBy::Connections),
            _ => Err(crate::quantity::QuantityError {
                text: text.to_owned(),
                expected: "an order: `packets`, `bytes`, `drops` or `connections`".to_owned(),
            }),
        }
    }
}

/// A source, its service's index and statistics if it has an entry, and its connections.
type Row = (Source, Option<(u32, abi::equic_source_state)>, u32);

/// Sort key of rows, smallest first. Ties are broken by more packets, then by the smaller address.
type Rank = (Reverse<u64>, Reverse<u64>, [u8; 16], Option<u32>, u32);

fn rank((source, state, count): &Row, by: SortBy) -> Rank {
    let (service, state) = state.unzip();
    let state = state.unwrap_or_default();
    let rank = match by {
        SortBy::Packets => state.packets(),
        SortBy::Bytes => state.bytes(),
        SortBy::Drops => state.drops(),
        SortBy::Connections => (*count).into(),
    };
    (Reverse(rank), Reverse(state.packets()), source.addr(), service, source.group)
}

/// One source in one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceRow {
    /// Its prefix. A single address is written without its length.
    pub source: String,
    /// The service that it sends to. For a silent source, the services that its connections count
    /// for.
    pub services: Vec<String>,
    /// Open connections, over all servers of the gateway and all services of the quota group.
    pub connections: u32,
    /// The smallest quota of these services. 0: no quota.
    pub limit: u32,
    /// Packets since its entry was created.
    pub packets: u64,
    /// Their bytes of UDP payload.
    pub bytes: u64,
    /// Packets whose verdict was a drop, dry run included.
    pub drops: u64,
    /// Milliseconds since its entry was created. `None` without an entry.
    pub first_seen_ms: Option<u64>,
    /// Milliseconds since its last packet. `None` without an entry.
    pub last_seen_ms: Option<u64>,
    /// Reason of the verdict on the source's last packet. `None` without an entry.
    pub last_reason: Option<Reason>,
    /// Treatment by the list that its prefix is on. `None` if it is on no list.
    pub listed: Option<ListAction>,
}

impl SourceRow {
    /// Returns `denied`, `allowed`, `at limit` or an empty text: what will happen to its next
    /// connection.
    pub fn state(&self) -> &'static str {
        match self.listed {
            Some(ListAction::Deny) => "denied",
            Some(ListAction::Allow) => "allowed",
            None if self.limit != 0 && self.connections >= self.limit => "at limit",
            None => "",
        }
    }
}

impl Control {
    /// Returns the first `top` sources in this order. The statistics come from the LRU table: those
    /// of an evicted source began again at 0.
    ///
    /// # Errors
    /// The kernel's error if a call fails; [`crate::Error::NotPermitted`] without `CAP_SYS_ADMIN`.
    pub fn sources(&self, top: usize, by: SortBy) -> Result<Vec<SourceRow>> {
        let connections: HashMap<Source, u32> = self.connections()?;
        let services = self.maps.services.read();
        let mut seen = HashSet::new();
        let states = self.maps.sources.entries().map_err(reading("the sources"))?;
        let row = |(key, state): (abi::equic_source, _)| {
            let group = services.get(key.service as usize).map_or(0, |service| service.group);
            let source = Source::of_bytes(key.addr, group);
            // Most sources that have sent something hold no connection.
            let count = connections.get(&source).copied();
            if count.is_some() {
                seen.insert(source);
            }
            (source, Some((key.service, state)), count.unwrap_or(0))
        };
        let mut all: Vec<Row> = states.into_iter().map(row).collect();
        let silent = connections.iter().filter(|(source, _)| !seen.contains(source));
        all.extend(silent.map(|(source, count)| (*source, None, *count)));
        let rank = |row: &Row| rank(row, by);
        // Only the first ones are sorted, because sorting a full table would take most of the time.
        if top < all.len() {
            if top > 0 {
                all.select_nth_unstable_by_key(top - 1, rank);
            }
            all.truncate(top);
        }
        all.sort_by_key(rank);
        let now = sys::monotonic_ns();
        let overrides = self.maps.overrides.read();
        let ms_since = |then: u64| now.saturating_sub(then) / 1_000_000;
        all.into_iter()
            .map(|(source, state, connections)| {
                let prefix = source_prefix(source.addr(), &self.maps.load);
                let (number, state) = state.unzip();
                let concerned = || {
                    services
                        .iter()
                        .zip(0u32..)
                        .filter(|(s, index)| {
                            s.name[0] != 0
                                && number.map_or(s.group == source.group, |n| n == *index)
                        })
                        .map(|(s, index)| {
                            let own = (s.overrides != 0).then(|| {
                                connections_limit(&overrides, index as usize, prefix.addr())
                            });
                            let service = service_from_abi(s);
                            let max_connections = own.flatten().unwrap_or(service.max_connections);
                            ServiceConfig { max_connections, ..service }
                        })
                };
                Ok(SourceRow {
                    source: prefix_text(prefix),
                    services: concerned().map(|service| service.name).collect(),
                    connections,
                    limit: concerned()
                        .map(|s| s.max_connections)
                        .filter(|max| *max != 0)
                        .min()
                        .unwrap_or(0),
                    packets: state.map_or(0, |state| state.packets()),
                    bytes: state.map_or(0, |state| state.bytes()),
                    drops: state.map_or(0, |state| state.drops()),
                    first_seen_ms: state.map(|state| ms_since(state.first_ns)),
                    last_seen_ms: state.map(|state| ms_since(state.last_ns)),
                    last_reason: state.and_then(|state| Reason::from_number(state.last_reason)),
                    listed: self.listed(prefix)?.map(|entry| entry.action),
                })
            })
            .collect()
    }

    /// Returns the connections of one source, over all valid ledgers except this one.
    pub(crate) fn connections_besides(&self, source: Source, ledger: u32) -> Result<u32> {
        let place = Keying::new(&self.maps.load).place(&source);
        let counts = |member: &&Member| {
            member.counts
                && member.id != ledger
                && member.record.barred >> (source.group & 63) & 1 == 0
        };
        let members = self.members()?;
        let others = members.iter().filter(counts);
        Ok(others.fold(0, |sum, member| sum.saturating_add(member.memory.count(&source, &place))))
    }

    /// Returns the connections of every source, over all valid ledgers.
    pub(crate) fn connections(&self) -> Result<HashMap<Source, u32>> {
        let mut all: HashMap<Source, u32> = HashMap::new();
        for member in self.members()?.iter().filter(|member| member.counts) {
            let may = |group: u32| member.record.barred >> (group & 63) & 1 == 0;
            for entry in member.memory.entries().filter(|entry| may(entry.source.group)) {
                let count = all.entry(entry.source).or_default();
                *count = count.saturating_add(entry.count);
            }
        }
        Ok(all)
    }
}
