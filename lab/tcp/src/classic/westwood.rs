//! Westwood+: measures the delivery rate, and sets the window to the bandwidth-delay product of
//! that rate after a loss.

use std::time::Duration;

use equic_transport::Timestamp;
use equic_transport::congestion::{AckSample, Controller, Signal, TcpController};

use super::{Core, from_core};

/// Shortest time over which the delivery rate is measured. If the round-trip time is longer, the
/// rate is measured over a round trip.
const SHORTEST: Duration = Duration::from_millis(50);
/// Weight of the previous value in both stages of the filter for the delivery rate.
const OLD: f64 = 7.0 / 8.0;

/// The Westwood+ congestion controller of Grieco and Mascolo.
#[derive(Debug, Clone)]
pub(super) struct Westwood {
    core: Core,
    /// Start of the current rate measurement, and the number of bytes acknowledged since then.
    since: Option<Timestamp>,
    acked: u64,
    /// Delivery rate in bytes per second after the first and after the second stage of the filter.
    /// `None` before the first measurement.
    rate: Option<(f64, f64)>,
    min_rtt: Duration,
}

impl Westwood {
    pub(super) fn new(datagram: u16) -> Westwood {
        let core = Core::new(datagram);
        Westwood { core, since: None, acked: 0, rate: None, min_rtt: Duration::MAX }
    }

    fn measure(&mut self, sample: &AckSample<'_>) {
        self.min_rtt = self.min_rtt.min(sample.rtt.latest());
        self.acked += sample.acked;
        let since = *self.since.get_or_insert(sample.now);
        let elapsed = sample.now.since(since);
        if elapsed < sample.rtt.smoothed().max(SHORTEST) {
            return;
        }
        let new = self.acked as f64 / elapsed.as_secs_f64();
        let (first, second) = self.rate.unwrap_or((new, new));
        let first = OLD * first + (1.0 - OLD) * new;
        self.rate = Some((first, OLD * second + (1.0 - OLD) * first));
        (self.since, self.acked) = (Some(sample.now), 0);
    }

    /// Returns the bytes that the path holds at the measured delivery rate. Before the first
    /// measurement, returns half the window.
    fn pipe(&self) -> f64 {
        match self.rate {
            Some((_, rate)) => rate * self.min_rtt.as_secs_f64(),
            None => self.core.window / 2.0,
        }
    }
}

impl Controller for Westwood {
    from_core!("westwood");

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        self.measure(sample);
        if self.core.may_grow(sample) {
            self.core.grow(sample.acked, 1.0);
        }
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, _signal: Signal) {
        if self.core.is_news(now, largest_sent) {
            // After a loss, use the bytes that the path holds, but never more than the previous
            // window.
            let window = self.pipe().min(self.core.window);
            self.core.reduce_to(window);
        }
    }
}

impl TcpController for Westwood {
    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        self.core.time_out(self.pipe());
    }
}
