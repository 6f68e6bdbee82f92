//! From a UDP payload to the packets coalesced in it (RFC 9000 s.12.2).

use super::protection::{HeaderForm, MIN_PROTECTED_LEN, Protected, SAMPLE_OFFSET};
use super::{
    FIXED_BIT, LongInvariant, LongPacketType, PacketError, PacketType, Retry, VersionNegotiation,
};
use crate::cursor::Reader;
use crate::id::ConnectionId;
use crate::version::{KnownVersion, Version};

/// Facts needed for parsing that the bytes themselves do not carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Length in bytes of the connection IDs that this endpoint gave out: a short header carries
    /// no length.
    pub dcid_len: usize,
    /// Take packets with a zero Fixed Bit: this endpoint sent grease_quic_bit (RFC 9287 s.3).
    pub greased_fixed_bit: bool,
}

/// The packets of a UDP payload, in order. Ends with the first whose extent cannot be told; a packet
/// that is merely not worth opening is an error, and the next one follows.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    rest: &'a [u8],
    options: ParseOptions,
    #[cfg(feature = "null-crypto")]
    null_crypto: bool,
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// An Initial, 0-RTT or Handshake packet of a known version.
    Long(LongPacket<'a>),
    /// A 1-RTT packet (or a stateless reset, which looks like one).
    Short(ShortPacket<'a>),
    /// A Retry packet of a known version.
    Retry(Retry<'a>),
    /// A Version Negotiation packet.
    VersionNegotiation(VersionNegotiation<'a>),
    /// A long header of another version, with everything behind it.
    UnknownVersion(LongInvariant<'a>),
}

/// The types of long header packets that carry frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongKind<'a> {
    /// With the token of a Retry packet or NEW_TOKEN frame, or an empty one.
    Initial {
        /// Token as the server gave it.
        token: &'a [u8],
    },
    /// Early data.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
}

/// A long header packet under protection. It is long enough for a header protection sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongPacket<'a> {
    version: KnownVersion,
    kind: LongKind<'a>,
    dcid: ConnectionId,
    scid: ConnectionId,
    bytes: &'a [u8],
    pn_offset: usize,
}

/// A short header packet under protection. It is long enough for a header protection sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortPacket<'a> {
    dcid: ConnectionId,
    bytes: &'a [u8],
    pn_offset: usize,
}

impl LongKind<'_> {
    /// The type's name in the header.
    pub const fn long_type(&self) -> LongPacketType {
        match self {
            LongKind::Initial { .. } => LongPacketType::Initial,
            LongKind::ZeroRtt => LongPacketType::ZeroRtt,
            LongKind::Handshake => LongPacketType::Handshake,
        }
    }

    /// The type for the frames in it.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            LongKind::Initial { .. } => PacketType::Initial,
            LongKind::ZeroRtt => PacketType::ZeroRtt,
            LongKind::Handshake => PacketType::Handshake,
        }
    }
}

impl<'a> LongPacket<'a> {
    /// Version whose keys protect the packet.
    pub const fn version(&self) -> KnownVersion {
        self.version
    }

    /// Its type, with the token of an Initial.
    pub const fn kind(&self) -> LongKind<'a> {
        self.kind
    }

    /// Destination Connection ID.
    pub const fn dcid(&self) -> ConnectionId {
        self.dcid
    }

    /// Source Connection ID.
    pub const fn scid(&self) -> ConnectionId {
        self.scid
    }

    /// The packet from its first byte to its end by the Length field.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Part of the packet from which header protection is to be removed.
    pub const fn protected(&self) -> Protected {
        Protected::new(HeaderForm::Long, self.pn_offset)
    }
}

impl<'a> ShortPacket<'a> {
    /// Reads `bytes`, of which the first says that the header is short ([`LongInvariant::is_long`] of it is false). The
    /// packet takes them all.
    ///
    /// # Errors
    /// The packet is to be dropped.
    #[inline]
    pub fn parse(bytes: &'a [u8], options: ParseOptions) -> Result<Self, PacketError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8()?;
        // RFC 9000 s.17.3.1
        if first & FIXED_BIT == 0 && !options.greased_fixed_bit {
            return Err(PacketError::FixedBit);
        }
        let dcid = ConnectionId::new(reader.bytes(options.dcid_len)?)?;
        if reader.len() < MIN_PROTECTED_LEN {
            return Err(PacketError::TooShortToSample);
        }
        let pn_offset = bytes.len().saturating_sub(reader.len());
        Ok(ShortPacket { dcid, bytes, pn_offset })
    }

    /// Destination Connection ID.
    pub const fn dcid(&self) -> ConnectionId {
        self.dcid
    }

    /// The packet: all that was left of the datagram.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Part of the packet from which header protection is to be removed.
    pub const fn protected(&self) -> Protected {
        Protected::new(HeaderForm::Short, self.pn_offset)
    }

    /// The last 16 bytes: what a stateless reset would have for a token (RFC 9000 s.10.3).
    pub fn reset_token(&self) -> Option<&'a [u8; 16]> {
        self.bytes.last_chunk()
    }
}

impl<'a> Datagram<'a> {
    /// Reads `payload`, the content of one UDP datagram.
    pub const fn new(payload: &'a [u8], options: ParseOptions) -> Self {
        Datagram {
            rest: payload,
            options,
            #[cfg(feature = "null-crypto")]
            null_crypto: false,
        }
    }

    /// Takes packets of this version apart, too; those of 1 and 2 are in any case.
    #[must_use]
    pub const fn including(self, version: KnownVersion) -> Self {
        match version {
            #[cfg(feature = "null-crypto")]
            KnownVersion::NullCrypto => Datagram { null_crypto: true, ..self },
            _ => self,
        }
    }

    fn known(&self, version: Version) -> Option<KnownVersion> {
        #[cfg(feature = "null-crypto")]
        if self.null_crypto && version == Version::NULL_CRYPTO {
            return Some(KnownVersion::NullCrypto);
        }
        version.known()
    }

    /// Bytes of the datagram not taken apart yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn parse_short(&mut self) -> Result<Packet<'a>, PacketError> {
        let bytes = core::mem::take(&mut self.rest);
        ShortPacket::parse(bytes, self.options).map(Packet::Short)
    }

    fn parse_long(&mut self) -> Result<Packet<'a>, PacketError> {
        let bytes = core::mem::take(&mut self.rest);
        let header = LongInvariant::parse(bytes)?;
        if header.version == Version::NEGOTIATION {
            return VersionNegotiation::parse(&header).map(Packet::VersionNegotiation);
        }
        let Some(version) = self.known(header.version) else {
            return Ok(Packet::UnknownVersion(header));
        };
        // RFC 9000 s.17.2
        if header.first_byte & FIXED_BIT == 0 && !self.options.greased_fixed_bit {
            return Err(PacketError::FixedBit);
        }
        let dcid = ConnectionId::new(header.dcid)?;
        let scid = ConnectionId::new(header.scid)?;
        let mut reader = Reader::new(header.rest);
        let kind = match LongPacketType::of_first_byte(version, header.first_byte) {
            LongPacketType::Initial => LongKind::Initial { token: reader.varint_bytes()? },
            LongPacketType::ZeroRtt => LongKind::ZeroRtt,
            LongPacketType::Handshake => LongKind::Handshake,
            LongPacketType::Retry => {
                return Retry::parse(version, dcid, scid, bytes, header.rest).map(Packet::Retry);
            }
        };
        let length = reader.varint()?.as_len();
        let pn_offset = bytes.len().saturating_sub(reader.len());
        reader.bytes(length)?;
        let end = pn_offset.saturating_add(length);
        let (bytes, rest) = bytes.split_at_checked(end).ok_or(PacketError::Truncated)?;
        self.rest = rest;
        // RFC 9001 s.5.4.2; what is coalesced behind it is still to be looked at.
        if length < MIN_PROTECTED_LEN {
            return Err(PacketError::TooShortToSample);
        }
        Ok(Packet::Long(LongPacket { version, kind, dcid, scid, bytes, pn_offset }))
    }
}

impl<'a> Iterator for Datagram<'a> {
    type Item = Result<Packet<'a>, PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = *self.rest.first()?;
        Some(if LongInvariant::is_long(first) { self.parse_long() } else { self.parse_short() })
    }
}

impl core::iter::FusedIterator for Datagram<'_> {}

const _: () = assert!(MIN_PROTECTED_LEN > SAMPLE_OFFSET);
