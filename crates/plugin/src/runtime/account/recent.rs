//! Counts the recent expenses of an address or a network for offers. They decide which address goes first when
//! the offers of all peers cost more than there is.

/// Time in which a past expense comes to count half.
const HALF_LIFE: u64 = 10_000_000_000;

/// Steps that were spent lately. An expense counts half after [`HALF_LIFE`], a quarter after twice
/// that time, and so on.
#[derive(Debug, Default)]
pub(super) struct Recent {
    steps: u64,
    /// Time up to which `steps` has decayed, in nanoseconds on the connection's clock.
    decayed_to: u64,
}

impl Recent {
    /// Returns the steps that still count at `now`.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.decayed_to);
        // A quarter of a second at a time at least, so that rounding does not stop the decay.
        if elapsed >= HALF_LIFE / 40 {
            let halves = u32::try_from(elapsed / HALF_LIFE).unwrap_or(u32::MAX);
            let whole = self.steps.checked_shr(halves).unwrap_or(0);
            // Between two halvings, a straight line.
            let part = u128::from(whole) * u128::from(elapsed % HALF_LIFE);
            let part = part / u128::from(2 * HALF_LIFE);
            self.steps = whole - u64::try_from(part).unwrap_or(whole).min(whole);
            self.decayed_to = now;
        }
        self.steps
    }

    /// Counts an expense.
    pub(super) fn add(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn expenses_count_half_after_ten_seconds() {
        let mut recent = Recent::default();
        recent.add(1_000_000);
        assert_eq!(recent.at(0), 1_000_000);
        let after = recent.at(10 * SECOND);
        assert_eq!(after, 500_000);
        assert_eq!(recent.at(3_600 * SECOND), 0);
        // In many small steps, too.
        recent.add(1_000_000);
        let after = (0..=10_000).map(|at| recent.at((3_600_000 + at) * SECOND / 1_000)).last();
        assert!((490_000..510_000).contains(&after.unwrap()), "{after:?}");
        recent.add(u64::MAX);
        assert_eq!(recent.at(0), u64::MAX, "a clock that is behind changes nothing");
    }
}
