//! Spreads what the window allows over a round trip (RFC 9002 s.7.7).

use std::time::Duration;

use super::seconds;
use crate::Timestamp;

/// A sending rate in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// The smallest rate: one byte a second.
    pub(crate) const LEAST: Rate = Rate(1.0);

    /// So many bytes a second; at least one.
    pub fn bytes_per_second(bytes: f64) -> Rate {
        Rate(if bytes.is_finite() { bytes.max(1.0) } else { f64::MAX })
    }

    /// `factor` windows a round trip.
    pub fn of_window(window: u64, rtt: Duration, factor: f64) -> Rate {
        Rate::bytes_per_second(window as f64 * factor / seconds(rtt))
    }

    /// Bytes a second.
    pub fn as_bytes_per_second(self) -> f64 {
        self.0
    }

    /// Time that sending `bytes` takes at this rate.
    pub fn time_for(self, bytes: u64) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 / self.0).unwrap_or(Duration::MAX)
    }
}

/// A leaky bucket: packets leave at a rate, with bursts for what a timer could not resolve.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Bytes that may leave now. Below zero after a packet larger than what was left.
    tokens: f64,
    /// The most that may leave at once, in bytes.
    burst: f64,
    updated: Timestamp,
    /// Time that the datagram which could not leave was put off to; none: no datagram waits.
    due: Option<Timestamp>,
    /// Time at which the sender came back after the last such time; none: it has not yet.
    came_back: Option<Timestamp>,
    /// Rate and size of a datagram with which the bucket was filled last; none: not yet.
    filled_with: Option<(Rate, u16)>,
}

/// Time whose worth of the rate may leave at once: a timer tick and a GSO batch.
const BURST_TIME: Duration = Duration::from_millis(2);

/// The most of a timer's lateness that is made up for: the bytes of that time leave at once. Runtimes and kernels count
/// milliseconds and round up, and other programs have the CPU: without this a sender that only the pace holds back stays below
/// its rate.
const LATE_TIME: Duration = Duration::from_millis(4);

/// Timers are not later than this: who comes back later had another reason.
const LATEST: Duration = Duration::from_millis(20);

impl Pacer {
    /// Lets the initial window out at once (RFC 9002 s.7.7).
    pub fn new(now: Timestamp, initial_window: u64) -> Pacer {
        let tokens = initial_window as f64;
        Pacer { tokens, burst: tokens, updated: now, due: None, came_back: None, filled_with: None }
    }

    /// Sets the burst: what the rate gives in 2 ms, and at least ten datagrams
    /// (RFC 9002 s.7.7: no more than the initial window where the rate does not ask for it).
    fn refill(&mut self, now: Timestamp, rate: Rate, datagram: u16) {
        // The next datagram of a batch: no time has passed since the last.
        if self.updated == now && self.filled_with == Some((rate, datagram)) {
            return;
        }
        self.filled_with = Some((rate, datagram));
        self.burst = (rate.0 * BURST_TIME.as_secs_f64()).max(10.0 * f64::from(datagram));
        let gained = rate.0 * now.since(self.updated).as_secs_f64();
        // A datagram was waiting: its sender comes back as soon as it can, and may send in several batches what it may send
        // then. Who sent what it had, and comes back later, had nothing to send.
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

    /// Earliest time at which a datagram of `datagram` bytes may leave; none means now.
    pub fn next(&mut self, now: Timestamp, rate: Rate, datagram: u16) -> Option<Timestamp> {
        self.refill(now, rate, datagram);
        let lacking = f64::from(datagram) - self.tokens;
        if lacking <= 0.0 {
            return None;
        }
        // Half a burst at a time: a timer for each datagram would cost more than it smooths.
        let wait = lacking.max(self.burst / 2.0 - self.tokens);
        self.due = Some(now + rate.time_for(wait.ceil() as u64).max(Duration::from_nanos(1)));
        self.due
    }

    /// So many bytes left.
    pub fn on_sent(&mut self, bytes: u64) {
        self.due = None;
        // A probe goes out whatever the bucket says; it must not take a whole round trip to mend.
        self.tokens = (self.tokens - bytes as f64).max(-self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Datagrams of 1,200 bytes that leave at one moment at this rate.
    fn leave(pacer: &mut Pacer, now: Timestamp, rate: Rate) -> usize {
        let next = || pacer.next(now, rate, 1200).is_none().then(|| pacer.on_sent(1200));
        std::iter::from_fn(next).take(1000).count()
    }

    #[test]
    fn a_batch_is_no_larger_for_being_asked_for_datagram_by_datagram() {
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
    fn a_rate_that_falls_takes_back_what_had_not_left() {
        let (slow, fast) = (Rate::bytes_per_second(1e6), Rate::bytes_per_second(1e7));
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        let now = Timestamp::START + Duration::from_secs(1);
        assert_eq!(pacer.next(now, fast, 1200), None);
        assert_eq!(leave(&mut pacer, now, slow), 10, "of 20,000 bytes");
    }

    /// Bytes that leave in a second, of a sender whose timer is late by so much each time.
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
    fn a_timer_that_is_late_costs_nothing_of_the_rate() {
        for late in [0, 1, 2, 3] {
            let left = leave_in_a_second(Rate::bytes_per_second(1e7), Duration::from_millis(late));
            assert!((9_900_000..10_100_000).contains(&left), "{late} ms: {left}");
        }
    }

    /// A timer that comes later than is made up for gives what is.
    #[test]
    fn a_timer_that_is_very_late_costs_only_what_is_beyond() {
        let rate = Rate::bytes_per_second(1.2e7);
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        assert_eq!(leave(&mut pacer, Timestamp::START, rate), 10);
        let due = pacer.next(Timestamp::START, rate, 1200).expect("nothing is left");
        // 2 ms and 4 ms of 12,000 bytes.
        let woken = due + Duration::from_millis(20);
        assert_eq!(leave(&mut pacer, woken, rate), 60);
        // What a batch has left over is there for the next.
        let due = pacer.next(woken, rate, 1200).expect("nothing is left");
        let woken = due + Duration::from_millis(5);
        assert_eq!((0..10).filter(|_| pacer.next(woken, rate, 1200).is_none()).count(), 10);
        pacer.on_sent(12_000);
        assert_eq!(leave(&mut pacer, woken + Duration::from_micros(100), rate), 51);
    }

    #[test]
    fn who_comes_back_for_another_reason_has_one_burst() {
        let rate = Rate::bytes_per_second(1e7);
        let mut pacer = Pacer::new(Timestamp::START, 12_000);
        assert_eq!(leave(&mut pacer, Timestamp::START, rate), 10);
        let due = pacer.next(Timestamp::START, rate, 1200).expect("nothing is left");
        // What waited leaves, and that was all.
        assert_eq!(pacer.next(due, rate, 1200), None);
        pacer.on_sent(1200);
        assert_eq!(leave(&mut pacer, due + Duration::from_millis(5), rate), 16);
        let due = pacer.next(due + Duration::from_millis(5), rate, 1200).expect("nothing is left");
        assert_eq!(leave(&mut pacer, due + Duration::from_millis(21), rate), 16);
    }
}
