//! Accounts that limit the steps and memory of peers' plugins: one for each address, and one for
//! all peers of an endpoint. Without them, a peer would get more steps by opening more connections.
//! Each connection also has an [`Allowance`](super::Allowance), which takes its steps from these
//! accounts.
//!
//! Half of the steps of all peers are for offering and loading plugins. If offers and loads need
//! more than that, the peers that have spent the least recently are served first (see
//! [`Account::pay`]).

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

/// Maximum number of addresses with an account of their own: in total, and in one network. All
/// other addresses share accounts.
const MAX_ADDRESSES: usize = 4096;
const MAX_OF_NETWORK: usize = 128;

/// Number of accounts that addresses without an account of their own share.
const SHARED: u64 = 64;

/// Minimum time between two searches for idle accounts, in nanoseconds.
const LOOK: u64 = 250_000_000;

/// Number of recent steps below which the account of an idle address or network is forgotten. One
/// offer costs more steps than this.
const FORGOTTEN: u64 = 100_000;

/// When few places for plugins are left in the process, only an address with at most this many
/// plugins gets one.
const FEW: usize = 16;

/// When few places for plugins are left, only an address whose network has at most this many
/// plugins gets one.
const FEW_OF_NETWORK: usize = 8 * FEW;

/// Accounts of an endpoint: one for all peers together, and one for each address. An address is an
/// IPv4 address or an IPv6 /64. Exchange configurations that share this value share the limits.
#[derive(Debug, Default)]
pub struct Accounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Steps of all peers together. `None` until the first offer arrives.
    all: Option<Arc<Mutex<All>>>,
    of_addresses: HashMap<u128, Arc<Account>>,
    /// Networks that contain the addresses in `of_addresses`.
    networks: HashMap<u128, Arc<Mutex<Network>>>,
    /// Accounts of addresses that have no account of their own. The key is a hash that peers cannot
    /// predict.
    shared: HashMap<u64, Arc<Account>>,
    hasher: RandomState,
    /// Earliest time of the next search for idle accounts.
    look_at: u64,
}

/// Steps that all peers together may use.
#[derive(Debug)]
struct All {
    /// Steps for offering, loading and running plugins.
    steps: Bucket,
    /// The part of `steps` that offers and loads may use. Running plugins cannot use it up.
    offers: Bucket,
}

/// An IPv4 /24 or IPv6 /48 network, which often belongs to a single customer.
#[derive(Debug, Default)]
struct Network {
    /// Number of addresses of this network that have an account.
    addresses: usize,
    /// Steps that the network's addresses recently spent on offers and loads.
    recent: Recent,
    /// Number of plugins of the network's addresses.
    plugins: usize,
}

/// Account of one address, with its steps and memory.
#[derive(Debug)]
pub struct Account {
    own: Mutex<Own>,
    network: Arc<Mutex<Network>>,
    all: Arc<Mutex<All>>,
}

#[derive(Debug)]
struct Own {
    steps: Bucket,
    /// Steps that the address recently spent on offers and loads.
    recent: Recent,
    /// Maximum memory of the address's plugins, in bytes.
    most: usize,
    usage: Usage,
}

/// Steps and memory that an account has given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of steps taken from the account since it was created.
    pub steps: u64,
    /// Number of times that a call, an offer or a load was refused because too few steps were left.
    pub refused: u64,
    /// Memory that the address's plugins hold now, in bytes. It includes bundles that are being
    /// fetched.
    pub bytes: usize,
    /// Number of plugins that hold the memory counted in `bytes`.
    pub plugins: usize,
}

/// Memory that is charged to an account until this value is dropped.
#[derive(Debug)]
pub struct Bytes {
    account: Arc<Account>,
    bytes: usize,
}

impl Bytes {
    /// Returns the amount of memory, in bytes.
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

/// Returns a bucket that saves up at most the steps of a quarter of a second, so that bursts are
/// short.
pub(super) fn rate(per_second: u64) -> Bucket {
    Bucket::new(per_second, per_second.div_ceil(4))
}

/// Returns two identifiers of an address: one of the part that belongs to one host (an IPv4 address
/// or an IPv6 /64), and one of the surrounding network (an IPv4 /24 or IPv6 /48).
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
    /// Returns the account of an address. The account keeps the limits that applied when the
    /// address was first seen. If the address is `None`, the account is a new one that only the
    /// caller's connection uses. `now` is in nanoseconds on the connection's clock.
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
            // The search for idle accounts takes time proportional to the number of accounts, so a
            // peer must not be able to cause it often.
            if now >= state.look_at {
                state.look_at = now.saturating_add(LOOK);
                state.forget_idle(now);
            }
            if state.of_addresses.len() >= MAX_ADDRESSES || crowded(state) {
                // All addresses of one network share the same account, so that they cannot get more
                // than one.
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
    /// Removes the accounts that no connection uses and whose state equals that of a new account.
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
        // A network without addresses is still kept because of its recent steps, unless too many
        // networks are kept.
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
    /// Takes up to `want` steps for running plugins. Returns the number of steps taken, which is
    /// limited by what the address and all peers together have left. If it is less than `need`, the
    /// call counts as refused.
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

    /// Takes exactly `cost` steps for an offer or a load. Returns `false` and takes nothing if too
    /// few steps are left, or if the remaining steps are reserved for other peers.
    ///
    /// Half of the steps of all peers are for offers and loads, and running plugins cannot use that
    /// half up. While much of that half is left, every address may use it. As it runs out, only
    /// addresses that have spent little in the last seconds, and whose networks have spent little,
    /// are served. Peers that make offers all the time therefore get equal shares, and a peer that
    /// has made no offer recently is always served before them.
    pub fn pay(&self, cost: u64, now: u64) -> bool {
        let (mut own, mut network) = (lock(&self.own), lock(&self.network));
        let mut all = lock(&self.all);
        own.steps.refill(now);
        all.steps.refill(now);
        all.offers.refill(now);
        let (of_address, of_network) = (own.recent.at(now), network.recent.at(now));
        let most = all.offers.most();
        // A network may spend four times as much as one address.
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

    /// Charges steps that running plugins have already used. The account goes into debt if it has
    /// fewer steps left.
    pub fn owe(&self, cost: u64) {
        lock(&self.own).spend(cost);
        lock(&self.all).steps.spend(cost);
    }

    /// Charges the additional steps of a load that took longer than expected. The account goes into
    /// debt if it has fewer steps left.
    pub fn owe_for_load(&self, cost: u64) {
        let (mut own, mut network) = (lock(&self.own), lock(&self.network));
        let mut all = lock(&self.all);
        own.spend(cost);
        own.recent.add(cost);
        network.recent.add(cost);
        all.offers.spend(cost);
        all.steps.spend(cost);
    }

    /// Returns `true` if the process has room for one more plugin of this address. While at most a
    /// quarter of the places or of the memory for peers' plugins is left, only addresses and
    /// networks with few plugins get a place.
    pub fn has_place(&self) -> bool {
        if !places::are_few() {
            return true;
        }
        let few = lock(&self.own).usage.plugins <= FEW;
        few && lock(&self.network).plugins <= FEW_OF_NETWORK
    }

    /// Charges `bytes` of memory to the address. The caller holds `freed` bytes now and is about to
    /// return them, so the limit applies to the memory without these.
    ///
    /// # Errors
    /// The address's limit in bytes, if its plugins would exceed it.
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

    /// Returns the steps and memory that the account has handed out.
    pub fn usage(&self) -> Usage {
        lock(&self.own).usage
    }
}

/// Returns the number of steps for offers and loads that an address must leave to others if it has
/// recently spent `recent` steps. `most` is the maximum that can be saved up for offers and loads:
/// their share of a quarter of a second.
///
/// If `recent` is below `most / 4`, the result is 0. From there on, the result grows from a quarter
/// of `most` to three quarters. It reaches three quarters when `recent` is 16 times `most`. The
/// offers of all peers together get that number of steps in four seconds.
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
