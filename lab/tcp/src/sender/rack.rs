//! RACK (RFC 8985 s.6): loss detection by time, in the order of transmission.

use std::time::Duration;

use super::scoreboard::Sent;
use equic_transport::Timestamp;

/// Number of recoveries for which a wider reordering window is kept (RFC 8985 s.6.2, step 4).
const PERSIST: u32 = 16;

/// Number of segments delivered out of order after which a segment is declared lost at once. It
/// applies only as long as no reordering was seen (DupThresh).
pub(crate) const DUP_THRESH: usize = 3;

#[derive(Debug)]
pub(crate) struct Rack {
    /// Number of the latest transmission that was delivered. This number stands for both
    /// RACK.xmit_ts and RACK.end_seq.
    latest: Option<u64>,
    rtt: Duration,
    /// Highest sequence number that was delivered (RACK.fack).
    forward: u64,
    reordering_seen: bool,
    window_multiplier: u32,
    window_persist: u32,
    /// The value of SND.NXT when the reordering window last grew.
    dsack_round: Option<u64>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            latest: None,
            rtt: Duration::ZERO,
            forward: 0,
            reordering_seen: false,
            window_multiplier: 1,
            window_persist: 0,
            dsack_round: None,
        }
    }
}

impl Rack {
    /// Processes a delivered segment (steps 2 and 3). `earlier` is true if the timestamp shows that
    /// an earlier transmission was delivered. As on Linux, this is also assumed for a retransmitted
    /// segment whose round-trip time is below the minimum.
    pub(crate) fn on_delivered(
        &mut self,
        now: Timestamp,
        segment: &Sent,
        min_rtt: Duration,
        earlier: bool,
    ) {
        let rtt = now.since(segment.time_sent);
        let doubtful = segment.retransmitted && (earlier || rtt < min_rtt);
        if !doubtful && self.latest.is_none_or(|latest| latest < segment.number) {
            (self.latest, self.rtt) = (Some(segment.number), rtt);
        }
        if segment.end > self.forward {
            self.forward = segment.end;
        } else if segment.end < self.forward && !segment.retransmitted {
            self.reordering_seen = true;
        }
    }

    /// Processes a DSACK, which means that reordering may be wider than assumed (step 4).
    pub(crate) fn on_dsack(&mut self, una: u64, next: u64) {
        if self.dsack_round.is_none_or(|round| una >= round) {
            self.dsack_round = Some(next);
            self.window_multiplier = self.window_multiplier.saturating_add(1);
            self.window_persist = PERSIST;
        }
    }

    /// Processes the end of a recovery.
    pub(crate) fn on_recovered(&mut self) {
        self.window_persist = self.window_persist.saturating_sub(1);
        if self.window_persist == 0 {
            self.window_multiplier = 1;
        }
    }

    /// Returns the time that is permitted for reordering: RACK.reo_wnd (step 4).
    pub(crate) fn reordering_window(
        &self,
        recovering: bool,
        sacked: usize,
        min_rtt: Duration,
        smoothed: Duration,
    ) -> Duration {
        if !self.reordering_seen && (recovering || sacked >= DUP_THRESH) {
            return Duration::ZERO;
        }
        (min_rtt / 4).saturating_mul(self.window_multiplier).min(smoothed)
    }

    /// Returns the limits for declaring losses: the transmission number below which transmissions
    /// can be lost, and the time after which they are.
    pub(crate) fn limit(&self) -> Option<(u64, Duration)> {
        self.latest.map(|latest| (latest, self.rtt))
    }
}
