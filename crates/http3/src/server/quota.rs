//! Connection quotas that the application enforces in user space. They are the baseline that the
//! gateway is compared with.
//!
//! A quota limits, per source (an address prefix), the number of open connections and the rate of
//! new ones. It is checked only after the kernel has delivered the packet and QUIC has parsed it;
//! the benchmark measures what this costs.
//!
//! A connection counts from the end of its handshake to its close, so a spoofed address never
//! counts against a source. Because handshakes run in parallel, the limit is checked twice: before
//! the handshake, which is cheap, and after it, which is exact.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::server::{Admission, Decision, Opened, Refused};

/// Answer to a connection attempt from a source that is at its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// Drops the attempt without an answer, as the gateway does.
    #[default]
    Ignore,
    /// Answers the attempt with CONNECTION_REFUSED.
    Refuse,
    /// Accepts a connection above the limit, and closes it when its handshake is complete. The
    /// server of the eQUIC paper did this, because lsquic reports a connection to the application
    /// only at that time. This is the most expensive choice. Attempts above the rate of new
    /// connections are dropped.
    Close,
}

/// A token bucket for new connections: their rate, and a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// New connections a second; more than 0.
    pub per_second: f64,
    /// Number of new connections that are accepted at once after a pause; at least 1.
    pub burst: u32,
}

/// Limits that a [`UserSpaceQuota`] enforces.
#[derive(Clone, Debug)]
pub struct QuotaConfig {
    /// Largest number of open connections per source. 0: no limit.
    pub max_connections: u32,
    /// Rate of new connections per source. `None`: no limit.
    pub new_per_source: Option<Rate>,
    /// Length of the IPv4 prefix that identifies a source, 0 to 32 bits.
    pub v4_prefix: u8,
    /// Length of the IPv6 prefix that identifies a source, 0 to 128 bits.
    pub v6_prefix: u8,
    /// Answer to an attempt of a source that is over a limit.
    pub at_limit: AtLimit,
    /// Smallest number of sources whose rates are remembered. At most twice that number are
    /// remembered. A forgotten source starts again with a full bucket.
    pub rate_sources: usize,
}

impl Default for QuotaConfig {
    fn default() -> Self {
        Self {
            max_connections: 0,
            new_per_source: None,
            v4_prefix: 32,
            v6_prefix: 64,
            at_limit: AtLimit::Ignore,
            rate_sources: 65_536,
        }
    }
}

/// Error for a [`QuotaConfig`] with a value out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QuotaError {
    /// A prefix is longer than the address.
    #[error("prefix length {0} is longer than an {1} address: use 0 to {2}")]
    Prefix(u8, &'static str, u8),
    /// A rate of zero, a negative rate, or not a number.
    #[error(
        "invalid rate of {0} new connections per second with a burst of {1}: both numbers must be above 0"
    )]
    Rate(f64, u32),
}

/// Limits the number and the rate of connections per source, in user space.
pub struct UserSpaceQuota {
    shared: Arc<Shared>,
}

struct Shared {
    config: QuotaConfig,
    counts: Mutex<HashMap<IpAddr, u32>>,
    rates: Mutex<Rates>,
    over_quota: AtomicU64,
    over_rate: AtomicU64,
}

impl UserSpaceQuota {
    /// Creates a quota that counts no connections yet.
    ///
    /// # Errors
    /// Fails if a prefix is too long, or if a rate or burst is 0.
    pub fn new(config: QuotaConfig) -> Result<Self, QuotaError> {
        for (prefix, family, bits) in
            [(config.v4_prefix, "IPv4", 32), (config.v6_prefix, "IPv6", 128)]
        {
            if prefix > bits {
                return Err(QuotaError::Prefix(prefix, family, bits));
            }
        }
        let rates = match config.new_per_source {
            Some(rate) => Rates::new(rate, config.rate_sources)
                .ok_or(QuotaError::Rate(rate.per_second, rate.burst))?,
            None => Rates::off(),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                counts: Mutex::default(),
                rates: Mutex::new(rates),
                over_quota: AtomicU64::new(0),
                over_rate: AtomicU64::new(0),
            }),
        })
    }

    /// Returns the number of open connections of the source of `address`.
    pub fn connections(&self, address: IpAddr) -> u32 {
        let source = self.shared.source(address);
        lock(&self.shared.counts).get(&source).copied().unwrap_or(0)
    }

    /// Returns the number of open connections of all sources.
    pub fn total(&self) -> u64 {
        lock(&self.shared.counts).values().map(|&count| u64::from(count)).sum()
    }

    /// Returns the number of sources that have open connections.
    pub fn sources(&self) -> usize {
        lock(&self.shared.counts).len()
    }

    /// Returns the number of attempts that were refused, before or after the handshake, because the
    /// source had too many open connections.
    pub fn over_quota(&self) -> u64 {
        self.shared.over_quota.load(Ordering::Relaxed)
    }

    /// Returns the number of attempts that were refused because the source exceeded its rate of new
    /// connections.
    pub fn over_rate(&self) -> u64 {
        self.shared.over_rate.load(Ordering::Relaxed)
    }

    fn incoming_at(&self, peer: SocketAddr, now: Instant) -> Decision {
        let shared = &self.shared;
        let source = shared.source(peer.ip());
        let refused = match shared.config.at_limit {
            AtLimit::Ignore => Decision::Ignore,
            AtLimit::Refuse => Decision::Refuse,
            AtLimit::Close => Decision::Ignore,
        };
        let late = shared.config.at_limit == AtLimit::Close;
        if !late && shared.full(lock(&shared.counts).get(&source).copied().unwrap_or(0)) {
            shared.over_quota.fetch_add(1, Ordering::Relaxed);
            return refused;
        }
        if shared.config.new_per_source.is_some() && !lock(&shared.rates).charge(source, now) {
            shared.over_rate.fetch_add(1, Ordering::Relaxed);
            return refused;
        }
        Decision::Accept
    }
}

impl Admission for UserSpaceQuota {
    fn incoming(&self, peer: SocketAddr) -> Decision {
        self.incoming_at(peer, Instant::now())
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        let shared = &self.shared;
        let source = shared.source(peer.ip());
        let mut counts = lock(&shared.counts);
        let count = counts.get(&source).copied().unwrap_or(0);
        if shared.full(count) {
            drop(counts);
            shared.over_quota.fetch_add(1, Ordering::Relaxed);
            return Err(too_many());
        }
        counts.insert(source, count.saturating_add(1));
        drop(counts);
        Ok(Box::new(Held { shared: Arc::clone(shared), source }))
    }
}

fn too_many() -> Refused {
    Refused::excessive_load("too many connections from your network")
}

struct Held {
    shared: Arc<Shared>,
    source: IpAddr,
}

impl Opened for Held {
    /// Counts the connection toward the source of its new address, if that source is below its
    /// limit. Without this check, a client could open connections from many addresses and move them
    /// all to one source, above its limit.
    fn moved(&mut self, to: SocketAddr) -> Result<(), Refused> {
        let source = self.shared.source(to.ip());
        if source == self.source {
            return Ok(());
        }
        let mut counts = lock(&self.shared.counts);
        let count = counts.get(&source).copied().unwrap_or(0);
        if self.shared.full(count) {
            return Err(too_many());
        }
        counts.insert(source, count.saturating_add(1));
        release(&mut counts, self.source);
        self.source = source;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        release(&mut lock(&self.shared.counts), self.source);
    }
}

fn release(counts: &mut HashMap<IpAddr, u32>, source: IpAddr) {
    if let Some(count) = counts.get_mut(&source) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&source);
        }
    }
}

impl Shared {
    fn full(&self, count: u32) -> bool {
        self.config.max_connections > 0 && count >= self.config.max_connections
    }

    fn source(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.config.v4_prefix)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask =
                    u128::MAX.checked_shl(128 - u32::from(self.config.v6_prefix)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        }
    }
}

/// The rate of new connections of each source, limited by the generic cell rate algorithm. Two
/// generations of entries limit the memory that spoofed sources can take: when the young generation
/// is full, it replaces the old one.
struct Rates {
    start: Instant,
    cost_ns: u64,
    burst_ns: u64,
    capacity: usize,
    young: HashMap<IpAddr, u64>,
    old: HashMap<IpAddr, u64>,
}

impl Rates {
    fn new(rate: Rate, capacity: usize) -> Option<Self> {
        let cost = 1e9 / rate.per_second;
        if !(cost.is_finite() && cost > 0.0) || rate.burst == 0 {
            return None;
        }
        let cost_ns = (cost as u64).max(1);
        let burst_ns = cost_ns.saturating_mul(u64::from(rate.burst));
        Some(Self { cost_ns, burst_ns, capacity: capacity.max(1), ..Self::off() })
    }

    fn off() -> Self {
        Self {
            start: Instant::now(),
            cost_ns: 0,
            burst_ns: 0,
            capacity: 1,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// Counts a new connection of a source, by the rule of docs/policy.md s.4. Returns `false` if
    /// the source exceeds its rate.
    fn charge(&mut self, source: IpAddr, now: Instant) -> bool {
        let now =
            u64::try_from(now.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX);
        let tat = self.young.get(&source).or_else(|| self.old.get(&source)).copied().unwrap_or(0);
        let next = tat.max(now).saturating_add(self.cost_ns);
        if next - now > self.burst_ns {
            return false;
        }
        if self.young.len() >= self.capacity && !self.young.contains_key(&source) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(source, next);
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
