//! NewReno (RFC 9002 s.7, appendix B).

use super::{AckSample, Controller, MINIMUM_WINDOW, Signal, initial_window};
use crate::Timestamp;

/// kLossReductionFactor of RFC 9002 appendix B.1 is a half.
const REDUCTION: u64 = 2;

/// The controller of RFC 9002.
#[derive(Debug, Clone)]
pub(crate) struct NewReno {
    datagram: u64,
    window: u64,
    threshold: Option<u64>,
    recovery_start: Option<Timestamp>,
    /// Nothing sent since then was acknowledged yet.
    recovering: bool,
    /// Remainder of the growth in congestion avoidance, in bytes times the window: less than a byte.
    /// A reduction leaves it and what was grown before: RFC 9002 B.5 grows with each acknowledgement.
    rest: u64,
    /// Window and threshold before the last reaction.
    before: Option<(u64, Option<u64>)>,
}

impl NewReno {
    /// In slow start, for datagrams of so many bytes.
    pub(crate) fn new(datagram: u16) -> NewReno {
        NewReno {
            datagram: datagram.into(),
            window: initial_window(datagram),
            threshold: None,
            recovery_start: None,
            recovering: false,
            rest: 0,
            before: None,
        }
    }

    fn minimum(&self) -> u64 {
        MINIMUM_WINDOW * self.datagram
    }
}

impl Controller for NewReno {
    fn set_initial_window(&mut self, window: u64) {
        self.window = window;
    }

    fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        // RFC 9002 s.7.3.2: recovery ends with the acknowledgement of a packet sent during it.
        let recovering = self.recovery_start.is_some_and(|start| sample.largest_sent <= start);
        self.recovering &= recovering;
        if recovering || sample.app_limited {
            return;
        }
        match self.threshold {
            Some(threshold) if self.window >= threshold => {
                // RFC 9002 s.7.3.3, B.5: one datagram a window, in parts as they are acknowledged.
                let grown = self.datagram * sample.acked + self.rest;
                self.rest = grown % self.window;
                self.window += grown / self.window;
            }
            _ => self.window = self.window.saturating_add(sample.acked),
        }
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, _signal: Signal) {
        if self.recovery_start.is_some_and(|start| largest_sent <= start) {
            return;
        }
        self.before = Some((self.window, self.threshold));
        (self.recovery_start, self.recovering) = (Some(now), true);
        self.window = (self.window / REDUCTION).max(self.minimum());
        self.threshold = Some(self.window);
    }

    fn on_spurious_loss(&mut self, _now: Timestamp) {
        if let Some((window, threshold)) = self.before.take()
            && window > self.window
        {
            (self.window, self.threshold, self.recovery_start) = (window, threshold, None);
        }
    }

    fn on_persistent_congestion(&mut self, _now: Timestamp) {
        self.window = self.minimum();
        (self.recovery_start, self.before) = (None, None);
    }

    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        self.before = Some((self.window, self.threshold));
        self.recovery_start = None;
        self.threshold = Some((self.window / REDUCTION).max(self.minimum()));
        // RFC 5681 s.3.1: the loss window.
        self.window = self.datagram;
    }

    fn on_datagram_size(&mut self, size: u16) {
        self.datagram = size.into();
        self.window = self.window.max(self.minimum());
    }

    fn set_window(&mut self, window: u64) -> bool {
        (self.window, self.rest, self.before) = (window.max(self.minimum()), 0, None);
        true
    }

    fn set_slow_start_threshold(&mut self, threshold: Option<u64>) -> bool {
        (self.threshold, self.before) = (threshold, None);
        true
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.threshold
    }

    fn state(&self) -> &'static str {
        match self.threshold {
            _ if self.recovering && self.recovery_start.is_some() => "recovery",
            Some(threshold) if self.window >= threshold => "congestion_avoidance",
            _ => "slow_start",
        }
    }

    fn name(&self) -> &'static str {
        "newreno"
    }
}
