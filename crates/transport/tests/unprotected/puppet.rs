//! A peer without protocol state (the puppet). It sends the packets that a test passes to it, as
//! often as required, and reads received packets only to acknowledge them. It has no keys, because
//! there is no protection.

use std::collections::BTreeSet;

use equic_transport::null::{Answer, Hello, Level, Message, NullKey, retry_tag};
use equic_wire::frame::{AckRange, write_ack};
use equic_wire::packet::{
    Datagram, LongHeader, LongKind, OpenPacket, Packet, ParseOptions, Retry, ShortHeader,
    VersionNegotiation,
};
use equic_wire::params::TransportParameters;
use equic_wire::{
    ConnectionId, KnownVersion, PacketNumber, PacketNumberLen, Side, VarInt, VarIntLen, Version,
    Writer,
};

const VERSION: KnownVersion = KnownVersion::NullCrypto;
const TAG_LEN: usize = 16;

/// Largest number of received packet numbers that are remembered, so that they can be acknowledged.
const MAX_SEEN: usize = 500;

/// The encryption level and packet number space of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Initial,
    Handshake,
    OneRtt,
    ZeroRtt,
}

impl Space {
    pub(crate) fn of(byte: u8) -> Space {
        [Space::Initial, Space::Handshake, Space::OneRtt, Space::ZeroRtt][usize::from(byte & 3)]
    }

    /// Returns the index of the packet number space. 0-RTT and 1-RTT packets share one (RFC 9000
    /// s.12.3).
    fn numbers(self) -> usize {
        (self as usize).min(2)
    }
}

pub(crate) struct Puppet {
    side: Side,
    /// Destination Connection ID of packets to the victim.
    pub victim: ConnectionId,
    own: ConnectionId,
    /// Connection ID from which the keys of Initial packets are derived. The next field has the
    /// client's first Destination Connection ID, which the transport parameters contain.
    initial: ConnectionId,
    original: ConnectionId,
    retry: Option<ConnectionId>,
    next: [u64; 3],
    offset: [u64; 3],
    seen: [BTreeSet<u64>; 3],
    /// Number of key updates of the 1-RTT packets that this peer sends.
    pub generation: u64,
    /// Bits to set in the first byte of each packet, such as reserved ones.
    pub first_bits: u8,
    /// The version in long headers, in place of the victim's.
    pub other_version: Option<Version>,
}

impl Puppet {
    pub(crate) fn new(
        side: Side,
        victim: ConnectionId,
        own: ConnectionId,
        first: ConnectionId,
    ) -> Puppet {
        Puppet {
            side,
            victim,
            own,
            initial: first,
            original: first,
            retry: None,
            next: [0; 3],
            offset: [0; 3],
            seen: Default::default(),
            generation: 0,
            first_bits: 0,
            other_version: None,
        }
    }

    pub(crate) fn has_seen(&self, space: Space) -> bool {
        !self.seen[space.numbers()].is_empty()
    }

    pub(crate) fn has_said(&self, space: Space) -> bool {
        self.next[space.numbers()] > 0
    }

    /// Returns the next packet number of a space, or `jump` if it is given.
    pub(crate) fn number(&mut self, space: Space, jump: Option<u32>) -> u64 {
        let next = &mut self.next[space.numbers()];
        let number = jump.map_or(*next, u64::from);
        *next = (*next).max(number + 1);
        number
    }

    /// Appends a packet with this payload to a datagram. The packet has the keys after `generation`
    /// key updates, and is padded to at least `least` bytes.
    pub(crate) fn packet(
        &self,
        (space, number, generation): (Space, u64, u64),
        payload: &[u8],
        least: usize,
        datagram: &mut Vec<u8>,
    ) -> Option<()> {
        let mut buffer = vec![0; 2048];
        let mut writer = Writer::new(&mut buffer);
        let open = self.header(space, number, generation, &mut writer)?;
        writer.bytes(payload).ok()?;
        let missing = least.saturating_sub(writer.position() + TAG_LEN);
        writer.zeros(missing.max(open.padding_needed(&writer, TAG_LEN))).ok()?;
        let finished = open.finish(&mut writer, TAG_LEN).ok()?;
        let packet = writer.written_mut();
        packet[0] |= self.first_bits;
        if let Some(version) = self.other_version.filter(|_| space != Space::OneRtt) {
            packet[1..5].copy_from_slice(&version.0.to_be_bytes());
        }
        let (head, body) = packet.split_at_mut(finished.header_len);
        let (payload, tag) = body.split_at_mut(body.len() - TAG_LEN);
        let level = match space {
            Space::Initial => Level::Initial(self.initial),
            Space::Handshake => Level::Handshake,
            Space::OneRtt => Level::OneRtt(generation),
            Space::ZeroRtt => Level::ZeroRtt,
        };
        tag.copy_from_slice(&NullKey::new(level, self.side).tag(number, head, payload));
        datagram.extend_from_slice(packet);
        Some(())
    }

    fn header(
        &self,
        space: Space,
        number: u64,
        generation: u64,
        writer: &mut Writer<'_>,
    ) -> Option<OpenPacket> {
        let number = PacketNumber::new(number)?.truncate_to(PacketNumberLen::Four);
        let dcid = match (self.side, space) {
            // A client uses this Destination Connection ID until the server has chosen its own.
            (Side::Client, Space::Initial | Space::ZeroRtt) if !self.has_seen(space) => {
                self.initial
            }
            _ => self.victim,
        };
        let kind = match space {
            Space::Initial => LongKind::Initial { token: &[] },
            Space::Handshake => LongKind::Handshake,
            Space::ZeroRtt => LongKind::ZeroRtt,
            Space::OneRtt => {
                let key_phase = generation % 2 == 1;
                let header = ShortHeader { dcid, spin: false, key_phase, fixed_bit: true };
                return header.open(writer, number).ok();
            }
        };
        let header = LongHeader { version: VERSION, kind, dcid, scid: self.own, fixed_bit: true };
        header.open(writer, number, VarIntLen::Two).ok()
    }

    /// Returns the peer's own transport parameters, followed by `more`.
    fn parameters(&self, more: &[u8]) -> Vec<u8> {
        let mut parameters = match self.side {
            Side::Client => TransportParameters::client(self.own),
            Side::Server => TransportParameters::server(self.own, self.original),
        };
        if let Some(server) = &mut parameters.server {
            server.retry_source_connection_id = self.retry;
        }
        let window = VarInt::from_u32(100_000);
        parameters.initial_max_data = window;
        parameters.initial_max_stream_data_bidi_local = window;
        parameters.initial_max_stream_data_bidi_remote = window;
        parameters.initial_max_stream_data_uni = window;
        parameters.max_datagram_frame_size = VarInt::from_u32(1200);
        let hundred = equic_wire::StreamCount::new(100).unwrap_or_default();
        (parameters.initial_max_streams_bidi, parameters.initial_max_streams_uni) =
            (hundred, hundred);
        let mut bytes = vec![0; parameters.encoded_len()];
        parameters.write(&mut Writer::new(&mut bytes)).expect("the buffer has the encoded length");
        bytes.extend_from_slice(more);
        bytes
    }

    /// Returns a CRYPTO frame with a handshake message of this kind. Its offset is the next one, or
    /// `elsewhere` if that is given.
    pub(crate) fn message(
        &mut self,
        (space, kind): (Space, u8),
        more: &[u8],
        elsewhere: Option<u64>,
    ) -> Vec<u8> {
        let parameters = self.parameters(more);
        let (parameters, mut bytes) = (&parameters[..], Vec::new());
        let ticket = (kind & 0x10 != 0).then_some([kind; 16]);
        let message = match kind & 7 {
            0 => Message::ClientHello(Hello { parameters, ticket, alpn: vec![b"null"] }),
            1 => Message::ServerHello,
            2 => Message::Answer(Answer { parameters, early_data: kind & 8 != 0, alpn: b"null" }),
            3 => Message::NewSessionTicket(kind & 8 != 0, [kind; 16]),
            _ => Message::Finished,
        };
        message.write(0, &mut bytes);
        let offset = &mut self.offset[space.numbers()];
        let at = elsewhere.unwrap_or(*offset);
        if elsewhere.is_none() {
            *offset += bytes.len() as u64;
        }
        let mut frame = vec![0; bytes.len() + 17];
        let mut writer = Writer::new(&mut frame);
        let number = |value: u64| VarInt::new(value).unwrap_or(VarInt::MAX);
        for field in [0x06, at, bytes.len() as u64] {
            writer.varint(number(field)).expect("the buffer is large enough");
        }
        writer.bytes(&bytes).expect("the buffer is large enough");
        let length = writer.position();
        frame.truncate(length);
        frame
    }

    /// Records that the client has started again with this Destination Connection ID.
    #[cfg(test)]
    pub(crate) fn begin_again(&mut self, first: ConnectionId) {
        (self.initial, self.original) = (first, first);
    }

    /// Returns an ACK frame for all received packets.
    pub(crate) fn ack(&self, space: Space) -> Vec<u8> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in self.seen[space.numbers()].iter().rev() {
            match ranges.last_mut() {
                Some((low, _)) if *low == number + 1 => *low = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        let number = |value| PacketNumber::new(value).expect("the number was read from a packet");
        let ranges: Vec<AckRange> = (ranges.iter().take(30))
            .filter_map(|(low, high)| AckRange::new(number(*low), number(*high)))
            .collect();
        let mut frame = vec![0; 500];
        let mut writer = Writer::new(&mut frame);
        let written = write_ack(&mut writer, ranges, VarInt::ZERO, None).is_ok();
        let length = if written { writer.position() } else { 0 };
        frame.truncate(length);
        frame
    }

    /// Returns a Retry packet with its integrity tag. If `follow` is true, later Initial keys are
    /// derived from the connection ID in this packet.
    pub(crate) fn retry(&mut self, token: &[u8], follow: bool) -> Vec<u8> {
        let mut packet = vec![0; 1500];
        let mut writer = Writer::new(&mut packet);
        let id = ConnectionId::cut(b"retried!");
        if Retry::write_without_tag(&mut writer, VERSION, self.victim, id, token, 0).is_err() {
            return Vec::new();
        }
        let original = self.original.as_bytes();
        let tag = retry_tag(rustls::quic::Version::V1, original, writer.written());
        writer.bytes(&tag).expect("the buffer is large enough");
        if follow {
            (self.initial, self.retry) = (id, Some(id));
        }
        let length = writer.position();
        packet.truncate(length);
        packet
    }

    pub(crate) fn version_negotiation(&self, versions: &[u32]) -> Vec<u8> {
        let mut packet = vec![0; 1500];
        let mut writer = Writer::new(&mut packet);
        let versions: Vec<Version> = versions.iter().copied().map(Version).collect();
        let (dcid, scid) = (self.victim.as_bytes(), self.initial.as_bytes());
        let written = VersionNegotiation::write(&mut writer, dcid, scid, versions, 0x40);
        let length = if written.is_ok() { writer.position() } else { 0 };
        packet.truncate(length);
        packet
    }

    /// Records which packets a received datagram contains, to acknowledge them.
    pub(crate) fn read(&mut self, datagram: &mut [u8]) {
        let options = ParseOptions { dcid_len: self.own.len(), greased_fixed_bit: true };
        let mut found = Vec::new();
        for packet in Datagram::new(datagram, options).including(VERSION) {
            let (space, protected, bytes) = match packet {
                Ok(Packet::Long(long)) => {
                    self.victim = long.scid();
                    let space = match long.kind() {
                        LongKind::Initial { .. } => Space::Initial,
                        LongKind::Handshake => Space::Handshake,
                        LongKind::ZeroRtt => Space::ZeroRtt,
                    };
                    (space, long.protected(), long.bytes())
                }
                Ok(Packet::Short(short)) => (Space::OneRtt, short.protected(), short.bytes()),
                _ => continue,
            };
            let mut bytes = bytes.to_vec();
            let header = protected.remove(&mut bytes, &[0; 5]);
            found.extend(header.map(|header| (space, header.packet_number())));
        }
        for (space, truncated) in found {
            let seen = &mut self.seen[space.numbers()];
            let largest = seen.last().copied().and_then(PacketNumber::new);
            if let Some(number) = truncated.restore(largest) {
                seen.insert(number.get());
            }
            if seen.len() > MAX_SEEN {
                seen.pop_first();
            }
        }
    }
}
