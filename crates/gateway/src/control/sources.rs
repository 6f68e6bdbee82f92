//! Returns the sources with the most packets, bytes, drops or connections.

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

/// The count by which sources are sorted. The largest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortBy {
    /// Packets seen.
    #[default]
    Packets,
    /// Number of UDP payload bytes received.
    Bytes,
    /// Number of packets whose verdict was a drop.
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

/// A source, the index of its service and its statistics if it has an entry, and its number of
/// connections.
type Row = (Source, Option<(u32, abi::equic_source_state)>, u32);

/// Sort key of a row; the smallest key comes first. Rows with the same count are sorted by more
/// packets, then by the smaller address.
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
    /// Prefix of the source. A single address is written without its length.
    pub source: String,
    /// The service to which the source sends. If the source has connections but has sent nothing
    /// recently: the services for which these connections count.
    pub services: Vec<String>,
    /// Number of open connections, over all servers of the gateway and all services of the quota
    /// group.
    pub connections: u32,
    /// The smallest connection quota of the source's services. 0 means no quota.
    pub limit: u32,
    /// Number of packets since the source's entry was created.
    pub packets: u64,
    /// Number of UDP payload bytes in these packets.
    pub bytes: u64,
    /// Number of packets whose verdict was a drop, in a dry run, too.
    pub drops: u64,
    /// Milliseconds since the source's entry was created. `None` if it has no entry.
    pub first_seen_ms: Option<u64>,
    /// Milliseconds since the source's last packet. `None` if it has no entry.
    pub last_seen_ms: Option<u64>,
    /// Reason for the verdict on the source's last packet. `None` if it has no entry.
    pub last_reason: Option<Reason>,
    /// Treatment by the list that contains the source's prefix. `None` if no list does.
    pub listed: Option<ListAction>,
}

impl SourceRow {
    /// Returns what will happen to the source's next connection: `denied`, `allowed`, `at limit`,
    /// or an empty text.
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
    /// Returns the first `top` sources, sorted by `by`. The statistics come from an LRU table: if a
    /// source was evicted, its statistics restarted at 0.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails, and [`crate::Error::NotPermitted`] without
    /// `CAP_SYS_ADMIN`.
    pub fn sources(&self, top: usize, by: SortBy) -> Result<Vec<SourceRow>> {
        let connections: HashMap<Source, u32> = self.connections()?;
        let services = self.maps.services.read();
        let mut seen = HashSet::new();
        let states = self.maps.sources.entries().map_err(reading("the sources"))?;
        let row = |(key, state): (abi::equic_source, _)| {
            let group = services.get(key.service as usize).map_or(0, |service| service.group);
            let source = Source::of_bytes(key.addr, group);
            // Most sources that have sent packets hold no connection.
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
        // Sorts only the first rows, because sorting a full table would take most of the time.
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

    /// Returns the number of connections of one source, summed over all valid ledgers except the
    /// one with the ID `ledger`.
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

    /// Returns the number of connections of every source, summed over all valid ledgers.
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
