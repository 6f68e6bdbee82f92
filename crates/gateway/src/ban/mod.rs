//! Bans of sources and their durations: a state machine without a clock, a kernel or a file.
//!
//! It is fed with refusals per source ([`Bans::refused`]) and the time, says whom to ban, and
//! remembers for how long and the how-manieth time. Its memory is bounded whatever it is fed with:
//! when it is full, the source that was never banned and was refused longest ago is forgotten first.
//!
//! * here: the state machine; `window.rs`: how often within how long;
//! * `evidence.rs`: from the counters of the XDP program to refusals;
//! * `store.rs`: bans as a file.
//!
//! Times are nanoseconds of one clock that never goes back.
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

/// A ban to impose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    /// Addresses that are banned.
    pub prefix: IpNet,
    /// Duration of the ban.
    pub lasts: Duration,
    /// Number of this ban among those of the source since it was last forgiven; from 1.
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
    /// Time at which the ban in force ends; 0: none is in force.
    until: u64,
    /// The source's place in `order`.
    place: Place,
}

/// The order of forgetting: who was never banned, then who was, then (never) who is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Refused,
    Banned,
    InForce,
}

type Place = (Rank, u64);

/// Sources and their bans.
#[derive(Debug)]
pub struct Bans {
    policy: BanConfig,
    watched: HashMap<IpNet, Watched>,
    order: BTreeSet<(Rank, u64, IpNet)>,
    active: usize,
    evicted: u64,
}

impl Bans {
    /// Nobody is watched yet.
    pub fn new(policy: &BanConfig) -> Bans {
        Bans {
            policy: policy.clone(),
            watched: HashMap::new(),
            order: BTreeSet::new(),
            active: 0,
            evicted: 0,
        }
    }

    /// The policy that it goes by.
    pub fn policy(&self) -> &BanConfig {
        &self.policy
    }

    /// Goes by another policy from now on. Bans in force stay as they are; windows of another length
    /// begin anew.
    pub fn set_policy(&mut self, policy: &BanConfig) {
        if policy.within != self.policy.within {
            self.watched.values_mut().for_each(|one| one.window = Window::default());
        }
        self.policy = policy.clone();
        while self.watched.len() > self.capacity() && self.evict() {}
    }

    /// A source was refused `times` more. Returns the ban to impose, which counts as in force from
    /// now on: say [`Bans::spare`] if it could not be imposed.
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
        // What arrives after the ban began was on its way before.
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

    /// Bans that have ended by now. Sources that are to be forgiven are forgotten.
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

    /// The operator took the ban off: the source begins anew. True if one was in force.
    pub fn pardon(&mut self, prefix: IpNet) -> bool {
        let active = self.is_active(prefix);
        self.forget(prefix);
        active
    }

    /// The ban could not be imposed: as if it had not been decided, but for the window, which begins
    /// anew.
    pub fn spare(&mut self, prefix: IpNet, now: u64) {
        if let Some(one) = self.watched.get_mut(&prefix) {
            one.bans = one.bans.saturating_sub(1);
            let rank = if one.bans == 0 { Rank::Refused } else { Rank::Banned };
            self.end(prefix, (rank, now));
        }
    }

    /// A ban from before the start, in force until `until` (or over, and not yet forgiven).
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

    /// Bans in force: whom, until when, the how-manieth.
    pub fn active(&self) -> impl Iterator<Item = (IpNet, u64, u16)> {
        self.order
            .range((Rank::InForce, 0, least())..)
            .map(|(_, until, prefix)| (*prefix, *until, self.count(*prefix)))
    }

    /// Every source that was banned and is not forgiven: whom, when the last ban ended or ends (or
    /// when it was refused last), the how-manieth.
    pub fn banned(&self) -> impl Iterator<Item = (IpNet, u64, u16)> {
        self.order
            .range((Rank::Banned, 0, least())..)
            .map(|(_, at, prefix)| (*prefix, *at, self.count(*prefix)))
    }

    fn count(&self, prefix: IpNet) -> u16 {
        self.watched.get(&prefix).map_or(0, |one| one.bans)
    }

    /// True if a ban of this prefix is in force.
    pub fn is_active(&self, prefix: IpNet) -> bool {
        self.watched.get(&prefix).is_some_and(|one| one.place.0 == Rank::InForce)
    }

    /// Number of bans in force.
    pub fn active_count(&self) -> usize {
        self.active
    }

    /// Number of sources that are watched.
    pub fn watched(&self) -> usize {
        self.watched.len()
    }

    /// Number of sources that were forgotten, or not watched at all, because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn capacity(&self) -> usize {
        self.policy.sources as usize
    }

    /// Frees a slot for one more source if need be and possible; returns whether there is one. Bans in force are not
    /// given up.
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

/// The least prefix there is, to begin a range with.
fn least() -> IpNet {
    IpNet::V4(ipnet::Ipv4Net::default())
}

impl BanConfig {
    /// Duration of the ban number `count` of a source.
    pub fn lasts(&self, count: u16) -> Duration {
        let times = self.growth.powi(i32::from(count.saturating_sub(1)));
        let seconds = self.first.as_secs_f64() * times;
        // Beyond what a duration holds, and infinity, are beyond `max` too.
        Duration::try_from_secs_f64(seconds).map_or(self.max, |lasts| lasts.min(self.max))
    }
}
