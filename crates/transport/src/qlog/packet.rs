//! Packets as a log sees them: without protection.

use equic_wire::frame::{Frame, Frames};
use equic_wire::packet::{Datagram, LongKind, Packet as WirePacket, PacketType, ParseOptions};
use equic_wire::{ConnectionId, Version};

/// A header without protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Type of the packet.
    pub packet_type: PacketType,
    /// The whole packet number.
    pub number: u64,
    /// In how many bytes it was sent.
    pub number_length: u8,
    /// Destination Connection ID.
    pub dcid: ConnectionId,
    /// Fields that only some forms of header have.
    pub form: Form<'a>,
}

/// Fields that depend on the form of a header (RFC 9000 s.17.2, s.17.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// Of Initial, 0-RTT and Handshake packets.
    Long {
        /// The version.
        version: Version,
        /// Source Connection ID.
        scid: ConnectionId,
        /// Bytes of packet number and protected payload.
        length: usize,
        /// Token of an Initial packet. Empty without a token.
        token: &'a [u8],
    },
    /// Of 1-RTT packets.
    Short {
        /// The spin bit.
        spin: bool,
        /// The Key Phase bit.
        key_phase: bool,
    },
}

impl<'a> Header<'a> {
    /// Reads the header of a packet without header protection. `packet` includes room for the tag. Returns `None` if
    /// the header is invalid.
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
                // The wire crate checks that the Length is the packet's rest: count from its end.
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

/// Bytes of a long header before its packet number.
fn header_len(
    dcid: ConnectionId,
    scid: ConnectionId,
    token: &[u8],
    packet_type: PacketType,
    packet: &[u8],
) -> usize {
    /// The first two bits of a variable-length integer say how long it is (RFC 9000 s.16).
    fn varint_len(first: Option<&u8>) -> usize {
        1 << (first.copied().unwrap_or(0) >> 6)
    }
    // First byte, version, and the IDs with their lengths.
    let mut at = 5 + 1 + dcid.len() + 1 + scid.len();
    if packet_type == PacketType::Initial {
        at += varint_len(packet.get(at)) + token.len();
    }
    at + varint_len(packet.get(at))
}

/// A packet that was sent or received.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Its header.
    pub header: Header<'a>,
    /// Its frames.
    pub payload: &'a [u8],
    /// Bytes on the wire, header and tag included.
    pub length: usize,
    /// Exponent of the packet's ACK Delay fields (RFC 9000 s.18.2).
    pub ack_delay_exponent: u8,
    /// The CRC32c of the datagram it came or went in.
    pub checksum: u32,
    /// It was sent to find out whether its size gets through.
    pub mtu_probe: bool,
}

impl<'a> Packet<'a> {
    /// Returns the frames up to the first malformed one. A frame of an unknown type is the last.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        Frames::new(self.payload).into_iter().flatten().map_while(Result::ok)
    }
}
