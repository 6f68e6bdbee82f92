//! From datagrams to frames (RFC 9000 s.12.2, RFC 9001 s.5).

use equic_wire::frame::Frames;
use equic_wire::packet::{Datagram, LongKind, Packet, PacketType, ParseOptions, Protected};
use equic_wire::{ConnectionId, PacketNumber, ResetToken, Side, TransportErrorCode};

use super::Connection;
use super::close::CloseReason;
use super::space::SpaceId;
use crate::Timestamp;
use crate::crypto::{OpenError, header_mask};
use crate::received::{AckPolicy, EcnCodepoint};

/// A packet whose place in the datagram is known.
struct Found {
    space: SpaceId,
    kind: PacketType,
    dcid: ConnectionId,
    /// Of a long header.
    scid: Option<ConnectionId>,
    protected: Protected,
    len: usize,
}

/// An opened packet.
struct Opened {
    number: u64,
    /// Where its frames are in the packet.
    payload: std::ops::Range<usize>,
    /// Its reserved bits are as they must be.
    sound: bool,
}

impl Connection {
    /// A datagram came. It is decrypted in place.
    pub fn handle_datagram(&mut self, now: Timestamp, ecn: EcnCodepoint, datagram: &mut [u8]) {
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        self.path.on_datagram_received(datagram.len());
        if self.closing.is_closed() {
            self.closing.on_datagram();
        }
        let last = datagram.last_chunk::<{ ResetToken::LEN }>().copied();
        let (mut at, mut opened) = (0, false);
        while let Some(found) = self.find(&datagram[at..]) {
            let (packet, rest) = datagram[at..].split_at_mut(found.len);
            let more = !rest.is_empty();
            at += found.len;
            opened |= self.handle_packet(now, ecn, &found, packet);
            if !more || self.closing.is_drained() {
                break;
            }
        }
        // RFC 9000 s.10.3.1: only what could not be opened can be a reset.
        if !opened
            && let Some(token) = last
            && datagram[0] & 0x80 == 0
            && self.remote_ids.is_reset(ResetToken(token))
        {
            self.drain(now, CloseReason::StatelessReset);
        }
    }

    /// The next packet of a datagram that may be ours.
    fn find(&mut self, datagram: &[u8]) -> Option<Found> {
        let options = ParseOptions { dcid_len: self.scid.len(), greased_fixed_bit: false };
        let mut packets = Datagram::new(datagram, options);
        loop {
            let found = match packets.next()? {
                Ok(Packet::Long(long)) if long.version() == self.version => Found {
                    space: match long.kind() {
                        LongKind::Initial { .. } => SpaceId::Initial,
                        LongKind::Handshake => SpaceId::Handshake,
                        LongKind::ZeroRtt => {
                            self.stats.packets_dropped += 1;
                            continue;
                        }
                    },
                    kind: long.kind().packet_type(),
                    dcid: long.dcid(),
                    scid: Some(long.scid()),
                    protected: long.protected(),
                    len: datagram.len() - packets.rest().len(),
                },
                Ok(Packet::Short(short)) => Found {
                    space: SpaceId::Data,
                    kind: PacketType::OneRtt,
                    dcid: short.dcid(),
                    scid: None,
                    protected: short.protected(),
                    len: datagram.len(),
                },
                _ => {
                    self.stats.packets_dropped += 1;
                    continue;
                }
            };
            return Some(found);
        }
    }

    /// Whether the packet was the peer's.
    fn handle_packet(
        &mut self,
        now: Timestamp,
        ecn: EcnCodepoint,
        found: &Found,
        packet: &mut [u8],
    ) -> bool {
        let ours = self.local_ids.contains(found.dcid)
            || self.side == Side::Server
                && found.space == SpaceId::Initial
                && found.dcid == self.original_dcid;
        let Some(opened) = ours.then(|| self.open_packet(now, found, packet)).flatten() else {
            self.stats.packets_dropped += 1;
            return false;
        };
        if self.spaces[found.space as usize].received.is_duplicate(opened.number) {
            self.stats.packets_dropped += 1;
            return true;
        }
        self.stats.packets_received += 1;
        self.on_authentic(now, found);
        if !opened.sound {
            // RFC 9000 s.17.2.
            self.fail(now, TransportErrorCode::PROTOCOL_VIOLATION, "reserved bits are set");
            return true;
        }
        let payload = packet[opened.payload.clone()].to_vec();
        self.handle_payload(now, ecn, found, opened.number, &payload);
        true
    }

    /// Removes header and packet protection; none: it is to be dropped.
    fn open_packet(&mut self, now: Timestamp, found: &Found, packet: &mut [u8]) -> Option<Opened> {
        let sample = *found.protected.sample(packet)?;
        let space = &mut self.spaces[found.space as usize];
        let largest = space.received.largest().map(|(number, _)| number);
        let header_key = match (found.space, &self.one_rtt) {
            (SpaceId::Data, Some(keys)) => keys.remote_header(),
            (SpaceId::Data, None) => return None,
            _ => &*space.keys.as_ref()?.remote.header,
        };
        let mask = header_mask(header_key, &sample)?;
        let header = found.protected.remove(packet, &mask)?;
        let number = header.packet_number().restore(largest.and_then(PacketNumber::new))?.get();
        let (head, payload) = packet.split_at_mut(header.header_len());
        let len = match (found.space, &mut self.one_rtt) {
            (SpaceId::Data, Some(keys)) => {
                // Server data may come before the client's Finished; not the other way round
                // (RFC 9001 s.5.7).
                if self.side == Side::Server && !self.progress.complete {
                    return None;
                }
                let retain = now + self.path.rtt.pto_base() * 3;
                let bit = header.key_phase()?;
                match keys.open(number, bit, head, payload, largest, retain) {
                    Ok((opened, _)) => opened.len(),
                    Err(OpenError::Forged) => return None,
                    Err(OpenError::LimitReached) => {
                        let code = TransportErrorCode::AEAD_LIMIT_REACHED;
                        self.fail(now, code, "too many forged packets");
                        return None;
                    }
                    Err(OpenError::KeyUpdate) => {
                        let code = TransportErrorCode::KEY_UPDATE_ERROR;
                        self.fail(now, code, "keys updated too soon or backwards");
                        return None;
                    }
                }
            }
            _ => {
                let key = &space.keys.as_ref()?.remote.packet;
                key.decrypt_in_place(number, head, payload).ok()?.len()
            }
        };
        let start = header.header_len();
        let sound = header.check_reserved_bits().is_ok();
        Some(Opened { number, payload: start..start + len, sound })
    }

    /// What a packet that only the peer can have made tells by itself.
    fn on_authentic(&mut self, now: Timestamp, found: &Found) {
        self.idle_since = now;
        self.sent_since_received = false;
        if !self.peer_id_known
            && let Some(scid) = found.scid
        {
            // RFC 9000 s.7.2: the server's first packet names its ID.
            self.peer_id_known = true;
            self.remote_ids.set_handshake_id(scid);
        }
        if found.space == SpaceId::Handshake {
            // RFC 9000 s.8.1: whoever has Handshake keys has our Initial.
            self.path.validated = true;
            if self.side == Side::Server {
                self.discard(now, SpaceId::Initial);
            }
        }
    }

    fn handle_payload(
        &mut self,
        now: Timestamp,
        ecn: EcnCodepoint,
        found: &Found,
        number: u64,
        payload: &[u8],
    ) {
        let frames = match Frames::new(payload) {
            Ok(frames) => frames,
            Err(error) => return self.fail(now, error.code(), "a packet without frames"),
        };
        let mut eliciting = false;
        for frame in frames {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.fail(now, error.code(), &error.to_string()),
            };
            if let Err(error) = frame.check_allowed(found.kind, !self.side) {
                return self.fail(now, error.code(), &error.to_string());
            }
            eliciting |= frame.frame_type().is_ack_eliciting();
            if !self.handle_frame(now, found.space, found.dcid, &frame) {
                // As if it had been lost: the peer will send it again.
                self.stats.packets_dropped += 1;
                return;
            }
            if self.closing.is_closed() {
                return;
            }
        }
        let policy = match found.space {
            SpaceId::Data => self.ack_policy,
            _ => AckPolicy::IMMEDIATE,
        };
        let space = self.space(found.space);
        if !space.discarded {
            space.received.on_received(now, number, eliciting, ecn, &policy);
        }
    }
}
