//! The time of day, which determines when tokens expire. The caller supplies the clock, because
//! this crate reads none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Timestamp;

/// A clock that returns the time since the Unix epoch (1970-01-01, UTC) for a [`Timestamp`]. Clones
/// are the same clock.
///
/// For each endpoint, the time never goes back, and advances at least as fast as the endpoint's
/// timestamps. So if the system clock is set back, running endpoints ignore this; if it is set
/// forward, they follow.
#[derive(Clone)]
pub struct WallClock {
    source: Arc<dyn Fn(Timestamp) -> Duration + Send + Sync>,
    /// The latest time that any endpoint has read from this clock, in nanoseconds.
    latest: Arc<AtomicU64>,
}

impl WallClock {
    /// Creates a clock from a function that returns the time since the Unix epoch for a timestamp
    /// of the endpoint. Every reading of the clock calls the function.
    pub fn new(source: impl Fn(Timestamp) -> Duration + Send + Sync + 'static) -> WallClock {
        WallClock { source: Arc::new(source), latest: Arc::default() }
    }

    /// Creates a clock that shows `time` at [`Timestamp::START`] and advances with the timestamps,
    /// for example with the virtual time of a simulation.
    pub fn starting_at(time: Duration) -> WallClock {
        WallClock::new(move |now| time.saturating_add(now - Timestamp::START))
    }
}

/// A [`WallClock`] as one endpoint reads it: the time never goes back.
pub(crate) struct Wall {
    clock: WallClock,
    /// The latest timestamp at which this endpoint read the clock, and the time that it read.
    latest: (Timestamp, Duration),
}

impl Wall {
    pub(crate) fn new(clock: WallClock) -> Wall {
        Wall { clock, latest: (Timestamp::START, Duration::ZERO) }
    }

    /// Returns the time since the Unix epoch at the timestamp `now`.
    pub(crate) fn read(&mut self, now: Timestamp) -> Duration {
        let (at, time) = self.latest;
        let time = (self.clock.source)(now).max(time.saturating_add(now.since(at)));
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let others = self.clock.latest.fetch_max(nanos, Ordering::Relaxed);
        let time = time.max(Duration::from_nanos(others));
        self.latest = (now.max(at), time);
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Timestamp {
        Timestamp::START + Duration::from_secs(seconds)
    }

    #[test]
    fn wall_clock_goes_forward_with_the_system_and_never_back() {
        let system = Arc::new(AtomicU64::new(1_000));
        let source = Arc::clone(&system);
        let clock = WallClock::new(move |_| Duration::from_secs(source.load(Ordering::Relaxed)));
        let mut wall = Wall::new(clock.clone());
        let mut read = |seconds| wall.read(after(seconds)).as_secs();
        assert_eq!(read(0), 1_000);
        system.store(1_010, Ordering::Relaxed);
        assert_eq!(read(10), 1_010);
        // The system clock is set forward, as after a suspend, and then back.
        system.store(5_000, Ordering::Relaxed);
        assert_eq!(read(11), 5_000);
        system.store(1_012, Ordering::Relaxed);
        assert_eq!((read(12), read(20)), (5_001, 5_009));
        assert_eq!(read(15), 5_009, "an earlier timestamp does not set the clock back");
        // This endpoint has its own timestamps, and has not read the clock before.
        let mut other = Wall::new(clock);
        let mut of_other = |seconds| other.read(after(seconds)).as_secs();
        assert_eq!((of_other(3_000), of_other(3_005), read(22)), (5_009, 5_014, 5_014));
        system.store(6_000, Ordering::Relaxed);
        assert_eq!((read(23), of_other(3_006)), (6_000, 6_000));
    }

    #[test]
    fn wall_clock_of_a_simulation_follows_its_time() {
        let mut wall = Wall::new(WallClock::starting_at(Duration::from_secs(50)));
        assert_eq!(wall.read(Timestamp::START), Duration::from_secs(50));
        assert_eq!(wall.read(Timestamp::from_nanos(7)), Duration::new(50, 7));
    }
}
