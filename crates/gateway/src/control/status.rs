//! Reads the state of a whole gateway, for `equic gateway status`.

use serde::Serialize;

use super::members::Member;
use super::{Adaptive, Control, CounterRow, Interface, JoinedServer, Report, Tallies};
use crate::abi;
use crate::config::{
    Config, Listen, ServiceConfig, from_c_name, overrides_from_abi, service_from_abi,
};
use crate::error::Result;
use crate::ledger::header::open_connections;
use crate::quantity::{Rate, format_duration};
use crate::sys;

/// The state of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The gateway's name.
    pub name: String,
    /// The kernel's ID of the XDP program.
    pub program_id: u32,
    /// Version of the interface between program and user space.
    pub abi_version: u32,
    /// The process that manages the gateway.
    pub owner: Owner,
    /// Seconds since the gateway was loaded.
    pub uptime_s: f64,
    /// True if this is a dry run, in which nothing is dropped.
    pub dry_run: bool,
    /// Time for which a server's counts remain valid after its last heartbeat.
    pub lease: String,
    /// Rate of drop events per CPU.
    pub events: Rate,
    /// Interfaces to which the gateway is attached.
    pub interfaces: Vec<Interface>,
    /// Directory in which the gateway is pinned. If it is `None`, the gateway ends with its
    /// process.
    pub pin: Option<String>,
    /// The services.
    pub services: Vec<ServiceStatus>,
    /// The servers that have joined the gateway.
    pub ledgers: Vec<LedgerStatus>,
    /// Live servers that have joined, but whose ledgers this process lacks the privilege to read.
    /// Their connections count, but are missing in `ledgers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<JoinedServer>,
    /// The gateway's tables, with their numbers of entries.
    pub tables: Vec<TableStatus>,
    /// Counts of events that are not verdicts.
    pub tallies: Tallies,
    /// Report of the process that manages the gateway. `None` if it publishes no report.
    pub report: Option<Report>,
}

/// The process that manages a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// ID of the process, in its pid namespace.
    pub pid: u32,
    /// True if the process is running, as far as this pid namespace can see.
    pub alive: bool,
}

/// Settings and totals of one service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServiceStatus {
    /// Its index.
    pub index: u32,
    /// The settings of the service, as in the configuration.
    #[serde(flatten)]
    pub config: ServiceConfig,
    /// With `retry = "adaptive"`: whether the service currently requires Retry tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// Number of packets to the service.
    pub packets: u64,
    /// Number of UDP payload bytes in these packets.
    pub bytes: u64,
    /// Number of packets that were dropped. Answered packets are not counted.
    pub dropped: u64,
    /// Number of packets that were answered in the server's name.
    pub answered: u64,
    /// Number of packets whose verdict was a drop. In a dry run, it is larger than `dropped`.
    pub would_drop: u64,
    /// Numbers of packets by reason.
    pub verdicts: Vec<CounterRow>,
}

/// One server that has joined a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerStatus {
    /// Index of the server's slot.
    pub slot: u32,
    /// The name that the server gave when it joined: printable ASCII, at most 31 characters.
    pub name: String,
    /// Process ID of the server. For a server at the socket, it was reported by the kernel.
    pub pid: u32,
    /// User ID of the server when it joined.
    pub uid: u32,
    /// True if the server joined through the gateway's socket. In that case, the kernel reported
    /// pid and uid.
    pub socket: bool,
    /// True if the server declared that it checks the tokens of the gateway's Retry packets.
    pub keys: bool,
    /// True if the server declared that the gateway can verify its connection IDs.
    pub ids: bool,
    /// The services for which the server's counts are valid, or `None` for all services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// True if the server's process is running, as far as this pid namespace can see.
    pub alive: bool,
    /// True if the server's counts are valid, because its last heartbeat is younger than the lease.
    pub counts: bool,
    /// Milliseconds since the server's last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Open connections.
    pub connections: u64,
    /// Number of sources that have connections to the server.
    pub sources: u64,
    /// Number of connections opened since the server joined.
    pub opened: u64,
    /// Number of connections since the server joined for which the ledger had no slot. No quota
    /// counts them.
    pub overflow: u64,
}

/// Number of entries and capacity of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableStatus {
    /// The table's name.
    pub name: &'static str,
    /// Number of entries in the table.
    pub entries: u64,
    /// Maximum number of entries.
    pub capacity: u64,
}

impl Control {
    /// Returns the whole state of the gateway.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails, and [`crate::Error::NotPermitted`] without
    /// `CAP_SYS_ADMIN`.
    pub fn status(&self) -> Result<Status> {
        let control = self.maps.control.read();
        let counted = self.counted()?;
        let table = |name, entries: u64, capacity: u32| TableStatus {
            name,
            entries,
            capacity: capacity.into(),
        };
        let lists = self.list_counts()?;
        let members = self.members()?;
        let unreadable = self.unreadable_besides(&members)?;
        let ledgers = self.statuses(&members);
        let slots = (self.maps.load.ledger_mask + 1) * abi::EQUIC_SLOTS;
        let used = ledgers.iter().map(|ledger| ledger.sources).max().unwrap_or(0);
        let tables = vec![
            table("sources", counted.sources as u64, self.maps.sources.max_entries()),
            table("handshakes", counted.handshakes as u64, self.maps.handshakes.max_entries()),
            table("prefixes", counted.prefixes as u64, self.maps.prefixes.max_entries()),
            table("ledger slots (fullest)", used, slots),
            table("acl4", lists.deny_v4 + lists.allow_v4, self.maps.acl4.max_entries()),
            table("acl6", lists.deny_v6 + lists.allow_v6, self.maps.acl6.max_entries()),
        ];
        Ok(Status {
            name: from_c_name(&control.name),
            program_id: self.program,
            abi_version: control.version,
            owner: Owner {
                pid: control.owner_pid,
                alive: sys::alive(control.owner_pid, control.owner_start_ticks),
            },
            uptime_s: sys::monotonic_ns().saturating_sub(control.created_ns) as f64 / 1e9,
            dry_run: control.dry_run != 0,
            lease: format_duration(std::time::Duration::from_nanos(control.lease_ns)),
            events: Rate::from_abi(control.events),
            interfaces: self.interfaces()?,
            pin: self.pin().map(|path| path.display().to_string()),
            services: self.services_with(&counted.rows)?,
            ledgers,
            unreadable,
            tables,
            tallies: counted.tallies,
            report: self.report(),
        })
    }

    /// Returns the servers of the gateway, each with slot, process ID and name. The call is cheap,
    /// because it does not open the ledgers. So it includes servers whose ledgers this process may
    /// not read.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn servers(&self) -> Result<Vec<(u32, u32, String)>> {
        let records = self.records()?;
        let name = |record: &abi::equic_member| from_c_name(&record.name);
        Ok(records.iter().map(|(slot, record)| (*slot, record.pid, name(record))).collect())
    }

    /// Returns the servers of the gateway, with the contents of their ledgers.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails, and [`crate::Error::NotPermitted`] without
    /// `CAP_SYS_ADMIN`.
    pub fn ledgers(&self) -> Result<Vec<LedgerStatus>> {
        Ok(self.statuses(&self.members()?))
    }

    fn statuses(&self, members: &[Member]) -> Vec<LedgerStatus> {
        members
            .iter()
            .map(|member| LedgerStatus {
                slot: member.slot,
                name: from_c_name(&member.record.name),
                pid: member.record.pid,
                uid: member.record.uid,
                socket: member.record.flags & abi::EQUIC_MEMBER_SOCKET != 0,
                keys: member.record.flags & abi::EQUIC_MEMBER_KEYS != 0,
                ids: member.record.flags & abi::EQUIC_MEMBER_IDS != 0,
                services: self.permitted(member.record.barred),
                alive: member.alive,
                counts: member.counts,
                heartbeat_age_ms: member.age_ns / 1_000_000,
                // The server writes these values. They are bounded so that their sums do not
                // overflow.
                connections: open_connections(&member.header).min(u32::MAX.into()),
                sources: member.memory.entries().count() as u64,
                opened: member.header.opened.min(1 << 48),
                overflow: member.header.overflow.min(1 << 48),
            })
            .collect()
    }

    /// Returns the names of the services outside the quota groups in the bit mask `barred`. Returns
    /// `None` if all services are outside of them.
    fn permitted(&self, barred: u64) -> Option<Vec<String>> {
        let services = self.maps.services.read();
        let known = services.iter().take_while(|service| service.name[0] != 0);
        let may = |service: &&abi::equic_service| barred >> (service.group & 63) & 1 == 0;
        let named = known.clone().filter(may).map(|s| from_c_name(&s.name)).collect::<Vec<_>>();
        (named.len() < known.count()).then_some(named)
    }

    /// Returns the services with their current settings.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn services(&self) -> Result<Vec<ServiceConfig>> {
        let listeners = self.listeners()?;
        let services = self.maps.services.read();
        let overrides = self.maps.overrides.read();
        let live = services.iter().take_while(|service| service.name[0] != 0);
        let groups: Vec<u32> = live.clone().map(|service| service.group).collect();
        Ok(live
            .enumerate()
            .map(|(index, service)| {
                let mut config = service_from_abi(service);
                config.overrides = overrides_from_abi(index as u32, &overrides);
                let own = listeners.iter().filter(|(_, of)| *of == index).map(|(addr, _)| *addr);
                config.listen = joined(own.collect());
                // The maps do not contain the group's name in the configuration, so the name of its
                // first service is used.
                let shared = groups.iter().filter(|group| **group == service.group).count() > 1;
                config.group = shared.then(|| self.service_name(service.group));
                config
            })
            .collect())
    }

    /// Returns a configuration that recreates this gateway. Settings that the maps do not contain
    /// have their defaults.
    pub(super) fn config(&self) -> Result<Config> {
        Ok(Config { services: self.services()?, ..Config::default() })
    }

    fn services_with(&self, rows: &[CounterRow]) -> Result<Vec<ServiceStatus>> {
        let adaptive = self.adaptive();
        let services = self.config()?.services.into_iter().enumerate();
        Ok(services
            .map(|(index, config)| {
                let adaptive = adaptive.get(index).copied().flatten();
                let index = index as u32;
                let verdicts: Vec<CounterRow> =
                    rows.iter().filter(|row| row.service_index == index).cloned().collect();
                ServiceStatus {
                    index,
                    config,
                    adaptive,
                    packets: verdicts.iter().map(|row| row.packets).sum(),
                    bytes: verdicts.iter().map(|row| row.bytes).sum(),
                    dropped: verdicts.iter().map(|row| row.dropped).sum(),
                    answered: verdicts.iter().map(|row| row.answered).sum(),
                    would_drop: verdicts
                        .iter()
                        .filter(|r| r.reason.drops())
                        .map(|r| r.packets)
                        .sum(),
                    verdicts,
                }
            })
            .collect())
    }
}

/// Joins the wildcard addresses of both families with the same port into a bare port.
fn joined(addresses: Vec<std::net::SocketAddr>) -> Vec<Listen> {
    let both = |port: u16| {
        let any = |v4: bool| {
            addresses
                .iter()
                .any(|a| a.ip().is_unspecified() && a.port() == port && a.is_ipv4() == v4)
        };
        any(true) && any(false)
    };
    let mut listen: Vec<Listen> = Vec::new();
    for addr in &addresses {
        let one = if addr.ip().is_unspecified() && both(addr.port()) {
            Listen::Port(addr.port())
        } else {
            Listen::Addr(*addr)
        };
        if !listen.contains(&one) {
            listen.push(one);
        }
    }
    listen
}
