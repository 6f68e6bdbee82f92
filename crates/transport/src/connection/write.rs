//! Writes the frames of a packet, the most urgent first.

use equic_wire::frame::{
    AckRange, Crypto, EcnCounts, Frame, FrameType, NewConnectionId, ResetStream, StopSending,
    Stream, StreamLimit, write_ack, write_path_ack,
};
use equic_wire::packet::MIN_INITIAL_DATAGRAM;
use equic_wire::{BufferFull, PacketNumber, Reader, StreamCount, StreamId, VarInt, Writer};

use super::Connection;
use super::budget::{Budget, Fill};
use super::presence::Presence;
use super::send_packet::TxPlace;
use super::space::{FrameList, PathId, SentFrame, Space, SpaceId};
use crate::Timestamp;
use crate::operation::{Bytes, Extension, HookError, Operation};
use crate::stream::{Control, WrittenPiece};

/// RFC 9000 s.18.2: the exponent of our ACK Delay fields.
const ACK_DELAY_EXPONENT: u32 = 3;

/// Minimum room for the data of a STREAM or CRYPTO frame, in bytes. With less room, the frame is
/// left for the next packet.
const MIN_DATA: usize = 16;

/// Room in bytes that the frame of a hook is guaranteed. A frame that needs more is dropped.
const MAX_EXTENSION: usize = 1000;

/// Maximum size of a short-header packet without its frames, in bytes.
const MAX_OVERHEAD: usize = 1 + 20 + 4 + 16;

/// The type of PING frames.
const PING: u8 = 0x01;

/// Number of consecutive packets with only acknowledgements after which a PING is added.
const MAX_SILENCE: usize = 32;

/// Room in bytes below which no stream is considered: [`MIN_DATA`], and an allowance for the
/// header, which takes 4 to 19 bytes.
pub(super) const MIN_STREAM: usize = MIN_DATA + 8;

pub(super) fn varint(value: u64) -> VarInt {
    VarInt::new(value).unwrap_or(VarInt::MAX)
}

impl Connection {
    /// Writes the frames of a packet. Returns true if any of them is ack-eliciting.
    pub(super) fn write_frames(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        budget: Budget,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) -> bool {
        let place = TxPlace { space: id, path: budget.path };
        let probing = self.spaces.probes(id) > 0;
        let in_flight = !budget.passive && (budget.in_flight || probing);
        if id.is_data() && in_flight && budget.shared && self.datagrams.goes_first() {
            self.write_datagrams(id, writer, frames);
        }
        let before = frames.len();
        if !budget.passive {
            self.write_acks(hooks, now, place, writer, frames);
        }
        let mut silent = frames.len() - before;
        if id.is_data() {
            // The window does not apply, because everything else depends on these few bytes.
            self.write_validation(now, id, budget, writer, frames);
        }
        if in_flight {
            if budget.shared {
                self.write_crypto(id, writer, frames);
            }
            if id.is_data() && budget.shared {
                self.write_done(id, writer, frames);
                self.write_ids(id, writer, frames);
                if self.speaks_multipath() {
                    self.write_path_frames(id, writer, frames);
                    self.write_path_ids(id, writer, frames);
                }
                self.write_stored_frames(id, writer, frames);
                silent += self.write_extensions(id, budget.size, false, writer, frames);
                self.write_ack_frequency(id, writer, frames);
                self.write_control(now, id, writer, frames);
                // Nested hooks come after all frames on which the peer's sending depends.
                silent += self.write_extensions(id, budget.size, true, writer, frames);
                self.write_datagrams(id, writer, frames);
                self.write_streams(hooks, place, Fill::Due, writer, frames);
            }
            // RFC 9000 s.13.2.4: an endpoint that only acknowledges adds a PING now and then,
            // to learn which of them the peer has received.
            let silent_since = self.spaces.get(id).map_or(0, |space| space.loss.silent_since());
            let silence = id.is_data() && silent_since >= MAX_SILENCE;
            let ping = probing || budget.shared && self.activity.take_ping() || silence;
            if frames.len() == silent && ping && self.write_frame(id, &Frame::Ping, writer).is_ok()
            {
                frames.push(SentFrame::Ping);
            }
            if probing && id.is_data() {
                self.write_immediate_ack(id, writer, frames);
            }
        }
        frames.len() > silent
    }

    /// Writes the frames of an MTU probe. PADDING, which is added later, gives it its size.
    pub(super) fn write_mtu_probe(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        if self.write_frame(id, &Frame::Ping, writer).is_ok() {
            frames.push(SentFrame::Ping);
        }
        // draft-ietf-quic-ack-frequency s.7.3: the result of the probe is then known sooner.
        self.write_immediate_ack(id, writer, frames);
    }

    /// Asks for an immediate acknowledgement of a probe (draft-ietf-quic-ack-frequency s.6), if the
    /// peer supports that.
    fn write_immediate_ack(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        if self.may_ask_for_acks() && self.write_frame(id, &Frame::ImmediateAck, writer).is_ok() {
            frames.push(SentFrame::Ping);
        }
    }

    /// Writes a frame of the transport itself, not of a hook.
    pub(super) fn write_frame(
        &mut self,
        id: SpaceId,
        frame: &Frame<'_>,
        writer: &mut Writer<'_>,
    ) -> Result<(), BufferFull> {
        let start = writer.position();
        frame.write(writer)?;
        self.frame_written(id, frame.frame_type(), start, writer);
        Ok(())
    }

    /// Shows the frame that begins at `start` in the writer to hooks, if any are attached.
    #[inline]
    fn frame_written(
        &mut self,
        id: SpaceId,
        frame_type: FrameType,
        start: usize,
        writer: &mut Writer<'_>,
    ) {
        if self.hooks.is_hooked(Operation::WriteFrame) {
            self.show_frame(id, frame_type, start, writer);
        }
    }

    /// Shows a frame of the transport to hooks.
    #[cold]
    fn show_frame(
        &mut self,
        id: SpaceId,
        frame_type: FrameType,
        start: usize,
        writer: &mut Writer<'_>,
    ) {
        let bytes = &writer.written()[start..];
        let input = (id, 0u64, bytes.len());
        let (operation, frame_type) = (Operation::WriteFrame, frame_type.0.get());
        self.decide_on_frame(operation, frame_type, input, Some(bytes), |_| bytes.len());
    }

    /// Writes the frames that hooks have queued: those of nested hooks if `nested` is true,
    /// otherwise those of the application's hooks. Returns how many of them are not ack-eliciting.
    fn write_extensions(
        &mut self,
        id: SpaceId,
        datagram: usize,
        nested: bool,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) -> usize {
        let mut silent = 0;
        let waiting = self.extensions.len(nested);
        // After other packets in the datagram, the room may be too small. No frame is dropped then.
        let behind = writer.position() == 0 && writer.remaining() + MAX_OVERHEAD < datagram;
        // RFC 9001 s.5.6: a replay of early data would repeat the effects of the extension.
        if waiting == 0 || !self.keys.has(SpaceId::DATA) || behind {
            return silent;
        }
        if nested {
            let contended = self.application_waits();
            self.extensions.share.begin_packet(writer.remaining(), contended);
        }
        // Handles only the frames that wait now: a hook may queue another while it writes one.
        for _ in 0..waiting {
            if nested && !self.extensions.share.allows() {
                break;
            }
            let Some(one) = self.extensions.pop(nested) else { break };
            let most = writer.remaining();
            let length = self.write_extension(id, one, writer.unwritten_mut());
            let (first, off) = (writer.position() == 0, self.hooks.owner(one.frame_type).is_none());
            if length == 0 && !first && most < MAX_EXTENSION && !off {
                // The frame may fit into an empty packet.
                self.extensions.put_back(one);
                break;
            }
            if length > 0 && writer.reserve(length).is_ok() {
                silent += usize::from(!one.eliciting);
                if nested {
                    self.extensions.share.on_written(length);
                }
                frames.push(SentFrame::Extension(one));
            }
        }
        silent
    }

    /// Lets a hook write a frame into `room`. Returns the length of the frame, or 0 if the hook has
    /// not written a valid frame.
    fn write_extension(&mut self, id: SpaceId, one: Extension, room: &mut [u8]) -> usize {
        let most = room.len();
        let (operation, frame_type) = (Operation::WriteFrame, one.frame_type);
        let input = (id, one.token, 0usize);
        let answer = self.begin_with(operation, frame_type, input, Bytes::Out(room));
        let length = answer.unwrap_or(0);
        self.end_with(operation, frame_type, input, Bytes::Out(room), length);
        if length == 0 || length <= most && self.is_own_frame(id, one, room, length) {
            return length;
        }
        let what = format!("what it wrote is not one frame of type {frame_type:#x}");
        self.take_off(one.hook, HookError(what));
        0
    }

    /// Returns true if a hook has written exactly one frame of its type, as the hook's parser reads
    /// it. The byte after the frame must not matter: a frame that does not define its own end would
    /// include the next frame.
    fn is_own_frame(
        &mut self,
        id: SpaceId,
        one: Extension,
        room: &mut [u8],
        length: usize,
    ) -> bool {
        let kind = FrameType::read(&mut Reader::new(&room[..length]));
        if kind.map(|kind| kind.0.get()) != Ok(one.frame_type) {
            return false;
        }
        let mut end = length;
        if let Some(next) = room.get_mut(length) {
            *next = PING;
            end += 1;
        }
        let (operation, frame_type) = (Operation::ParseFrame, one.frame_type);
        let bytes = &room[..end];
        let parsed = self.decide_on_frame(operation, frame_type, id, Some(bytes), |_| 0usize);
        parsed == length
    }

    /// Writes the acknowledgements that a packet of a space carries on a path. With several paths,
    /// these include acknowledgements of other spaces.
    fn write_acks(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        TxPlace { space: id, path }: TxPlace,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        if self.acks_go(hooks, id, path) {
            self.write_ack(hooks, now, id, id, writer, frames);
        }
        if id.is_data() && self.speaks_multipath() {
            for other in self.spaces.ids().filter(|other| other.is_data() && *other != id) {
                if self.acks_go(hooks, other, path) {
                    self.write_ack(hooks, now, id, other, writer, frames);
                }
            }
        }
    }

    /// Writes an acknowledgement of packets of the space `of` in a packet of the space `id`.
    fn write_ack(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        of: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        let Some(Space { received, .. }) = self.spaces.get(of) else { return };
        if !received.has_news() {
            return;
        }
        let Some((largest, at)) = received.largest() else { return };
        let (counts, available) = (received.ecn(), received.ranges().len());
        let count = hooks.decide(self, Operation::AckRangeCount, (of, available), available);
        let waited = now.since(at);
        let usual = waited.as_micros() as u64 >> ACK_DELAY_EXPONENT;
        let delay = hooks.decide(self, Operation::EncodeAckDelay, (of, waited), usual);
        let ecn = (!counts.is_zero()).then(|| EcnCounts {
            ect0: varint(counts.ect0),
            ect1: varint(counts.ect1),
            ce: varint(counts.ce),
        });
        let start = writer.position();
        let Some(Space { received, .. }) = self.spaces.get(of) else { return };
        let ranges = received.ranges().iter().rev().filter_map(|range| {
            let smallest = PacketNumber::new(range.start)?;
            AckRange::new(smallest, PacketNumber::new(range.end - 1)?)
        });
        let ranges = ranges.take(count.max(1));
        // RFC 10069 s.2.3.
        let path = match of {
            SpaceId::Data(path) if self.speaks_multipath() => Some(path),
            _ => None,
        };
        let (written, kind) = match path {
            None if ecn.is_some() => {
                (write_ack(writer, ranges, varint(delay), ecn), FrameType::ACK_ECN)
            }
            None => (write_ack(writer, ranges, varint(delay), ecn), FrameType::ACK),
            Some(path) => {
                let written = write_path_ack(writer, path, ranges, varint(delay), ecn);
                let with_ecn = ecn.is_some();
                let kind = if with_ecn { FrameType::PATH_ACK_ECN } else { FrameType::PATH_ACK };
                (written, kind)
            }
        };
        if written.is_ok() {
            self.frame_written(id, kind, start, writer);
            frames.push(match of {
                SpaceId::Data(path) if of != id => SentFrame::PathAck(path, largest),
                _ => SentFrame::Ack(largest),
            });
            self.stats.acks_sent += 1;
            if let Some(space) = self.space(of) {
                space.received.on_ack_sent();
            }
        }
    }

    fn write_crypto(&mut self, id: SpaceId, writer: &mut Writer<'_>, frames: &mut FrameList) {
        let packet = id;
        let id = id.of_crypto();
        let Some(space) = self.space(id) else { return };
        if space.probes() > 0 && !id.is_data() && !space.has_crypto() {
            // RFC 9002 s.6.2.4: a probe carries data rather than a PING. A server that has not
            // received the ClientHello cannot process a PING, and some servers close the
            // connection.
            space.crypto_out.get_mut().on_first_lost(writer.remaining() as u64);
        }
        loop {
            // Type, offset and length: at most 1 + 8 + 2 bytes before the data.
            let room = writer.remaining().saturating_sub(11);
            let Some(space) = self.space(id) else { return };
            if room < MIN_DATA || !space.has_crypto() {
                return;
            }
            let out = space.crypto_out.get_mut();
            let Some(range) = out.next(room, u64::MAX) else { return };
            let mut data = vec![0; (range.end - range.start) as usize];
            out.copy(range.start, &mut data);
            let frame = Crypto::new(varint(range.start), &data).map(Frame::Crypto);
            let Some(Ok(())) = frame.map(|frame| self.write_frame(packet, &frame, writer)) else {
                if let Some(space) = self.space(id) {
                    space.crypto_out.get_mut().on_lost(range);
                }
                return;
            };
            frames.push(SentFrame::Crypto(range));
        }
    }

    fn write_done(&mut self, id: SpaceId, writer: &mut Writer<'_>, frames: &mut FrameList) {
        if self.handshake.owes_done() && self.write_frame(id, &Frame::HandshakeDone, writer).is_ok()
        {
            self.handshake.on_done_sent();
            frames.push(SentFrame::HandshakeDone);
        }
    }

    /// Writes the frames of path validation. They are never sent again unchanged (RFC 9000 s.13.3).
    fn write_validation(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        budget: Budget,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        let key = budget.path;
        let challenge = self.paths[key].challenge();
        if self.paths[key].owes_responses() {
            for data in self.paths[key].take_responses() {
                if self.write_frame(id, &Frame::PathResponse(data), writer).is_ok() {
                    frames.push(SentFrame::Validation);
                } else {
                    self.paths[key].answer(data);
                }
            }
        }
        if let Some(data) = challenge
            && self.write_frame(id, &Frame::PathChallenge(data), writer).is_ok()
        {
            let pause = self.path_pto(self.path().key());
            // The datagram is padded to its maximum size, up to 1,200 bytes.
            let whole = budget.size >= MIN_INITIAL_DATAGRAM;
            self.paths[key].on_challenge_sent(now, pause, whole);
            frames.push(SentFrame::Validation);
        }
    }

    fn write_ids(&mut self, id: SpaceId, writer: &mut Writer<'_>, frames: &mut FrameList) {
        // RFC 10069 s.3.2: for path 0, the frames without a path ID are equivalent.
        while self.ids.local.has_news() {
            let Some(new) = self.ids.local.next_to_announce() else { break };
            let retire = varint(self.ids.local.retire_prior_to(new.sequence));
            let frame = NewConnectionId::new(varint(new.sequence), retire, new.id, new.token);
            let written =
                frame.map(|frame| self.write_frame(id, &Frame::NewConnectionId(frame), writer));
            if !matches!(written, Some(Ok(()))) {
                self.ids.local.on_lost(new.sequence);
                break;
            }
            frames.push(SentFrame::NewConnectionId(PathId::ZERO, new.sequence));
        }
        while self.ids.remote.has_news() {
            let Some(sequence) = self.ids.remote.next_to_retire() else { break };
            let frame = Frame::RetireConnectionId(varint(sequence));
            if self.write_frame(id, &frame, writer).is_err() {
                self.ids.remote.on_lost(sequence);
                break;
            }
            frames.push(SentFrame::RetireConnectionId(PathId::ZERO, sequence));
        }
    }

    fn write_control(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        if !self.streams.has_control() {
            return;
        }
        // The slowest path counts, because data from other paths waits for data from that path.
        let rtt = self.paths.iter().map(|path| path.rtt().smoothed()).max().unwrap_or_default();
        loop {
            let Some(control) = self.streams.next_control(now, rtt) else { return };
            let control = self.window_update(control);
            if self.write_frame(id, &control_frame(control), writer).is_err() {
                self.streams.on_control_lost(control);
                return;
            }
            let blocked =
                matches!(control, Control::DataBlocked(_) | Control::StreamDataBlocked(..));
            self.stats.flow_blocked += u64::from(blocked);
            frames.push(SentFrame::Control(control));
        }
    }

    /// Returns the update of a flow control limit for the peer. A hook can raise the limit, but not
    /// lower it (RFC 9000 s.4.1).
    fn window_update(&mut self, control: Control) -> Control {
        let (stream, limit) = match control {
            Control::MaxData(limit) => (None, limit),
            Control::MaxStreamData(id, limit) => (Some(id), limit),
            _ => return control,
        };
        let input = (stream.map(|id| id.as_varint().get()), limit);
        let new = self.decide(Operation::WindowUpdate, input, limit);
        if new > limit { self.streams.raise_limit(stream, new) } else { control }
    }

    /// Fills a packet with STREAM frames. `fill` is the content of the whole packet. Returns true
    /// if a stream is known to have more data.
    #[inline(always)]
    pub(super) fn write_streams(
        &mut self,
        hooks: impl Presence,
        TxPlace { space: id, path }: TxPlace,
        fill: Fill,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) -> bool {
        // Without other content, no copies wait, and the scheduler makes none.
        let copies = fill != Fill::Streams && self.multipath.is_some();
        if copies {
            self.write_copies(path, writer, frames);
        }
        if self.extensions.holds_streams(self.now) {
            return false;
        }
        let kept = self.kept_room(hooks, id, writer.remaining());
        let mut more = false;
        loop {
            let remaining = writer.remaining().saturating_sub(kept);
            if remaining < MIN_STREAM {
                // With many waiting streams, it would be expensive to ask them.
                return more;
            }
            let room = |id: StreamId, offset: u64| {
                let header = Stream::header_len(id, varint(offset), Some(remaining));
                remaining.checked_sub(header).filter(|room| *room >= MIN_DATA).unwrap_or(0)
            };
            let start = writer.position();
            let chosen = hooks.decide(self, Operation::ScheduleStream, remaining, None::<u64>);
            let mut written = None;
            if let Some(id) = chosen.and_then(|id| VarInt::new(id).ok()) {
                written = self.streams.write_piece_of(StreamId::from(id), writer, room);
            }
            if written.is_none() {
                written = self.streams.write_piece(writer, room);
            }
            let Some(WrittenPiece { id: stream, piece, fits, more: left }) = written else {
                return false;
            };
            if !fits {
                // `room` has checked this. If it was wrong, the data is sent later.
                self.streams.on_piece_lost(stream, piece.range, piece.fin);
                return false;
            }
            more = left;
            if hooks.is_hooked(self, Operation::WriteFrame) {
                let kind = Reader::new(&writer.written()[start..]).varint().map(FrameType);
                self.show_frame(id, kind.unwrap_or(FrameType::PADDING), start, writer);
            }
            if copies {
                self.copy_to_others(path, stream, piece.range.clone(), piece.fin);
            }
            self.spaces.lend_to(frames);
            frames.push(SentFrame::Stream { id: stream, range: piece.range, fin: piece.fin });
        }
    }

    pub(super) fn write_stream_data(
        &self,
        writer: &mut Writer<'_>,
        id: StreamId,
        offset: u64,
        len: usize,
    ) -> Result<(), BufferFull> {
        let bytes = writer.reserve(len)?;
        let copied = self.streams.copy(id, offset, bytes);
        debug_assert_eq!(copied, len, "the data to send must be in the buffer");
        Ok(())
    }
}

pub(super) fn control_frame(control: Control) -> Frame<'static> {
    let limit = |stream_id: StreamId, limit: u64| StreamLimit { stream_id, limit: varint(limit) };
    let count = |count: u64| StreamCount::new(count).unwrap_or_default();
    match control {
        Control::Reset(stream_id, code, size) => Frame::ResetStream(ResetStream {
            stream_id,
            error_code: varint(code),
            final_size: varint(size),
        }),
        Control::Stop(stream_id, code) => {
            Frame::StopSending(StopSending { stream_id, error_code: varint(code) })
        }
        Control::MaxData(limit) => Frame::MaxData(varint(limit)),
        Control::MaxStreamData(id, max) => Frame::MaxStreamData(limit(id, max)),
        Control::MaxStreams(direction, max) => Frame::MaxStreams(direction, count(max)),
        Control::DataBlocked(limit) => Frame::DataBlocked(varint(limit)),
        Control::StreamDataBlocked(id, at) => Frame::StreamDataBlocked(limit(id, at)),
        Control::StreamsBlocked(direction, at) => Frame::StreamsBlocked(direction, count(at)),
    }
}
