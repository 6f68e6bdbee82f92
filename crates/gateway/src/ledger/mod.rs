//! The ledger: the number of connections of each source, in memory shared with the XDP program.
//!
//! A server opens a [`Ledger`]: with `Gateway::ledger` in the process that loaded the gateway, with
//! [`Ledger::connect`] or `Control::join` in any other. Then it opens the [`Service`] that it runs,
//! and holds one [`Guard`] per connection whose handshake is complete. Opening and closing a
//! connection takes a hash, a short lock and a few stores, but no system call and no allocation.
//!
//! * `table.rs`: the slots and their order of stores (docs/policy.md, "The ledger"). Start reading
//!   there;
//! * `source.rs`: the source and the hash of an address;
//! * `membership.rs`: a slot among the ledgers of a running gateway, and the lease;
//! * `join.rs`: taking a slot, with the options in `options.rs`; `header.rs`: the header of a ledger;
//! * `binding.rs`: the gateway that a ledger currently counts for, and the move to the next one;
//! * `follow.rs`: finding the next gateway; `event.rs`: reporting it;
//! * `ids.rs`: connection IDs that the gateway can verify.

pub(crate) mod binding;
pub(crate) mod death;
pub(crate) mod event;
pub(crate) mod follow;
pub(crate) mod header;
pub(crate) mod ids;
mod join;
pub(crate) mod membership;
pub(crate) mod options;
pub(crate) mod source;
pub(crate) mod table;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equic_token::KeyRing;

use self::binding::{BindingKind, GatewayBinding, LedgerState, ServiceNumber};
use self::event::JoinEvent;
use self::header::{open_connections, write_header};
use self::membership::this_process;
use self::options::JoinOptions;
use self::source::{Keying, Source};
use self::table::{Held, Memory, Table};
use crate::config::{Config, from_c_name};
use crate::control::{Control, GatewayChoice};
use crate::error::{Error, Result};
use crate::periodic::Periodic;
use crate::services::{service_names, services_of};
use crate::socket::client::JoinTarget;
use crate::sync::RwLockReadGuard;
use crate::sync::atomic::AtomicU64;
use crate::sys;
use crate::sys::region::Shared;

/// The connection counts of one process. Cloning is cheap, and all clones share the same counts.
///
/// While the ledger exists, a thread writes a heartbeat for the XDP program every quarter of a
/// lease. The counts are removed when the last clone, [`Service`] and [`Guard`] are dropped.
///
/// A ledger does not survive `fork`. A child process that serves connections must join the gateway
/// itself.
#[derive(Debug, Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Both threads must end before the slot is released.
    _heartbeat: Option<Periodic>,
    _follower: Option<Follower>,
    core: Arc<LedgerState>,
}

/// The thread that finds the next gateway.
#[derive(Debug)]
#[expect(dead_code, reason = "the threads end when this value is dropped")]
enum Follower {
    Place(Periodic),
    Socket(crate::socket::client::SocketKeeper),
}

impl Ledger {
    /// Creates a ledger that no gateway reads. It is for quotas in user space, and for tests.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if the configuration is invalid, or the system's error if there is
    /// not enough memory.
    pub fn in_memory(config: &Config) -> Result<Ledger> {
        config.validate()?;
        let short = |error| Error::system("creating a ledger", error);
        let load = config.gateway.to_load(sys::random_u64().map_err(short)?, None);
        let keying = Keying::new(&load);
        let memory = Arc::new(Memory::anonymous(keying.buckets()).map_err(short)?);
        write_header(
            &memory,
            &config.gateway.name,
            keying.buckets(),
            &this_process(&config.gateway.name),
        );
        let services = Shared::anonymous().map_err(short)?;
        services.write(&services_of(config));
        let overrides = Shared::anonymous().map_err(short)?;
        overrides.write(&crate::overrides::in_memory(&config.services));
        let settings = (Arc::new(services), Arc::new(overrides));
        let binding = GatewayBinding::first(
            Table::new(memory, keying),
            settings,
            None,
            BindingKind::InMemory,
        );
        let core = Arc::new(LedgerState::new(binding));
        Ok(Ledger { inner: Arc::new(Inner { _heartbeat: None, _follower: None, core }) })
    }

    /// Creates a ledger in the maps of a running gateway. For a gateway of another process,
    /// `chosen` says how it was selected. The next gateway is selected by the same rules.
    pub(crate) fn joined(
        binding: GatewayBinding,
        options: JoinOptions,
        control: &Control,
        chosen: Option<GatewayChoice>,
    ) -> Result<Ledger> {
        let core = Arc::new(LedgerState::new(binding));
        let _heartbeat = Some(heartbeat(&core)?);
        let follow = |chosen| follow::start(&core, options, control, chosen).map(Follower::Place);
        let _follower = chosen.map(follow).transpose()?;
        Ok(Ledger { inner: Arc::new(Inner { _heartbeat, _follower, core }) })
    }

    /// Joins the gateway at a Unix socket (`equic gateway run --socket`) without any privilege. The
    /// gateway creates the ledger and puts it into a slot. `options` is the server's name, or
    /// [`JoinOptions`]. If the server requests the gateway's key ring, the gateway sends the ring to
    /// users that may serve all its services. Other users join without it
    /// ([`Ledger::key_ring`]).
    ///
    /// When the gateway ends, this ledger automatically joins the next gateway at the same path,
    /// with all connections that are open at that time. Services and guards stay valid. (If the
    /// next gateway has longer source prefixes, or splits a group of services, it does not count
    /// connections that were opened earlier.)
    ///
    /// # Errors
    /// * [`Error::NoGatewaySocket`] if no process listens at the path;
    /// * [`Error::SocketRefused`] with the gateway's reason if it refuses this server;
    /// * [`Error::AbiVersion`] if the gateway is of another release;
    /// * [`Error::System`] for any other error of the system.
    pub fn connect(
        path: impl AsRef<std::path::Path>,
        options: impl Into<JoinOptions>,
    ) -> Result<Ledger> {
        Ok(Ledger::connect_as(path.as_ref(), options.into(), None)?.0)
    }

    /// Does the same as [`Ledger::connect`]. Also returns the service that has the address at which
    /// the server listens, or `None` if no service has it.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::connect`].
    pub fn connect_listening(
        path: impl AsRef<std::path::Path>,
        options: impl Into<JoinOptions>,
        address: SocketAddr,
    ) -> Result<(Ledger, Option<Service>)> {
        let (ledger, index) = Ledger::connect_as(path.as_ref(), options.into(), Some(address))?;
        let service = index.map(|index| ledger.service_at(index as usize)).transpose()?;
        Ok((ledger, service))
    }

    fn connect_as(
        path: &std::path::Path,
        options: JoinOptions,
        listens: Option<SocketAddr>,
    ) -> Result<(Ledger, Option<u32>)> {
        let who = JoinTarget { path: path.to_owned(), options, listens };
        let (binding, service) = crate::socket::client::join(&who)?;
        let core = Arc::new(LedgerState::new(binding));
        let heartbeat = heartbeat(&core)?;
        let link = crate::socket::client::SocketKeeper::start(who, Arc::clone(&core))?;
        let _follower = Some(Follower::Socket(link));
        let inner = Inner { _heartbeat: Some(heartbeat), _follower, core };
        Ok((Ledger { inner: Arc::new(inner) }, service))
    }

    /// Sets a callback that is called when the gateway ends, and when the ledger joins the next
    /// one. It replaces the previous callback. These events are also logged (`tracing`). If the
    /// gateway belongs to this process, there are no such events.
    ///
    /// A thread of the library calls the callback. The callback must not block for long, and must
    /// not drop the last handle of this ledger.
    pub fn notify(&self, listener: impl Fn(&JoinEvent) + Send + Sync + 'static) {
        self.inner.core.listeners.set(Arc::new(listener));
    }

    /// Returns the gateway's current key ring for Retry packets. It contains keys that were added
    /// recently, and does not contain retired keys. So read it for every token, or when a token's
    /// key is unknown. Reading it takes a system call.
    ///
    /// Returns `None` if this server did not request the ring from another process's gateway
    /// ([`TokenCheck::GatewayKeys`](crate::TokenCheck::GatewayKeys)), or may not have it. The ring is a secret, because its holder can make
    /// valid tokens.
    ///
    /// # Errors
    /// Returns [`Error::System`] if the ring cannot be read.
    pub fn key_ring(&self) -> Result<Option<KeyRing>> {
        self.binding().ring.read()
    }

    /// Returns the kernel's ID of the gateway's program at the time of joining. It changes with the
    /// move to the next gateway. Returns `None` for a ledger in memory, or one from a socket.
    pub fn program_id(&self) -> Option<u32> {
        self.binding().program
    }

    fn binding(&self) -> RwLockReadGuard<'_, GatewayBinding> {
        self.inner.core.binding()
    }

    /// Returns the service with this name.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchService`] with the names of all services if there is no such service.
    pub fn service(&self, name: &str) -> Result<Service> {
        let binding = self.binding();
        match binding.number(name) {
            Some(number) => Ok(self.service_of(&binding, name.to_owned(), number)),
            None => Err(Error::no_such_service(name, service_names(&binding.services.read()))),
        }
    }

    /// Returns the service with this index, in the order of the configuration.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchService`] with the names of all services if there is no such service.
    pub fn service_at(&self, index: usize) -> Result<Service> {
        let binding = self.binding();
        let services = binding.services.read();
        match services.get(index).filter(|service| service.name[0] != 0) {
            Some(service) => {
                let name = from_c_name(&service.name);
                Ok(self.service_of(&binding, name, ServiceNumber { index, group: service.group }))
            }
            None => Err(Error::no_such_service(&index.to_string(), service_names(&services))),
        }
    }

    fn service_of(&self, binding: &GatewayBinding, name: String, number: ServiceNumber) -> Service {
        let at = AtomicU64::new(packed(binding.generation, Some(number)));
        Service { inner: Arc::clone(&self.inner), named: Arc::new(Named { name, at }) }
    }

    /// Returns the names of the services, by index.
    pub fn service_names(&self) -> Vec<String> {
        service_names(&self.binding().services.read())
    }

    /// Returns the name of the gateway. It is empty for a ledger in memory.
    pub fn gateway_name(&self) -> String {
        self.binding().gateway_name()
    }

    /// Returns the number of open connections, summed over all services of this process.
    pub fn connections(&self) -> u64 {
        open_connections(&self.binding().header())
    }

    /// Returns the number of connections that were opened since this ledger was created. It
    /// restarts at 0 when the next gateway cannot count the earlier connections.
    pub fn opened_total(&self) -> u64 {
        self.binding().header().opened
    }

    /// Returns the number of connections that were not counted because the ledger had no room,
    /// since this ledger was created. It restarts at 0 when the next gateway cannot count the
    /// earlier connections.
    pub fn overflow(&self) -> u64 {
        self.binding().header().overflow
    }

    /// Returns the index of the ledger's slot in the gateway, or `None` for a ledger in memory.
    pub fn slot(&self) -> Option<u32> {
        self.binding().slot()
    }

    /// Returns true if the process that manages the gateway is running. If it is not running, a
    /// gateway that is not pinned is detached and no longer reads this ledger. Always true for a
    /// ledger in memory.
    pub fn gateway_alive(&self) -> bool {
        self.binding().gateway_alive()
    }

    /// Returns true if the gateway's allow list exempts an address from quotas. Only a ledger from
    /// a gateway's socket can look this up. Returns false for other ledgers, and if the lists
    /// cannot be read. Takes one or two system calls.
    pub fn exempts(&self, ip: IpAddr) -> bool {
        match &self.binding().kind {
            BindingKind::Socket(socket) => socket.lists.exempts(ip),
            _ => false,
        }
    }
}

/// Starts the heartbeat thread. The thread also checks that the ledger is still in its slot. If the
/// process was stopped for longer than its lease, others may have assumed that it was dead. (For a
/// ledger from a socket, the gateway checks that.)
fn heartbeat(core: &Arc<LedgerState>) -> Result<Periodic> {
    let core = Arc::clone(core);
    Periodic::start("equic-heartbeat", move || {
        let binding = core.binding();
        binding.beat();
        if let BindingKind::Placed(membership) = &binding.kind
            && let Err(error) = membership.renew()
        {
            tracing::warn!(%error, "the gateway cannot count this server's connections");
        }
        let fresh = binding.refresh().unwrap_or(Duration::from_secs(15));
        Duration::from_nanos(binding.lease_ns() / 4).clamp(Duration::from_millis(5), fresh)
    })
}

/// One service, for counting a server's connections to it. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
    named: Arc<Named>,
}

#[derive(Debug)]
struct Named {
    name: String,
    /// The service's position in one binding to a gateway: the binding's generation, and the index
    /// and group of the service ([`packed`]). The service is looked up again if the binding has
    /// changed.
    at: AtomicU64,
}

/// Index that means that the service does not exist in this generation.
const ABSENT: u64 = 0xff;

/// Packs generation, index and group into a word. Index and group are below 64.
fn packed(generation: u64, number: Option<ServiceNumber>) -> u64 {
    let (index, group) = number.map_or((ABSENT, 0), |n| (n.index as u64, n.group.into()));
    generation << 16 | index << 8 | (group & 0xff)
}

/// Result of [`Service::increment`] for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Number of the source's connections in this process, including this one. 0 if `untracked` is
    /// set.
    pub count: u32,
    /// True if `count` exceeds the service's limit, by the same rules as [`Guard::over_limit`].
    pub over_limit: bool,
    /// True if the ledger had no room. In that case, this connection does not count towards the
    /// quota.
    pub untracked: bool,
}

impl Service {
    /// Returns the name of the service.
    pub fn name(&self) -> &str {
        &self.named.name
    }

    /// Returns the index of the service in the order of the configuration. Returns 0 if the gateway
    /// no longer has the service.
    pub fn index(&self) -> usize {
        let binding = self.inner.core.binding();
        self.number(&binding).map_or(0, |number| number.index)
    }

    /// Returns the current limit of connections per source. 0 means no limit. Some prefixes may
    /// have another limit: see [`Service::limit_for`].
    pub fn limit(&self) -> u32 {
        let binding = self.inner.core.binding();
        self.number(&binding).map_or(0, |number| binding.limit(number.index))
    }

    /// Returns the current limit of connections for the peer's source. 0 means no limit.
    pub fn limit_for(&self, peer: SocketAddr) -> u32 {
        let binding = self.inner.core.binding();
        self.number(&binding).map_or(0, |number| binding.limit_for(number.index, peer.ip()))
    }

    /// Returns the number of connections that the peer's source holds in this process.
    pub fn count(&self, peer: SocketAddr) -> u32 {
        let binding = self.inner.core.binding();
        self.source(&binding, peer.ip()).map_or(0, |source| binding.table.count(source))
    }

    /// Returns true if one more connection of the peer's source in this process would be
    /// [`Guard::over_limit`]. It is for servers that can refuse a client before the handshake. The
    /// address may be forged at that time, so the call changes no state.
    pub fn full(&self, peer: SocketAddr) -> bool {
        let binding = self.inner.core.binding();
        let count =
            self.source(&binding, peer.ip()).map_or(0, |source| binding.table.count(source));
        self.exceeds(&binding, peer.ip(), count.saturating_add(1))
    }

    /// Counts a connection until the guard is dropped. Call it when the handshake is complete. The
    /// peer's port is ignored.
    #[must_use = "the connection counts until this is dropped"]
    pub fn opened(&self, peer: SocketAddr) -> Guard {
        let binding = self.inner.core.binding();
        let ip = peer.ip();
        let Some(source) = self.source(&binding, ip) else {
            // The current gateway does not have this service, so the connection is only added to
            // the total.
            binding.came();
            let generation = binding.generation;
            let service = self.clone();
            return Guard { service, ip, held: None, generation, count: 0, elsewhere: 0 };
        };
        let (held, count) = binding.opened(source).unzip();
        let (generation, count) = (binding.generation, count.unwrap_or(0));
        Guard { service: self.clone(), ip, held, generation, count, elsewhere: 0 }
    }

    /// Counts a connection without a guard, for callers that know the peer when the connection
    /// closes. Every `increment` that is not untracked needs one [`Service::decrement`].
    pub fn increment(&self, peer: SocketAddr) -> ConnectionCount {
        let binding = self.inner.core.binding();
        let untracked = ConnectionCount { count: 0, over_limit: false, untracked: true };
        let Some(source) = self.source(&binding, peer.ip()) else { return untracked };
        match binding.opened(source) {
            Some((_, count)) => {
                let over_limit = self.exceeds(&binding, peer.ip(), count);
                ConnectionCount { count, over_limit, untracked: false }
            }
            None => {
                binding.closed();
                untracked
            }
        }
    }

    /// Reverts one [`Service::increment`] of the same source, and returns the remaining count.
    /// Returns `None` and changes nothing if the source holds no connection.
    pub fn decrement(&self, peer: SocketAddr) -> Option<u32> {
        let binding = self.inner.core.binding();
        let left = binding.table.remove_any(self.source(&binding, peer.ip())?)?;
        binding.closed();
        Some(left)
    }

    fn number(&self, binding: &GatewayBinding) -> Option<ServiceNumber> {
        let at = self.named.at.load(Relaxed);
        if at >> 16 == binding.generation {
            let (index, group) = (at >> 8 & 0xff, at & 0xff);
            return (index != ABSENT)
                .then_some(ServiceNumber { index: index as usize, group: group as u32 });
        }
        let number = binding.number(&self.named.name);
        self.named.at.store(packed(binding.generation, number), Relaxed);
        number
    }

    fn source(&self, binding: &GatewayBinding, ip: IpAddr) -> Option<Source> {
        self.number(binding).map(|number| binding.table.keying().source(ip, number.group))
    }

    /// Returns true if the service has a limit of connections for this address.
    fn limits(&self, binding: &GatewayBinding, ip: IpAddr) -> bool {
        self.number(binding).is_some_and(|number| binding.limit_for(number.index, ip) != 0)
    }

    /// Returns true if a server should close the connection that raised the source's count to
    /// `count`, because the count is over the limit. Returns false in a dry run, and with the
    /// policy `strict`, because then the XDP program drops the source's packets.
    fn exceeds(&self, binding: &GatewayBinding, ip: IpAddr, count: u32) -> bool {
        self.number(binding).is_some_and(|number| {
            let limit = binding.limit_for(number.index, ip);
            limit != 0 && count > limit && binding.enforces(number.index)
        })
    }
}

/// One open connection. It counts until this value is dropped.
#[derive(Debug)]
pub struct Guard {
    service: Service,
    ip: IpAddr,
    /// The slot in which the connection is counted, in the binding of `generation`. `None` if the
    /// connection is not counted.
    held: Option<Held>,
    generation: u64,
    count: u32,
    /// Number of connections that the source held in other processes when this connection migrated
    /// to it. 0 if the connection has not migrated. For new connections, the gateway sums up all
    /// processes, but it does not see migrations.
    elsewhere: u32,
}

impl Guard {
    /// Returns the number of the source's connections in this process when this connection was
    /// opened or last migrated, including this one. 0 if it is untracked.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of the source's connections in this process now. 0 if this connection is
    /// untracked.
    pub fn current(&self) -> u32 {
        let binding = self.service.inner.core.binding();
        match self.held {
            Some(held) if self.generation == binding.generation => binding.table.count_in(held),
            Some(_) if self.generation >= binding.carried_from => {
                let source = self.service.source(&binding, self.ip);
                source.map_or(0, |source| binding.table.count(source))
            }
            _ => 0,
        }
    }

    /// Returns true if [`Guard::count`] exceeds the current limit. After a migration, the source's
    /// connections in other processes count, too. A server should close such a connection. It
    /// exceeds the limit because several handshakes of the source completed at the same time, or
    /// because it migrated to a source that is at its limit.
    ///
    /// Always false in a dry run. Also false with the policy `strict`, because then the XDP program
    /// drops the source's packets. The allow list is ignored.
    pub fn over_limit(&self) -> bool {
        let all = self.count.saturating_add(self.elsewhere);
        self.held.is_some()
            && self.service.exceeds(&self.service.inner.core.binding(), self.ip, all)
    }

    /// Returns true if the ledger had no room for the connection. In that case the connection does
    /// not count towards the quota, and the server decides whether to keep it.
    pub fn untracked(&self) -> bool {
        self.held.is_none()
    }

    /// Returns the service of the connection.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Counts the connection for the source of its peer's new address (RFC 9000 s.9), and no longer
    /// for the old source. This happens even if the new source is at its limit: see
    /// [`Guard::over_limit`].
    ///
    /// Call it only after a PATH_RESPONSE has validated the path, and not if the path validation
    /// fails. The source address of a packet can be forged. A connection that is counted for a
    /// forged address uses up the quota of that host.
    pub fn moved(&mut self, peer: SocketAddr) {
        self.count_at(peer, false);
    }

    /// Does the same as [`Guard::moved`] if the new source is below its limit. Otherwise it returns
    /// `false`, and the connection stays counted for the old source. The server should then close
    /// the connection, unless its peer returns to the old address.
    #[must_use = "a connection at a source without room should be closed"]
    pub fn try_moved(&mut self, peer: SocketAddr) -> bool {
        self.count_at(peer, true)
    }

    fn count_at(&mut self, peer: SocketAddr, only_with_room: bool) -> bool {
        let (binding, ip) = (self.service.inner.core.binding(), peer.ip());
        let source = self.service.source(&binding, ip);
        let same = self.held.is_some() && source == self.service.source(&binding, self.ip);
        if self.generation == binding.generation && same {
            self.ip = ip;
            return true;
        }
        // The new source is counted first, so that the connection is counted at every moment. It is
        // also counted before the other ledgers are read. So if two processes count at once, at
        // least one of them sees the other's connection.
        let added = source.and_then(|source| binding.add(source));
        let limited = self.service.limits(&binding, ip);
        let elsewhere =
            source.filter(|_| limited).map_or(0, |source| binding.count_elsewhere(source));
        let all = |count: u32| count.saturating_add(elsewhere);
        if only_with_room
            && let Some((held, count)) = added
            && self.service.exceeds(&binding, ip, all(count))
        {
            binding.table.remove(held);
            return false;
        }
        if !self.release(&binding) {
            binding.came();
        }
        self.ip = ip;
        self.generation = binding.generation;
        self.count = added.map_or(0, |(_, count)| count);
        self.elsewhere = elsewhere;
        self.held = added.map(|(held, _)| held);
        true
    }

    /// Releases the connection's slot. Returns true if the connection was counted in this binding.
    fn release(&self, binding: &GatewayBinding) -> bool {
        let held = self.held;
        if self.generation == binding.generation {
            if let Some(held) = held {
                binding.table.remove(held);
            }
            return true;
        }
        // The connection was counted in an earlier binding. It is counted in this one, too, if the
        // earlier binding's counts were carried over.
        held.is_some()
            && self.generation >= binding.carried_from
            && self
                .service
                .source(binding, self.ip)
                .is_some_and(|source| binding.table.remove_any(source).is_some())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let binding = self.service.inner.core.binding();
        if self.release(&binding) {
            binding.closed();
        }
    }
}

#[cfg(all(test, equic_loom))]
mod models;
#[cfg(test)]
mod tests;
