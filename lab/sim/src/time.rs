//! Virtual time: whole nanoseconds since the start of a run.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the run.
    pub const START: Time = Time(0);
    /// The last representable time, about 584 years after the start.
    pub const END: Time = Time(u64::MAX);

    /// Creates the time `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Creates the time `millis` milliseconds after the start. Saturates.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }

    /// Creates the time `seconds` seconds after the start. Saturates.
    pub const fn from_secs(seconds: u64) -> Time {
        Time(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns the time since the start of the run, in whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since the start of the run, in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the virtual time since the start of the run.
    pub const fn elapsed(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Returns a duration in nanoseconds. Saturates after about 584 years.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds a duration. Saturates at [`Time::END`].
impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

/// Returns the duration between two points in time; see [`Time::since`].
impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_wrap() {
        assert_eq!(Time::END + Duration::from_secs(1), Time::END);
        assert_eq!(Time::START - Time::from_secs(1), Duration::ZERO);
        assert_eq!(Time::from_secs(u64::MAX), Time::END);
        assert_eq!(Time::from_millis(1_500).to_string(), "1.500000000 s");
    }
}
