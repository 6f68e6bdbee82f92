//! Which packets next, and how they are protected (RFC 9000 s.12, RFC 9001 s.5).

use equic_wire::packet::{
    FinishedPacket, LongHeader, LongKind, MIN_INITIAL_DATAGRAM, OpenPacket, ShortHeader,
};
use equic_wire::{PacketNumber, Side, VarIntLen, Writer};

use super::close::Closing;
use super::space::{Sent, SentFrame, SpaceId};
use super::{Connection, Transmit};
use crate::Timestamp;
use crate::crypto::header_mask;
use crate::received::EcnCodepoint;
use crate::recovery::{DeliveryMark, SentPacket};

/// Bytes of every AEAD tag in QUIC (RFC 9001 s.5.3).
const TAG_LEN: usize = 16;

/// Fewer bytes are not worth another packet in a datagram.
const MIN_PACKET: usize = 64;

/// What a datagram may hold.
#[derive(Clone, Copy)]
pub(super) struct Allowance {
    /// Bytes.
    pub size: usize,
    /// Whether packets that count toward congestion may go: window and pace have room.
    pub in_flight: bool,
    /// Nothing but PING and PADDING: this datagram finds out whether its size gets through.
    pub mtu_probe: bool,
}

/// A packet's frames are written.
struct Built {
    open: OpenPacket,
    number: u64,
    frames: Vec<SentFrame>,
    eliciting: bool,
}

impl Connection {
    /// The next datagram to send, written into `buffer`, which should have room for 65,527 bytes or
    /// as many as `max_datagram_size` says; none: nothing now.
    pub fn poll_transmit(&mut self, now: Timestamp, buffer: &mut [u8]) -> Option<Transmit> {
        if self.closing.is_closed() {
            return self.transmit_close(now, buffer);
        }
        self.issue_ids();
        let allowance = self.allowance(now, buffer.len())?;
        let wanted: Vec<SpaceId> =
            SpaceId::ALL.into_iter().filter(|id| self.has_content(now, *id, allowance)).collect();
        if wanted.is_empty() {
            self.note_app_limited(allowance);
            return None;
        }
        let size = allowance.size.min(buffer.len());
        let mut writer = Writer::new(&mut buffer[..size]);
        let mut initial = false;
        let mut marked = false;
        for (index, id) in wanted.iter().enumerate() {
            if writer.remaining() < MIN_PACKET {
                break;
            }
            initial |= *id == SpaceId::Initial;
            // RFC 9000 s.14.1: a datagram with an Initial packet has 1,200 bytes.
            let last = index + 1 == wanted.len();
            let pad = match (allowance.mtu_probe, initial && last) {
                (true, _) => size,
                (false, true) => MIN_INITIAL_DATAGRAM.min(size),
                (false, false) => 0,
            };
            marked |= self.transmit_packet(now, *id, allowance, &mut writer, pad)?;
        }
        let size = writer.position();
        self.on_datagram_sent(size);
        let ecn = if marked { EcnCodepoint::Ect0 } else { EcnCodepoint::NotEct };
        Some(Transmit { destination: self.path.remote, ecn, size })
    }

    fn on_datagram_sent(&mut self, size: usize) {
        self.path.on_datagram_sent(size);
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += size as u64;
    }

    /// None: nothing at all may be sent.
    fn allowance(&mut self, now: Timestamp, buffer: usize) -> Option<Allowance> {
        let mtu = self.path.mtu.current();
        let mut size = usize::from(mtu).min(buffer);
        if !self.path.may_send() {
            return None;
        }
        if let Some(credit) = self.path.credit() {
            // RFC 9000 s.8.1.
            size = size.min(usize::try_from(credit).unwrap_or(usize::MAX));
        }
        let room = self.path.room() >= u64::from(mtu);
        let rate = self.path.controller.pacing_rate(&self.path.rtt);
        self.paced_until = if room { self.path.pacer.next(now, rate, mtu) } else { None };
        let in_flight = room && self.paced_until.is_none();
        let mut allowance = Allowance { size, in_flight, mtu_probe: false };
        if in_flight && self.progress.confirmed && self.is_quiet() {
            allowance = self.probe_mtu(now, buffer, allowance);
        }
        Some(allowance)
    }

    /// Whether no probe of another kind is due.
    fn is_quiet(&self) -> bool {
        self.spaces[SpaceId::Data as usize].probes == 0
    }

    fn probe_mtu(&mut self, now: Timestamp, buffer: usize, allowance: Allowance) -> Allowance {
        match self.path.mtu.next_probe(now) {
            Some(size) if usize::from(size) <= buffer => {
                Allowance { size: size.into(), mtu_probe: true, ..allowance }
            }
            Some(_) => {
                self.path.mtu.on_probe_lost();
                allowance
            }
            None => allowance,
        }
    }

    fn has_content(&self, now: Timestamp, id: SpaceId, allowance: Allowance) -> bool {
        let space = &self.spaces[id as usize];
        let keys = match id {
            SpaceId::Data => self.one_rtt.is_some() && self.may_send_data(),
            _ => space.keys.is_some(),
        };
        if !keys {
            return false;
        }
        if allowance.mtu_probe {
            return id == SpaceId::Data;
        }
        space.probes > 0
            || space.received.is_due(now)
            || allowance.in_flight
                && (space.crypto_out.wants_to_send(u64::MAX)
                    || id == SpaceId::Data && self.has_data())
    }

    /// A server may answer before the client's Finished came (RFC 9001 s.5.7).
    fn may_send_data(&self) -> bool {
        self.side == Side::Server || self.progress.complete
    }

    fn has_data(&self) -> bool {
        self.progress.done_due
            || self.ping
            || self.path_response.is_some()
            || !self.blocked.is_empty()
            || self.local_ids.has_news()
            || self.remote_ids.has_news()
            || self.streams.has_control()
            || self.streams.wants_to_send()
    }

    /// There is room and nothing to fill it with: what is in flight says nothing of the path.
    fn note_app_limited(&mut self, allowance: Allowance) {
        if allowance.in_flight {
            self.path.rates.on_app_limited(self.path.in_flight);
        }
    }

    /// Writes a packet; whether it is marked. None: it could not be protected.
    fn transmit_packet(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
        writer: &mut Writer<'_>,
        pad: usize,
    ) -> Option<bool> {
        let built = self.build_packet(now, id, allowance, writer, pad)?;
        let Built { open, number, frames, eliciting } = built;
        let padded = pad > 0;
        let finished = open.finish(writer, TAG_LEN).ok()?;
        let size = finished.packet.len();
        let bytes = writer.written_mut().get_mut(finished.packet.clone())?;
        self.protect(id, number, &finished, bytes)?;
        let in_flight = eliciting || padded;
        let marked = id == SpaceId::Data && in_flight && self.path.ecn.marks();
        if marked {
            self.path.ecn.on_marked_sent();
        }
        self.on_packet_sent(
            now,
            id,
            number,
            size,
            SentPacketKind {
                eliciting,
                in_flight,
                mtu_probe: allowance.mtu_probe,
                content: Sent { frames, marked },
            },
        );
        if id == SpaceId::Handshake && self.side == Side::Client {
            // RFC 9001 s.4.9.1.
            self.discard(now, SpaceId::Initial);
        }
        Some(marked)
    }

    fn build_packet(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
        writer: &mut Writer<'_>,
        pad: usize,
    ) -> Option<Built> {
        let start = writer.position();
        let number = self.spaces[id as usize].next;
        self.space(id).next += 1;
        let open = self.open_header(id, number, writer)?;
        // Room for the tag is kept by a writer that ends before it.
        let limit = writer.remaining().checked_sub(TAG_LEN)?;
        let mut frames = Vec::new();
        let mut payload = vec![0; limit];
        let mut inner = Writer::new(&mut payload);
        let eliciting = if allowance.mtu_probe {
            inner.u8(1).ok()?;
            frames.push(SentFrame::Ping);
            true
        } else {
            self.write_frames(now, id, allowance, &mut inner, &mut frames)
        };
        writer.bytes(inner.written()).ok()?;
        let total = writer.position() - start + TAG_LEN;
        let padding = pad.saturating_sub(start + total).max(open.padding_needed(writer, TAG_LEN));
        writer.zeros(padding.min(writer.remaining() - TAG_LEN)).ok()?;
        self.space(id).probes = self.spaces[id as usize].probes.saturating_sub(u8::from(eliciting));
        Some(Built { open, number, frames, eliciting })
    }

    fn open_header(&self, id: SpaceId, number: u64, writer: &mut Writer<'_>) -> Option<OpenPacket> {
        let acked = self.spaces[id as usize].loss.largest_acked().and_then(PacketNumber::new);
        let number = PacketNumber::new(number)?.truncate(acked)?;
        let dcid = self.remote_ids.current();
        let kind = match id {
            SpaceId::Data => {
                let key_phase = self.one_rtt.as_ref()?.bit();
                let header = ShortHeader { dcid, spin: false, key_phase, fixed_bit: true };
                return header.open(writer, number).ok();
            }
            SpaceId::Initial => LongKind::Initial { token: &[] },
            SpaceId::Handshake => LongKind::Handshake,
        };
        let (version, scid) = (self.version, self.scid);
        let header = LongHeader { version, kind, dcid, scid, fixed_bit: true };
        header.open(writer, number, VarIntLen::Two).ok()
    }

    /// Packet protection, then header protection (RFC 9001 s.5.3, s.5.4).
    fn protect(
        &mut self,
        id: SpaceId,
        number: u64,
        finished: &FinishedPacket,
        packet: &mut [u8],
    ) -> Option<()> {
        let (header, body) = packet.split_at_mut(finished.header_len);
        let (payload, tag) = body.split_at_mut(body.len() - TAG_LEN);
        let space = &self.spaces[id as usize];
        let sealed = match (id, &mut self.one_rtt) {
            (SpaceId::Data, Some(keys)) => keys.seal(number, header, payload).ok()?,
            (SpaceId::Data, None) => return None,
            _ => {
                space.keys.as_ref()?.local.packet.encrypt_in_place(number, header, payload).ok()?
            }
        };
        tag.copy_from_slice(sealed.as_ref());
        let sample = finished.header().sample(packet)?;
        let key = match (id, &self.one_rtt) {
            (SpaceId::Data, Some(keys)) => keys.local_header(),
            _ => &*space.keys.as_ref()?.local.header,
        };
        let mask = header_mask(key, sample)?;
        finished.protect(packet, &mask)
    }

    fn on_packet_sent(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        number: u64,
        size: usize,
        kind: SentPacketKind,
    ) {
        let bytes = size as u64;
        self.stats.packets_sent += 1;
        let mut delivery = DeliveryMark::default();
        if kind.in_flight {
            delivery = self.path.rates.on_sent(now, bytes, self.path.in_flight);
            self.path.in_flight += bytes;
            self.path.controller.on_sent(now, bytes, self.path.in_flight);
            self.path.pacer.on_sent(bytes);
        }
        if kind.eliciting && !self.sent_since_received {
            // RFC 9000 s.10.1: the first after something came starts the idle timer anew.
            self.sent_since_received = true;
            self.idle_since = now;
        }
        self.space(id).loss.on_packet_sent(
            number,
            SentPacket {
                time_sent: now,
                size: u16::try_from(size).unwrap_or(u16::MAX),
                ack_eliciting: kind.eliciting,
                in_flight: kind.in_flight,
                mtu_probe: kind.mtu_probe,
                delivery,
                content: kind.content,
            },
        );
    }

    /// RFC 9000 s.10.2: in every space that the peer may be able to read.
    fn transmit_close(&mut self, _now: Timestamp, buffer: &mut [u8]) -> Option<Transmit> {
        let Closing::Telling { error, tell, .. } = &mut self.closing else { return None };
        if !std::mem::take(tell) {
            return None;
        }
        let error = error.clone();
        let credit = self.path.credit().map_or(usize::MAX, |credit| credit as usize);
        let size = buffer.len().min(MIN_INITIAL_DATAGRAM).min(credit);
        let mut writer = Writer::new(&mut buffer[..size]);
        let spaces: Vec<SpaceId> = SpaceId::ALL
            .into_iter()
            .filter(|id| match id {
                SpaceId::Data => self.one_rtt.is_some() && self.progress.complete,
                _ => self.spaces[*id as usize].keys.is_some(),
            })
            .collect();
        for (index, id) in spaces.iter().enumerate() {
            let number = self.spaces[*id as usize].next;
            let start = writer.position();
            let open = self.open_header(*id, number, &mut writer)?;
            Connection::close_frame(&error, *id == SpaceId::Data).write(&mut writer).ok()?;
            let needed = open.padding_needed(&writer, TAG_LEN);
            let initial = spaces[0] == SpaceId::Initial && index + 1 == spaces.len();
            let whole = if initial { size - TAG_LEN } else { 0 };
            let padding = needed.max(whole.saturating_sub(writer.position()));
            writer.zeros(padding).ok()?;
            let finished = open.finish(&mut writer, TAG_LEN).ok()?;
            self.space(*id).next += 1;
            let bytes = writer.written_mut().get_mut(start..)?;
            self.protect(*id, number, &finished, bytes)?;
        }
        let size = writer.position();
        self.on_datagram_sent(size);
        let ecn = EcnCodepoint::NotEct;
        (size > 0).then_some(Transmit { destination: self.path.remote, ecn, size })
    }
}

struct SentPacketKind {
    eliciting: bool,
    in_flight: bool,
    mtu_probe: bool,
    content: Sent,
}
