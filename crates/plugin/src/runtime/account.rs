//! Steps and memory that the peers' plugins of one address, and those of all peers of an endpoint,
//! have together. A connection has an [`Allowance`](super::Allowance) of its own, which takes its
//! steps from here; otherwise a peer would get more by opening more connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bucket::Bucket;
use crate::policy::Limits;

/// Addresses that are remembered at a time. When there are more, the new ones share one account.
const MAX_ADDRESSES: usize = 4096;

/// Accounts of an endpoint: of all peers together, and of each address: an IPv4 address or an IPv6
/// /64. Configurations that share them share the limits.
#[derive(Debug, Default)]
pub struct Accounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Steps of all peers together; none until the first plugin comes.
    all: Option<Arc<Mutex<Bucket>>>,
    of_addresses: HashMap<u128, Arc<Account>>,
    /// The account of addresses that find no room.
    shared: Option<Arc<Account>>,
}

/// Steps and memory of one address.
#[derive(Debug)]
pub struct Account {
    own: Mutex<Own>,
    all: Arc<Mutex<Bucket>>,
}

#[derive(Debug)]
struct Own {
    steps: Bucket,
    /// Most bytes that the plugins of the address take.
    most: usize,
    usage: Usage,
}

/// Steps and memory that an account has given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Steps that were taken since the account was made.
    pub steps: u64,
    /// Number of times that fewer steps were left than a call, an offer or a load needed.
    pub refused: u64,
    /// Bytes that the plugins of the address take now, including bundles that are being fetched.
    pub bytes: usize,
}

/// Bytes of an account, which returns them when this is dropped.
#[derive(Debug)]
pub struct Bytes {
    account: Arc<Account>,
    bytes: usize,
}

impl Bytes {
    /// Number of bytes.
    pub fn count(&self) -> usize {
        self.bytes
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let usage = &mut lock(&self.account.own).usage;
        usage.bytes = usage.bytes.saturating_sub(self.bytes);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A quarter of a second's worth is saved up at most, so that a burst is short.
pub(super) fn rate(per_second: u64) -> Bucket {
    Bucket::new(per_second, per_second.div_ceil(4))
}

/// The part of an address that one host or network owns: an IPv4 address, or an IPv6 /64.
fn owner(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64 | 1 << 63,
    }
}

impl Accounts {
    /// The account of an address, by the limits that hold when the address is first seen. `None`:
    /// the address is not known, and the account is of this connection only. `now` is in
    /// nanoseconds on the connection's clock.
    pub fn of(&self, address: Option<IpAddr>, limits: &Limits, now: u64) -> Arc<Account> {
        let mut state = lock(&self.state);
        let all = || Arc::new(Mutex::new(rate(limits.process_steps_per_second)));
        let all = Arc::clone(state.all.get_or_insert_with(all));
        let fresh = || {
            let steps = rate(limits.address_steps_per_second);
            let own = Own { steps, most: limits.address_memory, usage: Usage::default() };
            Arc::new(Account { own: Mutex::new(own), all: Arc::clone(&all) })
        };
        let Some(address) = address else { return fresh() };
        let key = owner(address);
        if let Some(known) = state.of_addresses.get(&key) {
            return Arc::clone(known);
        }
        if state.of_addresses.len() >= MAX_ADDRESSES {
            // An account that owes nothing is the same as a new one.
            state.of_addresses.retain(|_, account| {
                Arc::strong_count(account) > 1 || !lock(&account.own).steps.is_full(now)
            });
            if state.of_addresses.len() >= MAX_ADDRESSES {
                return Arc::clone(state.shared.get_or_insert_with(fresh));
            }
        }
        let account = fresh();
        state.of_addresses.insert(key, Arc::clone(&account));
        account
    }
}

impl Account {
    /// Takes up to `want` steps, as many as the address and all peers together have left. A call
    /// needs `need` of them.
    pub fn take(&self, need: u64, want: u64, now: u64) -> u64 {
        let (mut own, mut all) = (lock(&self.own), lock(&self.all));
        own.steps.refill(now);
        all.refill(now);
        let given = want.min(own.steps.left()).min(all.left());
        own.spend(given);
        all.spend(given);
        own.usage.refused += u64::from(given < need);
        given
    }

    /// Takes exactly `cost` steps for an offer or a load; returns false, and takes nothing, if the
    /// address has fewer left. Half of what all peers share is reserved for plugins that run, so
    /// offers from many addresses do not stop them.
    pub fn pay(&self, cost: u64, now: u64) -> bool {
        let (mut own, mut all) = (lock(&self.own), lock(&self.all));
        own.steps.refill(now);
        all.refill(now);
        let reserved = if cost > 0 { all.most() / 2 } else { 0 };
        if own.steps.left() < cost || all.left() < cost.saturating_add(reserved) {
            own.usage.refused += 1;
            return false;
        }
        own.spend(cost);
        all.spend(cost);
        true
    }

    /// Takes steps for what has been done already, even if that leaves a debt.
    pub fn owe(&self, cost: u64) {
        lock(&self.own).spend(cost);
        lock(&self.all).spend(cost);
    }

    /// Takes memory for `bytes`, which replace `freed` bytes that are held now and are about to be
    /// returned. Returns the most that the address may have if that is too much.
    ///
    /// # Errors
    /// The limit in bytes: the plugins of the address would take more.
    pub fn hold(self: &Arc<Account>, bytes: usize, freed: usize) -> Result<Bytes, usize> {
        let mut own = lock(&self.own);
        let kept = own.usage.bytes.saturating_sub(freed);
        if kept.saturating_add(bytes) > own.most {
            return Err(own.most);
        }
        own.usage.bytes = own.usage.bytes.saturating_add(bytes);
        Ok(Bytes { account: Arc::clone(self), bytes })
    }

    /// Returns what the account has given out.
    pub fn usage(&self) -> Usage {
        lock(&self.own).usage
    }
}

impl Own {
    fn spend(&mut self, steps: u64) {
        self.steps.spend(steps);
        self.usage.steps = self.usage.steps.saturating_add(steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { address_steps_per_second: 400, process_steps_per_second: 600, ..Limits::default() }
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn account_is_shared_by_connections_of_an_address_and_bounded_by_all() {
        let accounts = Accounts::default();
        let of = |text| accounts.of(address(text), &limits(), 0);
        assert_eq!(of("192.0.2.1").take(60, 60, 0), 60);
        // The same address, as a socket for both families shows it.
        assert_eq!(of("::ffff:192.0.2.1").take(60, 60, 0), 40);
        // All peers have 150 together.
        assert_eq!(of("2001:db8::1").take(100, 100, 0), 50);
        assert_eq!(of("192.0.2.2").take(1, 1, 0), 0);
        // A second later: the address has its quarter again.
        assert_eq!(of("192.0.2.1").take(1_000, 1_000, 1_000_000_000), 100);
    }

    #[test]
    fn account_counts_what_it_gives_and_refuses() {
        let account = Accounts::default().of(address("192.0.2.1"), &limits(), 0);
        assert_eq!(
            (account.take(60, 60, 0), account.pay(50, 0), account.take(60, 60, 0)),
            (60, false, 40)
        );
        account.owe(7);
        let usage = account.usage();
        assert_eq!((usage.steps, usage.refused), (107, 2));
    }

    #[test]
    fn account_reserves_half_of_all_steps_for_plugins_that_run() {
        let accounts = Accounts::default();
        let of = |text| accounts.of(address(text), &limits(), 0);
        // All peers have 150 steps together, of which offers get 75.
        assert!(of("192.0.2.1").pay(40, 0) && !of("192.0.2.2").pay(40, 0));
        assert!(of("192.0.2.2").pay(35, 0) && !of("192.0.2.3").pay(1, 0));
        assert_eq!(of("192.0.2.3").take(75, 75, 0), 75);
    }

    #[test]
    fn account_bounds_the_memory_of_an_address() {
        let limits = Limits { address_memory: 100, ..limits() };
        let accounts = Accounts::default();
        let of = |text| accounts.of(address(text), &limits, 0);
        let first = of("192.0.2.1").hold(60, 0).unwrap();
        let second = of("192.0.2.1").hold(40, 0).unwrap();
        assert_eq!(of("192.0.2.1").hold(1, 0).unwrap_err(), 100);
        assert!(of("192.0.2.2").hold(100, 0).is_ok(), "another address");
        // In the place of another, which goes.
        let third = of("192.0.2.1").hold(60, first.count()).unwrap();
        drop(first);
        assert_eq!(of("192.0.2.1").usage().bytes, 100);
        drop((second, third));
        assert_eq!(of("192.0.2.1").usage().bytes, 0);
        assert!(of("192.0.2.1").hold(usize::MAX, usize::MAX).is_err());
    }

    #[test]
    fn account_of_ipv6_is_that_of_the_network() {
        let accounts = Accounts::default();
        let of = |text| accounts.of(address(text), &limits(), 0);
        assert!(Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8::ffff:1")));
        assert!(!Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8:0:1::1")));
        assert!(!Arc::ptr_eq(&of("::1"), &of("0.0.0.1")));
    }

    #[test]
    fn account_outlives_its_connections_until_it_is_full() {
        let accounts = Accounts::default();
        for one in 0..=MAX_ADDRESSES as u32 {
            let address = Some(IpAddr::from(one.to_be_bytes()));
            assert!(accounts.of(address, &limits(), 0).pay(0, 0));
            accounts.of(address, &limits(), 0).owe(1);
        }
        // No account is full: the last address has no account of its own.
        assert_eq!(lock(&accounts.state).of_addresses.len(), MAX_ADDRESSES);
        let later = 3_600_000_000_000;
        accounts.of(address("192.0.2.1"), &limits(), later);
        assert_eq!(lock(&accounts.state).of_addresses.len(), 1);
    }
}
