//! Token buckets whose state is a single 64-bit number: the generic cell rate algorithm (policy.md
//! section 4).

/// Number of fraction bits of [`Rate::cost_ns`].
const RATE_SHIFT: u32 = 20;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The rate and the burst of a token bucket. If `cost_ns` is 0, there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Time in nanoseconds in which the bucket gains one unit, as a fixed-point number with 20
    /// fraction bits.
    pub cost_ns: u64,
    /// Maximum time in nanoseconds by which the bucket's theoretical arrival time may be ahead of
    /// the current time.
    pub burst_ns: u64,
}

impl Rate {
    /// No limit.
    pub const OFF: Rate = Rate { cost_ns: 0, burst_ns: 0 };

    /// Returns a rate of `rate` units per second with a burst of `burst` units. A rate of 0 is
    /// [`Rate::OFF`].
    pub fn per_second(rate: u64, burst: u64) -> Rate {
        if rate == 0 {
            return Rate::OFF;
        }
        let cost = (NANOS_PER_SECOND << RATE_SHIFT) / u128::from(rate);
        let burst = u128::from(burst) * NANOS_PER_SECOND / u128::from(rate);
        Rate { cost_ns: saturate(cost), burst_ns: saturate(burst) }
    }

    /// Charges `units` at the time `now` (in nanoseconds) to the bucket whose theoretical arrival
    /// time is `tat`. Returns `false` if the bucket has no room for them. In that case, `tat`
    /// usually stays the same. It is only reduced if a slower rate, which applied before, had left
    /// it further ahead than the burst of this rate allows.
    pub fn charge(&self, tat: &mut u64, units: u64, now: u64) -> bool {
        self.charge_ns(tat, self.cost_of(units), now)
    }

    /// Charges like [`Rate::charge`], but a full bucket always has enough, even if `units` exceeds
    /// the burst.
    pub(super) fn charge_at_most_all(&self, tat: &mut u64, units: u64, now: u64) -> bool {
        self.charge_ns(tat, self.cost_of(units).min(self.burst_ns), now)
    }

    fn cost_of(&self, units: u64) -> u64 {
        saturate((u128::from(units) * u128::from(self.cost_ns)) >> RATE_SHIFT)
    }

    fn charge_ns(&self, tat: &mut u64, cost: u64, now: u64) -> bool {
        if self.cost_ns == 0 {
            return true;
        }
        let ahead = tat.saturating_sub(now).min(self.burst_ns);
        if ahead.saturating_add(cost) > self.burst_ns {
            *tat = (*tat).min(now.saturating_add(self.burst_ns));
            return false;
        }
        *tat = now.saturating_add(ahead + cost);
        true
    }
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
