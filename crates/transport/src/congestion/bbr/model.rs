//! BBR's model of the path (draft-ietf-ccwg-bbr s.5.5).

use std::time::Duration;

use super::secs;
use crate::Timestamp;
use crate::congestion::{Rate, RateSample};

/// Factor by which a short-term bound shrinks when packets are lost (s.2.3).
const BETA: f64 = 0.7;
/// Number of round trips over which the excess of acknowledgments is measured (s.2.10). Startup
/// uses a different number.
const EXTRA_ACKED_ROUNDS: u64 = 10;
const STARTUP_EXTRA_ACKED_ROUNDS: u64 = 1;
/// Largest tolerated fraction of lost bytes in a round trip (s.2.3).
pub(super) const LOSS_THRESHOLD: f64 = 0.02;

#[derive(Debug, Clone)]
pub(super) struct Model {
    /// Largest bandwidth sample of the current ProbeBW cycle and of the previous one, in bytes per
    /// second.
    max_bw: [f64; 2],
    pub min_rtt: Option<Duration>,
    /// Long-term bound: the largest number of bytes in flight without excessive loss. `None` if
    /// there is no bound.
    pub inflight_longterm: Option<u64>,
    /// Short-term bound on the bandwidth while losses continue, in bytes per second. `None` if
    /// there is no bound.
    pub bw_shortterm: Option<f64>,
    pub inflight_shortterm: Option<u64>,
    undo: Option<Undo>,
    pub bw_latest: f64,
    pub inflight_latest: u64,
    /// Number of bytes that the path had delivered at the last acknowledgment.
    pub total_delivered: u64,
    /// Number of delivered bytes at which the current round trip ends and the next one begins.
    next_round_delivered: u64,
    pub round_start: bool,
    pub round_count: u64,
    loss_round_delivered: u64,
    pub loss_round_start: bool,
    pub loss_in_round: bool,
    /// True if packets of the current round trip were marked ECN-CE.
    marked_in_round: bool,
    pub app_limited: bool,
    extra_acked: [u64; 2],
    extra_acked_round: u64,
    ack_epoch: Option<(Timestamp, u64)>,
}

#[derive(Debug, Clone)]
struct Undo {
    inflight_longterm: Option<u64>,
    bw_shortterm: Option<f64>,
    inflight_shortterm: Option<u64>,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            max_bw: [0.0; 2],
            min_rtt: None,
            inflight_longterm: None,
            bw_shortterm: None,
            inflight_shortterm: None,
            undo: None,
            bw_latest: 0.0,
            inflight_latest: 0,
            total_delivered: 0,
            next_round_delivered: 0,
            round_start: false,
            round_count: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            loss_in_round: false,
            marked_in_round: false,
            app_limited: false,
            extra_acked: [0; 2],
            extra_acked_round: 0,
            ack_epoch: None,
        }
    }

    pub(super) fn max_bw(&self) -> f64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// Returns the estimated bandwidth in bytes per second. The short-term bound limits it.
    pub(super) fn bw(&self) -> f64 {
        self.bw_shortterm.map_or(self.max_bw(), |bound| bound.min(self.max_bw()))
    }

    /// Returns `gain` times the bandwidth-delay product in bytes, or `None` if the round-trip time
    /// or the bandwidth is unknown.
    pub(super) fn bdp(&self, gain: f64) -> Option<u64> {
        self.bdp_of(self.bw(), gain)
    }

    /// Like [`Model::bdp`], for a bandwidth of `bw` bytes per second.
    pub(super) fn bdp_of(&self, bw: f64, gain: f64) -> Option<u64> {
        self.min_rtt.filter(|_| bw > 0.0).map(|rtt| (gain * bw * secs(rtt)) as u64)
    }

    pub(super) fn extra_acked(&self) -> u64 {
        self.extra_acked[0].max(self.extra_acked[1])
    }

    /// s.5.5.10.1: updates the signals of the latest round trip. Must be called first for each
    /// acknowledgment.
    pub(super) fn update_latest_delivery_signals(&mut self, rate: &RateSample) {
        self.loss_round_start = false;
        self.total_delivered = rate.total_delivered;
        let bw = rate.rate.map_or(0.0, Rate::as_bytes_per_second);
        self.bw_latest = self.bw_latest.max(bw);
        self.inflight_latest = self.inflight_latest.max(rate.delivered);
        if rate.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = rate.total_delivered;
            self.loss_round_start = true;
        }
        self.app_limited = rate.app_limited;
    }

    /// s.5.5.10.1: starts the signals of the next round trip if one began. Must be called last for
    /// each acknowledgment.
    pub(super) fn advance_latest_delivery_signals(&mut self, rate: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = rate.rate.map_or(0.0, Rate::as_bytes_per_second);
            self.inflight_latest = rate.delivered;
        }
    }

    /// s.5.5.10.2: records a lost packet. The first loss begins the round trip in which the path's
    /// reaction is measured. If that round trip had begun earlier, it would include delivery rates
    /// from before the loss.
    pub(super) fn note_loss(&mut self) {
        if !self.loss_in_round {
            self.loss_round_delivered = self.total_delivered;
        }
        self.loss_in_round = true;
    }

    /// Records ECN-CE marks. Unlike losses, marks never occur at random.
    pub(super) fn note_marked(&mut self) {
        self.note_loss();
        self.marked_in_round = true;
    }

    /// s.5.5.10.3: resets the signals of congestion when a round trip begins.
    pub(super) fn reset_congestion_signals(&mut self) {
        (self.loss_in_round, self.marked_in_round) = (false, false);
        (self.bw_latest, self.inflight_latest) = (0.0, 0);
    }

    /// s.5.5.10.3: lowers the short-term bounds if losses are excessive. While the controller is
    /// `probing` for bandwidth, it ignores losses. Otherwise it ignores losses up to the tolerated
    /// fraction.
    pub(super) fn update_congestion_signals(
        &mut self,
        rate: &RateSample,
        window: u64,
        datagram: u64,
        probing: bool,
    ) {
        self.update_round(rate);
        let bw = rate.rate.map_or(0.0, Rate::as_bytes_per_second);
        if bw >= self.max_bw() || !rate.app_limited {
            self.max_bw[0] = self.max_bw[0].max(bw);
        }
        if !self.loss_round_start {
            return;
        }
        // This differs from the draft, which lowers the bounds after each round trip with a loss.
        // If every round trip has a random loss, the draft's rate falls by about 1 % in each round
        // trip, and to a fourth of its value in a ProbeBW cycle.
        let congested = self.marked_in_round || is_lossy(rate.lost, rate.sent_in_flight, datagram);
        if self.loss_in_round && !probing && congested {
            let bw = self.bw_shortterm.unwrap_or(self.max_bw());
            self.bw_shortterm = Some(self.bw_latest.max(BETA * bw));
            let inflight = self.inflight_shortterm.unwrap_or(window);
            self.inflight_shortterm =
                Some(self.inflight_latest.max((BETA * inflight as f64) as u64));
        }
        (self.loss_in_round, self.marked_in_round) = (false, false);
    }

    fn update_round(&mut self, rate: &RateSample) {
        self.round_start = rate.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.next_round_delivered = rate.total_delivered;
            self.round_count += 1;
        }
    }

    /// Begins a new round trip now, without waiting for packets that are in flight.
    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.total_delivered;
    }

    /// Begins a new ProbeBW cycle. Keeps the maximum bandwidth of the previous cycle and forgets
    /// older ones (s.5.5.6).
    pub(super) fn advance_max_bw(&mut self) {
        if self.max_bw[0] > 0.0 {
            self.max_bw = [0.0, self.max_bw[0]];
        }
    }

    /// s.5.5.10.3: removes the short-term bounds on the bandwidth and on the bytes in flight.
    pub(super) fn reset_shortterm(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (None, None);
    }

    /// Saves the bounds before losses lower them, so that the reaction to a spurious loss can be
    /// undone.
    pub(super) fn save(&mut self) {
        self.undo = Some(Undo {
            inflight_longterm: self.inflight_longterm,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
        });
    }

    /// Restores each saved bound that was higher than the current one.
    pub(super) fn undo(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        // `None` means that there is no bound, so it counts as higher than any bound.
        let higher = |now: Option<u64>, then: Option<u64>| Some(now?.max(then?));
        self.inflight_longterm = higher(self.inflight_longterm, undo.inflight_longterm);
        self.inflight_shortterm = higher(self.inflight_shortterm, undo.inflight_shortterm);
        self.bw_shortterm = match (self.bw_shortterm, undo.bw_shortterm) {
            (Some(now), Some(then)) => Some(now.max(then)),
            _ => None,
        };
    }

    /// s.5.5.9: measures how bursty acknowledgments are, for example on Wi-Fi. The congestion
    /// window must be large enough for these bursts.
    pub(super) fn update_ack_aggregation(
        &mut self,
        now: Timestamp,
        acked: u64,
        window: u64,
        full_bw_reached: bool,
    ) {
        let (start, before) = self.ack_epoch.unwrap_or((now, 0));
        let expected = (self.bw() * now.since(start).as_secs_f64()) as u64;
        let (start, counted) =
            if before <= expected { (now, acked) } else { (start, before + acked) };
        self.ack_epoch = Some((start, counted));
        let expected = (self.bw() * now.since(start).as_secs_f64()) as u64;
        let extra = counted.saturating_sub(expected).min(window);
        let rounds = if full_bw_reached { EXTRA_ACKED_ROUNDS } else { STARTUP_EXTRA_ACKED_ROUNDS };
        if self.round_count >= self.extra_acked_round + rounds {
            self.extra_acked_round = self.round_count;
            self.extra_acked = [0, self.extra_acked[0]];
        }
        self.extra_acked[0] = self.extra_acked[0].max(extra);
    }

    pub(super) fn restart_ack_epoch(&mut self, now: Timestamp) {
        self.ack_epoch = Some((now, 0));
    }
}

/// Returns true if too many bytes of a flight were lost (s.5.5.10.2, IsInflightTooHigh).
///
/// The number of random losses varies: with 1 % loss, one of five flights of 150 packets loses
/// three packets, and this check is made at each loss. So losses must exceed the tolerated share by
/// more than one standard deviation. An overflowing queue exceeds that within a few more packets.
pub(super) fn is_lossy(lost: u64, in_flight: u64, datagram: u64) -> bool {
    let tolerated = LOSS_THRESHOLD * in_flight as f64;
    // The variance of a number of independent losses equals that number.
    let scatter = (tolerated * datagram as f64).sqrt();
    lost as f64 > tolerated + scatter
}
