//! Statistics of a gateway that are cheap enough to read every second, whatever the size of the
//! tables. `equic gateway watch` and the metrics use them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::lists::{holds, typed};
use super::{Control, ListEntry, Owner, reading};
use crate::abi;
use crate::config::{address_bytes, from_c_name};
use crate::error::Result;
use crate::ledger::source::Source;
use crate::overrides::connections_limit;
use crate::prefix::{AclKey, ip_of, prefix_text, source_prefix};
use crate::reason::Reason;
use crate::sys;
use crate::sys::ids;

/// Summary of the gateway, without its counters and tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overview {
    /// The gateway's name.
    pub name: String,
    /// The kernel's id of the XDP program.
    pub program_id: u32,
    /// The process that manages the gateway.
    pub owner: Owner,
    /// Seconds since the gateway was loaded.
    pub uptime_s: f64,
    /// True if this is a dry run, in which nothing is dropped.
    pub dry_run: bool,
}

/// Key of a [`SourceSample`]: a source and a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey {
    /// The source's prefix.
    pub prefix: IpNet,
    /// Index of the service. `None` if the source has connections, but no entry in the table of
    /// sources.
    pub service: Option<u32>,
}

/// Counts of the packets that a source has sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSample {
    /// The source.
    pub key: SourceKey,
    /// Time at which the source's entry was created, in nanoseconds of `CLOCK_MONOTONIC`. If it
    /// changes, the entry was evicted and created again, and the counts restarted at 0.
    pub since_ns: u64,
    /// Number of open connections, over all servers and all services of the quota group.
    pub connections: u32,
    /// The quota of connections. 0 means no quota.
    pub limit: u32,
    /// Number of packets since the source's entry was created.
    pub packets: u64,
    /// Number of UDP payload bytes in these packets.
    pub bytes: u64,
    /// Number of packets whose verdict was a drop, in a dry run, too.
    pub drops: u64,
    /// Reason for the verdict on the source's last packet. `None` if the source has no entry.
    pub last_reason: Option<Reason>,
}

/// Cost of running the XDP program. The kernel measures it while `kernel.bpf_stats_enabled` is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RunStats {
    /// Number of runs of the XDP program. It runs once for each packet on its interfaces.
    pub runs: u64,
    /// Total time of all runs.
    pub time: Duration,
}

impl SourceKey {
    /// Returns the prefix as text. A single address is written without its length.
    pub fn label(&self) -> String {
        prefix_text(self.prefix)
    }
}

impl Control {
    /// Returns true if the XDP program is still in the kernel. The kernel removes it when its last
    /// link and its owner are gone.
    ///
    /// # Errors
    /// Returns [`crate::Error::NotPermitted`] for another process's gateway without
    /// `CAP_SYS_ADMIN`.
    pub fn is_loaded(&self) -> Result<bool> {
        if self.own.upgrade().is_some() {
            return Ok(true);
        }
        Ok(ids::program_by_id(self.program).map_err(reading("the program"))?.is_some())
    }

    /// Returns a summary of the gateway.
    pub fn overview(&self) -> Overview {
        let control = self.maps.control.read();
        Overview {
            name: from_c_name(&control.name),
            program_id: self.program,
            owner: Owner {
                pid: control.owner_pid,
                alive: sys::alive(control.owner_pid, control.owner_start_ticks),
            },
            uptime_s: sys::monotonic_ns().saturating_sub(control.created_ns) as f64 / 1e9,
            dry_run: control.dry_run != 0,
        }
    }

    /// Returns the cost of running the XDP program, or `None` if the kernel has not measured it.
    ///
    /// # Errors
    /// Returns [`crate::Error::NotPermitted`] for another process's gateway without
    /// `CAP_SYS_ADMIN`.
    pub fn run_stats(&self) -> Result<Option<RunStats>> {
        let failed = reading("the program");
        let program = match self.own.upgrade() {
            Some(own) => Some(own),
            None => ids::program_fd(self.program).map_err(&failed)?.map(Arc::new),
        };
        let stats = program.map(|program| ids::run_stats(program.as_fd())).transpose();
        Ok(stats
            .map_err(failed)?
            .filter(|(runs, _)| *runs > 0)
            .map(|(runs, nanoseconds)| RunStats { runs, time: Duration::from_nanos(nanoseconds) }))
    }

    /// Returns the counts of every source, unordered. It is like [`Control::sources`] without
    /// texts, and is meant for computing rates from two calls.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails, and [`crate::Error::NotPermitted`] without
    /// `CAP_SYS_ADMIN`.
    pub fn source_samples(&self) -> Result<Vec<SourceSample>> {
        let connections = self.connections()?;
        let states = self.maps.sources.entries().map_err(reading("the sources"))?;
        let services = self.maps.services.read();
        let live = || services.iter().take_while(|service| service.name[0] != 0);
        let overrides = self.maps.overrides.read();
        // A source without an entry has connections in a quota group but no particular service. So
        // its limit is the smallest limit of the group's services, as in `sources`.
        let mut limits: HashMap<u32, u32> = HashMap::new();
        for service in live().filter(|service| service.max_connections != 0) {
            let limit = limits.entry(service.group).or_insert(u32::MAX);
            *limit = service.max_connections.min(*limit);
        }
        let mut seen = HashSet::new();
        let mut samples = Vec::with_capacity(states.len());
        for (key, state) in states {
            let service = services.get(key.service as usize);
            let source = Source::of_bytes(key.addr, service.map_or(0, |service| service.group));
            let count = connections.get(&source).copied().unwrap_or(0);
            if count != 0 {
                seen.insert(source);
            }
            samples.push(SourceSample {
                key: SourceKey {
                    prefix: source_prefix(key.addr, &self.maps.load),
                    service: Some(key.service),
                },
                since_ns: state.first_ns,
                connections: count,
                limit: service.map_or(0, |service| {
                    let find = || {
                        connections_limit(&overrides, key.service as usize, ip_of(source.addr()))
                    };
                    let own = (service.overrides != 0).then(find).flatten();
                    own.unwrap_or(service.max_connections)
                }),
                packets: state.packets(),
                bytes: state.bytes(),
                drops: state.drops(),
                last_reason: Reason::from_number(state.last_reason),
            });
        }
        let silent = connections.iter().filter(|(source, _)| !seen.contains(*source));
        samples.extend(silent.map(|(source, count)| SourceSample {
            key: SourceKey { prefix: source_prefix(source.addr(), &self.maps.load), service: None },
            since_ns: 0,
            connections: *count,
            limit: limits.get(&source.group).copied().unwrap_or(0),
            packets: 0,
            bytes: 0,
            drops: 0,
            last_reason: None,
        }));
        Ok(samples)
    }

    /// Returns the source to which an address belongs.
    pub fn source_of(&self, address: IpAddr) -> IpNet {
        source_prefix(address_bytes(address), &self.maps.load).trunc()
    }

    /// Returns the list entry that applies to a prefix. This is the longest valid entry that
    /// contains the prefix.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn listed(&self, prefix: IpNet) -> Result<Option<ListEntry>> {
        if self.maps.control.read().acl_used == 0 {
            return Ok(None);
        }
        let now = self.now();
        let mut wanted = prefix;
        loop {
            let found = match AclKey::of(wanted) {
                AclKey::V4(key) => self.maps.acl4.get(&key),
                AclKey::V6(key) => self.maps.acl6.get(&key),
            };
            let Some(entry) = found.map_err(reading("the deny and allow lists"))? else {
                return Ok(None);
            };
            let length = u8::try_from(entry.prefixlen).unwrap_or(u8::MAX);
            let Ok(net) = IpNet::new(prefix.addr(), length.min(wanted.prefix_len())) else {
                return Ok(None);
            };
            if holds(&entry, now) {
                return Ok(Some(typed(net.trunc(), &entry, now)));
            }
            // The entry has expired but is not removed yet, so the next shorter entry applies.
            match net.prefix_len().checked_sub(1).map(|len| IpNet::new(prefix.addr(), len)) {
                Some(Ok(shorter)) => wanted = shorter.trunc(),
                _ => return Ok(None),
            }
        }
    }

    /// Returns the ring of drop events, for [`super::Observer`].
    pub(super) fn ring(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.maps.events)
    }

    /// Size of an event in the ring, in bytes.
    pub(super) const EVENT: usize = size_of::<abi::equic_event>();
}
