//! Timers of the sender, which fire when no acknowledgement arrives: the retransmission timer (RFC
//! 6298), the tail loss probe (RFC 8985 s.7), the reordering timer of RACK, and the persist timer
//! (RFC 9293 s.3.8.6.1).

use std::time::Duration;

use equic_transport::Timestamp;

use super::scoreboard::Sent;
use super::{Check, Departure, Forced, Phase, Probe, Reduction, Sender};

/// Probe timeout before the first round-trip sample (RFC 8985 s.7.2).
const FIRST_PROBE: Duration = Duration::from_secs(1);

/// Number of timeouts of the same segment after which the connection is closed
/// (`net.ipv4.tcp_retries2`).
const MOST_TIMEOUTS: u32 = 15;

/// Tells the connection what to do after one of the sender's timers has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The connection does not need to do anything.
    None,
    /// The connection must send a window probe, which the receiver must answer, because the
    /// receiver's window is closed.
    ProbeWindow,
    /// The connection must be closed, because the receiver has not answered.
    GiveUp,
}

impl Sender {
    /// Returns the retransmission timeout after `backoff` doublings (RFC 6298 s.2), with the
    /// minimum that Linux uses.
    fn timeout_after(&self, backoff: u32) -> Duration {
        let timeout = match self.rtt.first_sample() {
            None => self.initial_rto,
            Some(_) => self.rtt.smoothed() + (self.rtt.variation() * 4).max(self.min_rto),
        };
        timeout.saturating_mul(1 << backoff.min(20)).min(self.max_rto)
    }

    /// Returns the current retransmission timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.timeout_after(self.backoff)
    }

    /// Starts the retransmission timer if data is outstanding (RFC 6298 s.5.1).
    pub(super) fn start_timer(&mut self, now: Timestamp) {
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
    }

    /// Returns the time for the next call of [`Sender::on_timer`], or `None` if no timer is set.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        let timers = [self.rto_at, self.probe_at, self.reorder_at, self.persist_at, self.pace_at];
        timers.into_iter().flatten().min()
    }

    pub(crate) fn on_timer(&mut self, now: Timestamp) -> Expiry {
        let due = |timer: &mut Option<Timestamp>| timer.take_if(|at| *at <= now).is_some();
        due(&mut self.pace_at);
        if due(&mut self.reorder_at) {
            self.on_reordering_timeout(now);
        }
        // The probe timer replaces the retransmission timer, so it is checked first if both are
        // due.
        if due(&mut self.probe_at) {
            self.forced = Some(Forced::Tail);
            self.rto_at = Some(now + self.rto());
        }
        if due(&mut self.rto_at) {
            return self.on_retransmission_timeout(now);
        }
        if due(&mut self.persist_at) {
            self.backoff = self.backoff.saturating_add(1);
            if self.backoff > MOST_TIMEOUTS {
                return Expiry::GiveUp;
            }
            self.persist_at = Some(now + self.rto());
            return Expiry::ProbeWindow;
        }
        Expiry::None
    }

    fn on_reordering_timeout(&mut self, now: Timestamp) {
        let mut lost = std::mem::take(&mut self.lost);
        lost.clear();
        self.detect_lost(now, false, &mut lost);
        self.note_lost(now, &lost);
        if !lost.is_empty() {
            self.on_loss(now, &lost);
            // RFC 8985 s.6.3: the retransmission timer restarts.
            self.rto_at = Some(now + self.rto());
        }
        self.lost = lost;
    }

    /// Handles an expiry of the retransmission timer (RFC 6298 s.5.4 to 5.6, RFC 8985 s.6.3).
    fn on_retransmission_timeout(&mut self, now: Timestamp) -> Expiry {
        if self.board.is_empty() {
            return Expiry::None;
        }
        if self.backoff >= MOST_TIMEOUTS {
            return Expiry::GiveUp;
        }
        self.counters.timeouts += 1;
        let mut lost = std::mem::take(&mut self.lost);
        lost.clear();
        self.mark_lost_by_timeout(now, &mut lost);
        self.note_lost(now, &lost);
        self.lost = lost;
        let reducing = matches!(self.phase, Phase::Reducing(Reduction { loss: true, .. }));
        // RFC 5681 s.3.1: the threshold stays the same if the same segment times out again.
        if !matches!(self.phase, Phase::Loss { .. }) || self.backoff == 0 {
            self.controller.on_retransmission_timeout(now);
            // If the timer expires during a recovery, acknowledgements of the recovery's
            // retransmissions still arrive. If they were taken into account, a genuine timeout
            // would look spurious.
            if !reducing {
                (self.retransmitted, self.needed) = (None, Some((self.una, 0)));
            }
        }
        // For the same reason, there is no check for a spurious timeout if the timer expires during
        // a recovery.
        let recovering = reducing || matches!(self.phase, Phase::Loss { .. });
        let first = self.backoff == 0 && self.sack && !recovering;
        let check = if first { Check::Begun } else { Check::Over };
        self.phase = Phase::Loss { end: self.nxt, check };
        (self.duplicates, self.probe, self.probe_at, self.reorder_at) = (0, None, None, None);
        self.forced = Some(Forced::Lost);
        self.backoff += 1;
        self.rto_at = Some(now + self.rto());
        Expiry::None
    }

    fn mark_lost_by_timeout(&mut self, now: Timestamp, lost: &mut Vec<Sent>) {
        let Some(head) = self.board.first().copied() else { return };
        // RFC 2018 s.8: the receiver has reported this data by SACK but does not acknowledge it, so
        // it may have discarded the data.
        if head.fate == super::scoreboard::Fate::Sacked {
            self.board.forget_sacks();
        }
        lost.extend(self.board.lose(head.number, head.start));
        let everything = self.board.next_number();
        match self.rack.limit().filter(|_| self.sack) {
            None => self.board.lose_while(everything, |_| true, lost),
            Some((_, rtt)) => {
                let window = self.rack.reordering_window(
                    true,
                    self.board.sacked_segments(),
                    self.rtt.min(),
                    self.rtt.smoothed(),
                );
                let late = |segment: &Sent| segment.time_sent + rtt + window <= now;
                self.board.lose_while(everything, late, lost)
            }
        };
    }

    /// Sets the timer of the tail loss probe. Called after new data and after acknowledgements (RFC
    /// 8985 s.7.2).
    pub(super) fn schedule_probe(&mut self, now: Timestamp) {
        self.probe_at = None;
        let quiet = matches!(self.phase, Phase::Open) && self.board.sacked() == 0;
        let wanted = self.tail_loss_probe && self.sack && quiet;
        if !wanted || self.probe.is_some() || self.board.is_empty() {
            return;
        }
        let mut timeout = FIRST_PROBE;
        if self.rtt.first_sample().is_some() {
            timeout = self.rtt.smoothed() * 2;
            // The receiver may delay the acknowledgement if only one segment is outstanding.
            if self.board.len() == 1 {
                timeout += self.min_rto;
            }
        }
        let at = now + timeout;
        self.probe_at = Some(self.rto_at.map_or(at, |rto| rto.min(at)));
    }

    /// Sends a tail loss probe (RFC 8985 s.7.3): a new segment if there is new data, otherwise the
    /// last segment again.
    pub(super) fn send_probe(&mut self, now: Timestamp) -> Option<Departure> {
        self.forced = None;
        if !matches!(self.phase, Phase::Open) || self.probe.is_some() {
            return None;
        }
        let departure = match self.next_end() {
            Some(end) => self.send_new(now, end),
            None => {
                let last = self.board.last().copied()?;
                self.retransmit(now, &last)
            }
        };
        self.counters.probes += 1;
        self.probe = Some(Probe { end: self.nxt, retransmission: departure.retransmission });
        self.probe_at = None;
        Some(departure)
    }
}
