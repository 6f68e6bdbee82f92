//! The pacer: spreads the packets of a congestion window over a round trip (RFC 9002 s.7.7).

use std::time::Duration;

use super::seconds;
use crate::Timestamp;

/// A sending rate in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// The lowest possible rate: one byte per second.
    pub(crate) const MIN: Rate = Rate(1.0);

    /// Creates a rate of this many bytes per second, but of at least one byte per second.
    pub fn bytes_per_second(bytes: f64) -> Rate {
        Rate(if bytes.is_finite() { bytes.max(1.0) } else { f64::MAX })
    }

    /// Returns the rate at which `factor` congestion windows are sent per round trip.
    pub fn of_window(window: u64, rtt: Duration, factor: f64) -> Rate {
        Rate::bytes_per_second(window as f64 * factor / seconds(rtt))
    }

    /// Returns the rate in bytes per second.
    pub fn as_bytes_per_second(self) -> f64 {
        self.0
    }

    /// Returns the time that sending `bytes` takes at this rate.
    pub fn time_for(self, bytes: u64) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 / self.0).unwrap_or(Duration::MAX)
    }
}

/// A leaky bucket that releases packets at a given rate. It permits bursts, because timers have a
/// coarse resolution.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Number of bytes that may be sent now. It is negative after a packet that was larger than
    /// this number.
    tokens: f64,
    /// Largest number of bytes that may be sent in a burst.
    burst: f64,
    updated: Timestamp,
    /// Time until which the pacer delayed the datagram that waits. `None` if no datagram waits.
    due: Option<Timestamp>,
    /// Time at which the sender first called after the delay of the waiting datagram had ended.
    /// `None` if it has not called yet.
    came_back: Option<Timestamp>,
    /// Rate and datagram size with which the bucket was last filled. `None` if it has never been
    /// filled.
    filled_with: Option<(Rate, u16)>,
}

/// A burst is what the pacing rate yields in this time. It covers a timer tick and a GSO batch.
const BURST_TIME: Duration = Duration::from_millis(2);

/// Largest timer delay that the pacer compensates: after a late timer, the bytes of this time may
/// be sent at once. Timers are late because runtimes and kernels round them up to milliseconds, and
/// because other programs use the CPU. Without compensation, a sender that only pacing limits would
/// stay below its rate.
const LATE_TIME: Duration = Duration::from_millis(4);

/// Largest plausible delay of a timer. If the sender calls later than this, the pacer assumes that
/// the sender had nothing to send.
const LATEST: Duration = Duration::from_millis(20);

impl Pacer {
    /// Creates a pacer that permits a first burst of `initial_window` bytes (RFC 9002 s.7.7).
    pub fn new(now: Timestamp, initial_window: u64) -> Pacer {
        let tokens = initial_window as f64;
        Pacer { tokens, burst: tokens, updated: now, due: None, came_back: None, filled_with: None }
    }

    /// Refills the bucket for the time that has passed. The largest burst is what the rate yields
    /// in 2 ms, but at least ten datagrams (RFC 9002 s.7.7: bursts should not exceed the initial
    /// window).
    fn refill(&mut self, now: Timestamp, rate: Rate, datagram: u16) {
        // This is the next datagram of a batch, so no time has passed since the previous one.
        if self.updated == now && self.filled_with == Some((rate, datagram)) {
            return;
        }
        self.filled_with = Some((rate, datagram));
        self.burst = (rate.0 * BURST_TIME.as_secs_f64()).max(10.0 * f64::from(datagram));
        let gained = rate.0 * now.since(self.updated).as_secs_f64();
        // A datagram was waiting, so the sender calls as soon as its timer fires. It may call
        // several times to send all batches. If it calls much later, it had nothing to send.
        if let Some(due) = self.due
            && now >= due
        {
            (self.due, self.came_back) = (None, (now.since(due) <= LATEST).then_some(now));
        }
        let late = self.came_back.is_some_and(|time| now.since(time) <= LATE_TIME);
        let grace = if late { rate.0 * LATE_TIME.as_secs_f64() } else { 0.0 };
        self.tokens = (self.tokens + gained).min(self.burst + grace);
        self.updated = self.updated.max(now);
    }

    /// Returns the earliest time at which a datagram of `datagram` bytes may be sent. Returns
    /// `None` if it may be sent now.
    pub fn next(&mut self, now: Timestamp, rate: Rate, datagram: u16) -> Option<Timestamp> {
        self.refill(now, rate, datagram);
        let lacking = f64::from(datagram) - self.tokens;
        if lacking <= 0.0 {
            return None;
        }
        // Wait until half a burst may be sent. A timer for each datagram would cost more than the
        // smoother traffic is worth.
        let wait = lacking.max(self.burst / 2.0 - self.tokens);
        self.due = Some(now + rate.time_for(wait.ceil() as u64).max(Duration::from_nanos(1)));
        self.due
    }

    /// Records that a datagram of this size was sent.
    pub fn on_sent(&mut self, bytes: u64) {
        self.due = None;
        // Probe packets are sent regardless of pacing. Limit the debt, so that other packets do not
        // wait a whole round trip after a probe.
        self.tokens = (self.tokens - bytes as f64).max(-self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many datagrams of 1,200 bytes are sent at one time at this rate.
    fn leave(pacer: &mut Pacer, now: Timestamp, rate: Rate) -> usize {
        let next = || pacer.next(now, rate, 1200).is_none().then(|| pacer.on_sent(1200));
        std::iter::from_fn(next).take(1000).count()
    }

    #[test]
    fn pacing_burst_does_not_grow_with_the_number_of_calls() {
        let (slow, fast) = (Rate::bytes_per_second(1e6), Rate::bytes_per_second(1e7));
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        let mut now = Timestamp::START;
        for (rate, count) in [(fast, 16), (slow, 10), (fast, 16)] {
            now += Duration::from_secs(1);
            assert_eq!(leave(&mut pacer, now, rate), count, "{rate:?}");
            assert_eq!(leave(&mut pacer, now, rate), 0, "{rate:?}: no time has passed");
        }
    }

    #[test]
    fn pacing_lower_rate_takes_unused_credit_back() {
        let (slow, fast) = (Rate::bytes_per_second(1e6), Rate::bytes_per_second(1e7));
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        let now = Timestamp::START + Duration::from_secs(1);
        assert_eq!(pacer.next(now, fast, 1200), None);
        assert_eq!(
            leave(&mut pacer, now, slow),
            10,
            "ten datagrams fit into a burst of 20,000 bytes"
        );
    }

    /// Returns the bytes that are sent in a second if the timer is always late by `late`.
    fn leave_in_a_second(rate: Rate, late: Duration) -> u64 {
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        let (mut now, mut left) = (Timestamp::START, 0);
        while now < Timestamp::START + Duration::from_secs(1) {
            match pacer.next(now, rate, 1200) {
                Some(due) => now = due + late,
                None => {
                    pacer.on_sent(1200);
                    left += 1200;
                }
            }
        }
        left
    }

    #[test]
    fn pacing_late_timer_does_not_lower_the_rate() {
        for late in [0, 1, 2, 3] {
            let left = leave_in_a_second(Rate::bytes_per_second(1e7), Duration::from_millis(late));
            assert!((9_900_000..10_100_000).contains(&left), "{late} ms: {left}");
        }
    }

    /// If a timer is late by more than the pacer compensates, only the excess time must be lost.
    #[test]
    fn pacing_very_late_timer_loses_only_the_excess() {
        let rate = Rate::bytes_per_second(1.2e7);
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        assert_eq!(leave(&mut pacer, Timestamp::START, rate), 10);
        let due = pacer.next(Timestamp::START, rate, 1200).expect("the burst is used up");
        // The rate is 12,000 bytes per millisecond. The burst covers 2 ms and the compensation 4
        // ms.
        let woken = due + Duration::from_millis(20);
        assert_eq!(leave(&mut pacer, woken, rate), 60);
        // Bytes that a batch does not use are available to the next batch.
        let due = pacer.next(woken, rate, 1200).expect("the burst is used up");
        let woken = due + Duration::from_millis(5);
        assert_eq!((0..10).filter(|_| pacer.next(woken, rate, 1200).is_none()).count(), 10);
        pacer.on_sent(12_000);
        assert_eq!(leave(&mut pacer, woken + Duration::from_micros(100), rate), 51);
    }

    #[test]
    fn pacing_early_call_has_one_burst() {
        let rate = Rate::bytes_per_second(1e7);
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        assert_eq!(leave(&mut pacer, Timestamp::START, rate), 10);
        let due = pacer.next(Timestamp::START, rate, 1200).expect("the burst is used up");
        // The pacer must permit only the datagram that was waiting.
        assert_eq!(pacer.next(due, rate, 1200), None);
        pacer.on_sent(1200);
        assert_eq!(leave(&mut pacer, due + Duration::from_millis(5), rate), 16);
        let due =
            pacer.next(due + Duration::from_millis(5), rate, 1200).expect("the burst is used up");
        assert_eq!(leave(&mut pacer, due + Duration::from_millis(21), rate), 16);
    }
}
