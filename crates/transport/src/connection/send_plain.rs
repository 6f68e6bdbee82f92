//! The short way of a datagram that is one 1-RTT packet of nothing but stream data, as most datagrams of a transfer are.
//! What such a packet needs is asked for once, and nobody is asked for what is not in it.
//!
//! It does what the long way (`send.rs`, `write.rs`) does for the same packet, in the same order, so that a seed gives the
//! same bytes on both; a test compares them. Whatever is due beside stream data sends the datagram on the long way.

use equic_wire::frame::Stream;
use equic_wire::packet::ShortHeader;
use equic_wire::{PacketNumber, StreamId, Writer};

use super::packet_builder::TAG_LEN;
use super::paths::PathKey;
use super::presence::NoneAttached;
use super::send::SentPacketKind;
use super::space::{Sent, SentFrame, SpaceId};
use super::write::{MIN_DATA, MIN_STREAM, varint};
use super::{Connection, Transmit};
use crate::Timestamp;
use crate::congestion::Rate;
use crate::crypto::header_mask;
use crate::operation::Operation;
use crate::path::BASE_SIZE;
use crate::received::EcnCodepoint;

/// Operations that the short way passes over: who is attached to one of these sees every packet on the long way.
pub(super) const PASSED_OVER: u128 = Operation::bits(&[
    Operation::ApplicationWrote,
    Operation::SelectPath,
    Operation::DatagramSize,
    Operation::CongestionWindow,
    Operation::PacingRate,
    Operation::PaceUntil,
    Operation::ProbeMtu,
    Operation::HasContent,
    Operation::AckIsDue,
    Operation::SelectACKPath,
    Operation::NextPacketNumber,
    Operation::SpinBit,
    Operation::GenerateHeader,
    Operation::GenerateFrames,
    Operation::KeepRoom,
    Operation::ScheduleStream,
    Operation::WriteFrame,
    Operation::PadPacket,
    Operation::ProtectPacket,
    Operation::MarkEcn,
    Operation::SendPacket,
    Operation::CongestionSent,
    Operation::AppLimited,
    Operation::SendDatagram,
]);

impl Connection {
    /// The next datagram, if it is one for the short way; none, and nothing has changed: it is not, or there is none.
    pub(super) fn next_plain_datagram(
        &mut self,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if !self.is_plain() {
            return None;
        }
        let path = self.paths.active_mut();
        let (key, mtu) = (path.key(), path.mtu());
        if buffer.len() < usize::from(BASE_SIZE) || !path.is_settled(now) {
            return None;
        }
        path.set_hook_window(None);
        if path.window().saturating_sub(path.in_flight()) < u64::from(mtu) {
            return None;
        }
        // As a whole number, as hooks are told it.
        let rate = path.pacing_rate().as_bytes_per_second() as u64;
        if path.pace(now, Rate::bytes_per_second(rate as f64), mtu).is_some() {
            return None;
        }
        path.pace_until(None);
        let size = usize::from(mtu).min(buffer.len());
        self.write_plain_datagram(now, key, &mut buffer[..size])
    }

    /// True if nothing but stream data is to be sent, and nothing is left to be agreed on with the peer.
    fn is_plain(&mut self) -> bool {
        let data = &self.spaces[SpaceId::DATA];
        self.keys.are_one_rtt_alone()
            && self.handshake.is_confirmed()
            && self.start.unknown().is_none()
            && self.multipath.is_none()
            && data.probes() == 0
            && !data.received.has_news()
            && !data.crypto_out.wants_to_send(u64::MAX)
            && !self.handshake.owes_done()
            && !self.has_token()
            && !self.activity.wants_ping()
            && self.extensions.is_empty()
            && self.extensions.hold_timer().is_none()
            && !self.ids.has_news()
            && self.acks.due().is_none()
            && !self.datagrams.wants_to_send()
            && !self.streams.has_control()
            && self.probing_path().is_none()
            && !self.is_logged()
            && self.streams.wants_to_send()
    }

    /// True if events are written to a log, which packets are shown on the long way.
    fn is_logged(&self) -> bool {
        #[cfg(feature = "qlog")]
        {
            self.qlog.is_some()
        }
        #[cfg(not(feature = "qlog"))]
        {
            false
        }
    }

    fn write_plain_datagram(
        &mut self,
        now: Timestamp,
        key: PathKey,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let id = SpaceId::DATA;
        let unused = self.spaces[id].numbers;
        let number = self.spaces[id].numbers.choose(&mut self.rng);
        let space = self.space(id);
        let number = space.numbers.take(number);
        let acked = space.loss.largest_acked().and_then(PacketNumber::new);
        let truncated = PacketNumber::new(number)?.truncate(acked)?;
        let dcid = self.dcid(key);
        let fixed_bit = !self.greases_bit();
        let key_phase = self.keys.one_rtt()?.bit();
        let header = ShortHeader { dcid, spin: false, key_phase, fixed_bit };
        let mut writer = Writer::new(buffer);
        let open = header.open(&mut writer, truncated).ok()?;
        let mut frames = self.spaces.lend_list();
        let room = writer.remaining().checked_sub(TAG_LEN)?;
        let mut payload = Writer::new(writer.unwritten_mut().get_mut(..room)?);
        self.write_plain_streams(&mut payload, &mut frames);
        let written = payload.position();
        if frames.is_empty() {
            // No stream had data after all: whatever is due goes the long way, with this number.
            self.spaces[id].numbers = unused;
            self.spaces.take_back(frames);
            return None;
        }
        self.stats.numbers_skipped += number - unused.next();
        writer.reserve(written).ok()?;
        writer.zeros(open.padding_needed(&writer, TAG_LEN)).ok()?;
        self.space(id).on_written(true);
        let packet = open.finish(&mut writer, TAG_LEN).ok()?;
        let bytes = writer.written_mut();
        let (head, body) = bytes.split_at_mut(packet.header_len);
        let (plain, tag) = body.split_at_mut(body.len() - TAG_LEN);
        let Some(sealed) = self.keys.seal(id, number, head, plain) else {
            self.send_again(id, number, false, &frames);
            return None;
        };
        tag.copy_from_slice(sealed.as_ref());
        let sample = packet.header().sample(bytes)?;
        let mask = header_mask(self.keys.local_header(id)?, sample)?;
        packet.protect(bytes, &mask)?;
        let size = bytes.len();
        let path = &mut self.paths[key];
        let marked = path.marks();
        if marked {
            path.on_marked_sent();
        }
        let content = Sent::new(&mut frames, marked, key);
        self.spaces.take_back(frames);
        let kind = SentPacketKind { eliciting: true, in_flight: true, mtu_probe: false, content };
        self.on_packet_sent(NoneAttached, now, id, number, size, kind);
        self.on_datagram_sent(key, size);
        let path = &self.paths[key];
        let ecn = if marked { EcnCodepoint::Ect0 } else { EcnCodepoint::NotEct };
        Some(Transmit { destination: path.remote(), source: path.local(), ecn, size })
    }

    /// Fills a packet with STREAM frames.
    fn write_plain_streams(&mut self, writer: &mut Writer<'_>, frames: &mut Vec<SentFrame>) {
        while writer.remaining() >= MIN_STREAM {
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
}
