//! BIC: a binary search for the window at which something was last lost.

use super::super::{AckSample, Controller, Signal};
use super::{Core, from_core};
use crate::Timestamp;

/// Share of the window that is left after a loss. The paper has 0.875; what was deployed has about this.
const BETA: f64 = 0.8;
/// Window in datagrams below which it does as Reno.
const LOW_WINDOW: f64 = 14.0;
/// Most datagrams that a round trip adds (S_max).
const MOST: f64 = 16.0;
/// Fewest that it adds (S_min).
const LEAST: f64 = 0.2;
/// Part of the way to the target that a round trip makes.
const SEARCH: f64 = 4.0;

/// The controller of Xu, Harfoush and Rhee.
#[derive(Debug, Clone)]
pub(super) struct Bic {
    core: Core,
    /// The window at which something was last lost, in bytes; zero: nothing was.
    last_max: f64,
}

impl Bic {
    pub(super) fn new(datagram: u16) -> Bic {
        Bic { core: Core::new(datagram), last_max: 0.0 }
    }

    /// Datagrams that a round trip adds.
    fn increment(&self) -> f64 {
        let (window, target) = (self.core.segments(), self.last_max / self.core.datagram);
        if window < LOW_WINDOW {
            return 1.0;
        }
        if window < target {
            // Binary search, additive while the target is far.
            return ((target - window) / SEARCH).clamp(LEAST, MOST);
        }
        // Max probing: away from the old target as slowly as it was come up to.
        ((window - target) / (SEARCH - 1.0)).clamp(LEAST, MOST)
    }

    fn on_loss(&mut self) -> f64 {
        let window = self.core.window;
        // Fast convergence: the window is below the last maximum, so another flow needs bandwidth.
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

    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        let threshold = self.on_loss();
        self.core.time_out(threshold);
    }
}
