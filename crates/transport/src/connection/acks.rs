//! ACK frames, and what they tell to be lost (RFC 9002 appendix A, B).

use std::time::Duration;

use equic_wire::TransportErrorCode;
use equic_wire::frame::Ack;

use super::Connection;
use super::space::{Sent, SentFrame, SpaceId};
use crate::Timestamp;
use crate::congestion::{AckSample, Signal};
use crate::received::EcnCounts;
use crate::recovery::{
    SentPacket, Thresholds, persistent_congestion, persistent_congestion_duration,
};

impl Connection {
    /// RFC 9002 A.7.
    pub(super) fn on_ack(&mut self, now: Timestamp, id: SpaceId, ack: &Ack<'_>) {
        let largest = ack.largest().get();
        let before = self.spaces[id as usize].loss.largest_acked();
        let ranges = ack.ranges().map(|range| range.smallest().get()..=range.largest().get());
        let acked = match self.space(id).loss.on_ack(ranges) {
            Ok(acked) => acked,
            Err(_) => {
                let code = TransportErrorCode::PROTOCOL_VIOLATION;
                return self.fail(now, code, "an acknowledgement of a packet never sent");
            }
        };
        if acked.spurious > 0 {
            self.stats.spurious_losses += acked.spurious;
            self.path.controller.on_spurious_loss(now);
        }
        if acked.packets.is_empty() {
            return;
        }
        if let Some(sample) = acked.rtt_sample(largest) {
            let rtt = now.since(sample.time_sent);
            let delay = self.ack_delay(id, ack);
            self.path.rtt.update(now, rtt, delay);
        }
        let congested =
            before.is_none_or(|before| largest > before) && self.validate_ecn(&acked.packets, ack);
        let in_flight = self.path.in_flight;
        let mut bytes = 0;
        for (number, packet) in &acked.packets {
            if packet.in_flight {
                bytes += u64::from(packet.size);
            }
            self.on_packet_acked(id, *number, packet);
        }
        self.path.in_flight -= bytes.min(self.path.in_flight);
        let marks = acked.packets.iter().filter(|(_, packet)| packet.in_flight);
        let marks = marks.map(|(_, p)| (p.time_sent, u64::from(p.size), p.delivery));
        let rate = self.path.rates.on_acked(now, marks, self.path.rtt.min());
        self.detect_lost(now, id);
        let largest_sent = acked.packets.first().map_or(now, |(_, packet)| packet.time_sent);
        if congested {
            self.path.controller.on_congestion(now, largest_sent, Signal::Ecn);
        }
        self.path.controller.on_ack(&AckSample {
            now,
            acked: bytes,
            largest_sent,
            in_flight,
            app_limited: rate.is_some_and(|rate| rate.app_limited),
            rtt: &self.path.rtt,
            rate,
        });
        if self.peer_completed_validation() {
            self.path.pto_count = 0;
        }
    }

    /// RFC 9002 s.5.3.
    fn ack_delay(&self, id: SpaceId, ack: &Ack<'_>) -> Duration {
        match (id, &self.peer) {
            (SpaceId::Data, Some(peer)) => {
                let delay = ack.delay(peer.ack_delay_exponent);
                if self.progress.confirmed { delay.min(peer.max_ack_delay) } else { delay }
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether there are new marks of congestion.
    fn validate_ecn(&mut self, packets: &[(u64, SentPacket<Sent>)], ack: &Ack<'_>) -> bool {
        let marked = packets.iter().filter(|(_, packet)| packet.content.marked).count();
        let counts = ack.ecn().map(|ecn| EcnCounts {
            ect0: ecn.ect0.get(),
            ect1: ecn.ect1.get(),
            ce: ecn.ce.get(),
        });
        // Counts are kept per space by the peer; marks are set on 1-RTT packets alone.
        self.path.ecn.on_ack(marked as u64, counts)
    }

    fn on_packet_acked(&mut self, id: SpaceId, number: u64, packet: &SentPacket<Sent>) {
        if id == SpaceId::Data
            && let Some(keys) = &mut self.one_rtt
        {
            keys.on_acked(number);
        }
        if packet.mtu_probe {
            if self.path.mtu.on_probe_acked() {
                let size = self.path.mtu.current();
                self.path.controller.on_datagram_size(size);
            }
        } else {
            self.path.mtu.on_acked(packet.size);
        }
        for frame in &packet.content.frames {
            match frame {
                SentFrame::Ack(largest) => self.space(id).received.on_ack_acked(*largest),
                SentFrame::Crypto(range) => self.space(id).crypto_out.on_acked(range.clone()),
                SentFrame::Stream { id, range, fin } => {
                    self.streams.on_piece_acked(*id, range.clone(), *fin);
                }
                SentFrame::Control(control) => self.streams.on_control_acked(*control),
                SentFrame::RetireConnectionId(sequence) => self.remote_ids.on_acked(*sequence),
                SentFrame::HandshakeDone | SentFrame::NewConnectionId(_) | SentFrame::Ping => {}
            }
        }
    }

    /// RFC 9002 A.10, B.8.
    pub(super) fn detect_lost(&mut self, now: Timestamp, id: SpaceId) {
        let thresholds = Thresholds::of(&self.path.rtt);
        let lost = self.space(id).loss.detect_lost(now, thresholds);
        if lost.is_empty() {
            return;
        }
        let (mut bytes, mut largest_sent) = (0, None);
        for (_, packet) in &lost {
            self.stats.packets_lost += 1;
            let size = u64::from(packet.size);
            if packet.in_flight {
                self.path.in_flight -= size.min(self.path.in_flight);
            }
            self.send_again(id, &packet.content.frames);
            if packet.mtu_probe {
                // RFC 9000 s.14.4: no sign of congestion.
                self.path.mtu.on_probe_lost();
                continue;
            }
            if self.path.mtu.on_lost(packet.size) {
                let size = self.path.mtu.current();
                self.path.controller.on_datagram_size(size);
            }
            if packet.content.marked {
                self.path.ecn.on_marked_lost();
            }
            if packet.in_flight {
                bytes += size;
                largest_sent = largest_sent.max(Some(packet.time_sent));
                self.path.rates.on_lost(size);
                let total = self.path.rates.lost();
                self.path.controller.on_packet_lost(now, size, &packet.delivery, total);
            }
        }
        let Some(largest_sent) = largest_sent else { return };
        self.path.controller.on_congestion(now, largest_sent, Signal::Loss { bytes });
        let delay = self.peer.map_or(Duration::ZERO, |peer| peer.max_ack_delay);
        let duration = persistent_congestion_duration(&self.path.rtt, delay);
        if persistent_congestion(&lost, self.path.rtt.first_sample(), duration) {
            self.path.controller.on_persistent_congestion(now);
            self.path.rtt.restart_min();
        }
    }

    /// What was in a packet and still matters is to be sent again (RFC 9000 s.13.3).
    pub(super) fn send_again(&mut self, id: SpaceId, frames: &[SentFrame]) {
        for frame in frames {
            match frame {
                SentFrame::Ack(_) | SentFrame::Ping => {}
                SentFrame::Crypto(range) => self.space(id).crypto_out.on_lost(range.clone()),
                SentFrame::Stream { id, range, fin } => {
                    self.streams.on_piece_lost(*id, range.clone(), *fin);
                }
                SentFrame::Control(control) => self.streams.on_control_lost(*control),
                SentFrame::HandshakeDone => self.progress.done_due = true,
                SentFrame::NewConnectionId(sequence) => self.local_ids.on_lost(*sequence),
                SentFrame::RetireConnectionId(sequence) => self.remote_ids.on_lost(*sequence),
            }
        }
    }
}
