//! Bans of sources and their durations: a state machine without a clock, a kernel or a file.
//!
//! Its inputs are the numbers of refused packets per source ([`Bans::refused`]) and the time. It
//! decides which source to ban. For each source, it remembers when the ban ends and how many bans
//! the source has had. Its memory is bounded for any input: when it is full, it first drops the
//! source that was never banned and whose last refusal is oldest.
//!
//! * this file: the state machine; `window.rs`: counts within a sliding window;
//! * `evidence.rs`: computes refusals from the counters of the XDP program;
//! * `store.rs`: bans in a file.
//!
//! Times are nanoseconds of one monotonic clock.
#![forbid(unsafe_code)]

mod evidence;
mod store;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ipnet::IpNet;

use crate::config::{BanConfig, nanos};
use window::Window;

pub use evidence::Evidence;
pub use store::{Kept, StoreError, load, save, set_aside};

/// A ban that the caller must impose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    /// The banned addresses.
    pub prefix: IpNet,
    /// Duration of the ban.
    pub lasts: Duration,
    /// Number of this ban, from 1. Counting restarts when the source is forgiven.
    pub count: u16,
    /// Number of refusals within the window that led to the ban.
    pub refusals: u64,
}

/// State of one watched source.
#[derive(Debug)]
struct Watched {
    window: Window,
    /// Number of bans of the source so far.
    bans: u16,
    /// Time at which the active ban ends, or 0 if no ban is active.
    until: u64,
    /// The source's position in `order`.
    place: Place,
}

/// The order of eviction: first sources that were never banned, then sources that were. Sources
/// with an active ban are never evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Refused,
    Banned,
    InForce,
}

type Place = (Rank, u64);

/// All watched sources and their bans.
#[derive(Debug)]
pub struct Bans {
    policy: BanConfig,
    watched: HashMap<IpNet, Watched>,
    order: BTreeSet<(Rank, u64, IpNet)>,
    active: usize,
    evicted: u64,
}

impl Bans {
    /// Creates the state machine without any sources.
    pub fn new(policy: &BanConfig) -> Bans {
        Bans {
            policy: policy.clone(),
            watched: HashMap::new(),
            order: BTreeSet::new(),
            active: 0,
            evicted: 0,
        }
    }

    /// Returns the current policy.
    pub fn policy(&self) -> &BanConfig {
        &self.policy
    }

    /// Changes the policy. Active bans stay as they are. If the length of the window changes, all
    /// windows start empty.
    pub fn set_policy(&mut self, policy: &BanConfig) {
        if policy.within != self.policy.within {
            self.watched.values_mut().for_each(|one| one.window = Window::default());
        }
        self.policy = policy.clone();
        while self.watched.len() > self.capacity() && self.evict() {}
    }

    /// Records `times` more refusals of a source. Returns the ban that the caller must impose; the
    /// ban is active from now on. If it cannot be imposed, call [`Bans::spare`].
    pub fn refused(&mut self, prefix: IpNet, times: u32, now: u64) -> Option<Ban> {
        if times == 0 {
            return None;
        }
        if !self.watched.contains_key(&prefix) && !self.reserve_slot() {
            self.evicted += 1;
            return None;
        }
        let within = nanos(self.policy.within);
        let one = self.watched.entry(prefix).or_insert_with(|| Watched {
            window: Window::default(),
            bans: 0,
            until: 0,
            place: (Rank::Refused, now),
        });
        // The source is already banned. It sent these packets before the ban took effect.
        if one.until > now {
            return None;
        }
        let refusals = one.window.add(times, now, within);
        if refusals < u64::from(self.policy.times) {
            let rank = if one.bans == 0 { Rank::Refused } else { Rank::Banned };
            self.place(prefix, (rank, now));
            return None;
        }
        one.window = Window::default();
        one.bans = one.bans.saturating_add(1);
        let count = one.bans;
        let lasts = self.policy.lasts(count);
        self.force(prefix, now.saturating_add(nanos(lasts)));
        Some(Ban { prefix, lasts, count, refusals })
    }

    /// Returns the bans that have ended by now. Also removes the sources that are due to be
    /// forgiven.
    pub fn ended(&mut self, now: u64) -> Vec<IpNet> {
        let mut ended = Vec::new();
        while let Some((until, prefix)) = self.first(Rank::InForce).filter(|(at, _)| *at <= now) {
            self.end(prefix, (Rank::Banned, until));
            ended.push(prefix);
        }
        for (rank, lasts) in [
            (Rank::Banned, nanos(self.policy.forgive_after)),
            (Rank::Refused, nanos(self.policy.within)),
        ] {
            while let Some((_, prefix)) =
                self.first(rank).filter(|(at, _)| at.saturating_add(lasts) <= now)
            {
                self.forget(prefix);
            }
        }
        ended
    }

    /// Forgets a source, because the operator lifted its ban. Returns true if a ban was active.
    pub fn pardon(&mut self, prefix: IpNet) -> bool {
        let active = self.is_active(prefix);
        self.forget(prefix);
        active
    }

    /// Reverts a ban that could not be imposed, and forgets the refusals that led to it.
    pub fn spare(&mut self, prefix: IpNet, now: u64) {
        if let Some(one) = self.watched.get_mut(&prefix) {
            one.bans = one.bans.saturating_sub(1);
            let rank = if one.bans == 0 { Rank::Refused } else { Rank::Banned };
            self.end(prefix, (rank, now));
        }
    }

    /// Restores a ban from before the restart. `until` is the time at which the ban ends. It may be
    /// in the past, because a source with an ended ban is remembered until it is forgiven.
    pub fn restore(&mut self, prefix: IpNet, count: u16, until: u64, now: u64) {
        if self.watched.contains_key(&prefix) || !self.reserve_slot() {
            return;
        }
        let place = (Rank::Banned, until.min(now));
        let one = Watched { window: Window::default(), bans: count.max(1), until: 0, place };
        self.watched.insert(prefix, one);
        self.order.insert((place.0, place.1, prefix));
        if until > now {
            self.force(prefix, until);
        }
    }

    /// Returns the active bans, each with its source, its end, and the number of bans that the
    /// source has had.
    pub fn active(&self) -> impl Iterator<Item = (IpNet, u64, u16)> {
        self.order
            .range((Rank::InForce, 0, least())..)
            .map(|(_, until, prefix)| (*prefix, *until, self.count(*prefix)))
    }

    /// Returns every source that was banned and is not forgiven. Each has the end of its last ban
    /// (or the time of its last refusal), and its number of bans.
    pub fn banned(&self) -> impl Iterator<Item = (IpNet, u64, u16)> {
        self.order
            .range((Rank::Banned, 0, least())..)
            .map(|(_, at, prefix)| (*prefix, *at, self.count(*prefix)))
    }

    fn count(&self, prefix: IpNet) -> u16 {
        self.watched.get(&prefix).map_or(0, |one| one.bans)
    }

    /// Returns true if a ban of this prefix is active.
    pub fn is_active(&self, prefix: IpNet) -> bool {
        self.watched.get(&prefix).is_some_and(|one| one.place.0 == Rank::InForce)
    }

    /// Returns the number of active bans.
    pub fn active_count(&self) -> usize {
        self.active
    }

    /// Returns the number of watched sources.
    pub fn watched(&self) -> usize {
        self.watched.len()
    }

    /// Returns the number of sources that were dropped, or were never watched, because the table
    /// was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn capacity(&self) -> usize {
        self.policy.sources as usize
    }

    /// Makes room for one more source if necessary. Returns false if there is no room, because
    /// sources with active bans are not dropped.
    fn reserve_slot(&mut self) -> bool {
        self.watched.len() < self.capacity() || self.evict()
    }

    fn evict(&mut self) -> bool {
        match self.order.first().copied() {
            Some((Rank::Refused | Rank::Banned, _, prefix)) => {
                self.forget(prefix);
                self.evicted += 1;
                true
            }
            _ => false,
        }
    }

    fn first(&self, rank: Rank) -> Option<(u64, IpNet)> {
        let (found, at, prefix) = self.order.range((rank, 0, least())..).next()?;
        (*found == rank).then_some((*at, *prefix))
    }

    fn place(&mut self, prefix: IpNet, place: Place) {
        let Some(one) = self.watched.get_mut(&prefix) else { return };
        self.order.remove(&(one.place.0, one.place.1, prefix));
        self.order.insert((place.0, place.1, prefix));
        one.place = place;
    }

    fn force(&mut self, prefix: IpNet, until: u64) {
        if let Some(one) = self.watched.get_mut(&prefix) {
            one.until = until;
            self.active += 1;
            self.place(prefix, (Rank::InForce, until));
        }
    }

    fn end(&mut self, prefix: IpNet, place: Place) {
        if let Some(one) = self.watched.get_mut(&prefix) {
            self.active -= usize::from(one.place.0 == Rank::InForce);
            one.until = 0;
            self.place(prefix, place);
        }
    }

    fn forget(&mut self, prefix: IpNet) {
        if let Some(one) = self.watched.remove(&prefix) {
            self.active -= usize::from(one.place.0 == Rank::InForce);
            self.order.remove(&(one.place.0, one.place.1, prefix));
        }
    }
}

/// Returns the smallest prefix, the start of a range over all prefixes.
fn least() -> IpNet {
    IpNet::V4(ipnet::Ipv4Net::default())
}

impl BanConfig {
    /// Returns the duration of ban number `count` of a source.
    pub fn lasts(&self, count: u16) -> Duration {
        let times = self.growth.powi(i32::from(count.saturating_sub(1)));
        let seconds = self.first.as_secs_f64() * times;
        // An infinite number of seconds, or one that does not fit into a `Duration`, exceeds `max`.
        Duration::try_from_secs_f64(seconds).map_or(self.max, |lasts| lasts.min(self.max))
    }
}
