//! Splits a UDP payload into the packets that are coalesced in it (RFC 9000 s.12.2).

use super::protection::{HeaderForm, MIN_PROTECTED_LEN, Protected, SAMPLE_OFFSET};
use super::{
    FIXED_BIT, LongInvariant, LongPacketType, PacketError, PacketType, Retry, VersionNegotiation,
};
use crate::cursor::Reader;
use crate::id::ConnectionId;
use crate::version::{KnownVersion, Version};

/// Information that the parser needs but that packets do not carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Length in bytes of the connection IDs that this endpoint has issued. A short header contains
    /// an ID, but not the ID's length.
    pub dcid_len: usize,
    /// Accepts packets with a zero Fixed Bit. Set it if this endpoint has sent grease_quic_bit (RFC
    /// 9287 s.3).
    pub greased_fixed_bit: bool,
}

/// An iterator over the packets of a UDP payload, in order. For an unusable packet whose length is
/// known, it returns an error and continues with the next packet. It ends after the first packet
/// whose length is unknown.
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
    /// A packet with a long header of an unknown version. It extends to the end of the UDP payload.
    UnknownVersion(LongInvariant<'a>),
}

/// The types of long header packets that carry frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongKind<'a> {
    /// An Initial packet, with its token.
    Initial {
        /// The token as the server issued it in a Retry packet or a NEW_TOKEN frame. It is empty if
        /// the client has none.
        token: &'a [u8],
    },
    /// Early data.
    ZeroRtt,
    /// A Handshake packet, which carries the rest of the handshake after the Initial packets.
    Handshake,
}

/// A protected long header packet. It is long enough for a header protection sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongPacket<'a> {
    version: KnownVersion,
    kind: LongKind<'a>,
    dcid: ConnectionId,
    scid: ConnectionId,
    bytes: &'a [u8],
    pn_offset: usize,
}

/// A protected short header packet. It is long enough for a header protection sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortPacket<'a> {
    dcid: ConnectionId,
    bytes: &'a [u8],
    pn_offset: usize,
}

impl LongKind<'_> {
    /// The Long Packet Type of the packet.
    pub const fn long_type(&self) -> LongPacketType {
        match self {
            LongKind::Initial { .. } => LongPacketType::Initial,
            LongKind::ZeroRtt => LongPacketType::ZeroRtt,
            LongKind::Handshake => LongPacketType::Handshake,
        }
    }

    /// The packet type, which decides which frames are permitted in the packet.
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

    /// The packet type, and the token of an Initial packet.
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

    /// The bytes of the packet, from its first byte to the end that its Length field defines.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header, from which the caller must remove header protection.
    pub const fn protected(&self) -> Protected {
        Protected::new(HeaderForm::Long, self.pn_offset)
    }
}

impl<'a> ShortPacket<'a> {
    /// Parses a packet with a short header. The caller must have checked that
    /// [`LongInvariant::is_long`] is false for the first byte. The packet extends to the end of
    /// `bytes`.
    ///
    /// # Errors
    /// Fails if the packet must be dropped.
    #[inline]
    pub fn parse(bytes: &'a [u8], options: ParseOptions) -> Result<Self, PacketError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8()?;
        // RFC 9000 s.17.3.1 #1
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

    /// The bytes of the packet: everything up to the end of the datagram.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header, from which the caller must remove header protection.
    pub const fn protected(&self) -> Protected {
        Protected::new(HeaderForm::Short, self.pn_offset)
    }

    /// The last 16 bytes of the packet. If it is a stateless reset, they are the token (RFC 9000
    /// s.10.3).
    pub fn reset_token(&self) -> Option<&'a [u8; 16]> {
        self.bytes.last_chunk()
    }
}

impl<'a> Datagram<'a> {
    /// Creates an iterator over the packets in `payload`, the content of one UDP datagram.
    pub const fn new(payload: &'a [u8], options: ParseOptions) -> Self {
        Datagram {
            rest: payload,
            options,
            #[cfg(feature = "null-crypto")]
            null_crypto: false,
        }
    }

    /// Also parses packets of this version. Versions 1 and 2 are always parsed.
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

    /// The bytes of the datagram that have not been parsed yet.
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
        // RFC 9000 s.17.2 #1
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
        // RFC 9001 s.5.4.2: a packet without room for a sample is dropped. The packets that follow
        // it in the datagram are still parsed.
        if length < MIN_PROTECTED_LEN {
            return Err(PacketError::TooShortToSample);
        }
        Ok(Packet::Long(LongPacket { version, kind, dcid, scid, bytes, pn_offset }))
    }
}

// RFC 9000 s.12.2 #1
impl<'a> Iterator for Datagram<'a> {
    type Item = Result<Packet<'a>, PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = *self.rest.first()?;
        Some(if LongInvariant::is_long(first) { self.parse_long() } else { self.parse_short() })
    }
}

impl core::iter::FusedIterator for Datagram<'_> {}

const _: () = assert!(MIN_PROTECTED_LEN > SAMPLE_OFFSET);
