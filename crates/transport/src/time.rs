//! Points in time for the transport. The caller supplies them, because this crate reads no clock.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since a start that the caller chooses, for example the boot of
/// the machine or the start of a simulation.
///
/// The stored number is one more than the nanoseconds and never zero, so that `Option<Timestamp>`
/// takes no more memory. A connection stores about twenty timestamps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The start that the caller has chosen: zero nanoseconds.
    pub const START: Timestamp = Timestamp(NonZeroU64::MIN);

    /// Returns the time this many nanoseconds after the start. The latest possible time is 2^64 - 2
    /// nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Timestamp {
        Timestamp(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Returns the number of nanoseconds since the start that the caller has chosen.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the duration since `earlier`, or zero if `earlier` is not earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Default for Timestamp {
    fn default() -> Timestamp {
        Timestamp::START
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timestamp").field(&self.as_nanos()).finish()
    }
}

/// Adds a duration. The sum saturates at the latest time, over 500 years after the start.
impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Subtracts a duration. The difference saturates at the start.
impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_nanos(self.as_nanos().saturating_sub(nanos))
    }
}

impl Sub<Timestamp> for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Timestamp) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_saturates_and_has_a_niche() {
        let last = Timestamp::from_nanos(u64::MAX);
        let second = Duration::from_secs(1);
        assert_eq!((last + second, Timestamp::START - second), (last, Timestamp::START));
        assert_eq!((Timestamp::START + second).as_nanos(), 1_000_000_000);
        assert_eq!(Timestamp::START + second - Timestamp::START, second);
        assert_eq!(Timestamp::from_nanos(7) - Duration::from_nanos(7), Timestamp::START);
        assert_eq!(Timestamp::START - last, Duration::ZERO);
        assert_eq!((Timestamp::default(), last.as_nanos()), (Timestamp::START, u64::MAX - 1));
        assert_eq!(format!("{:?}", Timestamp::from_nanos(7)), "Timestamp(7)");
        assert_eq!(size_of::<Option<Timestamp>>(), 8);
    }
}
