//! Packets as a log records them, without protection.

use equic_wire::frame::{Frame, Frames};
use equic_wire::packet::{Datagram, LongKind, Packet as WirePacket, PacketType, ParseOptions};
use equic_wire::{ConnectionId, Version};

/// A packet header after header protection was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Type of the packet, for example Initial or 1-RTT.
    pub packet_type: PacketType,
    /// The full packet number, as decoded from the header.
    pub number: u64,
    /// Number of bytes that the packet number takes in the header.
    pub number_length: u8,
    /// Destination Connection ID of the packet.
    pub dcid: ConnectionId,
    /// Fields that only a long or only a short header has.
    pub form: Form<'a>,
}

/// Fields that depend on the form of a header (RFC 9000 s.17.2, s.17.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// The fields of a long header: Initial, 0-RTT and Handshake packets.
    Long {
        /// QUIC version of the packet.
        version: Version,
        /// Source Connection ID of the packet.
        scid: ConnectionId,
        /// Value of the header's Length field: length of the packet number and the protected
        /// payload, in bytes.
        length: usize,
        /// Token of an Initial packet. It is empty if the packet has no token.
        token: &'a [u8],
    },
    /// The fields of a short header: 1-RTT packets.
    Short {
        /// The spin bit.
        spin: bool,
        /// The Key Phase bit.
        key_phase: bool,
    },
}

impl<'a> Header<'a> {
    /// Reads the header of a packet after header protection was removed. `packet` includes the
    /// bytes for the AEAD tag. Returns `None` if the header is not valid.
    pub(crate) fn read(packet: &'a [u8], number: u64, dcid_len: usize) -> Option<Header<'a>> {
        let first = *packet.first()?;
        let number_length = (first & 3) + 1;
        let options = ParseOptions { dcid_len, greased_fixed_bit: true };
        let (packet_type, dcid, form) = match Datagram::new(packet, options).next()?.ok()? {
            WirePacket::Long(long) => {
                let (token, packet_type) = match long.kind() {
                    LongKind::Initial { token } => (token, PacketType::Initial),
                    LongKind::ZeroRtt => (&[][..], PacketType::ZeroRtt),
                    LongKind::Handshake => (&[][..], PacketType::Handshake),
                };
                let (version, scid) = (long.version().into(), long.scid());
                // The wire crate checks that the Length field covers the rest of the packet, so its
                // value follows from the end of the packet.
                let before = header_len(long.dcid(), scid, token, packet_type, packet);
                let length = packet.len().saturating_sub(before);
                (packet_type, long.dcid(), Form::Long { version, scid, length, token })
            }
            WirePacket::Short(short) => {
                let form = Form::Short { spin: first & 0x20 != 0, key_phase: first & 0x04 != 0 };
                (PacketType::OneRtt, short.dcid(), form)
            }
            _ => return None,
        };
        Some(Header { packet_type, number, number_length, dcid, form })
    }
}

/// Returns the length in bytes of the part of a long header that comes before the packet number.
fn header_len(
    dcid: ConnectionId,
    scid: ConnectionId,
    token: &[u8],
    packet_type: PacketType,
    packet: &[u8],
) -> usize {
    /// Returns the length of a variable-length integer in bytes. The first two bits of the integer
    /// encode it (RFC 9000 s.16).
    fn varint_len(first: Option<&u8>) -> usize {
        1 << (first.copied().unwrap_or(0) >> 6)
    }
    // The first byte and the version have five bytes. Then there are both connection IDs, each
    // after its length byte.
    let mut at = 5 + 1 + dcid.len() + 1 + scid.len();
    if packet_type == PacketType::Initial {
        at += varint_len(packet.get(at)) + token.len();
    }
    at + varint_len(packet.get(at))
}

/// A packet that was sent or received.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Header of the packet.
    pub header: Header<'a>,
    /// Payload of the packet after decryption. It contains the frames.
    pub payload: &'a [u8],
    /// Length of the protected packet in bytes, including header and tag.
    pub length: usize,
    /// Exponent of the packet's ACK Delay fields (RFC 9000 s.18.2).
    pub ack_delay_exponent: u8,
    /// CRC32c of the datagram that contains the packet.
    pub checksum: u32,
    /// True if the packet is a PMTU probe.
    pub mtu_probe: bool,
}

impl<'a> Packet<'a> {
    /// Returns the frames of the packet, up to the first malformed one. A frame with an unknown
    /// type ends the list, because its length is unknown.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        Frames::new(self.payload).into_iter().flatten().map_while(Result::ok)
    }
}
