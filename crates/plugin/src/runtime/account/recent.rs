//! Counts the steps that an address or a network recently spent on offers and loads. The counts
//! decide which address is served first if the offers of all peers need more steps than are left.

/// Number of decay steps (periods of time) after which an expense counts only half.
const STEPS: u64 = 40;

/// Length of a decay step in nanoseconds, a quarter of a second.
const STEP: u64 = 250_000_000;

/// Fraction that remains after one decay step, in units of 1/65,536. It is the fortieth root of one
/// half.
const REMAINS: u128 = 64_410;

/// Recently spent steps. The older an expense is, the less it counts: half after ten seconds, a
/// quarter after twenty seconds, and so on.
#[derive(Debug, Default)]
pub(super) struct Recent {
    steps: u64,
    /// Time up to which `steps` has decayed, in nanoseconds on the connection's clock.
    decayed_to: u64,
}

impl Recent {
    /// Returns the number of steps that still count at the time `now`.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.decayed_to) / STEP;
        if passed > 0 {
            let halves = u32::try_from(passed / STEPS).unwrap_or(u32::MAX);
            let halved = self.steps.checked_shr(halves).unwrap_or(0);
            let decay = |steps: u64, _| ((u128::from(steps) * REMAINS) >> 16) as u64;
            self.steps = (0..passed % STEPS).fold(halved, decay);
            self.decayed_to += passed * STEP;
        }
        self.steps
    }

    /// Adds an expense of this many steps.
    pub(super) fn add(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn account_recent_use_halves_in_ten_seconds() {
        let mut recent = Recent::default();
        recent.add(1_000_000);
        assert_eq!(recent.at(0), 1_000_000);
        let after = recent.at(10 * SECOND);
        assert_eq!(after, 500_000);
        recent.add(500_000);
        let after = recent.at(15 * SECOND);
        assert!((700_000..715_000).contains(&after), "{after}");
        assert_eq!(recent.at(3_600 * SECOND), 0);
        // Many short decays must have the same result as one long decay.
        recent.add(1_000_000);
        let after = (0..=10_000).map(|at| recent.at((3_600_000 + at) * SECOND / 1_000)).last();
        assert!((490_000..510_000).contains(&after.unwrap()), "{after:?}");
        recent.add(u64::MAX);
        assert_eq!(recent.at(0), u64::MAX, "a clock that is behind changes nothing");
    }
}
