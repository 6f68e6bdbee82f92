//! Binds a ledger (a server's connection counts) to the gateway that reads it, and moves it to the
//! next gateway with all open connections.
//!
//! A [`GatewayBinding`] is a table of counts together with the services and settings of the gateway
//! that reads it. When another process's gateway is replaced by one with new maps, the ledger is
//! bound to that successor. Every operation holds a read lock on the binding. The move holds the
//! write lock and [carries](GatewayBinding::carry) the counts over.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::event::Listeners;
use super::membership::Membership;
use super::source::Source;
use super::table::{Held, Table};
use crate::abi;
use crate::config::from_c_name;
use crate::control::Control;
use crate::error::Result;
use crate::key_ring::RingAccess;
use crate::overrides::{Overrides, connections_limit};
use crate::services::Services;
use crate::socket::client::ask_count;
use crate::socket::lists::Lists;
use crate::socket::protocol::CountQuery;
use crate::sync::{Mutex, RwLock, RwLockReadGuard, lock};
use crate::sys;
use crate::sys::map::first_value_as;
use crate::sys::region::{Shared, atomic};

/// Maximum age of a server's copies of its gateway's settings.
const FRESH: Duration = Duration::from_millis(100);

/// Index of a service, and of its quota group, in the gateway of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceNumber {
    pub(crate) index: usize,
    pub(crate) group: u32,
}

/// The gateway's access to a ledger.
#[derive(Debug)]
pub(crate) enum BindingKind {
    /// The ledger is only in memory. No gateway reads it.
    InMemory,
    /// This process put the ledger into the gateway's map.
    Placed(Membership),
    /// The gateway put the ledger into its map. It removes the ledger when the server's connection
    /// to the socket ends.
    Socket(SocketBinding),
}

/// A ledger that was received over a gateway's socket.
#[derive(Debug)]
pub(crate) struct SocketBinding {
    pub(crate) ledger: u32,
    /// Path of the gateway's socket.
    pub(crate) path: PathBuf,
    pub(crate) link: Mutex<Arc<OwnedFd>>,
    pub(crate) lists: Lists,
    /// Descriptors of the maps with the gateway's control data, services and overrides. These maps
    /// are read-only for this process, and the kernel does not allow mapping them. So the binding
    /// has copies, which the heartbeat thread [refreshes](GatewayBinding::refresh).
    pub(crate) settings: [OwnedFd; 3],
}

/// A table of counts, and the gateway that reads it.
#[derive(Debug)]
pub(crate) struct GatewayBinding {
    /// Number of this binding of the ledger, counted from 0.
    pub(crate) generation: u64,
    /// First generation (number of a binding) whose open connections are included in this binding's
    /// counts. Connections from earlier generations are not included.
    pub(crate) carried_from: u64,
    pub(crate) table: Table,
    pub(crate) services: Arc<Shared<Services>>,
    pub(crate) overrides: Arc<Shared<Overrides>>,
    /// Control data of the gateway. `None` for a ledger in memory.
    pub(crate) control: Option<Arc<Shared<abi::equic_control>>>,
    pub(crate) kind: BindingKind,
    /// Access to the keys of the gateway's tokens, if this server requested and received them.
    pub(crate) ring: RingAccess,
    /// The kernel's ID of the gateway's program, or `None` if it is unknown.
    pub(crate) program: Option<u32>,
    /// The gateway's maps, if this process has them. They are needed to read other processes'
    /// ledgers.
    pub(crate) others: Option<Control>,
}

/// State that all handles and threads of a ledger share.
#[derive(Debug)]
pub(crate) struct LedgerState {
    binding: RwLock<GatewayBinding>,
    pub(crate) listeners: Listeners,
}

impl LedgerState {
    pub(crate) fn new(binding: GatewayBinding) -> LedgerState {
        LedgerState { binding: RwLock::new(binding), listeners: Listeners::default() }
    }

    pub(crate) fn binding(&self) -> RwLockReadGuard<'_, GatewayBinding> {
        // A poisoned lock is harmless, because no code panics between two parts of a change.
        self.binding.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Continues to count for the same gateway after a reconnect. `link` is the new connection, and
    /// `ring` is the key ring that arrived over it.
    pub(crate) fn keep(&self, link: OwnedFd, ring: RingAccess) {
        let mut binding = self.binding.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let BindingKind::Socket(socket) = &binding.kind {
            *lock(&socket.link) = Arc::new(link);
        }
        binding.ring = ring;
    }

    /// Moves to the gateway that `next` joins. Returns true if that gateway counts the open
    /// connections.
    ///
    /// During the move, no other thread can use the binding. As soon as the next gateway lists this
    /// server, it may drop packets to connection IDs made with the old gateway's keys.
    pub(crate) fn bind(&self, next: impl FnOnce() -> Result<GatewayBinding>) -> Result<bool> {
        let mut binding = self.binding.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut next = next()?;
        next.generation = binding.generation + 1;
        let carried = next.carry(&binding);
        next.carried_from = if carried { binding.carried_from } else { next.generation };
        *binding = next;
        Ok(carried)
    }
}

impl GatewayBinding {
    pub(crate) fn first(
        table: Table,
        (services, overrides): (Arc<Shared<Services>>, Arc<Shared<Overrides>>),
        control: Option<Arc<Shared<abi::equic_control>>>,
        kind: BindingKind,
    ) -> GatewayBinding {
        GatewayBinding {
            generation: 0,
            carried_from: 0,
            table,
            services,
            overrides,
            control,
            kind,
            ring: RingAccess::None,
            program: None,
            others: None,
        }
    }

    /// Returns the name of the gateway. It is empty for a ledger in memory.
    pub(crate) fn gateway_name(&self) -> String {
        self.control.as_ref().map_or_else(String::new, |c| from_c_name(&c.read().name))
    }

    /// Returns the service with this name, if the gateway has one.
    pub(crate) fn number(&self, name: &str) -> Option<ServiceNumber> {
        let services = self.services.read();
        let index = services
            .iter()
            .take_while(|service| service.name[0] != 0)
            .position(|service| from_c_name(&service.name) == name)?;
        Some(ServiceNumber { index, group: services[index].group })
    }

    fn service(&self, index: usize) -> *mut abi::equic_service {
        assert!(index < abi::EQUIC_MAX_SERVICES as usize, "services are numbered from 0 to 63");
        // SAFETY: `index` is inside the array, as the assertion has just checked.
        unsafe { self.services.pointer().cast::<abi::equic_service>().add(index) }
    }

    /// Returns the maximum number of connections for the source with this address.
    pub(crate) fn limit_for(&self, service: usize, ip: IpAddr) -> u32 {
        let has_overrides = atomic!(AtomicU32, self.service(service), overrides).load(Relaxed) != 0;
        let find = || connections_limit(&self.overrides.read(), service, ip);
        has_overrides.then(find).flatten().unwrap_or_else(|| self.limit(service))
    }

    pub(crate) fn limit(&self, service: usize) -> u32 {
        atomic!(AtomicU32, self.service(service), max_connections).load(Relaxed)
    }

    /// Returns true if the server must close connections over the limit of this service.
    pub(crate) fn enforces(&self, service: usize) -> bool {
        let flags = atomic!(AtomicU32, self.service(service), flags).load(Relaxed);
        let policy = atomic!(AtomicU8, self.service(service), policy).load(Relaxed);
        !self.dry_run()
            && flags & abi::EQUIC_SERVICE_DRY_RUN == 0
            && u32::from(policy) != abi::EQUIC_POLICY_STRICT
    }

    fn dry_run(&self) -> bool {
        self.control.as_ref().is_some_and(|control| {
            atomic!(AtomicU32, control.pointer(), dry_run).load(Relaxed) != 0
        })
    }

    /// Returns the time without a heartbeat, in nanoseconds, after which the counts of a ledger
    /// become invalid.
    pub(crate) fn lease_ns(&self) -> u64 {
        let none = u64::MAX;
        self.control
            .as_ref()
            .map_or(none, |control| atomic!(AtomicU64, control.pointer(), lease_ns).load(Relaxed))
    }

    pub(crate) fn gateway_alive(&self) -> bool {
        self.control.as_ref().is_none_or(|control| {
            let control = control.read();
            sys::alive(control.owner_pid, control.owner_start_ticks)
        })
    }

    /// Returns true if the gateway stays attached when its process ends.
    pub(crate) fn is_pinned(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.read().pin[0] != 0)
    }

    /// Returns the index of the ledger's slot in the gateway, or `None` for a ledger in memory.
    pub(crate) fn slot(&self) -> Option<u32> {
        match &self.kind {
            BindingKind::InMemory => None,
            BindingKind::Placed(membership) => Some(membership.slot()),
            BindingKind::Socket(socket) => {
                let members = self.control.as_ref()?.read().members;
                members.iter().position(|member| member.ledger == socket.ledger).map(|at| at as u32)
            }
        }
    }

    pub(crate) fn header(&self) -> abi::equic_ledger_header {
        self.table.memory().read_header()
    }

    /// Refreshes the copies of the gateway's settings, if there are any. Returns the time for which
    /// they are valid.
    pub(crate) fn refresh(&self) -> Option<Duration> {
        let BindingKind::Socket(socket) = &self.kind else { return None };
        let [control, services, overrides] = &socket.settings;
        let read = || -> io::Result<()> {
            if let Some(copy) = &self.control {
                copy.write(&first_value_as(control.as_fd())?);
            }
            self.services.write(&first_value_as(services.as_fd())?);
            self.overrides.write(&first_value_as(overrides.as_fd())?);
            Ok(())
        };
        if let Err(error) = read() {
            tracing::debug!(%error, "cannot read the gateway's settings");
        }
        Some(FRESH)
    }

    /// Writes the heartbeat of this process.
    pub(crate) fn beat(&self) {
        let header = self.table.memory().header();
        atomic!(AtomicU64, header, heartbeat_ns).store(sys::monotonic_ns(), Relaxed);
    }

    pub(crate) fn opened(&self, source: Source) -> Option<(Held, u32)> {
        self.came();
        let added = self.add(source);
        self.table.note_opened(&source);
        added
    }

    pub(crate) fn add(&self, source: Source) -> Option<(Held, u32)> {
        let added = self.table.add(source);
        if added.is_none() {
            atomic!(AtomicU64, self.table.memory().header(), overflow).fetch_add(1, Relaxed);
        }
        added
    }

    /// Returns the number of connections that a source holds in other processes, summed in the same
    /// way as in the XDP program. It takes one or two system calls per process. A ledger that this
    /// process may not read counts as 0.
    pub(crate) fn count_elsewhere(&self, source: Source) -> u32 {
        let count = match &self.kind {
            BindingKind::InMemory => Ok(0),
            BindingKind::Placed(membership) => self.others.as_ref().map_or(Ok(0), |control| {
                control.connections_besides(source, membership.ledger_id())
            }),
            BindingKind::Socket(socket) => {
                ask_count(&socket.path, CountQuery { ledger: socket.ledger, source })
            }
        };
        count.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot count a source's connections in other processes");
            0
        })
    }

    /// Counts a connection as opened. It was opened now, or it was already open and is counted in
    /// this binding from now on.
    pub(crate) fn came(&self) {
        atomic!(AtomicU64, self.table.memory().header(), opened).fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self) {
        atomic!(AtomicU64, self.table.memory().header(), closed).fetch_add(1, Relaxed);
    }

    /// Copies the counts of the binding `from`, which must not change during the call. Returns
    /// false if that is impossible, because the counts of `from` are not detailed enough. That is
    /// the case if this gateway has longer source prefixes, or splits a quota group.
    fn carry(&mut self, from: &GatewayBinding) -> bool {
        if !self.table.keying().covers(from.table.keying()) {
            return false;
        }
        let services = from.services.read();
        let mut groups: HashMap<u32, u32> = HashMap::new();
        for service in services.iter().take_while(|service| service.name[0] != 0) {
            let Some(here) = self.number(&from_c_name(&service.name)) else { continue };
            if *groups.entry(service.group).or_insert(here.group) != here.group {
                return false;
            }
        }
        let mut counts: HashMap<Source, u32> = HashMap::new();
        for entry in from.table.memory().entries() {
            let Some(group) = groups.get(&entry.source.group) else { continue };
            let source = Source { group: *group, ..self.table.keying().cut(entry.source) };
            let count = counts.entry(source).or_default();
            *count = count.saturating_add(entry.count);
        }
        let mut connections = 0;
        for (source, count) in counts {
            self.table.set(source, count);
            connections += u64::from(self.table.count(source));
        }
        let (before, header) = (from.header(), self.table.memory().header());
        let opened = before.opened.max(connections);
        atomic!(AtomicU64, header, opened).store(opened, Relaxed);
        atomic!(AtomicU64, header, closed).store(opened - connections, Relaxed);
        atomic!(AtomicU64, header, overflow).store(before.overflow, Relaxed);
        true
    }
}

impl SocketBinding {
    pub(crate) fn link(&self) -> Arc<OwnedFd> {
        Arc::clone(&lock(&self.link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::error::Error;
    use crate::ledger::Ledger;

    #[test]
    fn ledger_binding_is_locked_while_the_next_gateway_is_joined() {
        let ledger = Ledger::in_memory(&Config::for_port(4433)).unwrap();
        let core = &ledger.inner.core;
        let joined = core.bind(|| {
            assert!(core.binding.try_read().is_err(), "IDs could be made with the old keys");
            Err(Error::system("joining", io::Error::other("no place is free")))
        });
        assert!(joined.is_err(), "it is told");
        let binding = core.binding.try_read().expect("it is there for all again");
        assert_eq!(binding.generation, 0, "the one before goes on");
    }
}
