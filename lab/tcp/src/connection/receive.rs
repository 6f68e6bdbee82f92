//! Processes incoming segments (RFC 9293 s.3.10.7), with the defences of RFC 5961 against forged
//! segments.

use equic_transport::Timestamp;

use super::{CloseReason, Connection, Event, State, TIME_WAIT, unwrap};
use crate::receiver::Placement;
use crate::segment::{Flags, Segment};
use crate::sender::Ack;

/// Largest number of SACK blocks in an acknowledgement.
const BLOCKS: usize = 4;

impl Connection {
    /// Processes a segment. `ce` is true if its IP packet was marked CE (RFC 3168).
    pub fn handle_segment(&mut self, now: Timestamp, segment: &Segment, ce: bool) {
        self.segments_received += 1;
        match self.state {
            State::Closed => {}
            State::SynSent => self.on_syn_sent(now, segment),
            State::SynReceived
                if segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK) =>
            {
                // The client has retransmitted its SYN, so the SYN-ACK was lost.
                self.syn_due |= segment.sequence == self.peer_start;
            }
            State::SynReceived => {
                if self.on_syn_received(now, segment) {
                    self.on_established(now, segment, ce);
                }
            }
            State::Established | State::TimeWait { .. } => self.on_established(now, segment, ce),
        }
    }

    /// Processes a segment in state SYN-SENT (RFC 9293 s.3.10.7.3). Simultaneous open is not
    /// supported.
    fn on_syn_sent(&mut self, now: Timestamp, segment: &Segment) {
        // A server accepts either all data of the client's SYN or none.
        let taken = u64::from(segment.acknowledgment.wrapping_sub(self.own_start.wrapping_add(1)));
        if !segment.flags.has(Flags::ACK) || (taken != 0 && taken != self.early) {
            return;
        }
        if segment.flags.has(Flags::RST) {
            self.close(CloseReason::Reset);
            return;
        }
        if !segment.flags.has(Flags::SYN) {
            return;
        }
        let written = (self.sender.written() - 1, self.sender.is_finishing());
        self.learn(segment);
        // `learn` replaces the sender if the peer requires another segment size. A new sender has
        // no data, so the data must be written again.
        if self.sender.written() == 1 {
            self.sender.write(written.0);
            if written.1 {
                self.sender.finish();
            }
        }
        if taken > 0 {
            self.sender.skip(taken);
        }
        self.ecn &= segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::CWR);
        self.establish(now, segment);
        self.ack_due = true;
    }

    /// Processes a segment in state SYN-RECEIVED. Returns `true` if it completes the server's
    /// handshake.
    fn on_syn_received(&mut self, now: Timestamp, segment: &Segment) -> bool {
        let Some(start) = unwrap(segment.sequence, self.peer_start, 1) else { return false };
        if segment.flags.has(Flags::RST) {
            if start == self.receiver.next() {
                self.close(CloseReason::Reset);
            }
            return false;
        }
        let acknowledges = segment.flags.has(Flags::ACK)
            && segment.acknowledgment == self.own_start.wrapping_add(1);
        if !acknowledges || start > self.receiver.limit() {
            return false;
        }
        self.establish(now, segment);
        true
    }

    fn establish(&mut self, now: Timestamp, segment: &Segment) {
        self.state = State::Established;
        self.syn_at = None;
        self.syn_due = false;
        // RFC 7323 s.2.2: the window of a SYN is not scaled.
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.peer_shift };
        let window = u64::from(segment.window) << shift;
        // Karn's algorithm: a retransmitted SYN gives no round-trip sample.
        let rtt = self.syn_sent_at.filter(|_| self.syns == 1).map(|sent| now.since(sent));
        self.sender.on_established(now, self.sack, window, rtt);
        if self.syns > 2 {
            // RFC 6928 s.2: if the SYN was lost more than once, the initial window is one segment.
            self.sender.start_small();
        }
        self.events.push_back(Event::Connected);
    }

    fn on_established(&mut self, now: Timestamp, segment: &Segment, ce: bool) {
        let Some(start) = unwrap(segment.sequence, self.peer_start, self.receiver.next()) else {
            return;
        };
        if segment.flags.has(Flags::RST) {
            // RFC 5961 s.3.2: a RST is accepted only if its sequence number is exactly the expected
            // one. Otherwise a challenge ACK is sent.
            if start == self.receiver.next() {
                self.close(CloseReason::Reset);
            } else if start < self.receiver.limit() {
                self.receiver.ask_for_ack();
            }
            return;
        }
        if segment.flags.has(Flags::SYN) || !segment.flags.has(Flags::ACK) {
            // RFC 5961 s.4.2: a SYN on an open connection is answered with a challenge ACK. The SYN
            // may also be a duplicate from the handshake.
            if self.opening && segment.flags == Flags::SYN && segment.sequence == self.peer_start {
                // The client has retransmitted its SYN without data, so the SYN-ACK was lost.
                self.syn_due = true;
            } else if segment.flags.has(Flags::SYN) {
                self.receiver.ask_for_ack();
            }
            return;
        }
        if !self.accepts_timestamp(segment, start) {
            return;
        }
        // RFC 5961 s.5.2: acknowledgements that are very old, or that acknowledge data that was not
        // sent, are ignored.
        let Some(number) = unwrap(segment.acknowledgment, self.own_start, self.sender.una()) else {
            return;
        };
        if number > self.sender.nxt() {
            self.receiver.ask_for_ack();
            return;
        }
        if ce {
            self.echo_congestion = self.ecn;
        } else if segment.flags.has(Flags::CWR) {
            self.echo_congestion = false;
        }
        self.opening = false;
        if number >= self.sender.una() {
            self.on_acknowledgment(now, segment, number);
        }
        self.on_payload(now, segment, start);
        self.tell();
        self.end(now);
    }

    /// Checks a segment's timestamp (PAWS, RFC 7323 s.5.3), and stores the timestamp to be echoed
    /// (TS.Recent, s.4.3).
    fn accepts_timestamp(&mut self, segment: &Segment, start: u64) -> bool {
        if !self.timestamps {
            return true;
        }
        // RFC 7323 s.3.2: a segment without the option is dropped.
        let Some(timestamps) = segment.options.timestamps else { return false };
        if (timestamps.value.wrapping_sub(self.recent) as i32) < 0 {
            // As on Linux, a DSACK reports a duplicate even if it arrives this late.
            self.receiver.on_late(start, start + u64::from(segment.payload));
            return false;
        }
        if start <= self.receiver.last_acknowledged() {
            self.recent = timestamps.value;
        }
        true
    }

    fn on_acknowledgment(&mut self, now: Timestamp, segment: &Segment, number: u64) {
        let (una, nxt) = (self.sender.una(), self.sender.nxt());
        let mut blocks = [(0, 0); BLOCKS];
        let (mut count, mut dsack) = (0, None);
        for (index, (left, right)) in segment.options.sack.as_slice().iter().enumerate() {
            let near = |wire: u32| unwrap(wire, self.own_start, number);
            let (Some(left), Some(right)) = (near(*left), near(*right)) else { continue };
            // RFC 2883 s.4: a DSACK block is below the acknowledgment number, or within the next
            // block.
            let within = |(l, r): &(u32, u32)| {
                near(*l).is_some_and(|l| l <= left) && near(*r).is_some_and(|r| right <= r)
            };
            let second = segment.options.sack.as_slice().get(1);
            if index == 0 && (right <= number || second.is_some_and(within)) {
                dsack = Some((left, right)).filter(|_| left < right && self.sack);
            } else if left < right && left >= number.max(una) && right <= nxt {
                blocks[count] = (left, right);
                count += 1;
            }
        }
        let limit = number + (u64::from(segment.window) << self.peer_shift);
        let bare = segment.sequence_length() == 0 && number == una && limit <= self.sender.limit();
        let reduced = self.sender.on_ack(
            now,
            &Ack {
                number,
                blocks: &blocks[..count],
                dsack,
                limit,
                echo: self.echo(now, segment),
                bare,
                congestion_echo: self.ecn && segment.flags.has(Flags::ECE),
            },
        );
        self.reduced |= reduced;
        if self.sender.is_done() && !self.told_acknowledged {
            self.told_acknowledged = true;
            self.events.push_back(Event::Acknowledged);
        }
    }

    /// Returns the earliest and the latest time at which the segment whose timestamp is echoed can
    /// have been sent.
    fn echo(&self, now: Timestamp, segment: &Segment) -> Option<(Timestamp, Timestamp)> {
        let timestamps = segment.options.timestamps.filter(|_| self.timestamps)?;
        let age = self.clock(now).wrapping_sub(timestamps.echo);
        let tick = now.as_nanos() / self.tick();
        let sent = tick.checked_sub(age.into())?;
        let first = sent.checked_mul(self.tick())?;
        let last = (first + self.tick() - 1).min(now.as_nanos());
        Some((Timestamp::from_nanos(first), Timestamp::from_nanos(last)))
    }

    fn on_payload(&mut self, now: Timestamp, segment: &Segment, start: u64) {
        let end = start + u64::from(segment.payload);
        let fin = segment.flags.has(Flags::FIN);
        if end > start || fin {
            if segment.payload >= u32::from(self.mss)
                && let Some((sent, _)) = self.echo(now, segment)
                && self.config.receive_auto_tuning
            {
                self.receiver.on_rtt(now, now.since(sent));
            }
            let taken = self.receiver.on_data(now, start, end, fin);
            if let (State::TimeWait { until }, Placement::Useless) = (&mut self.state, taken) {
                // RFC 9293 s.3.10.7.4: the peer has sent its FIN again, because it has not received
                // the ACK. The TIME-WAIT period starts again.
                *until = now + TIME_WAIT;
            }
        } else if start != self.receiver.next() && start < self.receiver.next() {
            // RFC 9293 s.3.8.6.1: the segment is a window probe, because its sequence number is
            // below the window.
            self.receiver.ask_for_ack();
        }
    }

    pub(super) fn tell(&mut self) {
        if self.receiver.readable() > 0 && !self.told_readable {
            self.told_readable = true;
            self.events.push_back(Event::Readable);
        }
        if self.receiver.is_finished() && !self.told_finished {
            self.told_finished = true;
            self.events.push_back(Event::Finished);
        }
    }

    /// Ends the connection, because both ends have finished. The end that closed first stays in
    /// TIME-WAIT, because its last acknowledgement may be lost.
    fn end(&mut self, now: Timestamp) {
        if self.state != State::Established
            || !self.receiver.is_finished()
            || !self.sender.is_done()
        {
            return;
        }
        self.events.push_back(Event::Closed(CloseReason::Finished));
        self.state = if self.receiver.wants_ack() {
            State::TimeWait { until: now + TIME_WAIT }
        } else {
            State::Closed
        };
    }
}
