//! Builds a packet after the packets that its datagram already contains: header, room for frames,
//! padding, and protection (RFC 9000 s.12.2, s.14.1, s.17; RFC 9001 s.5).
//!
//! ```text
//! PacketBuilder::open   -> writes the header; None if there is no room
//! payload, wrote        -> the caller writes frames into the room before the tag
//! padding_wanted, pad   -> writes PADDING after the frames
//! finish                -> BuiltPacket: the packet's content and its bytes
//! BuiltPacket::protect  -> the packet is ready to be sent
//! ```

use equic_wire::packet::{FinishedPacket, LongHeader, OpenPacket, ShortHeader};
use equic_wire::{PacketNumber, VarIntLen, Writer};

use super::packet_keys::PacketKeys;
use super::space::SpaceId;
use crate::crypto::header_mask;

/// Size of every AEAD tag in QUIC, in bytes (RFC 9001 s.5.3).
pub(super) const TAG_LEN: usize = 16;

/// Minimum remaining room in a datagram for another packet. The longest header without a token has
/// 53 bytes with two IDs of 20 bytes, and the tag has 16.
pub(super) const MIN_PACKET: usize = 53 + TAG_LEN + 16;

/// Size to which PADDING frames fill a datagram, in bytes from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Padding {
    to: usize,
    /// Size if no other packet fits after this one.
    if_last: usize,
}

impl Padding {
    /// No padding beyond what header protection needs.
    pub(super) const NONE: Padding = Padding { to: 0, if_last: 0 };

    /// Fills the datagram to this size.
    pub(super) fn to(to: usize) -> Padding {
        Padding { to, if_last: to }
    }

    /// Fills the datagram to this size if no other packet fits after this one. Otherwise the next
    /// packet does it.
    pub(super) fn if_last(to: usize) -> Padding {
        Padding { to: 0, if_last: to }
    }
}

/// Header of a packet to build.
pub(super) enum Header<'a> {
    /// Header of an Initial, 0-RTT or Handshake packet.
    Long(LongHeader<'a>),
    /// Header of a 1-RTT packet.
    Short(ShortHeader),
}

/// A packet that is being built. The caller selects the packet and its content.
pub(super) struct PacketBuilder<'d, 'b> {
    datagram: &'d mut Writer<'b>,
    open: OpenPacket,
    id: SpaceId,
    number: u64,
    padding: Padding,
    eliciting: bool,
    padded: bool,
}

/// Number of a packet to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxNumber {
    pub space: SpaceId,
    pub number: u64,
    /// The largest number of the space that the peer has acknowledged. It determines the length of
    /// the packet number (RFC 9000 s.17.1).
    pub acked: Option<u64>,
}

impl<'d, 'b> PacketBuilder<'d, 'b> {
    /// Returns true if the datagram has enough room for another packet.
    pub(super) fn has_room(datagram: &Writer<'_>) -> bool {
        datagram.remaining() >= MIN_PACKET
    }

    /// Writes the header of a packet. Returns `None` if there is no room, or if the peer could not
    /// restore the number.
    #[inline(always)]
    pub(super) fn open(
        datagram: &'d mut Writer<'b>,
        header: &Header<'_>,
        TxNumber { space: id, number, acked }: TxNumber,
        padding: Padding,
    ) -> Option<PacketBuilder<'d, 'b>> {
        let truncated = PacketNumber::new(number)?.truncate(acked.and_then(PacketNumber::new))?;
        let open = match header {
            Header::Short(header) => header.open(datagram, truncated),
            Header::Long(header) => header.open(datagram, truncated, VarIntLen::Two),
        };
        let (eliciting, padded) = (false, false);
        let open = open.ok()?;
        Some(PacketBuilder { datagram, open, id, number, padding, eliciting, padded })
    }

    /// Returns the room for frames in bytes, or `None` if not even the tag fits.
    #[inline(always)]
    pub(super) fn room(&self) -> Option<usize> {
        self.datagram.remaining().checked_sub(TAG_LEN)
    }

    /// Returns the room for frames. Call [`PacketBuilder::wrote`] next.
    #[inline(always)]
    pub(super) fn payload(&mut self) -> Option<Writer<'_>> {
        // The writer ends before the room for the tag.
        let room = self.room()?;
        Some(Writer::new(self.datagram.unwritten_mut().get_mut(..room)?))
    }

    /// Records that the caller wrote frames of `bytes` bytes. `eliciting` is true if they are
    /// ack-eliciting. Returns `None` if they exceed the room.
    #[inline(always)]
    pub(super) fn wrote(&mut self, bytes: usize, eliciting: bool) -> Option<()> {
        self.datagram.reserve(bytes).ok()?;
        self.eliciting |= eliciting;
        Some(())
    }

    /// Returns how many PADDING frames are needed for the header protection sample (RFC 9001
    /// s.5.4.2).
    #[inline(always)]
    fn padding_needed(&self) -> usize {
        self.open.padding_needed(self.datagram, TAG_LEN)
    }

    /// Returns the size to which PADDING frames fill the datagram, or 0 if they do not.
    #[inline(always)]
    fn filled(&self) -> usize {
        let left = self.datagram.remaining().saturating_sub(TAG_LEN);
        let Padding { to, if_last } = self.padding;
        if left < MIN_PACKET { to.max(if_last) } else { to }
    }

    /// Returns the number of PADDING frames that must follow the packet's frames, so that the
    /// datagram has the needed size and the sample is complete.
    #[inline(always)]
    pub(super) fn padding_wanted(&self) -> usize {
        let end = self.datagram.position() + TAG_LEN;
        self.filled().saturating_sub(end).max(self.padding_needed())
    }

    /// Writes `wish` PADDING frames, but at least as many as the sample needs, and at most as many
    /// as fit. A packet padded beyond its sample counts toward bytes in flight (RFC 9002 s.2).
    #[inline(always)]
    pub(super) fn pad(&mut self, wish: usize) -> Option<()> {
        let needed = self.padding_needed();
        self.padded = self.filled() > 0 || wish > needed;
        let most = self.datagram.remaining().saturating_sub(TAG_LEN);
        self.datagram.zeros(wish.max(needed).min(most)).ok()
    }

    /// Reserves room for the tag and writes the Length field. Returns `None` if the packet is too
    /// short to be protected, or too long.
    #[inline(always)]
    pub(super) fn finish(self) -> Option<BuiltPacket<'d>> {
        let PacketBuilder { datagram, open, id, number, eliciting, padded, .. } = self;
        let layout = open.finish(datagram, TAG_LEN).ok()?;
        let bytes = datagram.written_mut().get_mut(layout.packet.clone())?;
        Some(BuiltPacket { bytes, layout, id, number, eliciting, padded })
    }
}

/// A complete packet without protection.
pub(super) struct BuiltPacket<'d> {
    bytes: &'d mut [u8],
    layout: FinishedPacket,
    id: SpaceId,
    number: u64,
    eliciting: bool,
    padded: bool,
}

impl BuiltPacket<'_> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the size of the packet in bytes, including the tag.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the frames, including PADDING.
    pub(super) fn payload(&self) -> &[u8] {
        let body = self.bytes.get(self.layout.header_len..).unwrap_or(&[]);
        body.get(..body.len().saturating_sub(TAG_LEN)).unwrap_or(&[])
    }

    /// Returns the bytes of the packet, including the room for the tag.
    #[cfg(feature = "qlog")]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the length of the header in bytes, including the packet number.
    #[cfg(feature = "qlog")]
    pub(super) fn header_len(&self) -> usize {
        self.layout.header_len
    }

    /// Returns true if the packet is ack-eliciting.
    pub(super) fn is_eliciting(&self) -> bool {
        self.eliciting
    }

    /// Returns true if the packet counts toward bytes in flight (RFC 9002 s.2).
    pub(super) fn is_in_flight(&self) -> bool {
        self.eliciting || self.padded
    }

    /// Applies packet protection and header protection (RFC 9001 s.5.3, s.5.4). Returns `None` if
    /// there are no keys, or if they have reached their limit.
    #[inline(always)]
    pub(super) fn protect(&mut self, keys: &mut PacketKeys) -> Option<()> {
        let (header, body) = self.bytes.split_at_mut(self.layout.header_len);
        let (payload, tag) = body.split_at_mut(body.len() - TAG_LEN);
        let sealed = keys.seal(self.id, self.number, header, payload)?;
        tag.copy_from_slice(sealed.as_ref());
        let sample = self.layout.header().sample(self.bytes)?;
        let mask = header_mask(keys.local_header(self.id)?, sample)?;
        self.layout.protect(self.bytes, &mask)
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::packet::{Datagram, LongKind, Packet, PacketType, ParseOptions};
    use equic_wire::{ConnectionId, KnownVersion, Side};

    use super::*;
    use crate::crypto::{KeyLimits, tls_initial_keys};

    fn keys(side: Side) -> PacketKeys {
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let suite = suite.tls13().unwrap().quic_suite().unwrap();
        let mut keys = PacketKeys::new(KeyLimits::default());
        let initial = tls_initial_keys(&suite, side, KnownVersion::V1, ConnectionId::EMPTY);
        keys.install(SpaceId::Initial, initial);
        keys
    }

    fn long() -> Header<'static> {
        let (version, kind) = (KnownVersion::V1, LongKind::Initial { token: b"token" });
        let dcid = ConnectionId::new(b"8 bytes!").unwrap();
        Header::Long(LongHeader { version, kind, dcid, scid: ConnectionId::EMPTY, fixed_bit: true })
    }

    fn short() -> Header<'static> {
        let dcid = ConnectionId::EMPTY;
        Header::Short(ShortHeader { dcid, spin: false, key_phase: false, fixed_bit: true })
    }

    fn open<'d, 'b>(
        datagram: &'d mut Writer<'b>,
        header: &Header<'_>,
        id: SpaceId,
        padding: Padding,
    ) -> PacketBuilder<'d, 'b> {
        PacketBuilder::open(
            datagram,
            header,
            TxNumber { space: id, number: 7, acked: None },
            padding,
        )
        .unwrap()
    }

    /// Writes PING frames.
    fn write(packet: &mut PacketBuilder<'_, '_>, count: usize) {
        let mut room = packet.payload().unwrap();
        room.bytes(&vec![1; count]).unwrap();
        packet.wrote(count, count > 0).unwrap();
    }

    /// Opens the packets of a datagram as a server does. Returns the number and payload of each.
    fn read(datagram: &mut [u8]) -> Vec<(u64, Vec<u8>)> {
        let server = keys(Side::Server);
        let options = ParseOptions { dcid_len: 8, greased_fixed_bit: false };
        let (mut opened, mut at) = (Vec::new(), 0);
        while at < datagram.len() {
            let mut packets = Datagram::new(&datagram[at..], options);
            let Some(Ok(Packet::Long(packet))) = packets.next() else { panic!("a long header") };
            assert!(matches!(packet.kind(), LongKind::Initial { token: b"token" }));
            let (protected, end) = (packet.protected(), datagram.len() - packets.rest().len());
            let bytes = &mut datagram[at..end];
            let key = server.remote_header(PacketType::Initial).unwrap();
            let mask = header_mask(key, protected.sample(bytes).unwrap()).unwrap();
            let header = protected.remove(bytes, &mask).unwrap();
            let number = header.packet_number().restore(None).unwrap().get();
            let (head, body) = bytes.split_at_mut(header.header_len());
            let key = server.remote_packet(PacketType::Initial).unwrap();
            opened.push((number, key.decrypt_in_place(number, head, body).unwrap().to_vec()));
            at = end;
        }
        opened
    }

    #[test]
    fn packet_coalesced_is_opened_by_the_peer() {
        let mut client = keys(Side::Client);
        let mut buffer = [0; 1200];
        let mut datagram = Writer::new(&mut buffer);
        for (number, padding) in [(7, Padding::NONE), (300, Padding::to(1000))] {
            let (id, header) = (SpaceId::Initial, long());
            let packet = PacketBuilder::open(
                &mut datagram,
                &header,
                TxNumber { space: id, number, acked: None },
                padding,
            );
            let mut packet = packet.unwrap();
            write(&mut packet, 20);
            packet.pad(packet.padding_wanted()).unwrap();
            let mut packet = packet.finish().unwrap();
            assert_eq!(packet.number(), number);
            packet.protect(&mut client).unwrap();
        }
        assert_eq!(datagram.position(), 1000, "the second packet fills the datagram");
        let opened = read(datagram.written_mut());
        let numbers: Vec<u64> = opened.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [7, 300]);
        assert_eq!(opened[0].1, [1; 20]);
        assert_eq!(opened[1].1[..20], [1; 20]);
        assert!(opened[1].1[20..].iter().all(|byte| *byte == 0), "PADDING");
    }

    #[test]
    fn packet_has_room_for_the_tag() {
        let mut client = keys(Side::Client);
        let mut buffer = [0; 100];
        let mut datagram = Writer::new(&mut buffer);
        let mut packet = open(&mut datagram, &long(), SpaceId::Initial, Padding::to(1200));
        let room = packet.room().unwrap();
        assert_eq!(packet.payload().unwrap().remaining(), room);
        write(&mut packet, room);
        assert_eq!((packet.room(), packet.payload().unwrap().remaining()), (Some(0), 0));
        packet.pad(1000).unwrap();
        let mut packet = packet.finish().unwrap();
        assert_eq!(packet.size(), 100);
        packet.protect(&mut client).unwrap();
        assert_eq!(read(&mut buffer)[0].1, vec![1; room]);
    }

    #[test]
    fn packet_without_room_is_not_begun() {
        for size in 0..60 {
            let mut buffer = [0; 60];
            let mut datagram = Writer::new(&mut buffer[..size]);
            let acked = Some(5);
            let packet = PacketBuilder::open(
                &mut datagram,
                &long(),
                TxNumber { space: SpaceId::Initial, number: 7, acked },
                Padding::NONE,
            );
            let finished = packet.and_then(|mut packet| {
                packet.payload()?;
                packet.pad(packet.padding_wanted())?;
                packet.finish()
            });
            // First byte, version, two IDs with their lengths, token, Length. The number, payload
            // and tag take 20 bytes.
            let least = 1 + 4 + 9 + 1 + 6 + 2 + 20;
            assert_eq!(finished.map(|packet| packet.size()), (size >= least).then_some(least));
        }
    }

    #[test]
    fn packet_is_padded_for_its_header_protection_sample() {
        // A packet number of one byte, the frames and the tag must have at least 20 bytes.
        for frames in 0..6 {
            let mut buffer = [0; 100];
            let mut datagram = Writer::new(&mut buffer);
            let mut packet = open(&mut datagram, &short(), SpaceId::DATA, Padding::NONE);
            write(&mut packet, frames);
            let needed = 3_usize.saturating_sub(frames);
            assert_eq!(packet.padding_wanted(), needed);
            packet.pad(0).unwrap();
            let packet = packet.finish().unwrap();
            assert_eq!(packet.size(), 2 + frames.max(3) + TAG_LEN);
            assert_eq!((packet.is_eliciting(), packet.is_in_flight()), (frames > 0, frames > 0));
        }
    }

    #[test]
    fn packet_that_is_padded_counts_as_in_flight() {
        for (padding, more) in [(Padding::NONE, 1), (Padding::to(50), 0)] {
            let mut buffer = [0; 1200];
            let mut datagram = Writer::new(&mut buffer);
            let mut packet = open(&mut datagram, &short(), SpaceId::DATA, padding);
            packet.pad(packet.padding_wanted() + more).unwrap();
            let packet = packet.finish().unwrap();
            assert!(!packet.is_eliciting() && packet.is_in_flight());
        }
    }

    #[test]
    fn packet_last_one_fills_the_datagram() {
        for (frames, size) in [(100, 140), (1000, 1040), (1100, 1200), (1160, 1200)] {
            let mut buffer = [0; 1200];
            let mut datagram = Writer::new(&mut buffer);
            let mut packet = open(&mut datagram, &long(), SpaceId::Initial, Padding::if_last(1200));
            write(&mut packet, frames);
            packet.pad(packet.padding_wanted()).unwrap();
            assert_eq!(packet.finish().unwrap().size(), size, "{frames} bytes of frames");
            assert_eq!(PacketBuilder::has_room(&datagram), size < 1200, "{frames}");
        }
    }

    #[test]
    fn packet_without_keys_is_not_protected() {
        let mut client = keys(Side::Client);
        let mut buffer = [0; 1200];
        let mut datagram = Writer::new(&mut buffer);
        let mut packet = open(&mut datagram, &long(), SpaceId::Handshake, Padding::NONE);
        write(&mut packet, 20);
        let mut packet = packet.finish().unwrap();
        assert!(packet.protect(&mut client).is_none());
    }
}
