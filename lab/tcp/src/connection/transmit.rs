//! Creates the segments that one end of a connection sends.

use equic_transport::Timestamp;

use super::{Connection, Outgoing, State, syn_options, wrap};
use crate::segment::{Flags, Options, Segment, Timestamps};
use crate::sender::Departure;

/// Length of the options of a SYN with a Fast Open cookie, in bytes: MSS, then SACK-permitted with
/// timestamps, then window scale, then Fast Open.
const FAST_SYN_OPTIONS: u64 = 4 + 12 + 4 + 12;

impl Connection {
    /// Returns the next segment to send, or `None` if there is nothing to send now.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Outgoing> {
        let outgoing = match self.state {
            State::Closed => None,
            State::SynSent | State::SynReceived => self.transmit_syn(now),
            State::Established => self.transmit(now),
            State::TimeWait { .. } => self.transmit_ack(now),
        };
        self.segments_sent += u64::from(outgoing.is_some());
        outgoing
    }

    fn transmit_syn(&mut self, now: Timestamp) -> Option<Outgoing> {
        if !std::mem::take(&mut self.syn_due) {
            return None;
        }
        let timeout = self.config.initial_rto.saturating_mul(1 << self.syns.min(16));
        self.syns += 1;
        self.syn_sent_at = Some(now);
        self.syn_at = Some(now + timeout.min(self.config.max_rto));
        let client = self.state == State::SynSent;
        let shift = self.config.window_shift();
        let scaled = self.config.window_scaling && (client || self.peer_scales);
        let mut options = syn_options(&self.config, scaled.then_some(shift));
        if !client {
            options.sack_permitted = self.sack;
        }
        options.timestamps = self.timestamps.then(|| self.timestamps(now));
        // Only the first SYN carries data, because the path may drop SYNs with data (RFC 7413
        // s.4.2.1).
        if client && self.config.fast_open && self.syns == 1 {
            let room = u64::from(self.config.mss).saturating_sub(FAST_SYN_OPTIONS);
            self.early = (self.sender.written() - 1).min(room);
            // The value of the cookie does not matter, because the server accepts any cookie.
            options.fast_open = Some([0; 8]).filter(|_| self.early > 0);
        }
        let payload = if options.fast_open.is_some() { self.early as u32 } else { 0 };
        let mut flags = Flags::SYN;
        if !client {
            flags = flags.with(Flags::ACK);
        }
        // RFC 3168 s.6.1.1: these flags negotiate ECN.
        match (client, self.ecn) {
            (true, true) => flags = flags.with(Flags::ECE).with(Flags::CWR),
            (false, true) => flags = flags.with(Flags::ECE),
            (_, false) => {}
        }
        let segment = Segment {
            sequence: self.own_start,
            acknowledgment: if client { 0 } else { wrap(self.receiver.next(), self.peer_start) },
            flags,
            window: self.receiver.window_field(true),
            options,
            payload,
            ..Segment::default()
        };
        if self.opening {
            self.receiver.on_ack_sent();
        }
        Some(Outgoing { segment, ecn_capable: false })
    }

    fn timestamps(&self, now: Timestamp) -> Timestamps {
        Timestamps { value: self.clock(now), echo: self.recent }
    }

    fn transmit(&mut self, now: Timestamp) -> Option<Outgoing> {
        if self.syn_due {
            return self.transmit_syn(now);
        }
        if std::mem::take(&mut self.probe_due) {
            // This segment is a window probe. Its sequence number is below the window, so the peer
            // must answer it. Linux does the same.
            let mut outgoing = self.segment(now, self.sender.una() - 1, Flags::ACK, 0);
            outgoing.segment.sequence = wrap(self.sender.una() - 1, self.own_start);
            return Some(outgoing);
        }
        // The segment that completes the handshake carries no data, because the application does
        // not know yet that it is connected.
        if std::mem::take(&mut self.ack_due) {
            return Some(self.segment(now, self.sender.nxt(), Flags::ACK, 0));
        }
        if let Some(departure) = self.sender.poll(now) {
            return Some(self.carry(now, departure));
        }
        self.transmit_ack(now)
    }

    fn transmit_ack(&mut self, now: Timestamp) -> Option<Outgoing> {
        let due = self.receiver.wants_ack();
        due.then(|| self.segment(now, self.sender.nxt(), Flags::ACK, 0))
    }

    /// Returns a segment that carries this part of the stream.
    fn carry(&mut self, now: Timestamp, departure: Departure) -> Outgoing {
        let data_end = self.sender.written();
        let end = departure.end.min(data_end);
        let payload = end.saturating_sub(departure.start) as u32;
        let mut flags = Flags::ACK;
        if self.sender.is_finishing() && departure.end > data_end {
            flags = flags.with(Flags::FIN);
        }
        if end == data_end && payload > 0 {
            flags = flags.with(Flags::PSH);
        }
        let new = !departure.retransmission && payload > 0;
        if new && std::mem::take(&mut self.reduced) {
            flags = flags.with(Flags::CWR);
        }
        let mut outgoing = self.segment(now, departure.start, flags, payload);
        // RFC 3168 s.6.1.5: retransmissions are not ECN-capable.
        outgoing.ecn_capable = self.ecn && new;
        outgoing
    }

    /// Returns a segment that acknowledges the received data. It carries `payload` bytes of the
    /// stream.
    fn segment(
        &mut self,
        now: Timestamp,
        sequence: u64,
        mut flags: Flags,
        payload: u32,
    ) -> Outgoing {
        if self.echo_congestion {
            flags = flags.with(Flags::ECE);
        }
        let mut options = Options {
            timestamps: self.timestamps.then(|| self.timestamps(now)),
            ..Options::default()
        };
        let mut complete = true;
        if self.sack {
            // RFC 6691: options count against the segment size, so a large payload may leave no
            // room for SACK blocks.
            let room = u32::from(self.mss).saturating_sub(payload).saturating_sub(4) / 8;
            let room = options.room_for_blocks().min(room as usize);
            complete = room > 0 || self.receiver.blocks(1).next().is_none();
            for (left, right) in self.receiver.blocks(room) {
                let (left, right) = (wrap(left, self.peer_start), wrap(right, self.peer_start));
                options.sack.push(left, right);
            }
        }
        let segment = Segment {
            sequence: wrap(sequence, self.own_start),
            acknowledgment: wrap(self.receiver.next(), self.peer_start),
            flags,
            window: self.receiver.window_field(false),
            options,
            payload,
            ..Segment::default()
        };
        // If not all SACK blocks fit, a segment without payload follows and reports them.
        if complete || !self.receiver.wants_ack() {
            self.receiver.on_ack_sent();
        }
        Outgoing { segment, ecn_capable: false }
    }
}
