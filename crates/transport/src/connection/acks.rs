//! Processing of ACK frames and detection of lost packets (RFC 9002 appendix A, B).

use std::ops::Range;
use std::time::Duration;

use equic_wire::frame::Ack;
use equic_wire::{Side, StreamId};

use super::Connection;
use super::path::Acknowledged;
use super::paths::PathKey;
use super::space::{Sent, SentFrame, SpaceId};
use crate::Timestamp;
use crate::congestion::Signal;
use crate::operation::{Extension, Operation};
use crate::received::EcnCounts;
use crate::recovery::{
    SentPacket, Thresholds, persistent_congestion, persistent_congestion_duration,
};
use crate::violation::Violation;

/// Packets with their packet numbers.
type Packets = Vec<(u64, SentPacket<Sent>)>;

/// Data of a stream in packets that one ACK frame acknowledges. The packets come in descending
/// order of their numbers. Most pieces therefore lie right before the previous piece, and the
/// stream is notified once for the whole run.
struct Run {
    id: StreamId,
    range: Range<u64>,
    /// True if the stream ends with this data.
    fin: bool,
}

impl Run {
    /// Extends the run by a piece that lies directly before it. Returns false if the piece lies
    /// elsewhere.
    #[inline]
    fn takes(&mut self, id: StreamId, range: &Range<u64>, fin: bool) -> bool {
        let before = self.id == id && range.end == self.range.start && !range.is_empty() && !fin;
        if before {
            self.range.start = range.start;
        }
        before
    }
}

impl Connection {
    /// Processes an ACK frame.
    pub(super) fn process_ack(&mut self, now: Timestamp, id: SpaceId, ack: &Ack<'_>) {
        let input = (id, ack.largest().get(), ack.raw_delay().get());
        self.act(Operation::ProcessAck, input, |connection| connection.on_ack(now, id, ack));
    }

    /// Processes an ACK frame without hooks (RFC 9002 A.7).
    fn on_ack(&mut self, now: Timestamp, id: SpaceId, ack: &Ack<'_>) {
        // An earlier frame of the same packet may have completed the handshake, which discards the
        // space (RFC 9001 s.4.9.2). Then nothing is left to acknowledge.
        let Some(space) = self.spaces.get_mut(id) else { return };
        self.stats.acks_received += 1;
        let largest = ack.largest().get();
        let before = space.loss.largest_acked();
        let ranges = ack.ranges().map(|range| range.smallest().get()..=range.largest().get());
        let mut acked = match space.loss.on_ack(ranges) {
            Ok(acked) => acked,
            Err(_) => return self.fail(now, Violation::AckOfUnsentPacket),
        };
        if acked.spurious > 0 {
            self.stats.spurious_losses += acked.spurious;
            let input = (id, acked.spurious);
            self.act(Operation::SpuriousLoss, input, |connection| {
                connection.path_of_mut(id).on_spurious_loss(now);
            });
        }
        if acked.packets.is_empty() {
            return;
        }
        let alone = self.hooks.is_empty();
        if !alone || self.is_logged() {
            // Hooks and logs process packets one by one.
            acked.take_apart();
        }
        #[cfg(feature = "qlog")]
        self.log_acked(id, &acked.packets);
        if let Some(sample) = acked.rtt_sample(largest) {
            let (key, rtt) = (sample.content.path, now.since(sample.time_sent));
            let delay = self.ack_delay(id, ack);
            let input = (key, rtt, delay);
            self.act(Operation::UpdateRtt, input, |connection| {
                if let Some(path) = connection.paths.get_mut(key) {
                    path.update_rtt(now, rtt, delay);
                }
            });
        }
        let fresh = before.is_none_or(|before| largest > before);
        let mut flights = self.paths.iter().map(|path| (path.key(), path.in_flight()));
        // Most connections have one path, which needs no allocation here.
        let first = flights.next();
        let others: Vec<(PathKey, u64)> = flights.collect();
        let mut run = None;
        for (number, packet) in &acked.packets {
            self.on_packet_acked(id, *number, packet, &mut run);
            if !alone {
                // Hooks see the effects of each packet before the next packet.
                self.end_run(&mut run);
            }
        }
        self.end_run(&mut run);
        self.detect_lost(now, id);
        for (key, in_flight) in first.into_iter().chain(others) {
            if acked.packets.iter().any(|(_, packet)| packet.content.path == key) {
                let current = self.paths.get(key).is_some_and(|path| path.is_current());
                let congested = fresh && current && self.validate_ecn(key, &acked.packets, ack);
                self.on_path_acked(now, key, in_flight, &acked.packets, congested);
            }
        }
        if id.is_data() {
            let rooms = self.paths.iter().map(|path| path.in_flight_room());
            let room = rooms.fold(0, |sum: u64, room| sum.saturating_add(room));
            self.streams.set_in_flight_room(room);
        }
        self.path_of_mut(id).on_progress(now);
        if self.peer_completed_validation() {
            let suspect = self.path_of(id).is_suspect();
            self.path_of_mut(id).restart_backoff();
            if suspect && self.speaks_multipath() {
                self.move_data();
            }
        }
        if id.is_data() {
            self.review_ack_frequency(now);
        }
    }

    /// Applies acknowledgements to path `key`, on which the packets were sent. `in_flight` is the
    /// path's bytes in flight before the ACK frame.
    fn on_path_acked(
        &mut self,
        now: Timestamp,
        key: PathKey,
        in_flight: u64,
        packets: &Packets,
        congested: bool,
    ) {
        let Some(path) = self.paths.get_mut(key) else { return };
        let counted =
            packets.iter().filter(|(_, packet)| packet.in_flight && packet.content.path == key);
        // A rate sample uses the newest packet. For a run of packets, that is the last one.
        let marks = counted.clone().map(|(_, p)| (p.time_sent, p.bytes(), p.last_delivery()));
        let bytes: u64 = counted.map(|(_, packet)| packet.bytes()).sum();
        let rate = path.sample_rate(now, marks);
        let largest = packets.iter().find(|(_, packet)| packet.content.path == key);
        let largest_sent = largest.map_or(now, |(_, packet)| packet.time_sent);
        // RFC 9002 s.7.8. The rate sample's own flag is not used. It stays set until everything
        // that was in flight is delivered, a whole flight after the window is full again.
        let app_limited = path.is_app_limited(largest_sent);
        if congested {
            self.congestion_event(now, key, largest_sent, Signal::Ecn);
        }
        let input = (key, bytes, in_flight, app_limited);
        let acked = bytes;
        let acked = Acknowledged { now, acked, largest_sent, in_flight, app_limited, rate };
        self.act(Operation::CongestionAcked, input, |connection| {
            if let Some(path) = connection.paths.get_mut(key) {
                path.on_congestion_acked(acked);
            }
        });
    }

    fn congestion_event(
        &mut self,
        now: Timestamp,
        key: PathKey,
        largest_sent: Timestamp,
        signal: Signal,
    ) {
        let (marked, bytes) = match signal {
            Signal::Ecn => (true, 0),
            Signal::Loss { bytes } => (false, bytes),
        };
        let input = (key, largest_sent, marked, bytes);
        self.act(Operation::CongestionEvent, input, |connection| {
            if let Some(path) = connection.paths.get_mut(key) {
                path.on_congestion(now, largest_sent, signal);
            }
        });
        #[cfg(feature = "qlog")]
        self.log_congestion(key, if marked { "ecn" } else { "packet_loss" });
    }

    /// Returns the acknowledgement delay to subtract from an RTT sample (RFC 9002 s.5.3).
    fn ack_delay(&mut self, id: SpaceId, ack: &Ack<'_>) -> Duration {
        let usual = match (id, &self.peer) {
            (SpaceId::Data(_), Some(peer)) => {
                let delay = peer.ack_delay(ack);
                let most = self.peer_max_ack_delay();
                if self.handshake.is_confirmed() { delay.min(most) } else { delay }
            }
            _ => Duration::ZERO,
        };
        self.decide(Operation::AckDelay, (id, ack.raw_delay().get()), usual)
    }

    /// Returns true if the ECN counts of the ACK frame report new ECN-CE marks. Fails ECN
    /// validation of the path if the counts are impossible.
    fn validate_ecn(&mut self, key: PathKey, packets: &Packets, ack: &Ack<'_>) -> bool {
        // The peer counts marks for all paths together, so the validation of the active path does
        // the same.
        let (mut marked, mut foreign) = (0, 0);
        for (_, packet) in packets.iter().filter(|(_, packet)| packet.content.marked) {
            marked += u64::from(packet.count);
            foreign += if packet.content.path == key { 0 } else { u64::from(packet.count) };
        }
        let counts = ack.ecn().map(|ecn| EcnCounts {
            ect0: ecn.ect0.get(),
            ect1: ecn.ect1.get(),
            ce: ecn.ce.get(),
        });
        let EcnCounts { ect0, ect1, ce } = counts.unwrap_or_default();
        let input = (key, marked, ect0, ect1, ce);
        // The peer counts marks per packet number space. Only 1-RTT packets are marked.
        let validate = |connection: &mut Connection| {
            let path = connection.paths.get_mut(key);
            path.is_some_and(|path| path.validate_ecn((marked, foreign), counts))
        };
        self.decide_from(Operation::ValidateEcn, input, validate, |_, congested| congested)
    }

    /// Reports the data of a run to its stream as acknowledged.
    #[inline]
    fn end_run(&mut self, run: &mut Option<Run>) {
        if let Some(Run { id, range, fin }) = run.take() {
            self.streams.on_piece_acked(id, range, fin);
        }
    }

    /// Processes the acknowledgement of a packet, or of a run of packets that begins with `number`.
    /// `run` is data of earlier packets that is not yet reported to its stream.
    #[inline(always)]
    fn on_packet_acked(
        &mut self,
        id: SpaceId,
        number: u64,
        packet: &SentPacket<Sent>,
        run: &mut Option<Run>,
    ) {
        let key = packet.content.path;
        let input = (id, number, packet.size, key);
        self.notify(Operation::PacketAcked, input);
        if let SpaceId::Data(path) = id
            && let Some(keys) = self.keys.one_rtt_mut()
        {
            keys.on_acked(self.now, path, packet.last(number));
        }
        if let Some(path) = self.paths.get_mut(key) {
            path.on_packet_acked(packet);
        }
        if packet.mtu_probe {
            self.mtu_probe_done(key, true);
        }
        for frame in packet.content.frames.iter() {
            if let SentFrame::Stream { id, range, fin } = frame {
                if !run.as_mut().is_some_and(|run| run.takes(*id, range, *fin)) {
                    self.end_run(run);
                    *run = Some(Run { id: *id, range: range.clone(), fin: *fin });
                }
                continue;
            }
            self.end_run(run);
            frame.on_acked(self, id);
        }
    }

    /// Processes the acknowledgement of a packet in which we acknowledged packets up to `largest`.
    /// The space may already be discarded.
    #[inline(always)]
    pub(super) fn on_ack_acked(&mut self, id: SpaceId, largest: u64) {
        if let Some(space) = self.space(id) {
            space.received.on_ack_acked(largest);
        }
    }

    pub(super) fn mtu_probe_done(&mut self, key: PathKey, arrived: bool) {
        let input = (key, arrived);
        self.act(Operation::MtuProbeDone, input, |connection| {
            if let Some(path) = connection.paths.get_mut(key) {
                path.on_mtu_probe(arrived);
            }
        });
    }

    /// Detects and processes lost packets (RFC 9002 A.10, B.8).
    pub(super) fn detect_lost(&mut self, now: Timestamp, id: SpaceId) {
        // A lost packet that is not detected would fill the window forever.
        self.act_always(Operation::DetectLost, id, |connection| connection.give_up(now, id));
    }

    fn give_up(&mut self, now: Timestamp, id: SpaceId) {
        let thresholds = self.loss_thresholds(id);
        let Some(space) = self.space(id) else { return };
        let lost = space.loss.detect_lost(now, thresholds);
        if lost.is_empty() {
            return;
        }
        for (number, packet) in &lost {
            self.on_packet_lost(now, id, *number, packet);
        }
        let keys: Vec<PathKey> = self.paths.iter().map(|path| path.key()).collect();
        for key in keys {
            self.on_path_lost(now, key, &lost);
        }
    }

    /// Returns the loss thresholds of the path in use. Packets on other paths are rare and late for
    /// other reasons.
    fn loss_thresholds(&mut self, id: SpaceId) -> Thresholds {
        let path = self.path_of(id);
        let (key, usual) = (path.key(), self.config.thresholds(path.rtt()));
        let words = |Thresholds { packets, delay }| (packets, delay);
        let bound = |connection: &mut Connection, (packets, delay)| {
            words(connection.bound_thresholds(key, packets, delay))
        };
        let (packets, delay) =
            self.decide_within(Operation::LossThresholds, key, words(usual), bound);
        Thresholds { packets, delay }
    }

    fn on_packet_lost(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        number: u64,
        packet: &SentPacket<Sent>,
    ) {
        self.stats.packets_lost += 1;
        let (key, size) = (packet.content.path, packet.size);
        let datagrams = packet.content.frames.iter().filter(|one| **one == SentFrame::Datagram);
        self.stats.datagram_frames_lost += datagrams.count() as u64;
        self.notify(Operation::PacketLost, (id, number, size, key));
        #[cfg(feature = "qlog")]
        self.log_lost(id, number, packet);
        self.send_again(id, number, false, &packet.content.frames);
        if packet.mtu_probe {
            self.mtu_probe_done(key, false);
        }
        if let Some(path) = self.paths.get_mut(key) {
            path.on_packet_lost(now, packet);
        }
    }

    /// Reports lost packets to the congestion controller of a path.
    fn on_path_lost(&mut self, now: Timestamp, key: PathKey, lost: &Packets) {
        // At an address without a host, a PATH_CHALLENGE is lost as well. Such a loss is no sign of
        // congestion (RFC 9000 s.9.4).
        let counted = lost.iter().filter(|(_, packet)| {
            let probes = packet.mtu_probe || SentFrame::only_validate(&packet.content.frames);
            packet.in_flight && !probes && packet.content.path == key
        });
        let bytes = counted.clone().map(|(_, packet)| u64::from(packet.size)).sum();
        let Some(largest_sent) = counted.map(|(_, packet)| packet.time_sent).max() else { return };
        self.congestion_event(now, key, largest_sent, Signal::Loss { bytes });
        let delay = self.peer_max_ack_delay();
        let Some(path) = self.paths.get(key) else { return };
        let duration = persistent_congestion_duration(path.rtt(), delay);
        let found = persistent_congestion(lost, path.rtt().first_sample(), duration);
        let input = (key, found);
        if self.decide(Operation::PersistentCongestion, input, found)
            && let Some(path) = self.paths.get_mut(key)
        {
            path.on_persistent_congestion(now);
            #[cfg(feature = "qlog")]
            self.log_congestion(key, "persistent_congestion");
        }
    }

    /// Reports to the hook that sent a frame, once, whether the frame was acknowledged or lost.
    pub(super) fn tell_fate(&mut self, operation: Operation, one: &Extension) {
        let owner = self.hooks.owner(one.frame_type);
        if one.eliciting && owner.is_some_and(|(id, _)| id == one.hook) {
            let (frame_type, token) = (one.frame_type, one.token);
            self.decide_on_frame(operation, frame_type, token, None, |_| ());
        }
    }

    /// Queues again the content of a packet that is still relevant (RFC 9000 s.13.3).
    pub(super) fn send_again(
        &mut self,
        id: SpaceId,
        number: u64,
        probe: bool,
        frames: &[SentFrame],
    ) {
        // Lost content must be sent again (RFC 9000 s.13.3). The content of a probe is optional.
        let input = (id, number, probe);
        let bound = |_: &mut Connection, again: bool| again || !probe;
        if !self.decide_within(Operation::SelectRetransmission, input, true, bound) {
            return;
        }
        #[cfg(feature = "qlog")]
        self.log_again(frames);
        for frame in frames {
            frame.on_lost(self, id, probe);
        }
    }

    /// Returns true if the peer has validated our address, so that its anti-amplification limit no
    /// longer applies (RFC 9002 A.6).
    pub(super) fn peer_completed_validation(&self) -> bool {
        self.side == Side::Server
            || self.handshake.is_confirmed()
            || self
                .spaces
                .get(SpaceId::Handshake)
                .is_some_and(|own| own.loss.largest_acked().is_some())
    }
}
