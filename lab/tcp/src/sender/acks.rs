//! Processes the acknowledgements that the sender receives.

use std::time::Duration;

use equic_transport::Timestamp;
use equic_transport::congestion::{AckSample, Signal};

use super::rack::DUP_THRESH;
use super::scoreboard::Sent;
use super::{Check, Forced, Phase, Prr, Reduction, Sender};

/// An acknowledgement whose sequence numbers count from the SYN.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack<'a> {
    /// The acknowledgment number. It is between SND.UNA and SND.NXT.
    pub number: u64,
    /// SACK blocks above the acknowledgment number. They cover only data that was sent.
    pub blocks: &'a [(u64, u64)],
    /// The range that the receiver reports as received twice (DSACK, RFC 2883), or `None`.
    pub dsack: Option<(u64, u64)>,
    /// Right edge of the receiver's window.
    pub limit: u64,
    /// The earliest and the latest time at which the segment whose timestamp is echoed can have
    /// been sent.
    pub echo: Option<(Timestamp, Timestamp)>,
    /// True for a pure acknowledgement, which has no data and does not change the window.
    pub bare: bool,
    /// True if the segment has ECN-Echo (RFC 3168 s.6.1).
    pub congestion_echo: bool,
}

impl Sender {
    /// Processes an acknowledgement. Returns `true` if the window was reduced because of ECN. The
    /// next segment must then carry CWR.
    pub(crate) fn on_ack(&mut self, now: Timestamp, ack: &Ack<'_>) -> bool {
        let before = self.in_flight();
        let advanced = ack.number > self.una;
        let segments_before = self.board.len();
        let (mut delivered, mut lost) =
            (std::mem::take(&mut self.delivered), std::mem::take(&mut self.lost));
        delivered.clear();
        lost.clear();
        let blocks = if self.sack { ack.blocks } else { &[] };
        self.board.acknowledge(ack.number, blocks, &mut delivered);
        self.una = ack.number;
        self.limit = self.limit.max(ack.limit);
        if self.limit > self.nxt {
            self.persist_at = None;
        }
        let gone = segments_before - self.board.len();
        let mut acked: u64 = delivered.iter().map(Sent::len).sum();
        acked = self.count_duplicates(ack, advanced, gone as u64, acked);

        self.sample_rtt(now, ack, advanced, &delivered);
        let min_rtt = self.rtt.min();
        for segment in &delivered {
            // RFC 8985 s.6.2, step 2: the echoed timestamp shows that an earlier transmission of
            // the segment was delivered. This is valid only for cumulatively acknowledged data.
            let earlier = segment.end <= self.una
                && ack.echo.is_some_and(|(_, latest)| latest < segment.time_sent);
            self.rack.on_delivered(now, segment, min_rtt, earlier);
        }
        if let Some((_, right)) = ack.dsack {
            self.rack.on_dsack(self.una, self.nxt);
            self.on_unneeded(now, right);
        }
        self.check_timeout(now, advanced, &delivered);
        if advanced {
            self.end_phases(now, ack);
        }
        self.answer_probe(now, ack, advanced);
        self.detect_lost(now, advanced, &mut lost);
        self.note_lost(now, &lost);
        // A segment that was lost in the last recovery and was not retransmitted then begins
        // another recovery.
        if !lost.is_empty() || self.board.lost() > 0 && matches!(self.phase, Phase::Open) {
            self.on_loss(now, &lost);
        }
        let reduced = ack.congestion_echo && self.on_mark(now);
        self.reduce(acked, advanced && lost.is_empty());
        self.tell_controller(now, acked, before, advanced, &delivered);

        if self.board.is_empty() {
            (self.rto_at, self.probe_at, self.reorder_at) = (None, None, None);
        } else if advanced && !self.is_impatient() {
            self.rto_at = Some(now + self.rto());
        }
        if let Phase::Reducing(reduction) = &mut self.phase {
            reduction.partial |= advanced && reduction.entered < now;
        }
        if advanced || !delivered.is_empty() {
            self.schedule_probe(now);
        }
        (self.delivered, self.lost) = (delivered, lost);
        reduced
    }

    /// Counts duplicate acknowledgements. Without SACK, each of them means that a segment arrived
    /// out of order. Returns the number of bytes that this acknowledgement reports as delivered.
    fn count_duplicates(&mut self, ack: &Ack<'_>, advanced: bool, gone: u64, acked: u64) -> u64 {
        if self.sack {
            return acked;
        }
        if advanced {
            // The acknowledgement covers the missing segment, and the segments after it that the
            // duplicates have already counted as delivered.
            let counted = self.duplicates.min(gone.saturating_sub(1));
            self.duplicates -= counted;
            if matches!(self.phase, Phase::Open) {
                self.duplicates = 0;
            }
            return acked.saturating_sub(counted * self.mss);
        }
        // RFC 5681 s.2: this is a duplicate acknowledgement.
        if ack.bare && !self.board.is_empty() && self.duplicates + 1 < self.board.len() as u64 {
            self.duplicates += 1;
            return self.mss;
        }
        acked
    }

    fn sample_rtt(&mut self, now: Timestamp, ack: &Ack<'_>, advanced: bool, delivered: &[Sent]) {
        // Karn's algorithm: retransmitted segments give no round-trip sample (RFC 6298 s.3), unless
        // a timestamp identifies the transmission. Without SACK, segments after a hole have waited
        // at the receiver. So an acknowledgement that covers both a retransmission and such
        // segments gives no sample without a timestamp. Linux takes no sample from it either.
        let waited = !self.sack && delivered.iter().any(|segment| segment.retransmitted);
        let once = delivered.iter().filter(|segment| !segment.retransmitted && !waited);
        let newest = once.map(|segment| segment.time_sent).max();
        let echoed = ack.echo.filter(|_| advanced && !delivered.is_empty()).map(|(first, _)| first);
        let Some(sent) = newest.or(echoed) else { return };
        self.rtt.update(now, now.since(sent), Duration::ZERO);
        self.backoff = 0;
    }

    fn end_phases(&mut self, now: Timestamp, ack: &Ack<'_>) {
        let end = match &self.phase {
            Phase::Open => return,
            Phase::Reducing(Reduction { end, .. }) | Phase::Loss { end, .. } => *end,
        };
        // Eifel (RFC 3522 s.3.2): the acknowledged segment was sent before the retransmission, so
        // the retransmission was unnecessary.
        let original = ack
            .echo
            .zip(self.retransmitted)
            .is_some_and(|((_, latest), (again, start))| latest < again && self.una > start);
        // After an ECN mark, the reduction continues until newer data is acknowledged, because this
        // shows that the receiver got CWR. Linux does the same.
        let marked = matches!(self.phase, Phase::Reducing(Reduction { loss: false, .. }));
        if original && !marked {
            self.undo(now);
        } else if self.una > end || self.una == end && !marked {
            self.leave();
        }
    }

    /// Counts an unnecessary retransmission. If all retransmissions of a loss recovery were
    /// unnecessary, the reaction to the loss is undone (RFC 3708).
    fn on_unneeded(&mut self, now: Timestamp, end: u64) {
        let Some((since, needed)) = self.needed.filter(|(since, _)| end > *since) else { return };
        self.needed = needed.checked_sub(1).map(|needed| (since, needed));
        if matches!(self.needed, Some((_, 0))) {
            self.undo(now);
        }
    }

    /// Checks for a spurious timeout with F-RTO (RFC 5682 s.3.1): a timeout is spurious if data
    /// that was sent before it is still being delivered.
    fn check_timeout(&mut self, now: Timestamp, advanced: bool, delivered: &[Sent]) {
        let Phase::Loss { end, check } = &mut self.phase else { return };
        if *check == Check::Over || delivered.is_empty() {
            return;
        }
        if delivered.iter().any(|segment| !segment.retransmitted && segment.end <= *end) {
            self.undo(now);
        } else if *check == Check::Begun && advanced && self.una < *end {
            *check = Check::Probing(2);
        } else {
            *check = Check::Over;
        }
    }

    /// Undoes the reaction to a loss that turned out to be spurious.
    fn undo(&mut self, now: Timestamp) {
        self.counters.spurious += 1;
        self.needed = None;
        self.controller.on_spurious_loss(now);
        self.board.forgive();
        self.leave();
    }

    fn leave(&mut self) {
        self.phase = Phase::Open;
        (self.retransmitted, self.forced) = (None, None);
        self.duplicates = 0;
        self.rack.on_recovered();
    }

    /// Handles the acknowledgement of a tail loss probe. The probe may have repaired a loss that no
    /// other signal shows (RFC 8985 s.7.4.2).
    fn answer_probe(&mut self, now: Timestamp, ack: &Ack<'_>, advanced: bool) {
        let Some(probe) = self.probe.as_ref().filter(|probe| ack.number >= probe.end) else {
            return;
        };
        let twice = ack.dsack.is_some_and(|(_, right)| right == probe.end);
        let repaired = probe.retransmission && !twice && ack.number > probe.end;
        let (end, retransmission) = (probe.end, probe.retransmission);
        let duplicate = !advanced && ack.blocks.is_empty();
        if retransmission && !twice && !repaired && !duplicate && ack.number == end {
            // It is undecided whether a segment was lost: a DSACK may still report that the probe's
            // copy was not needed.
            return;
        }
        self.probe = None;
        if repaired && matches!(self.phase, Phase::Open) {
            self.start_reduction(now, Signal::Loss { bytes: self.mss }, false);
        }
    }

    /// Declares segments lost. With SACK, RACK decides (RFC 8985 s.6.2 step 5). Without SACK, three
    /// duplicate acknowledgements do.
    pub(super) fn detect_lost(&mut self, now: Timestamp, advanced: bool, lost: &mut Vec<Sent>) {
        self.reorder_at = None;
        if !self.sack {
            let head = self.board.first().copied();
            let recovering =
                matches!(&self.phase, Phase::Reducing(Reduction { loss: true, .. })) && advanced;
            // RFC 6582 s.3.2: during a recovery, a partial acknowledgement means that the next
            // segment is missing.
            let first = matches!(self.phase, Phase::Open | Phase::Reducing(_))
                && self.duplicates >= DUP_THRESH as u64
                && head.is_some_and(|head| !head.retransmitted);
            if let Some(head) = head.filter(|_| recovering || first) {
                lost.extend(self.board.lose(head.number, head.start));
            }
            return;
        }
        let Some((limit, rtt)) = self.rack.limit() else { return };
        let recovering = !matches!(self.phase, Phase::Open);
        let window = self.rack.reordering_window(
            recovering,
            self.board.sacked_segments(),
            self.rtt.min(),
            self.rtt.smoothed(),
        );
        let late = |segment: &Sent| segment.time_sent + rtt + window <= now;
        let next = self.board.lose_while(limit, late, lost);
        // The timer fires for the first segment that may be late. By RFC 8985 s.6.2, it would fire
        // only for the last of these segments.
        self.reorder_at = next.map(|segment| segment.time_sent + rtt + window);
    }

    pub(super) fn note_lost(&mut self, now: Timestamp, lost: &[Sent]) {
        for segment in lost {
            self.counters.lost += 1;
            self.rates.on_lost(segment.len());
            let total = self.rates.lost();
            self.controller.on_packet_lost(now, segment.len(), &segment.mark, total);
        }
    }

    pub(super) fn on_loss(&mut self, now: Timestamp, lost: &[Sent]) {
        let bytes = lost.iter().map(Sent::len).sum();
        match &mut self.phase {
            Phase::Open => self.start_reduction(now, Signal::Loss { bytes }, true),
            Phase::Reducing(reduction) if !reduction.loss => {
                // The window is reduced at most once per round trip, whatever the cause.
                (reduction.loss, reduction.end) = (true, self.nxt);
                self.forced = Some(Forced::Lost);
                (self.retransmitted, self.needed) = (None, Some((self.una, 0)));
            }
            Phase::Reducing(_) => {}
            // A retransmission was lost again, so the congestion persists (RFC 5681 s.4.3).
            Phase::Loss { .. } if lost.iter().any(|segment| segment.retransmitted) => {
                self.start_reduction(now, Signal::Loss { bytes }, true);
            }
            Phase::Loss { .. } => {}
        }
    }

    /// Handles an ECN mark (RFC 3168 s.6.1.2). Returns `true` if it reduces the window.
    fn on_mark(&mut self, now: Timestamp) -> bool {
        let open = matches!(self.phase, Phase::Open);
        if open {
            self.start_reduction(now, Signal::Ecn, false);
        }
        open
    }

    fn start_reduction(&mut self, now: Timestamp, signal: Signal, loss: bool) {
        self.counters.reductions += 1;
        let flight = self.nxt - self.una;
        self.controller.on_congestion(now, now, signal);
        let prr =
            (!self.controller.needs_pacing()).then(|| Prr::new(self.controller.window(), flight));
        let window = self.in_flight();
        let (end, entered, partial) = (self.nxt, now, false);
        self.phase = Phase::Reducing(Reduction { end, entered, prr, window, loss, partial });
        if loss {
            self.forced = Some(Forced::Lost);
            (self.retransmitted, self.needed) = (None, Some((self.una, 0)));
        }
        self.probe_at = None;
    }

    /// Updates the congestion window while it is being reduced.
    fn reduce(&mut self, acked: u64, good: bool) {
        let (pipe, mss) = (self.in_flight(), self.mss);
        if let Phase::Reducing(Reduction { prr: Some(prr), window, .. }) = &mut self.phase
            && acked > 0
        {
            *window = pipe + prr.on_ack(acked, pipe, mss, good);
        }
    }

    fn tell_controller(
        &mut self,
        now: Timestamp,
        acked: u64,
        before: u64,
        advanced: bool,
        delivered: &[Sent],
    ) {
        let marks = delivered.iter().map(|s| (s.time_sent, s.len(), s.mark));
        let rate = self.rates.on_acked(now, marks, self.rtt.min());
        let Some(sent) = delivered.iter().map(|segment| segment.time_sent).max() else { return };
        // While the window is being reduced, acknowledgements do not make it grow.
        let largest_sent = match &self.phase {
            Phase::Reducing(reduction) => sent.min(reduction.entered),
            _ => sent,
        };
        self.controller.on_ack(&AckSample {
            now,
            acked,
            largest_sent,
            in_flight: before,
            // As on Linux, the window does not grow while it is undecided whether a segment is
            // lost.
            app_limited: !advanced || !self.usage.was_used_since(sent),
            rtt: &self.rtt,
            rate,
        });
    }
}
