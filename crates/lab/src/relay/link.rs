//! What befalls a datagram: a function of the seed, its number and the time, and of nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Chance, Fate, Link, Way};

/// IPv4 and UDP headers, which a rate counts too, in bytes.
const HEADERS: usize = 28;

/// A link in use.
pub(super) struct Lane {
    link: Link,
    rng: SmallRng,
    number: u64,
    dropped: u32,
    corrupted: u32,
    /// When the last datagram has left, for a limited rate.
    free_at: Duration,
    /// When each that waits will have left.
    queue: VecDeque<Duration>,
}

/// What is to be done with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub fate: Fate,
    /// When it arrives; of no meaning if it does not.
    pub at: Duration,
    /// Which byte is changed, and by what it is XORed.
    pub corrupt: Option<(usize, u8)>,
}

impl Lane {
    pub(super) fn new(link: Link, seed: u64, way: Way) -> Lane {
        // The two directions have nothing to do with each other.
        let seed = seed.rotate_left(1) ^ u64::from(way == Way::ToClient);
        Lane {
            link,
            rng: SmallRng::seed_from_u64(seed),
            number: 0,
            dropped: 0,
            corrupted: 0,
            free_at: Duration::ZERO,
            queue: VecDeque::new(),
        }
    }

    /// Decides about a datagram of `len` bytes that comes `now`.
    pub(super) fn judge(&mut self, now: Duration, len: usize) -> Verdict {
        self.number += 1;
        // Always the same draws: what is asked for does not change what else happens.
        let [drop, corrupt, duplicate, reorder]: [f64; 4] =
            std::array::from_fn(|_| self.rng.random_range(0.0..100.0));
        let (position, flip) = (self.rng.random::<u64>(), self.rng.random_range(1..=u8::MAX));

        let lost = |fate| Verdict { fate, at: now, corrupt: None };
        let chosen = happens(self.link.drop, drop, &mut self.dropped);
        if chosen || self.link.drop_list.contains(&self.number) {
            return lost(Fate::Dropped);
        }
        let Some(left) = self.serialise(now, len) else { return lost(Fate::QueueFull) };
        let at = left + self.link.delay;
        if happens(self.link.corrupt, corrupt, &mut self.corrupted) && len > 0 {
            let position = position % len as u64;
            let corrupt = usize::try_from(position).ok().map(|position| (position, flip));
            return Verdict { fate: Fate::Corrupted, at, corrupt };
        }
        if duplicate < self.link.duplicate.percent {
            return Verdict { fate: Fate::Duplicated, at, corrupt: None };
        }
        if reorder < self.link.reorder.percent {
            let at = at + self.link.reorder_by;
            return Verdict { fate: Fate::Reordered, at, corrupt: None };
        }
        Verdict { fate: Fate::Delivered, at, corrupt: None }
    }

    /// When the last bit has left; `None` if the queue is full.
    fn serialise(&mut self, now: Duration, len: usize) -> Option<Duration> {
        let Some(rate) = self.link.rate else { return Some(now) };
        while self.queue.front().is_some_and(|left| *left <= now) {
            self.queue.pop_front();
        }
        if self.link.queue > 0 && self.queue.len() >= self.link.queue {
            return None;
        }
        let bits = (len + HEADERS) as u64 * 8;
        let takes = Duration::from_nanos(bits.saturating_mul(1_000_000_000) / rate);
        self.free_at = self.free_at.max(now) + takes;
        self.queue.push_back(self.free_at);
        Some(self.free_at)
    }
}

/// Whether it happens this time, after it has happened `in_a_row` times.
fn happens(chance: Chance, drawn: f64, in_a_row: &mut u32) -> bool {
    let enough = chance.burst > 0 && *in_a_row >= chance.burst;
    if drawn < chance.percent && !enough {
        *in_a_row += 1;
        return true;
    }
    *in_a_row = 0;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn fates(link: &Link, seed: u64, count: usize) -> Vec<Verdict> {
        let mut lane = Lane::new(link.clone(), seed, Way::ToServer);
        (0..count).map(|_| lane.judge(Duration::ZERO, 1200)).collect()
    }

    #[test]
    fn the_seed_decides() {
        let half = Chance { percent: 50.0, burst: 0 };
        let link = Link { drop: half, corrupt: half, ..Link::default() };
        assert_eq!(fates(&link, 7, 1000), fates(&link, 7, 1000));
        assert_ne!(fates(&link, 7, 1000), fates(&link, 8, 1000));
        let mut other = Lane::new(link.clone(), 7, Way::ToClient);
        let other: Vec<_> = (0..1000).map(|_| other.judge(Duration::ZERO, 1200)).collect();
        assert_ne!(fates(&link, 7, 1000), other);
    }

    #[test]
    fn shares_are_as_asked_for() {
        let link = Link { drop: Chance { percent: 30.0, burst: 0 }, ..Link::default() };
        let lost = fates(&link, 3, 10_000).iter().filter(|v| v.fate == Fate::Dropped).count();
        assert!((2800..3200).contains(&lost), "{lost}");
        let link = Link { corrupt: Chance { percent: 100.0, burst: 0 }, ..Link::default() };
        for verdict in fates(&link, 3, 1000) {
            let (position, flip) = verdict.corrupt.expect("all are corrupted");
            assert!(position < 1200 && flip != 0);
        }
    }

    #[test]
    fn a_burst_ends() {
        let link = Link { drop: Chance { percent: 100.0, burst: 3 }, ..Link::default() };
        let lost: Vec<bool> =
            fates(&link, 1, 8).iter().map(|verdict| verdict.fate == Fate::Dropped).collect();
        assert_eq!(lost, [true, true, true, false, true, true, true, false]);
    }

    #[test]
    fn the_list_is_dropped() {
        let link = Link { drop_list: vec![2, 4], ..Link::default() };
        let lost: Vec<bool> = fates(&link, 1, 5).iter().map(|v| v.fate == Fate::Dropped).collect();
        assert_eq!(lost, [false, true, false, true, false]);
    }

    #[test]
    fn a_rate_takes_its_time_and_a_queue_overflows() {
        // 1,250 bytes with headers: 1 ms at 10 Mb/s.
        let link = Link { rate: Some(10_000_000), delay: 5 * MS, queue: 2, ..Link::default() };
        let mut lane = Lane::new(link, 1, Way::ToServer);
        assert_eq!(lane.judge(Duration::ZERO, 1222).at, 6 * MS);
        assert_eq!(lane.judge(Duration::ZERO, 1222).at, 7 * MS);
        assert_eq!(lane.judge(Duration::ZERO, 1222).fate, Fate::QueueFull);
        // After a millisecond the first has left.
        assert_eq!(lane.judge(MS, 1222).at, 8 * MS);
        assert_eq!(lane.judge(100 * MS, 1222).at, 106 * MS);
    }
}
