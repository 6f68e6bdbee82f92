//! The choice among the paths that may carry data. It is the default of [`Operation::SelectPath`],
//! so a hook can replace it.
//!
//! [`Operation::SelectPath`]: crate::operation::Operation::SelectPath

use std::time::Duration;

use super::super::paths::PathKey;
use super::super::space::{MOST_PATH_IDS, PathId};

/// Rule that divides the data to send among several paths ([`TransportConfig::scheduler`]).
///
/// The following holds for every rule. Paths on which the peer does not answer, and paths that
/// either end wants as backup, carry data only if there is no other path. No path carries more than
/// its congestion window and pacing allow.
///
/// [`TransportConfig::scheduler`]: crate::TransportConfig::scheduler
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// Uses the path with the lowest round-trip time among those that have room.
    #[default]
    LowestRtt,
    /// Uses all paths that have room in turn, one packet on each.
    RoundRobin,
    /// Sends all stream data on every path that has room, at each path's own pace. Data that is
    /// lost or late on one path arrives on another.
    Redundant,
    /// Uses only the path with the lowest path ID. The others are in standby.
    Backup,
}

/// A path that may carry data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub key: PathKey,
    pub id: PathId,
    pub rtt: Duration,
    /// True if the last packets on the path were not acknowledged.
    pub suspect: bool,
    /// True if one of the ends wants to use the path only as a backup.
    pub backup: bool,
}

impl Candidate {
    /// Returns the tier of the path. Only paths of the lowest tier present carry data.
    fn tier(&self) -> u8 {
        2 * u8::from(self.suspect) + u8::from(self.backup)
    }
}

/// Paths in the order in which they are checked for room.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Order {
    keys: [Option<PathKey>; MOST_PATH_IDS],
}

impl Order {
    /// Appends a path, unless it is already present.
    pub(super) fn add(&mut self, key: PathKey) {
        if !self.contains(key)
            && let Some(place) = self.keys.iter_mut().find(|place| place.is_none())
        {
            *place = Some(key);
        }
    }

    pub(super) fn first(&self) -> Option<PathKey> {
        self.keys[0]
    }

    pub(super) fn contains(&self, key: PathKey) -> bool {
        self.keys.contains(&Some(key))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = PathKey> {
        self.keys.into_iter().flatten()
    }
}

/// Rank of a candidate in the order. The lowest comes first, and no two candidates have the same.
pub(in crate::connection) type Rank = (u8, bool, Duration, PathId);

impl Scheduler {
    /// Returns the rank of a candidate. `last` is the path that carried the last packet.
    fn rank(self, one: &Candidate, last: Option<PathKey>) -> Rank {
        let tier = one.tier();
        match self {
            Scheduler::LowestRtt | Scheduler::Redundant => (tier, false, one.rtt, one.id),
            // Paths after the last one in turn come first.
            Scheduler::RoundRobin => {
                let before = last.is_some_and(|last| one.key <= last);
                (tier, before, Duration::from_secs(one.key.0.into()), one.id)
            }
            Scheduler::Backup => (tier, false, Duration::ZERO, one.id),
        }
    }

    /// Returns the first path of [`Scheduler::order`] with its rank, or the path that follows the
    /// rank `after`. Use it if the other paths are not needed.
    pub(super) fn next(
        self,
        candidates: impl Iterator<Item = Candidate>,
        last: Option<PathKey>,
        after: Option<Rank>,
    ) -> Option<(Rank, PathKey)> {
        if self == Scheduler::Backup && after.is_some() {
            return None;
        }
        let mut next: Option<(Rank, PathKey)> = None;
        for one in candidates {
            let rank = self.rank(&one, last);
            let passed = after.is_some_and(|after| rank.0 != after.0 || rank <= after);
            if !passed && next.is_none_or(|(least, _)| rank < least) {
                next = Some((rank, one.key));
            }
        }
        next
    }

    /// Returns the order of the candidates in the lowest tier. There are at most [`MOST_PATH_IDS`]
    /// candidates. `last` is the path that carried the last packet.
    pub(super) fn order(
        self,
        candidates: impl Iterator<Item = Candidate> + Clone,
        last: Option<PathKey>,
    ) -> Order {
        let Some(best) = candidates.clone().map(|one| one.tier()).min() else {
            return Order::default();
        };
        let mut places: [Option<Candidate>; MOST_PATH_IDS] = [None; MOST_PATH_IDS];
        let chosen = candidates.filter(|one| one.tier() == best);
        places.iter_mut().zip(chosen).for_each(|(place, one)| *place = Some(one));
        let count = places.iter().flatten().count();
        places[..count].sort_unstable_by_key(|one| one.as_ref().map(|one| self.rank(one, last)));
        let used = if self == Scheduler::Backup { 1 } else { count };
        let mut order = Order::default();
        let chosen = places[..used].iter().flatten();
        order.keys.iter_mut().zip(chosen).for_each(|(place, one)| *place = Some(one.key));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: u32, rtt_ms: u64) -> Candidate {
        let (key, id) = (PathKey(number), PathId::new(number));
        let rtt = Duration::from_millis(rtt_ms);
        Candidate { key, id, rtt, suspect: false, backup: false }
    }

    fn order(scheduler: Scheduler, paths: &[Candidate], last: Option<u32>) -> Vec<u32> {
        let order = scheduler.order(paths.iter().copied(), last.map(PathKey));
        assert_eq!(order.first(), order.iter().next());
        let mut after = None;
        for key in order.iter().map(Some).chain([None]) {
            let next = scheduler.next(paths.iter().copied(), last.map(PathKey), after);
            assert_eq!(next.map(|(_, key)| key), key, "one after the other");
            after = next.map(|(rank, _)| rank);
        }
        assert!(
            paths.iter().all(|one| order.contains(one.key) == order.iter().any(|k| k == one.key))
        );
        order.iter().map(|key| key.0).collect()
    }

    #[test]
    fn multipath_scheduler_lowest_rtt_comes_first() {
        let paths = [path(0, 30), path(1, 10), path(2, 20), path(3, 10)];
        assert_eq!(order(Scheduler::LowestRtt, &paths, Some(1)), [1, 3, 2, 0]);
        assert!(order(Scheduler::LowestRtt, &[], None).is_empty());
    }

    #[test]
    fn multipath_scheduler_round_robin() {
        let paths = [path(0, 30), path(1, 10), path(4, 20)];
        assert_eq!(order(Scheduler::RoundRobin, &paths, None), [0, 1, 4]);
        assert_eq!(order(Scheduler::RoundRobin, &paths, Some(0)), [1, 4, 0]);
        assert_eq!(order(Scheduler::RoundRobin, &paths, Some(2)), [4, 0, 1], "the last is gone");
        assert_eq!(order(Scheduler::RoundRobin, &paths, Some(4)), [0, 1, 4]);
    }

    #[test]
    fn multipath_scheduler_backup_paths_wait() {
        let paths = [path(0, 30), path(1, 10)];
        assert_eq!(order(Scheduler::Backup, &paths, None), [0]);
        let down = [Candidate { suspect: true, ..path(0, 30) }, path(1, 10)];
        assert_eq!(order(Scheduler::Backup, &down, None), [1]);
    }

    #[test]
    fn multipath_scheduler_prefers_available_paths() {
        let suspect = |one: Candidate| Candidate { suspect: true, ..one };
        let backup = |one: Candidate| Candidate { backup: true, ..one };
        let all =
            [suspect(backup(path(0, 1))), suspect(path(1, 2)), backup(path(2, 3)), path(3, 9)];
        for (from, best) in [(0, 3), (1, 2), (2, 1), (3, 0)] {
            let paths = &all[..all.len() - from];
            assert_eq!(order(Scheduler::LowestRtt, paths, None), [best]);
        }
    }
}
