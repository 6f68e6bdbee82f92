//! State of the whole gateway, for `equic gateway status`.

use serde::Serialize;

use super::members::Member;
use super::{Adaptive, Control, CounterRow, Interface, Report, Tallies};
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
    /// The kernel's id of the program.
    pub program_id: u32,
    /// Version of the interface between program and user space.
    pub abi_version: u32,
    /// The process that loaded it.
    pub owner: Owner,
    /// Seconds since it was loaded.
    pub uptime_s: f64,
    /// True if this is a dry run, in which nothing is dropped.
    pub dry_run: bool,
    /// Time for which a server's counts remain valid after its last heartbeat.
    pub lease: String,
    /// Rate of drop events per CPU.
    pub events: Rate,
    /// Interfaces that the gateway is attached to.
    pub interfaces: Vec<Interface>,
    /// Directory that the gateway is pinned in. `None`: it ends with its process.
    pub pin: Option<String>,
    /// The services.
    pub services: Vec<ServiceStatus>,
    /// The servers that have joined it.
    pub ledgers: Vec<LedgerStatus>,
    /// The gateway's tables, with their fill.
    pub tables: Vec<TableStatus>,
    /// Counts of events other than verdicts.
    pub tallies: Tallies,
    /// Report of the process that manages the gateway. `None` if it publishes no report.
    pub report: Option<Report>,
}

/// The process that loaded a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Its process id, in its pid namespace.
    pub pid: u32,
    /// True if the process is running, as far as this pid namespace can see.
    pub alive: bool,
}

/// One service: settings and totals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServiceStatus {
    /// Its index.
    pub index: u32,
    /// Its settings, as in the configuration.
    #[serde(flatten)]
    pub config: ServiceConfig,
    /// With `retry = "adaptive"`: whether it currently asks for proof of addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// Packets to the service.
    pub packets: u64,
    /// Their bytes of UDP payload.
    pub bytes: u64,
    /// Packets that were dropped. Answers are not drops.
    pub dropped: u64,
    /// Packets that were answered in the server's name.
    pub answered: u64,
    /// Packets whose verdict was a drop: more than `dropped` in a dry run.
    pub would_drop: u64,
    /// Counts by reason.
    pub verdicts: Vec<CounterRow>,
}

/// One server of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerStatus {
    /// Index of the server's slot.
    pub slot: u32,
    /// The name that the server gave when it joined: printable ASCII, at most 31 characters.
    pub name: String,
    /// Its process id. For a server at the socket, the kernel reported it.
    pub pid: u32,
    /// Its user when it joined.
    pub uid: u32,
    /// True if the server joined through the gateway's socket. Then the kernel reported pid and
    /// uid.
    pub socket: bool,
    /// True if it declared that it checks the tokens of the gateway's Retry packets.
    pub keys: bool,
    /// True if it declared that the gateway can verify its connection IDs.
    pub ids: bool,
    /// The services that it may count for. `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// True if the server's process is running, as far as this pid namespace can see.
    pub alive: bool,
    /// True if the server's counts are valid: its last heartbeat is younger than the lease.
    pub counts: bool,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Open connections.
    pub connections: u64,
    /// Sources with connections.
    pub sources: u64,
    /// Connections opened since it joined.
    pub opened: u64,
    /// Connections that found no slot since it joined.
    pub overflow: u64,
}

/// Entries and capacity of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableStatus {
    /// The table's name.
    pub name: &'static str,
    /// Entries in it.
    pub entries: u64,
    /// Entries it has room for.
    pub capacity: u64,
}

impl Control {
    /// Returns the whole state of the gateway.
    ///
    /// # Errors
    /// The kernel's error if a call fails; [`crate::Error::NotPermitted`] without `CAP_SYS_ADMIN`.
    pub fn status(&self) -> Result<Status> {
        let control = self.maps.control.read();
        let counted = self.counted()?;
        let table = |name, entries: u64, capacity: u32| TableStatus {
            name,
            entries,
            capacity: capacity.into(),
        };
        let lists = self.list_counts()?;
        let ledgers = self.ledgers()?;
        let slots = (self.maps.load.ledger_mask + 1) * abi::EQUIC_SLOTS;
        let used = ledgers.iter().map(|ledger| ledger.sources).max().unwrap_or(0);
        let tables = vec![
            table("sources", counted.sources as u64, self.maps.sources.max_entries()),
            table("handshakes", counted.handshakes as u64, self.maps.handshakes.max_entries()),
            table("prefixes", counted.prefixes as u64, self.maps.prefixes.max_entries()),
            table("ledger (fullest)", used, slots),
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
            tables,
            tallies: counted.tallies,
            report: self.report(),
        })
    }

    /// Returns the servers of the gateway: slot, process id and name. Cheap, because it does not
    /// search the ledgers.
    ///
    /// # Errors
    /// The kernel's error if a call fails; [`crate::Error::NotPermitted`] without `CAP_SYS_ADMIN`.
    pub fn servers(&self) -> Result<Vec<(u32, u32, String)>> {
        let members = self.members()?;
        let name = |member: &Member| from_c_name(&member.record.name);
        Ok(members.iter().map(|member| (member.slot, member.record.pid, name(member))).collect())
    }

    /// Returns the servers of the gateway.
    ///
    /// # Errors
    /// The kernel's error if a call fails; [`crate::Error::NotPermitted`] without `CAP_SYS_ADMIN`.
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
                // The server writes these values. They are bounded, so that their sums do not
                // overflow.
                connections: open_connections(&member.header).min(u32::MAX.into()),
                sources: member.memory.entries().count() as u64,
                opened: member.header.opened.min(1 << 48),
                overflow: member.header.overflow.min(1 << 48),
            })
            .collect()
    }

    /// Returns the services outside these quota groups, or `None` if that is all of them.
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
    /// The kernel's error if a call fails.
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
                // The group's name in the configuration is not stored. Its first service's name is
                // used.
                let shared = groups.iter().filter(|group| **group == service.group).count() > 1;
                config.group = shared.then(|| self.service_name(service.group));
                config
            })
            .collect())
    }

    /// Returns a configuration that recreates this gateway, as far as the maps contain it.
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

/// Turns the wildcard addresses of both families with the same port back into a bare port.
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
