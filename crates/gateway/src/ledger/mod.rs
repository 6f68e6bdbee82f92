//! The ledger: who holds how many connections, in memory shared with the XDP program.
//!
//! A server opens a [`Ledger`] (`Gateway::ledger` in the process that loaded the gateway,
//! `Control::join` in any other), takes the [`Service`] it runs, and holds one [`Guard`] per
//! connection whose handshake is complete. Opening and closing are a hash, a short lock and a few
//! stores: no system call, no allocation.
//!
//! * `table.rs`: the slots and their order of stores (docs/policy.md, "The ledger"): start there;
//! * `region.rs`: the memory, a mapped BPF array or anonymous;
//! * `source.rs`: address to source to hash;
//! * `heartbeat.rs`: the lease.
use std::net::SocketAddr;
use std::sync::Arc;
use crate::{Config, Result};
#[derive(Clone)] pub struct Ledger { inner: Arc<()> }
impl Ledger {
    /// A ledger without a gateway (tests, user-space quotas).
    pub fn in_memory(_config: &Config) -> Result<Ledger> { unreachable!() }
    pub fn service(&self, _name: &str) -> Result<Service> { unreachable!() }
    pub fn service_at(&self, _index: usize) -> Result<Service> { unreachable!() }
    pub fn connections(&self) -> u64 { unreachable!() }
    pub fn opened_total(&self) -> u64 { unreachable!() }
    pub fn overflow(&self) -> u64 { unreachable!() }
}
/// Clone + Send + Sync
#[derive(Clone)] pub struct Service { inner: Arc<()> }
impl Service {
    pub fn name(&self) -> &str { unreachable!() }
    pub fn index(&self) -> usize { unreachable!() }
    pub fn limit(&self) -> u32 { unreachable!() }
    pub fn count(&self, _peer: SocketAddr) -> u32 { unreachable!() }
    pub fn opened(&self, _peer: SocketAddr) -> Guard { unreachable!() }
    /// Without a guard, for callers that name the peer again when it closes (C).
    pub fn increment(&self, _peer: SocketAddr) -> Opened { unreachable!() }
    /// None: that source has no connection.
    pub fn decrement(&self, _peer: SocketAddr) -> Option<u32> { unreachable!() }
}
pub struct Opened { pub count: u32, pub over_limit: bool, pub untracked: bool }
pub struct Guard { inner: Arc<()> }
impl Guard {
    pub fn count(&self) -> u32 { unreachable!() }
    pub fn over_limit(&self) -> bool { unreachable!() }
    pub fn untracked(&self) -> bool { unreachable!() }
    pub fn moved(&mut self, _peer: SocketAddr) { unreachable!() }
}
