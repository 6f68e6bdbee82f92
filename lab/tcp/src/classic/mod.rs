//! Older TCP congestion control algorithms, for comparison: [`Classic`].
//!
//! * `mod.rs`: what the algorithms share: slow start, and at most one reaction per round trip;
//! * `bic.rs`, `vegas.rs`, `westwood.rs`: the rest of each algorithm.

mod bic;
#[cfg(test)]
mod tests;
mod vegas;
mod westwood;

use std::fmt;

use equic_transport::Timestamp;
use equic_transport::congestion::{
    AckSample, Controller, ControllerFactory, TcpController, TcpControllerFactory, initial_window,
};

use bic::Bic;
use vegas::Vegas;
use westwood::Westwood;

/// Congestion control algorithms that past comparisons of transports have used, and that no current
/// system uses by default. They also work for QUIC, so that scenarios can compare both protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classic {
    /// BIC (L. Xu, K. Harfoush, I. Rhee: Binary Increase Congestion Control for Fast Long-Distance
    /// Networks, INFOCOM 2004).
    Bic,
    /// Vegas (L. Brakmo, L. Peterson: TCP Vegas, IEEE JSAC 1995).
    Vegas,
    /// Westwood+ (L. Grieco, S. Mascolo: Performance Evaluation and Comparison of Westwood+, New
    /// Reno, and Vegas, ACM CCR 2004).
    Westwood,
}

impl ControllerFactory for Classic {
    fn start(&self, datagram: u16, seed: u64) -> Box<dyn Controller> {
        self.start_tcp(datagram, seed)
    }
}

impl TcpControllerFactory for Classic {
    fn start_tcp(&self, datagram: u16, _seed: u64) -> Box<dyn TcpController> {
        match self {
            Classic::Bic => Box::new(Bic::new(datagram)),
            Classic::Vegas => Box::new(Vegas::new(datagram)),
            Classic::Westwood => Box::new(Westwood::new(datagram)),
        }
    }
}

impl fmt::Display for Classic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Classic::Bic => "bic",
            Classic::Vegas => "vegas",
            Classic::Westwood => "westwood",
        })
    }
}

/// Smallest congestion window in datagrams.
const MINIMUM_WINDOW: f64 = 2.0;

/// State that the classic algorithms share: the congestion window and the slow start threshold in
/// bytes. It reacts to congestion at most once per round trip.
#[derive(Debug, Clone)]
struct Core {
    datagram: f64,
    window: f64,
    threshold: Option<f64>,
    recovery_start: Option<Timestamp>,
    /// True until the peer acknowledges a packet that was sent after `recovery_start`.
    recovering: bool,
    /// Window and slow start threshold before the last reaction to congestion, so that it can be
    /// undone.
    before: Option<(f64, Option<f64>)>,
}

impl Core {
    fn new(datagram: u16) -> Core {
        Core {
            datagram: datagram.into(),
            window: initial_window(datagram) as f64,
            threshold: None,
            recovery_start: None,
            recovering: false,
            before: None,
        }
    }

    fn minimum(&self) -> f64 {
        MINIMUM_WINDOW * self.datagram
    }

    /// Returns the congestion window in datagrams.
    fn segments(&self) -> f64 {
        self.window / self.datagram
    }

    fn in_slow_start(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.window < threshold)
    }

    /// Returns true if the congestion window may grow with this acknowledgment (RFC 9002 s.7.3.2,
    /// s.7.8).
    fn may_grow(&mut self, sample: &AckSample<'_>) -> bool {
        let recovering = self.recovery_start.is_some_and(|start| sample.largest_sent <= start);
        self.recovering &= recovering;
        !recovering && !sample.app_limited
    }

    /// Increases the congestion window by `per_round` datagrams per round trip, in proportion to
    /// the acknowledged bytes. In slow start, increases it by the acknowledged bytes.
    fn grow(&mut self, acked: u64, per_round: f64) {
        self.window += if self.in_slow_start() {
            acked as f64
        } else {
            acked as f64 * per_round * self.datagram / self.window
        };
    }

    /// Returns true if the controller must react to this signal of congestion, because it has not
    /// yet reacted in this round trip. The caller must then set the window and the threshold.
    fn is_news(&mut self, now: Timestamp, largest_sent: Timestamp) -> bool {
        if self.recovery_start.is_some_and(|start| largest_sent <= start) {
            return false;
        }
        self.before = Some((self.window, self.threshold));
        (self.recovery_start, self.recovering) = (Some(now), true);
        true
    }

    fn reduce_to(&mut self, window: f64) {
        self.window = window.max(self.minimum());
        self.threshold = Some(self.window);
    }

    fn undo(&mut self) {
        if let Some((window, threshold)) = self.before.take()
            && window > self.window
        {
            (self.window, self.threshold, self.recovery_start) = (window, threshold, None);
        }
    }

    fn start_over(&mut self) {
        self.window = self.minimum();
        (self.recovery_start, self.before) = (None, None);
    }

    /// Reacts to a retransmission timeout: sets the slow start threshold to `threshold`, and the
    /// window to one datagram (RFC 5681 s.3.1).
    fn time_out(&mut self, threshold: f64) {
        self.before = Some((self.window, self.threshold));
        self.recovery_start = None;
        self.threshold = Some(threshold.max(self.minimum()));
        self.window = self.datagram;
    }

    fn on_datagram_size(&mut self, size: u16) {
        self.datagram = size.into();
        self.window = self.window.max(self.minimum());
    }

    fn state(&self) -> &'static str {
        match self.recovering && self.recovery_start.is_some() {
            true => "recovery",
            false if self.in_slow_start() => "slow_start",
            false => "congestion_avoidance",
        }
    }
}

/// Implements the methods of [`Controller`] that the classic algorithms delegate to [`Core`].
macro_rules! from_core {
    ($name:literal) => {
        fn set_initial_window(&mut self, window: u64) {
            self.core.window = window as f64;
        }

        fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

        fn on_spurious_loss(&mut self, _now: Timestamp) {
            self.core.undo();
        }

        fn on_persistent_congestion(&mut self, _now: Timestamp) {
            self.core.start_over();
        }

        fn on_datagram_size(&mut self, size: u16) {
            self.core.on_datagram_size(size);
        }

        fn window(&self) -> u64 {
            self.core.window as u64
        }

        fn slow_start_threshold(&self) -> Option<u64> {
            self.core.threshold.map(|threshold| threshold as u64)
        }

        fn state(&self) -> &'static str {
            self.core.state()
        }

        fn name(&self) -> &'static str {
            $name
        }
    };
}
use from_core;
