//! Classifies the QUIC packets at the start of a UDP payload (policy.md section 3).
//!
//! `equic_wire` parses headers and integers, and this module applies the policy to them. The frame
//! may contain only the beginning of the UDP payload.

use super::config::TakenVersions;
use equic_gateway::Reason;
use equic_wire::packet::{
    FIXED_BIT, LongInvariant, LongPacketType, MIN_INITIAL_DATAGRAM, MIN_PROTECTED_LEN,
};
use equic_wire::{KnownVersion, Reader, Version};

pub use equic_wire::ConnectionId;

const MIN_SHORT_PACKET: usize = 21; // RFC 9000 s.10.3
const MAX_FURTHER_PACKETS: usize = 3;

/// A UDP payload. If the packet is the first of several IP fragments, only the beginning of the
/// payload is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The available bytes. There are at most `length` of them.
    pub data: &'a [u8],
    /// The length of the whole payload in bytes, according to the UDP header.
    pub length: usize,
}

impl<'a> Payload<'a> {
    /// Returns a payload that is completely available.
    pub fn whole(data: &'a [u8]) -> Self {
        Payload { data, length: data.len() }
    }

    /// Returns the rest of the payload after its first `n` bytes, or `None` if fewer than `n` bytes
    /// are available.
    fn behind(self, n: usize) -> Option<Payload<'a>> {
        let length = self.length.checked_sub(n)?;
        Some(Payload { data: self.data.get(n..).unwrap_or(&[]), length })
    }
}

/// The settings of a service that the parser needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// If `true`, a packet with a zero Fixed Bit is malformed.
    pub require_fixed_bit: bool,
    /// Versions that the service accepts.
    pub versions: TakenVersions,
    /// If `true`, a packet of any other version is malformed, unless `version_negotiation` is set.
    pub refuse_unknown_versions: bool,
    /// If `true`, packets of other versions are answered with Version Negotiation.
    pub version_negotiation: bool,
    /// If `true`, Retry and Version Negotiation packets are well-formed.
    pub also_client: bool,
}

impl Rules {
    /// Returns the version, or `None` if the service does not accept it.
    fn taken(&self, version: Version) -> Option<KnownVersion> {
        version.known().filter(|version| match self.versions {
            TakenVersions::Both => true,
            TakenVersions::V1 => *version == KnownVersion::V1,
            TakenVersions::V2 => *version == KnownVersion::V2,
        })
    }
}

/// An Initial packet that may open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The version field of the header.
    pub version: Version,
    /// Destination Connection ID.
    pub dcid: ConnectionId,
    /// Source Connection ID.
    pub scid: ConnectionId,
    /// Offset of the Initial's token in the payload, in bytes.
    pub token_at: usize,
    /// Length of the token in bytes, or 0 without a token.
    pub token_len: usize,
}

/// The class of a well-formed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Short header.
    Short,
    /// Handshake packet, with its Destination Connection ID.
    Handshake(ConnectionId),
    /// 0-RTT packet, with its Source Connection ID.
    Early(ConnectionId),
    /// A Retry or Version Negotiation packet, which a server sends to a client.
    Other,
    /// Initial.
    Opening(Opening),
    /// A packet with a long header of an unknown version.
    UnknownVersion,
}

/// Classifies a UDP payload by its first packet and the packets that follow it in the same
/// datagram.
///
/// # Errors
/// If the datagram is malformed, returns the reason for which the gateway drops it.
pub fn classify(payload: Payload<'_>, rules: &Rules) -> Result<Class, Reason> {
    if payload.length == 0 {
        return Err(Reason::Empty);
    }
    let first_byte = *payload.data.first().ok_or(Reason::Truncated)?;
    let fixed_bit_missing = rules.require_fixed_bit && first_byte & FIXED_BIT == 0;
    if !LongInvariant::is_long(first_byte) {
        return if fixed_bit_missing {
            Err(Reason::FixedBit)
        } else if payload.length < MIN_SHORT_PACKET {
            Err(Reason::TinyShort)
        } else {
            Ok(Class::Short)
        };
    }
    let (header, behind) = long_header(payload).ok_or(Reason::Truncated)?;
    if header.version == Version::NEGOTIATION {
        return if rules.also_client { Ok(Class::Other) } else { Err(Reason::VersionNegotiation) };
    }
    let Some(version) = rules.taken(header.version) else {
        return if rules.refuse_unknown_versions && !rules.version_negotiation {
            Err(Reason::UnknownVersion)
        } else if payload.length < MIN_INITIAL_DATAGRAM {
            Err(Reason::SmallVersion)
        } else {
            Ok(Class::UnknownVersion)
        };
    };
    if fixed_bit_missing {
        return Err(Reason::FixedBit);
    }
    let small = payload.length < MIN_INITIAL_DATAGRAM;
    let packet = parse_known(version, &header, behind, small)?;
    if packet.length.is_some_and(|length| length < MIN_PROTECTED_LEN) {
        return Err(Reason::BadLength);
    }
    match packet.kind {
        Kind::Initial(token) => Ok(Class::Opening(opening(&header, token.in_a(payload.length)))),
        Kind::Retry if rules.also_client => Ok(Class::Other),
        Kind::Retry => Err(Reason::Retry),
        Kind::Other => Ok(match coalesced(packet.behind, payload.length)? {
            Some(opening) => Class::Opening(opening),
            None if is_handshake(version, header.first_byte) => {
                Class::Handshake(ConnectionId::cut(header.dcid))
            }
            None => Class::Early(ConnectionId::cut(header.scid)),
        }),
    }
}

fn is_handshake(version: KnownVersion, first_byte: u8) -> bool {
    matches!(LongPacketType::of_first_byte(version, first_byte), LongPacketType::Handshake)
}

/// Searches for an Initial packet that follows a 0-RTT or Handshake packet in the same datagram
/// (RFC 9000 s.12.2).
///
/// # Errors
/// Fails if no client sends such a datagram, because it has too many packets or one of them has an
/// unknown version.
fn coalesced(mut behind: Payload<'_>, datagram_len: usize) -> Result<Option<Opening>, Reason> {
    if datagram_len < MIN_INITIAL_DATAGRAM {
        return Ok(None);
    }
    for further in 0..=MAX_FURTHER_PACKETS {
        let Some((header, rest)) = long_header(behind) else { break };
        if !LongInvariant::is_long(header.first_byte) {
            break;
        }
        let Some(version) = header.version.known().filter(|_| further < MAX_FURTHER_PACKETS) else {
            return Err(Reason::Coalesced);
        };
        let Ok(packet) = parse_lengths(version, &header, rest) else { break };
        let Some(length) = packet.length else { break };
        match packet.kind {
            Kind::Initial(token) if length >= MIN_PROTECTED_LEN && !has_long_id(&header) => {
                return Ok(Some(opening(&header, token.in_a(datagram_len))));
            }
            // A receiver discards an Initial packet that is too short or has a long connection ID,
            // and continues with the next packet.
            Kind::Initial(_) | Kind::Other | Kind::Retry => behind = packet.behind,
        }
    }
    Ok(None)
}

fn has_long_id(header: &LongInvariant<'_>) -> bool {
    ConnectionId::new(header.dcid).is_err() || ConnectionId::new(header.scid).is_err()
}

#[derive(Clone, Copy)]
enum Kind {
    Initial(Token),
    Other,
    Retry,
}

/// Position of a token: its length, and the number of bytes from the token's first byte to the end
/// of the datagram.
#[derive(Clone, Copy)]
struct Token {
    length: usize,
    and_behind: usize,
}

impl Token {
    /// Returns the token's offset and length in a datagram of this length.
    fn in_a(self, datagram_len: usize) -> (usize, usize) {
        (datagram_len - self.and_behind, self.length)
    }
}

/// A packet of version 1 or 2 with a long header, and the rest of the datagram.
struct Packet<'a> {
    kind: Kind,
    /// The value of the Length field, or `None` for a Retry packet, which has no such field.
    length: Option<usize>,
    behind: Payload<'a>,
}

/// Returns the version-independent part of a long header and the payload after it, or `None` if the
/// header is truncated.
fn long_header(payload: Payload<'_>) -> Option<(LongInvariant<'_>, Payload<'_>)> {
    let header = LongInvariant::parse(payload.data).ok()?;
    let behind = payload.behind(payload.data.len() - header.rest.len())?;
    Some((header, behind))
}

fn opening(header: &LongInvariant<'_>, (token_at, token_len): (usize, usize)) -> Opening {
    Opening {
        version: header.version,
        dcid: ConnectionId::cut(header.dcid),
        scid: ConnectionId::cut(header.scid),
        token_at,
        token_len,
    }
}

/// Applies rules 5 to 9 of policy.md section 3, except for the check of a minimum Length. Accepts
/// Retry packets, so the caller must reject them.
fn parse_known<'a>(
    version: KnownVersion,
    header: &LongInvariant<'a>,
    behind: Payload<'a>,
    datagram_is_small: bool,
) -> Result<Packet<'a>, Reason> {
    if has_long_id(header) {
        return Err(Reason::LongCid);
    }
    let kind = LongPacketType::of_first_byte(version, header.first_byte);
    if kind == LongPacketType::Initial && datagram_is_small {
        return Err(Reason::SmallInitial);
    }
    parse_lengths(version, header, behind)
}

/// Parses the Token and Length fields.
fn parse_lengths<'a>(
    version: KnownVersion,
    header: &LongInvariant<'a>,
    behind: Payload<'a>,
) -> Result<Packet<'a>, Reason> {
    let (kind, behind) = match LongPacketType::of_first_byte(version, header.first_byte) {
        LongPacketType::Initial => {
            let (token_len, token) = varint(behind).ok_or(Reason::Truncated)?;
            let behind = token.behind(token_len).ok_or(Reason::BadLength)?;
            let place = Token { length: token_len, and_behind: token.length };
            (Kind::Initial(place), behind)
        }
        LongPacketType::Retry => return Ok(Packet { kind: Kind::Retry, length: None, behind }),
        LongPacketType::ZeroRtt | LongPacketType::Handshake => (Kind::Other, behind),
    };
    let (length, protected) = varint(behind).ok_or(Reason::Truncated)?;
    let behind = protected.behind(length).ok_or(Reason::BadLength)?;
    Ok(Packet { kind, length: Some(length), behind })
}

/// Reads a variable-length integer (RFC 9000 s.16). Returns it as a length with the payload after
/// it, or `None` if the available bytes end inside the integer.
fn varint(payload: Payload<'_>) -> Option<(usize, Payload<'_>)> {
    let mut reader = Reader::new(payload.data);
    let length = reader.varint().ok()?.as_len();
    Some((length, payload.behind(payload.data.len() - reader.len())?))
}
