//! Estimates the round-trip time of one path (RFC 9002 s.5).

use std::time::Duration;

use crate::Timestamp;

/// The timer granularity: shorter delays are rounded up to this value (RFC 9002 s.6.1.2 #5,
/// kGranularity).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// The RTT assumed before the first sample (RFC 9002 s.6.2.2 #1, kInitialRtt).
pub(crate) const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Largest time threshold for loss that a hook can set, in round trips.
const MAX_TIME_THRESHOLD: f32 = 16.0;

/// The RTT estimator of RFC 9002 s.5. Each path has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RttEstimator {
    latest: Duration,
    min: Duration,
    smoothed: Duration,
    variation: Duration,
    first_sample: Option<Timestamp>,
}

impl RttEstimator {
    /// Creates an estimator without samples. `initial` is the RTT that is assumed before the first
    /// sample.
    pub fn new(initial: Duration) -> RttEstimator {
        RttEstimator {
            latest: Duration::ZERO,
            min: Duration::ZERO,
            // RFC 9002 s.5.3: before the first sample, `rttvar` is half of `smoothed_rtt`.
            smoothed: initial,
            variation: initial / 2,
            first_sample: None,
        }
    }

    /// Adds a sample of the RTT. `latest` is the time from the sending of the largest newly
    /// acknowledged packet until now.
    ///
    /// `ack_delay` is the decoded acknowledgment delay that the peer reports. It must be zero for
    /// Initial packets. After the handshake is confirmed, the caller must limit it to the peer's
    /// `max_ack_delay` (RFC 9002 s.5.3 #4).
    // RFC 9002 s.5.2 #1
    pub fn update(&mut self, now: Timestamp, latest: Duration, ack_delay: Duration) {
        self.latest = latest;
        if self.first_sample.is_none() {
            self.first_sample = Some(now);
            self.min = latest;
            self.smoothed = latest;
            self.variation = latest / 2;
            return;
        }
        // The acknowledgment delay is not subtracted for min_rtt (RFC 9002 s.5.2).
        self.min = self.min.min(latest);
        // Subtracting the acknowledgment delay must not make the sample lower than min_rtt (RFC
        // 9002 s.5.3).
        let adjusted =
            if latest >= self.min.saturating_add(ack_delay) { latest - ack_delay } else { latest };
        let deviation = self.smoothed.abs_diff(adjusted);
        self.variation = (self.variation * 3 + deviation) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
    }

    /// Resets min_rtt after persistent congestion, because the path may have changed (RFC 9002
    /// s.5.2).
    // RFC 9002 s.5.2 #2
    pub fn restart_min(&mut self) {
        self.min = self.latest;
    }

    /// Sets the smoothed RTT to a value that a hook chose.
    pub fn set_smoothed(&mut self, smoothed: Duration) {
        self.smoothed = smoothed;
    }

    /// Sets the RTT variation to a value that a hook chose.
    pub fn set_variation(&mut self, variation: Duration) {
        self.variation = variation;
    }

    /// Returns the last RTT sample, or zero before the first one.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the smallest RTT sample, or zero before the first one.
    pub fn min(&self) -> Duration {
        self.min
    }

    /// Returns `smoothed_rtt`, or the initial RTT before the first sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Returns the RTT variation, `rttvar`.
    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// Returns the time at which the first RTT sample was taken, or `None` if there is no sample.
    pub fn first_sample(&self) -> Option<Timestamp> {
        self.first_sample
    }

    /// Returns the probe timeout without backoff and without the peer's `max_ack_delay` (RFC 9002
    /// s.6.2.1).
    // RFC 9002 s.6.2.1 #1
    pub fn pto_base(&self) -> Duration {
        self.smoothed + (self.variation * 4).max(GRANULARITY)
    }

    /// Returns the delay after which a packet counts as lost if a later packet was acknowledged
    /// (RFC 9002 s.6.1.2). It is max(threshold * max(smoothed_rtt, latest_rtt), kGranularity), and
    /// at least one round trip.
    // RFC 9002 s.6.1.2 #2
    pub fn loss_delay(&self, threshold: f32) -> Duration {
        let rtt = self.smoothed.max(self.latest);
        // Compute in units of 1/65,536, so that the threshold of 9/8 is exact.
        let beyond = (threshold.clamp(1.0, MAX_TIME_THRESHOLD) - 1.0) * 65_536.0;
        let beyond = (rtt.as_nanos() * beyond as u128) >> 16;
        let beyond = Duration::from_nanos(u64::try_from(beyond).unwrap_or(u64::MAX));
        rtt.saturating_add(beyond).max(GRANULARITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::TIME_THRESHOLD;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    // RFC 9002 s.5.2 #1
    #[test]
    fn rtt_first_sample_replaces_the_assumption() {
        let mut rtt = RttEstimator::new(INITIAL_RTT);
        assert_eq!(rtt.pto_base(), ms(333) + 4 * ms(333) / 2);
        // The acknowledgment delay must not be subtracted from the first sample (RFC 9002 s.5.3).
        rtt.update(Timestamp::START, ms(100), ms(50));
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.min()), (ms(100), ms(50), ms(100)));
    }

    // RFC 9002 s.5.2 #1, s.5.3 #4
    #[test]
    fn rtt_subtracts_the_peers_delay_down_to_the_minimum() {
        let mut rtt = RttEstimator::new(INITIAL_RTT);
        rtt.update(Timestamp::START, ms(100), Duration::ZERO);
        rtt.update(Timestamp::START, ms(140), ms(20));
        // The adjusted RTT is 120 ms: smoothed = 7/8*100 + 1/8*120, rttvar = 3/4*50 + 1/4*20.
        assert_eq!(rtt.smoothed(), Duration::from_micros(102_500));
        assert_eq!(rtt.variation(), Duration::from_micros(42_500));
        let before = rtt.smoothed();
        // 110 - 20 would be lower than min_rtt, so the acknowledgment delay is ignored.
        rtt.update(Timestamp::START, ms(110), ms(20));
        assert_eq!(rtt.smoothed(), (before * 7 + ms(110)) / 8);
        assert_eq!(rtt.min(), ms(100));
    }

    // RFC 9002 s.6.1.2 #2, s.6.2.1 #1
    #[test]
    fn rtt_false_delays_cannot_reduce_it_to_zero() {
        let mut rtt = RttEstimator::new(INITIAL_RTT);
        for _ in 0..100 {
            rtt.update(Timestamp::START, Duration::ZERO, Duration::MAX);
        }
        assert_eq!(rtt.loss_delay(TIME_THRESHOLD), GRANULARITY);
        assert!(rtt.pto_base() >= GRANULARITY);
    }
}
