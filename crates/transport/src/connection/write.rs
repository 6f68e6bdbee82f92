//! The frames of a packet, in the order of their urgency.

use equic_wire::frame::{
    AckRange, Crypto, EcnCounts, Frame, NewConnectionId, ResetStream, StopSending, Stream,
    StreamLimit, write_ack,
};
use equic_wire::{BufferFull, PacketNumber, StreamCount, StreamId, VarInt, Writer};

use super::Connection;
use super::send::Allowance;
use super::space::{SentFrame, SpaceId};
use crate::Timestamp;
use crate::stream::Control;

/// RFC 9000 s.18.2: the exponent of our ACK Delay fields.
const ACK_DELAY_EXPONENT: u32 = 3;

/// Bytes below which a STREAM or CRYPTO frame is left for the next packet.
const MIN_DATA: usize = 16;

fn varint(value: u64) -> VarInt {
    VarInt::new(value).unwrap_or(VarInt::MAX)
}

impl Connection {
    /// Whether anything ack-eliciting was written.
    pub(super) fn write_frames(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
        writer: &mut Writer<'_>,
        frames: &mut Vec<SentFrame>,
    ) -> bool {
        self.write_ack(now, id, writer, frames);
        let acks = frames.len();
        let probing = self.spaces[id as usize].probes > 0;
        if allowance.in_flight || probing {
            self.write_crypto(id, writer, frames);
            if id == SpaceId::Data {
                self.write_done(writer, frames);
                self.write_ids(writer, frames);
                self.write_control(now, writer, frames);
                self.write_streams(writer, frames);
            }
            let ping = probing || std::mem::take(&mut self.ping);
            if frames.len() == acks && ping && Frame::Ping.write(writer).is_ok() {
                frames.push(SentFrame::Ping);
            }
        }
        frames.len() > acks
    }

    fn write_ack(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut Vec<SentFrame>,
    ) {
        let received = &self.spaces[id as usize].received;
        if !received.has_news() {
            return;
        }
        let Some((largest, at)) = received.largest() else { return };
        let ranges = received.ranges().iter().rev().filter_map(|range| {
            let smallest = PacketNumber::new(range.start)?;
            AckRange::new(smallest, PacketNumber::new(range.end - 1)?)
        });
        let ranges: Vec<AckRange> = ranges.collect();
        let delay = now.since(at).as_micros() as u64 >> ACK_DELAY_EXPONENT;
        let counts = received.ecn();
        let ecn = (!counts.is_zero()).then(|| EcnCounts {
            ect0: varint(counts.ect0),
            ect1: varint(counts.ect1),
            ce: varint(counts.ce),
        });
        if write_ack(writer, ranges, varint(delay), ecn).is_ok() {
            frames.push(SentFrame::Ack(largest));
            self.space(id).received.on_ack_sent();
        }
    }

    fn write_crypto(&mut self, id: SpaceId, writer: &mut Writer<'_>, frames: &mut Vec<SentFrame>) {
        loop {
            // Type, offset and length: at most 1 + 8 + 2 bytes before the data.
            let room = writer.remaining().saturating_sub(11);
            let out = &mut self.space(id).crypto_out;
            if room < MIN_DATA || !out.wants_to_send(u64::MAX) {
                return;
            }
            let Some(range) = out.next(room, u64::MAX) else { return };
            let mut data = vec![0; (range.end - range.start) as usize];
            out.copy(range.start, &mut data);
            let frame = Crypto::new(varint(range.start), &data).map(Frame::Crypto);
            let Some(Ok(())) = frame.map(|frame| frame.write(writer)) else {
                self.space(id).crypto_out.on_lost(range);
                return;
            };
            frames.push(SentFrame::Crypto(range));
        }
    }

    fn write_done(&mut self, writer: &mut Writer<'_>, frames: &mut Vec<SentFrame>) {
        if self.progress.done_due && Frame::HandshakeDone.write(writer).is_ok() {
            self.progress.done_due = false;
            frames.push(SentFrame::HandshakeDone);
        }
        if let Some(data) = self.path_response
            && Frame::PathResponse(data).write(writer).is_ok()
        {
            // Sent once; a lost one is asked for again (RFC 9000 s.13.3).
            self.path_response = None;
            frames.push(SentFrame::Ping);
        }
    }

    fn write_ids(&mut self, writer: &mut Writer<'_>, frames: &mut Vec<SentFrame>) {
        while self.local_ids.has_news() {
            let Some(new) = self.local_ids.next_to_tell() else { break };
            let (sequence, none) = (varint(new.sequence), VarInt::ZERO);
            let frame = NewConnectionId::new(sequence, none, new.id, new.token);
            let written = frame.map(|frame| Frame::NewConnectionId(frame).write(writer));
            if !matches!(written, Some(Ok(()))) {
                self.local_ids.on_lost(new.sequence);
                break;
            }
            frames.push(SentFrame::NewConnectionId(new.sequence));
        }
        while self.remote_ids.has_news() {
            let Some(sequence) = self.remote_ids.next_to_retire() else { break };
            if Frame::RetireConnectionId(varint(sequence)).write(writer).is_err() {
                self.remote_ids.on_lost(sequence);
                break;
            }
            frames.push(SentFrame::RetireConnectionId(sequence));
        }
    }

    fn write_control(
        &mut self,
        now: Timestamp,
        writer: &mut Writer<'_>,
        frames: &mut Vec<SentFrame>,
    ) {
        let rtt = self.path.rtt.smoothed();
        loop {
            let waiting = self.blocked.pop();
            let Some(control) = waiting.or_else(|| self.streams.next_control(now, rtt)) else {
                return;
            };
            if control_frame(control).write(writer).is_err() {
                self.streams.on_control_lost(control);
                return;
            }
            frames.push(SentFrame::Control(control));
        }
    }

    fn write_streams(&mut self, writer: &mut Writer<'_>, frames: &mut Vec<SentFrame>) {
        loop {
            let remaining = writer.remaining();
            let room = |id: StreamId, offset: u64| {
                let header = Stream::header_len(id, varint(offset), Some(remaining));
                remaining.checked_sub(header).filter(|room| *room >= MIN_DATA).unwrap_or(0)
            };
            let Some((id, piece)) = self.streams.next_piece(room) else { return };
            let len = (piece.range.end - piece.range.start) as usize;
            let offset = varint(piece.range.start);
            let written = Stream::write_header(writer, id, offset, Some(len), piece.fin)
                .and_then(|()| self.write_stream_data(writer, id, piece.range.start, len));
            if written.is_err() {
                // `room` has seen to it; if it was wrong, the data goes later.
                self.streams.on_piece_lost(id, piece.range, piece.fin);
                return;
            }
            frames.push(SentFrame::Stream { id, range: piece.range, fin: piece.fin });
        }
    }

    fn write_stream_data(
        &self,
        writer: &mut Writer<'_>,
        id: StreamId,
        offset: u64,
        len: usize,
    ) -> Result<(), BufferFull> {
        let bytes = writer.reserve(len)?;
        let copied = self.streams.copy(id, offset, bytes);
        debug_assert_eq!(copied, len, "what is sent is there");
        Ok(())
    }
}

fn control_frame(control: Control) -> Frame<'static> {
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
