//! State that the congestion controllers of a connection's paths share.
//!
//! Each controller writes its own entry and reads the entries of the others. A connection runs on
//! only one thread at a time, so there is no contention. The entries are atomic only because a
//! connection may move to another thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::Timestamp;

/// Number of entries of a connection's group that are allocated at a time.
const PLACES: usize = 8;

/// Number of round trips after which a path that has sent nothing is ignored. Otherwise an idle
/// backup path would slow down the other paths.
const IDLE_ROUNDS: u32 = 3;

/// State of one path that the controllers of the other paths read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    /// Congestion window in bytes.
    pub window: u64,
    /// Smoothed round-trip time of the path.
    pub rtt: Duration,
    /// Bytes acknowledged on the path between its last two losses, or since its last loss,
    /// whichever is more.
    pub between_losses: u64,
    /// Time at which the path last sent a packet that counts as in flight.
    pub last_sent: Timestamp,
}

impl Figures {
    /// Returns true if the path has sent a packet within its last few round trips.
    fn is_active(&self, now: Timestamp) -> bool {
        now.since(self.last_sent) <= self.rtt * IDLE_ROUNDS
    }

    /// Returns the congestion window in bytes. It is never zero, so that it can be a divisor.
    pub(super) fn bytes(&self) -> f64 {
        self.window.max(1) as f64
    }

    /// Returns the round-trip time in seconds. It is never zero, so that it can be a divisor.
    pub(super) fn seconds(&self) -> f64 {
        super::super::seconds(self.rtt)
    }
}

/// An entry of the group. It holds the state of one path, and belongs to that path's controller.
#[derive(Debug, Default)]
struct Place {
    taken: AtomicBool,
    window: AtomicU64,
    rtt_nanos: AtomicU64,
    between_losses: AtomicU64,
    last_sent: AtomicU64,
}

impl Place {
    fn write(&self, figures: &Figures) {
        let nanos = u64::try_from(figures.rtt.as_nanos()).unwrap_or(u64::MAX);
        self.window.store(figures.window, Ordering::Relaxed);
        self.rtt_nanos.store(nanos, Ordering::Relaxed);
        self.between_losses.store(figures.between_losses, Ordering::Relaxed);
        self.last_sent.store(figures.last_sent.as_nanos(), Ordering::Relaxed);
    }

    fn read(&self) -> Figures {
        Figures {
            window: self.window.load(Ordering::Relaxed),
            rtt: Duration::from_nanos(self.rtt_nanos.load(Ordering::Relaxed)),
            between_losses: self.between_losses.load(Ordering::Relaxed),
            last_sent: Timestamp::from_nanos(self.last_sent.load(Ordering::Relaxed)),
        }
    }
}

/// The entries of all controllers of a connection.
#[derive(Debug, Default)]
pub(crate) struct Group {
    places: [Place; PLACES],
    /// Further entries. They are allocated when all entries in `places` belong to a controller.
    more: OnceLock<Box<Group>>,
}

impl Group {
    /// Reserves a free entry for a controller, and returns its number.
    fn take(&self) -> usize {
        let mut group = self;
        for first in (0..).step_by(PLACES) {
            for (place, number) in group.places.iter().zip(first..) {
                if !place.taken.swap(true, Ordering::Relaxed) {
                    return number;
                }
            }
            group = group.more.get_or_init(Box::default);
        }
        usize::MAX
    }

    fn place(&self, number: usize) -> Option<&Place> {
        let mut group = self;
        for _ in 0..number / PLACES {
            group = group.more.get()?;
        }
        group.places.get(number % PLACES)
    }

    /// Returns the entries that belong to a controller, with their numbers.
    fn taken(&self) -> impl Iterator<Item = (usize, &Place)> + Clone {
        let parts = std::iter::successors(Some(self), |group| group.more.get().map(|more| &**more));
        let places = parts.flat_map(|group| &group.places).enumerate();
        places.filter(|(_, place)| place.taken.load(Ordering::Relaxed))
    }
}

/// Gives one controller access to its entry and to the entries of its connection's other paths.
#[derive(Debug)]
pub(super) struct Member {
    group: Arc<Group>,
    /// Index of this path's entry in the group. `None` before the path's first RTT sample.
    place: Option<usize>,
}

impl Member {
    /// Creates a member without an entry. The other controllers ignore it until [`Member::join`].
    pub(super) fn of(group: &Arc<Group>) -> Member {
        Member { group: group.clone(), place: None }
    }

    /// Reserves an entry for this path, if it has none yet.
    pub(super) fn join(&mut self) {
        if self.place.is_none() {
            self.place = Some(self.group.take());
        }
    }

    fn place(&self) -> Option<&Place> {
        self.group.place(self.place?)
    }

    /// Publishes the state of this path to the controllers of the other paths.
    pub(super) fn publish(&self, figures: &Figures) {
        if let Some(place) = self.place() {
            place.write(figures);
        }
    }

    /// Publishes the congestion window of the path, in bytes, to the other members.
    pub(super) fn on_window(&self, window: u64) {
        if let Some(place) = self.place() {
            place.window.store(window, Ordering::Relaxed);
        }
    }

    /// Publishes that the path has sent a packet.
    pub(super) fn on_sent(&self, now: Timestamp) {
        if let Some(place) = self.place() {
            place.last_sent.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Returns this path's own state, as the controllers of the other paths see it.
    pub(super) fn own(&self) -> Figures {
        self.place().map_or(
            Figures {
                window: 0,
                rtt: Duration::ZERO,
                between_losses: 0,
                last_sent: Timestamp::START,
            },
            Place::read,
        )
    }

    /// Returns the state of this path and of all other paths that are in use.
    pub(super) fn siblings(&self, now: Timestamp) -> impl Iterator<Item = Figures> + Clone {
        let own = self.place;
        self.group.taken().filter_map(move |(number, place)| {
            let figures = place.read();
            (Some(number) == own || figures.is_active(now)).then_some(figures)
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(place) = self.place() {
            place.taken.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn figures(window: u64, last_sent: Timestamp) -> Figures {
        Figures { window, rtt: Duration::from_millis(10), between_losses: 0, last_sent }
    }

    fn windows(member: &Member, now: Timestamp) -> Vec<u64> {
        member.siblings(now).map(|figures| figures.window).collect()
    }

    #[test]
    fn coupled_group_counts_members_until_they_leave() {
        let group = Arc::default();
        let mut first = Member::of(&group);
        let mut second = Member::of(&group);
        first.join();
        first.publish(&figures(1, at(0)));
        second.publish(&figures(2, at(0)));
        assert_eq!(windows(&first, at(1)), [1], "the second member has not joined");
        second.join();
        second.publish(&figures(2, at(0)));
        assert_eq!(windows(&first, at(1)), [1, 2]);
        drop(first);
        assert_eq!(windows(&second, at(1)), [2]);
    }

    #[test]
    fn coupled_group_has_a_limit_of_members() {
        let group = Arc::default();
        let count = 3 * PLACES as u64 + 1;
        let mut members: Vec<Member> = (0..count).map(|_| Member::of(&group)).collect();
        for (member, window) in members.iter_mut().zip(1..) {
            member.join();
            member.publish(&figures(window, at(0)));
        }
        assert_eq!(windows(&members[0], at(1)), (1..=count).collect::<Vec<_>>());
        // A new member must get the entry of a member that has left.
        members.remove(PLACES);
        let mut late = Member::of(&group);
        late.join();
        assert_eq!(late.place, Some(PLACES));
    }

    #[test]
    fn coupled_group_ignores_idle_members() {
        let group = Arc::default();
        let [mut busy, mut idle] = [Member::of(&group), Member::of(&group)];
        busy.join();
        idle.join();
        busy.publish(&figures(1, at(100)));
        idle.publish(&figures(2, at(100)));
        assert_eq!(windows(&busy, at(130)), [1, 2]);
        assert_eq!(windows(&busy, at(131)), [1], "a member always counts itself");
        idle.on_sent(at(131));
        assert_eq!(windows(&busy, at(131)), [1, 2]);
    }
}
