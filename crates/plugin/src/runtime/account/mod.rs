//! Steps and memory that the peers' plugins of one address, and those of all peers of an endpoint,
//! have together. A connection has an [`Allowance`](super::Allowance) of its own, which takes its
//! steps from here; otherwise a peer would get more by opening more connections.
//!
//! Offers and loads have half of the steps of all peers. If they want more than that, the peers that have spent the
//! least lately go first: see [`Account::pay`].

mod recent;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bucket::Bucket;
use super::places;
use crate::policy::Limits;
use recent::Recent;

/// Addresses that are remembered at a time, and addresses of one network. Further addresses share
/// accounts.
const MAX_ADDRESSES: usize = 4096;
const MAX_OF_NETWORK: usize = 128;

/// Accounts that addresses share if they find no room.
const SHARED: u64 = 64;

/// Nanoseconds after which idle accounts are looked for again.
const LOOK: u64 = 250_000_000;

/// Recent steps below which an account counts as new: less than an offer costs.
const FORGOTTEN: u64 = 100_000;

/// Plugins of a small holder: an address that still gets some when few places are left.
const FEW: usize = 16;

/// Plugins of a small holder's network.
const FEW_OF_NETWORK: usize = 8 * FEW;

/// Accounts of an endpoint: of all peers together, and of each address: an IPv4 address or an IPv6
/// /64. Configurations that share them share the limits.
#[derive(Debug, Default)]
pub struct Accounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Steps of all peers together. `None` until the first plugin comes.
    all: Option<Arc<Mutex<All>>>,
    of_addresses: HashMap<u128, Arc<Account>>,
    /// Networks of these addresses.
    networks: HashMap<u128, Arc<Mutex<Network>>>,
    /// The accounts of addresses that find no room, by a hash that peers cannot foresee.
    shared: HashMap<u64, Arc<Account>>,
    hasher: RandomState,
    /// Time from which on idle accounts may be looked for again.
    look_at: u64,
}

/// Steps of all peers together.
#[derive(Debug)]
struct All {
    /// Steps for offers, loads and plugins that run.
    steps: Bucket,
    /// The part of `steps` that offers and loads may have. Plugins that run do not use it up.
    offers: Bucket,
}

/// An IPv4 /24 or an IPv6 /48, which often belongs to one customer.
#[derive(Debug, Default)]
struct Network {
    /// Addresses of it that have an account.
    addresses: usize,
    /// Offers and loads of all its addresses.
    recent: Recent,
    /// Plugins of all its addresses.
    plugins: usize,
}

/// Steps and memory of one address.
#[derive(Debug)]
pub struct Account {
    own: Mutex<Own>,
    network: Arc<Mutex<Network>>,
    all: Arc<Mutex<All>>,
}

#[derive(Debug)]
struct Own {
    steps: Bucket,
    /// Offers and loads.
    recent: Recent,
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
    /// Plugins that take these bytes.
    pub plugins: usize,
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
        usage.plugins = usage.plugins.saturating_sub(1);
        let mut network = lock(&self.account.network);
        network.plugins = network.plugins.saturating_sub(1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A quarter of a second's worth is saved up at most, so that a burst is short.
pub(super) fn rate(per_second: u64) -> Bucket {
    Bucket::new(per_second, per_second.div_ceil(4))
}

/// Returns the part of an address that one host or network owns, an IPv4 address or an IPv6 /64, and the IPv4 /24 or
/// IPv6 /48 that it is in.
fn owner(address: IpAddr) -> (u128, u128) {
    match address.to_canonical() {
        IpAddr::V4(address) => (u128::from(address.to_bits()), u128::from(address.to_bits() >> 8)),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64 << 64 | 1 << 63, bits >> 80 << 80 | 1 << 63)
        }
    }
}

impl Accounts {
    /// Returns the account of an address, by the limits that hold when the address is first seen.
    /// Without an address, the account is of this connection only. `now` is in nanoseconds on the
    /// connection's clock.
    pub fn of(&self, address: Option<IpAddr>, limits: &Limits, now: u64) -> Arc<Account> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let make = || Arc::new(Mutex::new(All::new(limits.process_steps_per_second)));
        let all = Arc::clone(state.all.get_or_insert_with(make));
        let fresh = |network| {
            let (steps, most) = (rate(limits.address_steps_per_second), limits.address_memory);
            let own = Own { steps, recent: Recent::default(), most, usage: Usage::default() };
            Arc::new(Account { own: Mutex::new(own), network, all: Arc::clone(&all) })
        };
        let Some(address) = address else { return fresh(Arc::default()) };
        let (key, network_key) = owner(address);
        if let Some(known) = state.of_addresses.get(&key) {
            return Arc::clone(known);
        }
        let full = state.of_addresses.len() >= MAX_ADDRESSES;
        let crowded = |state: &State| {
            let network = state.networks.get(&network_key);
            network.is_some_and(|network| lock(network).addresses >= MAX_OF_NETWORK)
        };
        if full || crowded(state) {
            // That takes as long as there are accounts, so a peer must not cause it often.
            if now >= state.look_at {
                state.look_at = now.saturating_add(LOOK);
                state.forget_idle(now);
            }
            if state.of_addresses.len() >= MAX_ADDRESSES || crowded(state) {
                // A network that has many addresses shares with itself.
                let hash = state.hasher.hash_one(network_key) % SHARED;
                let shared = || fresh(Arc::default());
                return Arc::clone(state.shared.entry(hash).or_insert_with(shared));
            }
        }
        let network = Arc::clone(state.networks.entry(network_key).or_default());
        lock(&network).addresses += 1;
        let account = fresh(network);
        state.of_addresses.insert(key, Arc::clone(&account));
        account
    }
}

impl State {
    /// Forgets accounts that no connection has and that differ in nothing from new ones.
    fn forget_idle(&mut self, now: u64) {
        self.of_addresses.retain(|_, account| {
            if Arc::strong_count(account) > 1 || !lock(&account.own).is_as_new(now) {
                return true;
            }
            lock(&account.network).addresses -= 1;
            false
        });
        self.networks.retain(|_, network| {
            let mut network = lock(network);
            network.addresses > 0 || network.recent.at(now) >= FORGOTTEN
        });
        // A network without addresses is remembered for what it has spent, but not at any price.
        if self.networks.len() >= 2 * MAX_ADDRESSES {
            self.networks.retain(|_, network| lock(network).addresses > 0);
        }
    }
}

impl All {
    fn new(per_second: u64) -> All {
        All { steps: rate(per_second), offers: rate(per_second / 2) }
    }
}

impl Account {
    /// Takes up to `want` steps for plugins that run, as many as the address and all peers together
    /// have left. A call needs `need` of them.
    pub fn take(&self, need: u64, want: u64, now: u64) -> u64 {
        let (mut own, mut all) = (lock(&self.own), lock(&self.all));
        own.steps.refill(now);
        all.steps.refill(now);
        let given = want.min(own.steps.left()).min(all.steps.left());
        own.spend(given);
        all.steps.spend(given);
        own.usage.refused += u64::from(given < need);
        given
    }

    /// Takes exactly `cost` steps for an offer or a load. Returns false, and takes nothing, if the
    /// address has fewer left, or if others go first.
    ///
    /// Offers and loads of all peers have half of the steps of all peers, and plugins that run cannot use that half up.
    /// While much of that half is left, every address may use it. The less is left, the less an address, and its
    /// network, may have spent in the last seconds. So peers that make offers all the time have equal
    /// shares, and one that has made none lately is always served before them.
    pub fn pay(&self, cost: u64, now: u64) -> bool {
        let (mut own, mut network) = (lock(&self.own), lock(&self.network));
        let mut all = lock(&self.all);
        own.steps.refill(now);
        all.steps.refill(now);
        all.offers.refill(now);
        let (of_address, of_network) = (own.recent.at(now), network.recent.at(now));
        let most = all.offers.most();
        // A network counts as four addresses.
        let reserve = reserve(of_address.max(of_network / 4), most);
        let needed = cost.saturating_add(reserve).min(most.max(cost));
        if own.steps.left() < cost || all.offers.left() < needed {
            own.usage.refused += 1;
            return false;
        }
        own.spend(cost);
        own.recent.add(cost);
        network.recent.add(cost);
        all.offers.spend(cost);
        all.steps.spend(cost);
        true
    }

    /// Takes steps for what plugins that run have done already, even if that leaves a debt.
    pub fn owe(&self, cost: u64) {
        lock(&self.own).spend(cost);
        lock(&self.all).steps.spend(cost);
    }

    /// Takes steps for a load that took longer than was paid for, even if that leaves a debt.
    pub fn owe_for_load(&self, cost: u64) {
        let (mut own, mut network) = (lock(&self.own), lock(&self.network));
        let mut all = lock(&self.all);
        own.spend(cost);
        own.recent.add(cost);
        network.recent.add(cost);
        all.offers.spend(cost);
        all.steps.spend(cost);
    }

    /// Returns whether the process has a place for one more plugin of this address. While a quarter of the places, or
    /// of the memory of all peers, or less is left, they are for addresses and networks that have few plugins.
    pub fn has_place(&self) -> bool {
        if !places::are_few() {
            return true;
        }
        let few = lock(&self.own).usage.plugins <= FEW;
        few && lock(&self.network).plugins <= FEW_OF_NETWORK
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
        own.usage.plugins += 1;
        lock(&self.network).plugins += 1;
        Ok(Bytes { account: Arc::clone(self), bytes })
    }

    /// Returns what the account has given out.
    pub fn usage(&self) -> Usage {
        lock(&self.own).usage
    }
}

/// Returns the steps for offers that an address must leave to others if it has spent `recent` steps lately. `most` is
/// the most that can be saved up, a quarter of a second's.
///
/// Below `most / 4`, the result is 0. From there on it is a quarter of `most`, and grows to three quarters at 16 times
/// `most`, which is four seconds' worth of the offers of all peers.
fn reserve(recent: u64, most: u64) -> u64 {
    if recent < most / 4 {
        return 0;
    }
    let full = most.saturating_mul(16).max(1);
    let part = u128::from(most / 2) * u128::from(recent.min(full)) / u128::from(full);
    most / 4 + u64::try_from(part).unwrap_or(most / 2)
}

impl Own {
    fn spend(&mut self, steps: u64) {
        self.steps.spend(steps);
        self.usage.steps = self.usage.steps.saturating_add(steps);
    }

    fn is_as_new(&mut self, now: u64) -> bool {
        self.steps.is_full(now) && self.recent.at(now) < FORGOTTEN
    }
}
