//! BIC: searches in binary steps for the window at which the last loss occurred. It is an older
//! congestion control algorithm of TCP.

use equic_transport::Timestamp;
use equic_transport::congestion::{AckSample, Controller, Signal, TcpController};

use super::{Core, from_core};

/// Fraction of the congestion window that is left after a loss. The paper that defines BIC has
/// 0.875, but deployed implementations use about 0.8.
const BETA: f64 = 0.8;
/// Congestion window in datagrams below which BIC behaves like Reno.
const LOW_WINDOW: f64 = 14.0;
/// Largest growth of the window in a round trip, in datagrams (S_max).
const S_MAX: f64 = 16.0;
/// Smallest growth of the window in a round trip, in datagrams (S_min).
const S_MIN: f64 = 0.2;
/// In each round trip, the window grows by the distance to the target, divided by this number.
const SEARCH: f64 = 4.0;

/// The BIC congestion controller of Xu, Harfoush and Rhee.
#[derive(Debug, Clone)]
pub(super) struct Bic {
    core: Core,
    /// Congestion window at the last loss, in bytes. Zero before the first loss.
    last_max: f64,
}

impl Bic {
    pub(super) fn new(datagram: u16) -> Bic {
        Bic { core: Core::new(datagram), last_max: 0.0 }
    }

    /// Returns the growth of the window in a round trip, in datagrams.
    fn increment(&self) -> f64 {
        let (window, target) = (self.core.segments(), self.last_max / self.core.datagram);
        if window < LOW_WINDOW {
            return 1.0;
        }
        if window < target {
            // Binary search: the growth shrinks as the window approaches the target. While the
            // target is far away, the growth is constant.
            return ((target - window) / SEARCH).clamp(S_MIN, S_MAX);
        }
        // Max probing: the window has passed the old target. Its growth mirrors the growth below
        // the target: slow at first, and then faster.
        ((window - target) / (SEARCH - 1.0)).clamp(S_MIN, S_MAX)
    }

    fn on_loss(&mut self) -> f64 {
        let window = self.core.window;
        // Fast convergence: the loss came below the previous maximum, so another flow needs
        // bandwidth.
        self.last_max = if window < self.last_max { window * (1.0 + BETA) / 2.0 } else { window };
        if self.core.segments() < LOW_WINDOW { window / 2.0 } else { window * BETA }
    }
}

impl Controller for Bic {
    from_core!("bic");

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        if self.core.may_grow(sample) {
            self.core.grow(sample.acked, self.increment());
        }
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, _signal: Signal) {
        if self.core.is_news(now, largest_sent) {
            let window = self.on_loss();
            self.core.reduce_to(window);
        }
    }
}

impl TcpController for Bic {
    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        let threshold = self.on_loss();
        self.core.time_out(threshold);
    }
}
