//! Packets (RFC 9000 s.17, RFC 9369 s.3.2).
//!
//! [`Datagram`] splits a UDP payload into its packets. A protected packet ([`LongPacket`],
//! [`ShortPacket`]) gives access to the fields that are not protected. Its [`Protected`] header
//! becomes an [`Unprotected`] header, with the packet number, when the caller applies the mask that
//! it computes from the keys (RFC 9001 s.5.4). [`LongHeader`] and [`ShortHeader`] write packets.
//! If a packet has an unknown version, only its invariant fields are parsed ([`LongInvariant`], RFC
//! 8999).

mod datagram;
mod invariant;
mod protection;
mod retry;
mod version_negotiation;
mod write;

pub use datagram::{Datagram, LongKind, LongPacket, Packet, ParseOptions, ShortPacket};
pub use invariant::LongInvariant;
pub use protection::{
    HeaderForm, HeaderMask, MIN_PROTECTED_LEN, Protected, ReservedBitsSet, SAMPLE_LEN, Unprotected,
};
pub use retry::Retry;
pub use version_negotiation::{VersionNegotiation, Versions};
pub use write::{FinishError, FinishedPacket, LongHeader, OpenPacket, ShortHeader};

use crate::cursor::UnexpectedEnd;
use crate::id::ConnectionIdTooLong;
use crate::version::KnownVersion;
use core::fmt;

/// The Header Form bit: set in long headers (RFC 8999 s.5).
pub const HEADER_FORM: u8 = 0x80;
/// The Fixed Bit: set, unless an endpoint greases it (RFC 9000 s.17.2, RFC 9287).
pub const FIXED_BIT: u8 = 0x40;
/// The smallest UDP payload that may carry a client's Initial, in bytes (RFC 9000 s.14.1).
pub const MIN_INITIAL_DATAGRAM: usize = 1200;

/// The type of a long header packet of version 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LongPacketType {
    /// Initial packet, which carries the first messages of the handshake, in both directions.
    Initial,
    /// 0-RTT packet, which carries early data of the client.
    ZeroRtt,
    /// Handshake packet, which carries the rest of the handshake.
    Handshake,
    /// Retry packet, with which a server makes the client prove that it owns its address.
    Retry,
}

/// The type of a packet that carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketType {
    /// Long header.
    Initial,
    /// Long header.
    ZeroRtt,
    /// Long header.
    Handshake,
    /// Short header.
    OneRtt,
}

impl LongPacketType {
    /// Reads the packet type from the first byte of a long header (RFC 9000 s.17.2). Version 2
    /// assigns other numbers to the types (RFC 9369 s.3.2).
    pub const fn of_first_byte(version: KnownVersion, first: u8) -> Self {
        match (version, (first >> 4) & 3) {
            (KnownVersion::V2, 1) => LongPacketType::Initial,
            (KnownVersion::V2, 2) => LongPacketType::ZeroRtt,
            (KnownVersion::V2, 3) => LongPacketType::Handshake,
            (KnownVersion::V2, _) => LongPacketType::Retry,
            (_, 0) => LongPacketType::Initial,
            (_, 1) => LongPacketType::ZeroRtt,
            (_, 2) => LongPacketType::Handshake,
            (_, _) => LongPacketType::Retry,
        }
    }

    /// Returns the Long Packet Type bits, at their position in the first byte.
    pub const fn bits(self, version: KnownVersion) -> u8 {
        match (version, self) {
            (KnownVersion::V2, LongPacketType::Retry) => 0x00,
            (KnownVersion::V2, LongPacketType::Initial) => 0x10,
            (KnownVersion::V2, LongPacketType::ZeroRtt) => 0x20,
            (KnownVersion::V2, LongPacketType::Handshake) => 0x30,
            (_, LongPacketType::Initial) => 0x00,
            (_, LongPacketType::ZeroRtt) => 0x10,
            (_, LongPacketType::Handshake) => 0x20,
            (_, LongPacketType::Retry) => 0x30,
        }
    }
}

/// Reason for dropping a packet. Anyone can send such a packet, so an endpoint must not close a
/// connection because of it (RFC 9000 s.5.2, RFC 9001 s.9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The packet ends inside the header, or before the end that its Length field defines.
    Truncated,
    /// The Fixed Bit is zero, and this endpoint has not sent grease_quic_bit (RFC 9000 s.17.2).
    FixedBit,
    /// A connection ID is longer than 20 bytes (RFC 9000 s.17.2 #3 #6).
    ConnectionIdTooLong,
    /// The packet has no room for a packet number and a header protection sample (RFC 9001
    /// s.5.4.2).
    // RFC 9000 s.10.3 #6
    // RFC 9001 s.5.4.2 #1
    TooShortToSample,
    /// A Retry packet has no token (RFC 9000 s.17.2.5.2 #4).
    EmptyRetryToken,
    /// The list of a Version Negotiation packet ends inside a version.
    VersionList,
}

impl From<UnexpectedEnd> for PacketError {
    fn from(_: UnexpectedEnd) -> Self {
        PacketError::Truncated
    }
}

impl From<ConnectionIdTooLong> for PacketError {
    fn from(_: ConnectionIdTooLong) -> Self {
        PacketError::ConnectionIdTooLong
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketError::Truncated => "the packet ends too early",
            PacketError::FixedBit => "the Fixed Bit is zero",
            PacketError::ConnectionIdTooLong => "a connection ID is longer than 20 bytes",
            PacketError::TooShortToSample => {
                "the packet is too short for a header protection sample"
            }
            PacketError::EmptyRetryToken => "the Retry packet has no token",
            PacketError::VersionList => "the list of versions ends inside a version",
        })
    }
}

impl core::error::Error for PacketError {}
