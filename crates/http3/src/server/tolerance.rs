//! Limits the errors of a client: a connection with too many errors is closed.

use std::time::{Duration, Instant};

/// A counter of errors that decreases over time.
pub(super) struct Tolerance {
    most: u32,
    count: u32,
    /// Time after which the count falls by one.
    each: Duration,
    since: Instant,
}

impl Tolerance {
    pub(super) fn new(most: u32, each: Duration, now: Instant) -> Tolerance {
        Tolerance { most, count: 0, each, since: now }
    }

    /// Counts one error. Returns `true` if the limit is exceeded.
    pub(super) fn add(&mut self, now: Instant) -> bool {
        let forgiven = now.saturating_duration_since(self.since).as_nanos() / self.each.as_nanos();
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        if forgiven >= self.count {
            (self.count, self.since) = (0, now);
        } else {
            self.count -= forgiven;
            self.since += self.each * forgiven;
        }
        self.count += 1;
        self.count > self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_is_exceeded_by_a_burst_and_not_by_a_trickle() {
        let start = Instant::now();
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let new = || Tolerance::new(3, Duration::from_secs(1), start);
        let mut slow = new();
        assert!((0..1000).all(|n| !slow.add(at(10 * n))));
        let mut quick = new();
        assert_eq!(
            (0..4).map(|_| quick.add(at(0))).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        // After one second, the counter has decreased by one.
        let mut mixed = new();
        assert!((0..3).all(|_| !mixed.add(at(0))));
        assert!(!mixed.add(at(11)) && mixed.add(at(12)));
    }
}
