//! The ledger: who holds how many connections, in memory shared with the XDP program.
//!
//! A server takes a [`Ledger`] (`Gateway::ledger` in the process that loaded the gateway,
//! [`Ledger::connect`] or `Control::join` in any other), then the [`Service`] it runs, and holds one [`Guard`] per
//! connection whose handshake is complete. Opening and closing are a hash, a short lock and a few
//! stores: no system call, no allocation.
//!
//! * `table.rs`: the slots and their order of stores (docs/policy.md, "The ledger"); start there;
//! * `source.rs`: address to source to hash;
//! * `membership.rs`: a place among the ledgers of a running gateway, and the lease;
//! * `join.rs`: taking a place; `header.rs`: what a ledger says of itself;
//! * `binding.rs`: the gateway a ledger counts for at present, and the move to the next one;
//! * `follow.rs`: finding the next one; `event.rs`: what is told of it;
//! * `ids.rs`: connection IDs that the gateway can check.

pub(crate) mod binding;
pub(crate) mod death;
pub(crate) mod event;
pub(crate) mod follow;
pub(crate) mod header;
pub(crate) mod ids;
mod join;
pub(crate) mod membership;
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
use self::source::{Keying, Source};
use self::table::{Held, Memory, Table};
use crate::config::{Config, from_c_name};
use crate::control::{Control, GatewayChoice};
use crate::error::{Error, Result};
use crate::key_ring::TokenKeys;
use crate::periodic::Periodic;
use crate::services::{service_names, services_of};
use crate::socket::client::JoinTarget;
use crate::sync::RwLockReadGuard;
use crate::sync::atomic::AtomicU64;
use crate::sys;
use crate::sys::region::Shared;

/// One process's connection counts. Cheap to clone; every clone is the same ledger.
///
/// While it lives, a thread tells the XDP program every quarter of a lease that this process does
/// too. When the last clone, [`Service`] and [`Guard`] are gone, the counts are.
///
/// A ledger does not survive `fork`: a child that serves connections joins on its own.
#[derive(Debug, Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Both end before the place is given up.
    _heartbeat: Option<Periodic>,
    _follower: Option<Follower>,
    core: Arc<LedgerState>,
}

/// Thread that finds the next gateway.
#[derive(Debug)]
#[expect(dead_code, reason = "threads that end when they are dropped")]
enum Follower {
    Place(Periodic),
    Socket(crate::socket::client::SocketKeeper),
}

impl Ledger {
    /// A ledger that no gateway reads: for quotas in user space, and for tests.
    ///
    /// # Errors
    /// The configuration does not hold, or memory is short.
    pub fn in_memory(config: &Config) -> Result<Ledger> {
        config.validate()?;
        let short = |error| Error::system("making a ledger", error);
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

    /// A ledger in the maps of a running gateway; of another process's, the way it was
    /// chosen, by which the next one will be.
    pub(crate) fn joined(
        binding: GatewayBinding,
        (name, keys): (&str, TokenKeys),
        control: &Control,
        chosen: Option<GatewayChoice>,
    ) -> Result<Ledger> {
        let core = Arc::new(LedgerState::new(binding));
        let _heartbeat = Some(heartbeat(&core)?);
        let follow =
            |chosen| follow::start(&core, (name, keys), control, chosen).map(Follower::Place);
        let _follower = chosen.map(follow).transpose()?;
        Ok(Ledger { inner: Arc::new(Inner { _heartbeat, _follower, core }) })
    }

    /// Joins the gateway behind a Unix socket (`equic gateway run --socket`), without any privilege:
    /// the gateway makes the ledger and puts it into its place; `name` is what `status` calls it.
    ///
    /// When the gateway ends, this ledger joins the next one at the same path by itself, with
    /// everything that is open then; services and guards stay valid. (Where the next one cuts
    /// sources finer, or tears a group of services apart, what was open before does not count.)
    ///
    /// # Errors
    /// [`Error::NoGatewaySocket`] when nobody listens there; [`Error::SocketRefused`] with the
    /// gateway's reason; [`Error::AbiVersion`]; [`Error::System`].
    pub fn connect(path: impl AsRef<std::path::Path>, name: &str) -> Result<Ledger> {
        Ledger::connect_checking(path, name, TokenKeys::None)
    }

    /// As [`Ledger::connect`], for a server that checks the tokens of the gateway's Retry packets. Asked for its
    /// key ring, the gateway gives it to users that may serve all its services ([`Ledger::key_ring`]).
    ///
    /// # Errors
    /// As [`Ledger::connect`].
    pub fn connect_checking(
        path: impl AsRef<std::path::Path>,
        name: &str,
        keys: TokenKeys,
    ) -> Result<Ledger> {
        Ok(Ledger::connect_as(path.as_ref(), name, keys, None)?.0)
    }

    /// As [`Ledger::connect_checking`], for a server that listens at an address: returns with the ledger the
    /// service that has this address, or `None` if no service has it.
    ///
    /// # Errors
    /// As [`Ledger::connect`].
    pub fn connect_listening(
        path: impl AsRef<std::path::Path>,
        name: &str,
        keys: TokenKeys,
        address: SocketAddr,
    ) -> Result<(Ledger, Option<Service>)> {
        let (ledger, index) = Ledger::connect_as(path.as_ref(), name, keys, Some(address))?;
        let service = index.map(|index| ledger.service_at(index as usize)).transpose()?;
        Ok((ledger, service))
    }

    fn connect_as(
        path: &std::path::Path,
        name: &str,
        keys: TokenKeys,
        listens: Option<SocketAddr>,
    ) -> Result<(Ledger, Option<u32>)> {
        let who = JoinTarget { path: path.to_owned(), name: name.to_owned(), keys, listens };
        let (binding, service) = crate::socket::client::join(&who)?;
        let core = Arc::new(LedgerState::new(binding));
        let heartbeat = heartbeat(&core)?;
        let link = crate::socket::client::SocketKeeper::start(who, Arc::clone(&core))?;
        let _follower = Some(Follower::Socket(link));
        let inner = Inner { _heartbeat: Some(heartbeat), _follower, core };
        Ok((Ledger { inner: Arc::new(inner) }, service))
    }

    /// Has `listener` called when the gateway has ended, and when the next one is joined, from a
    /// thread of the library; in place of the listener before. These events are logged (`tracing`)
    /// anyway. A gateway of this process's own has none. The listener must not wait for long, nor
    /// drop the last handle of this ledger.
    pub fn notify(&self, listener: impl Fn(&JoinEvent) + Send + Sync + 'static) {
        self.inner.core.listeners.set(Arc::new(listener));
    }

    /// The key ring that the gateway's Retry packets are made with, as it is this moment: keys that were added
    /// since are in it, and those that were retired are not. Read it for every token, or when one is of a
    /// key that is not known; it takes a system call. None if the server of another process's gateway has not
    /// taken it ([`TokenKeys::Take`]), or may not have it. Who has it can make tokens.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be read.
    pub fn key_ring(&self) -> Result<Option<KeyRing>> {
        self.binding().ring.read()
    }

    /// The kernel's id of the gateway's program when it was joined: another one after the move to
    /// the next gateway. None in memory and behind a socket.
    pub fn program_id(&self) -> Option<u32> {
        self.binding().program
    }

    fn binding(&self) -> RwLockReadGuard<'_, GatewayBinding> {
        self.inner.core.binding()
    }

    /// The service of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchService`], with the names there are.
    pub fn service(&self, name: &str) -> Result<Service> {
        let binding = self.binding();
        match binding.number(name) {
            Some(number) => Ok(self.service_of(&binding, name.to_owned(), number)),
            None => Err(Error::no_such_service(name, service_names(&binding.services.read()))),
        }
    }

    /// The service with this index, in the order of the configuration.
    ///
    /// # Errors
    /// [`Error::NoSuchService`], with the names there are.
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

    /// The services' names, by index.
    pub fn service_names(&self) -> Vec<String> {
        service_names(&self.binding().services.read())
    }

    /// The name of the gateway; empty for a ledger in memory.
    pub fn gateway_name(&self) -> String {
        self.binding().gateway_name()
    }

    /// Connections open now, of all services of this process.
    pub fn connections(&self) -> u64 {
        open_connections(&self.binding().header())
    }

    /// Connections opened since the start.
    pub fn opened_total(&self) -> u64 {
        self.binding().header().opened
    }

    /// Connections that found no slot, since the start.
    pub fn overflow(&self) -> u64 {
        self.binding().header().overflow
    }

    /// Number of the ledger's place in the gateway; none for a ledger in memory.
    pub fn slot(&self) -> Option<u32> {
        self.binding().slot()
    }

    /// True if the process that looks after the gateway runs. When it does not, a gateway that is not
    /// pinned is off its interfaces, and nobody reads this ledger any more. True for one in memory.
    pub fn gateway_alive(&self) -> bool {
        self.binding().gateway_alive()
    }

    /// True if the gateway's allow list exempts an address from quotas. Only a ledger from a gateway's
    /// socket can tell; for others, and when the lists cannot be read, no. A system call or two.
    pub fn exempts(&self, ip: IpAddr) -> bool {
        match &self.binding().kind {
            BindingKind::Socket(socket) => socket.lists.exempts(ip),
            _ => false,
        }
    }
}

/// Says that this process lives; and, as one that slept past its lease may have been taken for dead,
/// that its ledger is where it should be (at a socket, the gateway sees to that).
fn heartbeat(core: &Arc<LedgerState>) -> Result<Periodic> {
    let core = Arc::clone(core);
    Periodic::start("equic-heartbeat", move || {
        let binding = core.binding();
        binding.beat();
        if let BindingKind::Placed(membership) = &binding.kind
            && let Err(error) = membership.renew()
        {
            tracing::warn!(%error, "the gateway does not count this server's connections");
        }
        let fresh = binding.refresh().unwrap_or(Duration::from_secs(15));
        Duration::from_nanos(binding.lease_ns() / 4).clamp(Duration::from_millis(5), fresh)
    })
}

/// One service, as a server counts its connections to it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
    named: Arc<Named>,
}

#[derive(Debug)]
struct Named {
    name: String,
    /// Its number in the binding of a generation: looked up again when the binding has changed.
    at: AtomicU64,
}

/// No such service in that generation.
const ABSENT: u64 = 0xff;

/// Generation, index and group in a word; index and group are below 64.
fn packed(generation: u64, number: Option<ServiceNumber>) -> u64 {
    let (index, group) = number.map_or((ABSENT, 0), |n| (n.index as u64, n.group.into()));
    generation << 16 | index << 8 | (group & 0xff)
}

/// Result of [`Service::increment`] for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Connections of the source with this one, in this process; 0 when untracked.
    pub count: u32,
    /// True if `count` is more than the service's limit, as [`Guard::over_limit`] says it.
    pub over_limit: bool,
    /// True if the ledger had no room: this connection does not count towards the quota.
    pub untracked: bool,
}

impl Service {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.named.name
    }

    /// Its index, in the order of the configuration; in that of the last gateway that had it.
    pub fn index(&self) -> usize {
        let binding = self.inner.core.binding();
        self.number(&binding).map_or(0, |number| number.index)
    }

    /// Connections a source may hold, as set this moment; 0: any number. For the sources in some prefixes the
    /// service may have another limit: [`Service::limit_for`].
    pub fn limit(&self) -> u32 {
        let binding = self.inner.core.binding();
        self.number(&binding).map_or(0, |number| binding.limit(number.index))
    }

    /// Connections the peer's source may hold, as set this moment; 0: any number.
    pub fn limit_for(&self, peer: SocketAddr) -> u32 {
        let binding = self.inner.core.binding();
        self.number(&binding).map_or(0, |number| binding.limit_for(number.index, peer.ip()))
    }

    /// Connections the peer's source holds in this process.
    pub fn count(&self, peer: SocketAddr) -> u32 {
        let binding = self.inner.core.binding();
        self.source(&binding, peer.ip()).map_or(0, |source| binding.table.count(source))
    }

    /// True if the peer's source holds as many connections in this process as it may, so that one
    /// more would be [`Guard::over_limit`]. For servers that can refuse before a handshake, where
    /// the address may still be forged: the answer changes nothing.
    pub fn full(&self, peer: SocketAddr) -> bool {
        let binding = self.inner.core.binding();
        let count =
            self.source(&binding, peer.ip()).map_or(0, |source| binding.table.count(source));
        self.exceeds(&binding, peer.ip(), count.saturating_add(1))
    }

    /// Counts a connection, from the completed handshake until the guard is dropped. The peer's
    /// port does not matter.
    #[must_use = "the connection counts until this is dropped"]
    pub fn opened(&self, peer: SocketAddr) -> Guard {
        let binding = self.inner.core.binding();
        let ip = peer.ip();
        let Some(source) = self.source(&binding, ip) else {
            // The gateway that followed has no such service.
            binding.came();
            let generation = binding.generation;
            let service = self.clone();
            return Guard { service, ip, held: None, generation, count: 0, elsewhere: 0 };
        };
        let (held, count) = binding.opened(source).unzip();
        let (generation, count) = (binding.generation, count.unwrap_or(0));
        Guard { service: self.clone(), ip, held, generation, count, elsewhere: 0 }
    }

    /// Counts a connection without a guard, for callers that name the peer again when it closes:
    /// every `increment` that is not untracked wants one [`Service::decrement`].
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

    /// Takes back one [`Service::increment`] of the same source: what is left. None: it held no
    /// connection, and nothing changed.
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

    /// True if the service limits the connections of this address.
    fn limits(&self, binding: &GatewayBinding, ip: IpAddr) -> bool {
        self.number(binding).is_some_and(|number| binding.limit_for(number.index, ip) != 0)
    }

    /// True if a server should close the connection that made it `count`: it is over the limit, and
    /// nobody asked for a dry run or, with the policy `strict`, for the kernel to see the excess.
    fn exceeds(&self, binding: &GatewayBinding, ip: IpAddr, count: u32) -> bool {
        self.number(binding).is_some_and(|number| {
            let limit = binding.limit_for(number.index, ip);
            limit != 0 && count > limit && binding.enforces(number.index)
        })
    }
}

/// One open connection. It counts until this is dropped.
#[derive(Debug)]
pub struct Guard {
    service: Service,
    ip: IpAddr,
    /// Place at which the connection is counted, in the binding of its generation; none: nowhere.
    held: Option<Held>,
    generation: u64,
    count: u32,
    /// Connections that the source held in other processes when this one moved there; 0 if it has not moved. The
    /// gateway lets a new connection in only after it has added up all processes. It does not see a migration.
    elsewhere: u32,
}

impl Guard {
    /// Connections of the source in this process when this one was opened (or moved there last),
    /// with this one; 0 when untracked.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Connections of the source in this process now; 0 when untracked.
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

    /// True if [`Guard::count`] is more than the limit as set this moment; after a migration, together with the
    /// connections of the source in other processes. A server should close such a connection: its handshake
    /// began before the ones that reached the limit were complete, or it moved to a source that is at its
    /// limit. Never in a dry run, nor with the policy `strict`, which acts on the excess itself. The allow
    /// list is not asked.
    pub fn over_limit(&self) -> bool {
        let all = self.count.saturating_add(self.elsewhere);
        self.held.is_some()
            && self.service.exceeds(&self.service.inner.core.binding(), self.ip, all)
    }

    /// True if the ledger had no room: this connection does not count towards the quota, and the
    /// server decides whether it wants it all the same.
    pub fn untracked(&self) -> bool {
        self.held.is_none()
    }

    /// The service it is a connection of.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Counts the connection at another address of its peer (RFC 9000 s.9), and no longer at the old one, whether
    /// the new source has room or not: [`Guard::over_limit`] tells.
    ///
    /// Call it only when the peer has proved that it receives there, by a PATH_RESPONSE. A packet that seems to come
    /// from an address proves nothing: anybody can write any source address into it, and who is counted at the
    /// address of somebody else shuts that host out. If the validation of a new path fails, do not call it.
    pub fn moved(&mut self, peer: SocketAddr) {
        self.count_at(peer, false);
    }

    /// As [`Guard::moved`], if the new source has room. Otherwise it returns `false`, and the connection counts
    /// where it did: the server should close it, unless its peer returns.
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
        // The new one first: at no moment does the connection count nowhere. And before the others are read, so that
        // of two processes that count at once one at least sees the other.
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

    /// Gives up its slot. True if it is among the connections of this binding.
    fn release(&self, binding: &GatewayBinding) -> bool {
        let held = self.held;
        if self.generation == binding.generation {
            if let Some(held) = held {
                binding.table.remove(held);
            }
            return true;
        }
        // It counted elsewhere, and was carried over if anything was.
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
