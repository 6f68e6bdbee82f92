//! The ledger: who holds how many connections, in memory shared with the XDP program.
//!
//! A server takes a [`Ledger`] (`Gateway::ledger` in the process that loaded the gateway,
//! `Control::join` in any other), then the [`Service`] it runs, and holds one [`Guard`] per
//! connection whose handshake is complete. Opening and closing are a hash, a short lock and a few
//! stores: no system call, no allocation.
//!
//! * `table.rs`: the slots and their order of stores (docs/policy.md, "The ledger"); start there;
//! * `source.rs`: address to source to hash;
//! * `membership.rs`: a place among the ledgers of a running gateway, and the lease.

pub(crate) mod membership;
pub(crate) mod source;
pub(crate) mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use self::membership::Membership;
use self::source::{Keying, Source};
use self::table::{Memory, Slot, Table};
use crate::abi;
use crate::config::{Config, c_name, from_c_name};
use crate::error::{Error, Result, similar};
use crate::periodic::Periodic;
use crate::sys;
use crate::sys::region::{Shared, atomic};

pub(crate) type Services = [abi::equic_service; abi::EQUIC_MAX_SERVICES as usize];

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
    // Stops before the place is given up.
    _heartbeat: Option<Periodic>,
    membership: Option<Arc<Membership>>,
    table: Table,
    services: Arc<Shared<Services>>,
}

impl Ledger {
    /// A ledger that no gateway reads: for quotas in user space, and for tests.
    ///
    /// # Errors
    /// When the configuration does not hold, or memory is short.
    pub fn in_memory(config: &Config) -> Result<Ledger> {
        config.validate()?;
        let short = |error| Error::system("making a ledger", error);
        let load = config.gateway.to_load(sys::random_u64().map_err(short)?, None);
        let keying = Keying::new(&load);
        let memory = Arc::new(Memory::anonymous(keying.buckets()).map_err(short)?);
        write_header(&memory, &config.gateway.name, keying.buckets());
        let services = Shared::anonymous().map_err(short)?;
        services.write(&services_of(config));
        let table = Table::new(memory, keying);
        Ok(Ledger {
            inner: Arc::new(Inner {
                _heartbeat: None,
                membership: None,
                table,
                services: Arc::new(services),
            }),
        })
    }

    /// A ledger in the maps of a running gateway.
    pub(crate) fn joined(
        membership: Membership,
        memory: Arc<Memory>,
        keying: Keying,
        services: Arc<Shared<Services>>,
    ) -> Result<Ledger> {
        let membership = Arc::new(membership);
        let (beaten, member) = (Arc::clone(&memory), Arc::clone(&membership));
        let heartbeat = Periodic::start("equic-heartbeat", move || beat(&beaten, &member))?;
        let table = Table::new(memory, keying);
        let inner =
            Inner { _heartbeat: Some(heartbeat), membership: Some(membership), table, services };
        Ok(Ledger { inner: Arc::new(inner) })
    }

    /// The service of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchService`], with the names there are.
    pub fn service(&self, name: &str) -> Result<Service> {
        let names = service_names(&self.inner.services.read());
        match names.iter().position(|known| known == name) {
            Some(index) => self.service_at(index),
            None => Err(no_such_service(name, names)),
        }
    }

    /// The service with this index, in the order of the configuration.
    ///
    /// # Errors
    /// [`Error::NoSuchService`], with the names there are.
    pub fn service_at(&self, index: usize) -> Result<Service> {
        let services = self.inner.services.read();
        match services.get(index).filter(|service| service.name[0] != 0) {
            Some(service) => Ok(Service {
                inner: Arc::clone(&self.inner),
                name: from_c_name(&service.name).into(),
                index,
                group: service.group,
            }),
            None => Err(no_such_service(&index.to_string(), service_names(&services))),
        }
    }

    /// Connections open now, of all services of this process.
    pub fn connections(&self) -> u64 {
        self.inner.header().connections
    }

    /// Connections opened since the start.
    pub fn opened_total(&self) -> u64 {
        self.inner.header().opened
    }

    /// Connections that found no slot, since the start.
    pub fn overflow(&self) -> u64 {
        self.inner.header().overflow
    }

    /// Which of the gateway's places it has; none for one in memory.
    pub fn slot(&self) -> Option<u32> {
        self.inner.membership.as_ref().map(|membership| membership.slot())
    }

    /// Whether the process that loaded the gateway still runs. When it does not, the program is off
    /// the interfaces and nobody reads this ledger any more. True for one in memory.
    pub fn gateway_alive(&self) -> bool {
        self.inner.membership.as_ref().is_none_or(|membership| membership.gateway_alive())
    }
}

/// The services of a configuration as the program reads them.
pub(crate) fn services_of(config: &Config) -> Services {
    let mut services = [abi::equic_service::default(); abi::EQUIC_MAX_SERVICES as usize];
    for ((to, from), group) in services.iter_mut().zip(&config.services).zip(config.groups()) {
        *to = from.to_abi(group);
    }
    services
}

pub(crate) fn service_names(services: &Services) -> Vec<String> {
    services.iter().take_while(|s| s.name[0] != 0).map(|s| from_c_name(&s.name)).collect()
}

pub(crate) fn no_such_service(name: &str, known: Vec<String>) -> Error {
    let similar = similar(name, known.iter().map(String::as_str));
    Error::NoSuchService { name: name.to_owned(), similar, known }
}

/// Says that this process lives; and, as one that slept past its lease may have been taken for dead,
/// that its ledger is where it should be. Gives the pause until the next beat.
fn beat(memory: &Memory, membership: &Membership) -> Duration {
    atomic!(AtomicU64, memory.header(), heartbeat_ns).store(sys::monotonic_ns(), Relaxed);
    if let Err(error) = membership.renew() {
        tracing::warn!(%error, "the gateway does not count this server's connections");
    }
    Duration::from_nanos(membership.lease_ns() / 4)
        .clamp(Duration::from_millis(5), Duration::from_secs(15))
}

/// Fills the header of a fresh ledger. The magic comes last: without it, it is not one yet.
pub(crate) fn write_header(memory: &Memory, name: &str, buckets: u32) {
    let pid = std::process::id();
    let header = abi::equic_ledger_header {
        magic: 0,
        version: abi::EQUIC_ABI_VERSION,
        pid,
        buckets,
        heartbeat_ns: sys::monotonic_ns(),
        start_ticks: sys::start_ticks(pid).unwrap_or(0),
        name: c_name(name),
        ..abi::equic_ledger_header::default()
    };
    // SAFETY: a valid, aligned, writable header (`Memory` of this process) that nobody reads yet.
    unsafe { memory.header().write_volatile(header) };
    atomic!(AtomicU32, memory.header(), magic)
        .store(abi::EQUIC_ABI_MAGIC, std::sync::atomic::Ordering::Release);
}

impl Inner {
    fn header(&self) -> abi::equic_ledger_header {
        self.table.memory().read_header()
    }

    fn limit(&self, service: usize) -> u32 {
        // SAFETY: `service` is below EQUIC_MAX_SERVICES (checked when the service was taken), so the
        // pointer stays inside the array.
        let service = unsafe { self.services.pointer().cast::<abi::equic_service>().add(service) };
        atomic!(AtomicU32, service, max_connections).load(Relaxed)
    }

    fn enforces(&self, service: usize) -> bool {
        // SAFETY: as in `limit`.
        let service = unsafe { self.services.pointer().cast::<abi::equic_service>().add(service) };
        let flags = atomic!(AtomicU32, service, flags).load(Relaxed);
        let policy = atomic!(AtomicU8, service, policy).load(Relaxed);
        let dry_run = self.membership.as_ref().is_some_and(|membership| membership.dry_run());
        !dry_run
            && flags & abi::EQUIC_SERVICE_DRY_RUN == 0
            && u32::from(policy) == abi::EQUIC_POLICY_NEW
    }

    fn opened(&self, source: Source) -> Option<(Slot, u32)> {
        let header = self.table.memory().header();
        atomic!(AtomicU64, header, opened).fetch_add(1, Relaxed);
        atomic!(AtomicU64, header, connections).fetch_add(1, Relaxed);
        self.add(source)
    }

    fn add(&self, source: Source) -> Option<(Slot, u32)> {
        let added = self.table.add(source);
        if added.is_none() {
            atomic!(AtomicU64, self.table.memory().header(), overflow).fetch_add(1, Relaxed);
        }
        added
    }

    fn closed(&self) {
        atomic!(AtomicU64, self.table.memory().header(), connections).fetch_sub(1, Relaxed);
    }
}

/// One service, as a server counts its connections to it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
    name: Arc<str>,
    index: usize,
    group: u32,
}

/// What [`Service::increment`] says of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Connections of the source with this one, in this process; 0 when untracked.
    pub count: u32,
    /// Whether that is more than the service's limit, as [`Guard::over_limit`] says it.
    pub over_limit: bool,
    /// Whether the ledger had no room: this connection does not count towards the quota.
    pub untracked: bool,
}

impl Service {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index, in the order of the configuration.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Connections a source may hold, as set this moment; 0: any number.
    pub fn limit(&self) -> u32 {
        self.inner.limit(self.index)
    }

    /// Connections the peer's source holds in this process.
    pub fn count(&self, peer: SocketAddr) -> u32 {
        self.inner.table.count(self.source(peer))
    }

    /// Counts a connection, from the completed handshake until the guard is dropped. The peer's
    /// port does not matter.
    #[must_use = "the connection counts until this is dropped"]
    pub fn opened(&self, peer: SocketAddr) -> Guard {
        let source = self.source(peer);
        let (slot, count) = self.inner.opened(source).unzip();
        Guard { service: self.clone(), source, slot, count: count.unwrap_or(0) }
    }

    /// Counts a connection without a guard, for callers that name the peer again when it closes:
    /// every `increment` that is not untracked wants one [`Service::decrement`].
    pub fn increment(&self, peer: SocketAddr) -> Opened {
        match self.inner.opened(self.source(peer)) {
            Some((_, count)) => Opened { count, over_limit: self.exceeds(count), untracked: false },
            None => {
                self.inner.closed();
                Opened { count: 0, over_limit: false, untracked: true }
            }
        }
    }

    /// Takes back one [`Service::increment`] of the same source: what is left. None: it held no
    /// connection, and nothing changed.
    pub fn decrement(&self, peer: SocketAddr) -> Option<u32> {
        let left = self.inner.table.remove_any(self.source(peer))?;
        self.inner.closed();
        Some(left)
    }

    fn source(&self, peer: SocketAddr) -> Source {
        self.inner.table.keying().source(peer.ip(), self.group)
    }

    /// Whether a server should close the connection that made it `count`: it is over the limit, and
    /// nobody asked for a dry run or, with the policy `strict`, for the kernel to see the excess.
    fn exceeds(&self, count: u32) -> bool {
        let limit = self.limit();
        limit != 0 && count > limit && self.inner.enforces(self.index)
    }
}

/// One open connection. It counts until this is dropped.
#[derive(Debug)]
pub struct Guard {
    service: Service,
    source: Source,
    slot: Option<Slot>,
    count: u32,
}

impl Guard {
    /// Connections of the source in this process when this one was opened (or moved there last),
    /// with this one; 0 when untracked.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Connections of the source in this process now; 0 when untracked.
    pub fn current(&self) -> u32 {
        self.slot.map_or(0, |slot| self.service.inner.table.count_in(slot))
    }

    /// Whether [`Guard::count`] is more than the limit as set this moment. A server should close such
    /// a connection: its handshake began before the ones that reached the limit were complete. Never
    /// in a dry run, nor with the policy `strict`, which acts on the excess itself. The allow list is
    /// not asked.
    pub fn over_limit(&self) -> bool {
        self.service.exceeds(self.count)
    }

    /// Whether the ledger had no room: this connection does not count towards the quota, and the
    /// server decides whether it wants it all the same.
    pub fn untracked(&self) -> bool {
        self.slot.is_none()
    }

    /// The service it is a connection of.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The peer's address changed (RFC 9000 s.9): the connection counts for the new source.
    pub fn moved(&mut self, peer: SocketAddr) {
        let source = self.service.source(peer);
        if source == self.source {
            return;
        }
        // The new one first: at no moment does the connection count nowhere.
        let (slot, count) = self.service.inner.add(source).unzip();
        self.release();
        (self.source, self.slot, self.count) = (source, slot, count.unwrap_or(0));
    }

    fn release(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.service.inner.table.remove(self.source, slot);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
        self.service.inner.closed();
    }
}

#[cfg(test)]
mod tests;
