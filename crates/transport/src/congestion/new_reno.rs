//! The NewReno congestion controller (RFC 9002 s.7, appendix B).

use super::{
    AckSample, AdjustableController, Controller, MINIMUM_WINDOW, Signal, TcpController,
    initial_window,
};
use crate::Timestamp;

/// After a loss, the window is divided by this number. RFC 9002 appendix B.1 states the reciprocal:
/// kLossReductionFactor is one half.
const REDUCTION: u64 = 2;

/// The NewReno congestion controller of RFC 9002.
#[derive(Debug, Clone)]
pub(crate) struct NewReno {
    datagram: u64,
    window: u64,
    threshold: Option<u64>,
    recovery_start: Option<Timestamp>,
    /// True until the peer acknowledges a packet that was sent after the last reduction of the
    /// window.
    recovering: bool,
    growth: Growth,
    /// True if the controller was in congestion avoidance when it last reacted, and the ACK frame
    /// that revealed the congestion may still have to be processed.
    avoided: bool,
    /// Window and slow start threshold before the last reduction, so that it can be undone.
    before: Option<(u64, Option<u64>)>,
}

/// State of the congestion window's growth in congestion avoidance.
#[derive(Debug, Clone)]
enum Growth {
    /// QUIC: the window grows by one datagram whenever a whole window was acknowledged (RFC 3465
    /// s.2.1). The number counts the acknowledged bytes. A reduction of the window keeps the count,
    /// because the window has not grown for these bytes yet. RFC 9002 s.7.3.3 permits this.
    ByWindows(u64),
    /// TCP: the window grows with each acknowledgment, by a datagram times the acknowledged
    /// fraction of the window. That is at most a datagram per round trip (RFC 5681 s.3.1). The
    /// number is the remainder below one byte, multiplied by the window.
    ByParts(u64),
}

impl Growth {
    /// Returns how many bytes the window grows for `acked` acknowledged bytes.
    fn grow(&mut self, acked: u64, window: u64, datagram: u64) -> u64 {
        match self {
            Growth::ByWindows(counted) => {
                *counted += acked;
                let mut grown = 0;
                while *counted >= window + grown {
                    *counted -= window + grown;
                    grown += datagram;
                }
                grown
            }
            Growth::ByParts(rest) => {
                let grown = datagram * acked + *rest;
                *rest = grown % window;
                grown / window
            }
        }
    }

    /// Counts acknowledged bytes without growing the window now. They contribute to its next
    /// growth.
    fn count(&mut self, acked: u64) {
        if let Growth::ByWindows(counted) = self {
            *counted += acked;
        }
    }

    /// Resets the count of acknowledged bytes.
    fn forget(&mut self) {
        let (Growth::ByWindows(count) | Growth::ByParts(count)) = self;
        *count = 0;
    }
}

impl NewReno {
    /// Creates a controller in slow start, for datagrams of this size.
    pub(crate) fn new(datagram: u16) -> NewReno {
        NewReno {
            datagram: datagram.into(),
            window: initial_window(datagram),
            threshold: None,
            recovery_start: None,
            recovering: false,
            growth: Growth::ByWindows(0),
            avoided: false,
            before: None,
        }
    }

    /// Creates a controller in slow start that follows the stricter rules of RFC 5681.
    pub(super) fn for_tcp(datagram: u16) -> NewReno {
        NewReno { growth: Growth::ByParts(0), ..NewReno::new(datagram) }
    }

    fn minimum(&self) -> u64 {
        MINIMUM_WINDOW * self.datagram
    }

    /// Returns the datagram size in bytes.
    pub(super) fn datagram(&self) -> u64 {
        self.datagram
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.window < threshold)
    }

    /// Returns true if the congestion window may grow with this acknowledgment (RFC 9002 s.7.3.2,
    /// s.7.8).
    pub(super) fn may_grow(&mut self, sample: &AckSample<'_>) -> bool {
        // RFC 9002 s.7.3.2: recovery ends when a packet is acknowledged that was sent during
        // recovery.
        let recovering = !self.is_news(sample.largest_sent);
        self.recovering &= recovering;
        !recovering && !sample.app_limited
    }

    /// Returns true if a packet that was sent at this time is newer than the last reaction to
    /// congestion. If that packet is lost, the controller must react again.
    pub(super) fn is_news(&self, sent: Timestamp) -> bool {
        self.recovery_start.is_none_or(|start| sent > start)
    }

    /// Changes the window by this number of bytes, but never below the smallest window.
    pub(super) fn change_by(&mut self, bytes: i64) {
        self.window = self.window.saturating_add_signed(bytes).max(self.minimum());
    }
}

impl Controller for NewReno {
    fn set_initial_window(&mut self, window: u64) {
        self.window = window;
    }

    fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        let avoided = std::mem::take(&mut self.avoided);
        if !self.may_grow(sample) {
            // The ACK frame that revealed the loss also acknowledges bytes. They count as
            // acknowledged before the window was reduced.
            if avoided && self.recovery_start == Some(sample.now) && !sample.app_limited {
                self.growth.count(sample.acked);
            }
            return;
        }
        if self.in_slow_start() {
            self.window = self.window.saturating_add(sample.acked);
            return;
        }
        self.window += self.growth.grow(sample.acked, self.window, self.datagram);
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, _signal: Signal) {
        if !self.is_news(largest_sent) {
            return;
        }
        self.before = Some((self.window, self.threshold));
        self.avoided = !self.in_slow_start();
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
        self.growth.forget();
    }

    fn on_datagram_size(&mut self, size: u16) {
        self.datagram = size.into();
        self.window = self.window.max(self.minimum());
    }

    fn adjustable(&mut self) -> Option<&mut dyn AdjustableController> {
        Some(self)
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

impl TcpController for NewReno {
    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        self.before = Some((self.window, self.threshold));
        self.recovery_start = None;
        self.threshold = Some((self.window / REDUCTION).max(self.minimum()));
        // RFC 5681 s.3.1: the congestion window becomes the loss window, which is one datagram.
        self.window = self.datagram;
        self.growth.forget();
    }
}

impl AdjustableController for NewReno {
    fn set_window(&mut self, window: u64) {
        (self.window, self.before) = (window.max(self.minimum()), None);
        self.growth.forget();
    }

    fn set_slow_start_threshold(&mut self, threshold: Option<u64>) {
        (self.threshold, self.before) = (threshold, None);
    }
}
