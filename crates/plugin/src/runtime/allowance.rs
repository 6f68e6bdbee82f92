//! Instructions that the plugins of one connection have together in a second. The budget of a call bounds a call; a peer
//! that sends many packets could otherwise have as many calls as it likes.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;

/// Instructions that several plugins share, by the connection's clock: those of one second at most, given back as time
/// passes. Only calls of one connection, one after the other, spend them.
#[derive(Debug)]
pub struct Allowance {
    per_second: u64,
    left: AtomicU64,
    /// Moment up to which instructions have been given back, in nanoseconds on the connection's clock.
    counted_to: AtomicU64,
}

impl Allowance {
    /// So many instructions a second; a full second's worth is there from the beginning.
    pub fn new(per_second: u64) -> Allowance {
        Allowance { per_second, left: AtomicU64::new(per_second), counted_to: AtomicU64::new(0) }
    }

    /// Instructions that are left at `now`, in nanoseconds on the connection's clock.
    pub(super) fn left(&self, now: u64) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        let elapsed = now.saturating_sub(self.counted_to.load(Ordering::Relaxed));
        let back = u128::from(elapsed) * u128::from(self.per_second) / u128::from(SECOND);
        if back == 0 {
            // What is less than an instruction counts when the time has come for a whole one.
            return left;
        }
        let back = u64::try_from(back).unwrap_or(u64::MAX);
        let left = left.saturating_add(back).min(self.per_second);
        self.left.store(left, Ordering::Relaxed);
        self.counted_to.store(now, Ordering::Relaxed);
        left
    }

    /// A call took so many instructions of what [`Allowance::left`] said.
    pub(super) fn spend(&self, steps: u64) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(steps), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_gives_back_what_a_second_may_take() {
        let allowance = Allowance::new(1_000);
        assert_eq!(allowance.left(0), 1_000);
        allowance.spend(600);
        assert_eq!(allowance.left(0), 400);
        assert_eq!(allowance.left(SECOND / 10), 500);
        allowance.spend(500);
        assert_eq!(allowance.left(SECOND / 10), 0);
        assert_eq!(allowance.left(SECOND / 10 + SECOND / 1_000), 1);
    }

    #[test]
    fn time_without_calls_is_worth_a_second_at_most() {
        let allowance = Allowance::new(1_000);
        allowance.spend(1_000);
        assert_eq!(allowance.left(3_600 * SECOND), 1_000);
        allowance.spend(2_000);
        assert_eq!(allowance.left(3_600 * SECOND), 0);
        assert_eq!(Allowance::new(u64::MAX).left(u64::MAX), u64::MAX);
    }

    #[test]
    fn fractions_of_an_instruction_are_not_lost() {
        let allowance = Allowance::new(10);
        allowance.spend(10);
        let often = (1..=SECOND / 1_000_000).map(|at| allowance.left(at * 1_000_000)).last();
        assert_eq!(often, Some(10));
    }
}
