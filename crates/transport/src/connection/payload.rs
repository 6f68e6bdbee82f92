//! From the payload of a received packet to its frames, and to the record of the packet (RFC 9000
//! s.12.4, s.13.2).

use std::ops::Range;

use equic_wire::frame::{Frame, FrameError, FrameErrorKind, FrameType, Frames, Stream};
use equic_wire::packet::PacketType;
use equic_wire::{ConnectionId, KnownVersion, Reader, Side};

use super::Connection;
use super::acknowledgements::EARLY_PACKETS;
use super::open::Opened;
#[cfg(test)]
use super::paths::PathKey;
use super::presence::Presence;
#[cfg(test)]
use super::presence::{MayBeAttached, NoneAttached};
use super::receive::RxPacket;
use super::space::SpaceId;
use crate::Timestamp;
use crate::operation::{Bytes, Operation};
use crate::received::AckPolicy;
#[cfg(test)]
use crate::received::EcnCodepoint;
use crate::violation::Violation;

/// Operations that the STREAM shortcut skips. If a hook is attached to any of them, the shortcut is
/// off.
const PASSED_OVER: u128 =
    Operation::bits(&[Operation::ParseFrame, Operation::CheckFrame, Operation::ProcessFrame]);

/// Operations that show the whole payload to hooks.
const SHOWN: u128 = Operation::bits(&[Operation::AfterPacketRead, Operation::ParseFrames]);

/// Operations that see the payload of a packet or its frames.
pub(super) const OF_PAYLOAD: u128 = PASSED_OVER | SHOWN;

/// Properties of the frames of a packet that were read so far.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// True if one of the frames is ack-eliciting.
    eliciting: bool,
    /// True if all frames are probing frames (RFC 9000 s.9.1).
    probing: bool,
}

impl Seen {
    /// No frames.
    const NOTHING: Seen = Seen { eliciting: false, probing: true };
    /// One or more STREAM frames, possibly with other frames.
    const STREAMS: Seen = Seen { eliciting: true, probing: false };
}

impl Connection {
    /// Updates the state that depends only on the arrival of an authentic packet. `long` has the
    /// version and the Source Connection ID of a long header.
    #[inline(always)]
    pub(super) fn on_authentic(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        long: Option<(KnownVersion, ConnectionId)>,
    ) {
        self.activity.on_received(now);
        match long {
            None => self.on_one_rtt_packet(now),
            Some((version, scid)) => {
                self.adopt_version(version);
                // RFC 9000 s.7.2: only an authentic packet names the peer's connection ID.
                self.ids.on_peer_packet(scid);
            }
        }
        if id == SpaceId::Handshake {
            // RFC 9000 s.8.1: a peer with Handshake keys has received our Initial packet.
            self.path_mut().on_proof();
            if self.side == Side::Server {
                self.discard(now, SpaceId::Initial);
            }
        }
    }

    /// Processes the frames of a packet, and records the packet.
    #[inline(always)]
    pub(super) fn take_opened(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: &RxPacket<'_>,
        opened: &Opened,
        bytes: &[u8],
    ) {
        if !opened.sound {
            // RFC 9000 s.17.2.
            return self.fail(now, Violation::ReservedBits);
        }
        if let Some(length) = opened.placed {
            self.streams.take_placed(length);
            self.stats.packets_opened_to_streams += 1;
            return self.handled(hooks, now, packet, Seen::STREAMS);
        }
        let payload = &bytes[opened.payload.clone()];
        let mut rest = payload;
        // Fast path for packets with only STREAM frames, which most packets are.
        if self.takes_streams(hooks, packet)
            && hooks.may_pass_over(self, SHOWN)
            && !self.is_logged()
        {
            while let Some((stream, behind)) = self.take_first_stream(rest) {
                if behind.is_empty() && rest.len() == payload.len() {
                    self.streams.expect_more(&stream);
                }
                rest = behind;
            }
            if rest.is_empty() && !payload.is_empty() {
                return self.handled(hooks, now, packet, Seen::STREAMS);
            }
        }
        let frames = opened.payload.clone();
        let accepted = self.take_payload(hooks, now, *packet, bytes, frames, rest);
        if !accepted {
            // The packet counts as lost, so the peer sends its content again.
            self.drop_packet(Some(packet.kind), bytes.len(), "rejected");
        }
    }

    /// Processes the payload of the packet `bytes`. The frames before `rest` have been processed.
    /// Returns false if the packet must be treated as lost.
    #[inline(never)]
    fn take_payload(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: RxPacket<'_>,
        bytes: &[u8],
        payload: Range<usize>,
        rest: &[u8],
    ) -> bool {
        let packet = &packet;
        let payload = &bytes[payload];
        if rest.len() < payload.len() {
            return self.handle_frames(hooks, now, packet, rest, Seen::STREAMS);
        }
        #[cfg(feature = "qlog")]
        self.log_received(packet.path, packet.number, bytes, payload);
        let &RxPacket { space, number, path, ecn, .. } = packet;
        let input = (space, number, path, ecn);
        hooks.notify_on(self, Operation::AfterPacketRead, input, payload);
        let (operation, input) = (Operation::ParseFrames, (space, number, path));
        hooks.decide_on_frame(self, operation, 0, input, Some(payload), |connection| {
            connection.handle_payload(hooks, now, packet, payload)
        })
    }

    /// Returns true if STREAM frames of a packet may go to their streams without other checks.
    #[inline(always)]
    fn takes_streams(&self, hooks: impl Presence, packet: &RxPacket<'_>) -> bool {
        packet.space.is_data()
            && hooks.may_pass_over(self, PASSED_OVER)
            && !self.closing.is_closed()
    }

    /// The STREAM shortcut: processes the frame at the start of `rest` if it is a valid STREAM
    /// frame. Returns the frame and the bytes behind it. The caller must check
    /// [`Connection::takes_streams`].
    #[inline(always)]
    fn take_first_stream<'p>(&mut self, rest: &'p [u8]) -> Option<(Stream<'p>, &'p [u8])> {
        let (stream, behind) = Stream::first_of(rest)?;
        self.take_stream(&stream).ok()?;
        Some((stream, behind))
    }

    /// Processes a payload. Returns false if the packet must be treated as lost.
    pub(super) fn handle_payload(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: &RxPacket<'_>,
        payload: &[u8],
    ) -> bool {
        if let Err(error) = Frames::new(payload) {
            self.fail(now, error);
            return true;
        }
        self.handle_frames(hooks, now, packet, payload, Seen::NOTHING)
    }

    /// Processes the rest of a payload. `seen` describes the frames before it. Returns false if the
    /// packet must be treated as lost.
    fn handle_frames(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: &RxPacket<'_>,
        mut rest: &[u8],
        mut seen: Seen,
    ) -> bool {
        let plain = self.takes_streams(hooks, packet);
        while !rest.is_empty() {
            // Most frames are STREAM frames. If one is invalid, the code below finds the error.
            if plain && let Some((_, behind)) = self.take_first_stream(rest) {
                (rest, seen) = (behind, Seen::STREAMS);
                continue;
            }
            let mut reader = Reader::new(rest);
            let kind = match FrameType::read(&mut reader) {
                Ok(kind) => kind,
                Err(error) => {
                    self.fail(now, error);
                    return true;
                }
            };
            let Some(accepted) = self.handle_one(hooks, now, packet, kind, &mut rest) else {
                return true;
            };
            seen.eliciting |= kind.is_ack_eliciting() && !self.is_silent(kind);
            seen.probing &= kind.is_probing();
            if !accepted {
                return false;
            }
            if self.closing.is_closed() {
                return true;
            }
        }
        self.handled(hooks, now, packet, seen);
        true
    }

    /// Finishes a packet whose frames were processed.
    #[inline(always)]
    fn handled(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: &RxPacket<'_>,
        Seen { eliciting, probing }: Seen,
    ) {
        let &RxPacket { space: id, number, path, ecn, .. } = packet;
        let input = (id, number, eliciting);
        hooks.notify(self, Operation::AfterParseFrames, input);
        let largest = self.spaces.get(id).and_then(|space| space.received.largest());
        if !probing && largest.is_none_or(|(largest, _)| number > largest) {
            self.on_peer_packet(now, path);
        }
        let input = (id, number, eliciting, ecn);
        if !hooks.is_hooked(self, Operation::RecordPacket) {
            return self.record_packet(hooks, now, packet, eliciting);
        }
        // A packet that is not recorded would be processed twice.
        let packet = *packet;
        self.act_always(Operation::RecordPacket, input, |connection| {
            connection.record_packet(hooks, now, &packet, eliciting);
        });
    }

    /// Processes the payload of a 1-RTT packet of path ID 0.
    #[cfg(test)]
    pub(super) fn pretend_payload(
        &mut self,
        now: Timestamp,
        number: u64,
        path: PathKey,
        payload: &[u8],
    ) -> bool {
        let (space, kind) = (SpaceId::DATA, PacketType::OneRtt);
        let packet = RxPacket { space, kind, number, path, ecn: EcnCodepoint::NotEct, dcid: &[] };
        if self.hooks.is_empty() {
            self.handle_payload(NoneAttached, now, &packet, payload)
        } else {
            self.handle_payload(MayBeAttached, now, &packet, payload)
        }
    }

    /// Returns true if `kind` is a hook's frame type that is not ack-eliciting.
    fn is_silent(&self, kind: FrameType) -> bool {
        !kind.is_known()
            && self.hooks.owner(kind.0.get()).is_some_and(|(_, own)| !own.ack_eliciting)
    }

    /// Processes the frame at the start of `rest` and advances `rest`. Returns `None` if the
    /// connection has failed.
    fn handle_one(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: &RxPacket<'_>,
        kind: FrameType,
        rest: &mut &[u8],
    ) -> Option<bool> {
        let &RxPacket { space: id, number, path, .. } = packet;
        let (frame_type, all) = (kind.0.get(), *rest);
        let foreign = !kind.is_known();
        let owned = foreign && self.hooks.owner(frame_type).is_some();
        let skipped = foreign && !owned && self.extensions.skips(frame_type);
        if (owned || skipped) && packet.kind != PacketType::OneRtt {
            self.fail(now, Violation::ExtensionFrameOutsideOneRtt);
            return None;
        }
        if skipped {
            return self.skip_frame(now, rest);
        }
        let answer = hooks.begin_with(self, Operation::ParseFrame, frame_type, id, Bytes::In(all));
        let failed = owned && answer.is_none() && self.hooks.owner(frame_type).is_none();
        if failed && self.extensions.skips(frame_type) {
            let outcome = self.skip_frame(now, rest);
            let length = all.len() - rest.len();
            hooks.end_with(self, Operation::ParseFrame, frame_type, id, Bytes::In(all), length);
            return outcome;
        }
        let mut reader = Reader::new(all);
        // A hook cannot change the length of a frame that the transport knows, but it can reject
        // the frame.
        let parsed = match answer {
            Some(0) => None,
            Some(_) if owned => None,
            Some(_) | None => Some(Frame::read(&mut reader)),
        };
        let own_length = match &parsed {
            Some(Ok(_)) => all.len() - reader.rest().len(),
            Some(Err(_)) | None => 0,
        };
        let told = answer.unwrap_or(own_length);
        hooks.end_with(self, Operation::ParseFrame, frame_type, id, Bytes::In(all), told);
        let length = if parsed.is_some() { own_length } else { told };
        // By reference, because a frame is large and would be copied each time.
        let frame = match &parsed {
            None if length > 0 && length <= all.len() => None,
            None => {
                self.fail(now, Violation::ExtensionFrame);
                return None;
            }
            Some(Ok(frame)) => Some(frame),
            Some(Err(error)) => {
                self.fail(now, *error);
                return None;
            }
        };
        let (bytes, others) = all.split_at(length);
        *rest = others;
        // A hook may forbid a frame that the RFC permits, but not permit one that it forbids.
        let wrong = if kind.allowed_in(packet.kind) == Some(false) {
            Some(FrameErrorKind::WrongPacketType)
        } else {
            (!kind.may_be_sent_by(!self.side)).then_some(FrameErrorKind::WrongSender)
        };
        let lawful = wrong.is_none();
        let operation = Operation::CheckFrame;
        let allowed = hooks.decide_on_frame(self, operation, frame_type, id, None, |_| lawful);
        if !(allowed && lawful) {
            match wrong {
                Some(wrong) => self.fail(now, FrameError { frame_type: kind, kind: wrong }),
                None => self.fail(now, Violation::FrameRejected),
            }
            return None;
        }
        let process = |connection: &mut Connection| match frame {
            // A hook has recovered the packet before it arrived, so the application already has the
            // data.
            Some(Frame::Datagram(_)) if connection.extensions.was_recovered(number) => true,
            Some(frame) => connection.handle_frame(now, packet, frame),
            // A hook knows where the frame ends, but does not process it, or it failed and was
            // detached. The frame is skipped, so that a failing extension does not end the
            // connection.
            None => true,
        };
        let (operation, input) = (Operation::ProcessFrame, (id, number, path));
        let accepted =
            hooks.decide_on_frame(self, operation, frame_type, input, Some(bytes), process);
        Some(accepted)
    }

    /// Skips a frame of an extension that is not present, or no longer present: type, length and
    /// content.
    fn skip_frame(&mut self, now: Timestamp, rest: &mut &[u8]) -> Option<bool> {
        let mut reader = Reader::new(rest);
        if reader.varint().and_then(|_| reader.varint_bytes()).is_err() {
            self.fail(now, Violation::ExtensionFrameTruncated);
            return None;
        }
        *rest = reader.rest();
        Some(true)
    }

    #[inline(always)]
    fn record_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: &RxPacket<'_>,
        eliciting: bool,
    ) {
        let &RxPacket { space: id, number, ecn, .. } = packet;
        let policy = self.ack_policy(hooks, id, number);
        // A frame of the packet may have discarded its space.
        if let Some(space) = self.space(id) {
            space.received.on_received(now, number, eliciting, ecn, &policy);
        }
    }

    fn ack_policy(&mut self, hooks: impl Presence, id: SpaceId, number: u64) -> AckPolicy {
        // The longest delay that the peer expects. It also applies to the first packets.
        let longest = if id.is_data() { self.acks.policy() } else { AckPolicy::IMMEDIATE };
        let usual =
            if id.is_data() && number < EARLY_PACKETS { self.acks.early_policy() } else { longest };
        let words = |policy: AckPolicy| {
            (policy.ack_eliciting_threshold, policy.max_ack_delay, policy.reordering_threshold)
        };
        let policy = |(ack_eliciting_threshold, max_ack_delay, reordering_threshold)| AckPolicy {
            ack_eliciting_threshold,
            max_ack_delay,
            reordering_threshold,
        };
        let bound = |_: &mut Connection, answer| {
            words(Connection::bound_ack_policy(&longest, policy(answer)))
        };
        policy(hooks.decide_within(self, Operation::AckPolicy, id, words(usual), bound))
    }
}
