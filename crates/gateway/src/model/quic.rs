//! What kind of QUIC packet a UDP payload starts with (policy.md section 3).

use crate::reason::Reason;

const VERSION_1: u32 = 1; // RFC 9000 s.15
const VERSION_2: u32 = 0x6b33_43cf; // RFC 9369 s.3.1
const MIN_OPENING_DATAGRAM: usize = 1200; // RFC 9000 s.14.1
const MIN_SHORT_PACKET: usize = 21; // RFC 9000 s.10.3
const MIN_LONG_HEADER: usize = 7;
const MIN_PROTECTED: u64 = 20; // packet number and sample, RFC 9001 s.5.4.2
const MAX_FURTHER_PACKETS: usize = 3;
const MAX_CID: usize = 20; // RFC 9000 s.17.2

/// A UDP payload, of which the frame may hold only the beginning (a first IP fragment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The bytes at hand, never more than `length`.
    pub data: &'a [u8],
    /// The length by the UDP header, in bytes.
    pub length: usize,
}

impl<'a> Payload<'a> {
    /// A payload that is there in full.
    pub fn whole(data: &'a [u8]) -> Self {
        Payload { data, length: data.len() }
    }

    /// What comes behind the first `n` bytes; `None` if the payload is shorter.
    fn behind(self, n: usize) -> Option<Payload<'a>> {
        let length = self.length.checked_sub(n)?;
        Some(Payload { data: self.data.get(n..).unwrap_or(&[]), length })
    }
}

/// A connection ID as the handshake table keeps it: at most 20 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    len: u8,
    bytes: [u8; MAX_CID],
}

impl ConnectionId {
    /// The connection ID, cut to its first 20 bytes.
    pub fn new(id: &[u8]) -> Self {
        let mut bytes = [0; MAX_CID];
        let len = id.len().min(MAX_CID);
        bytes[..len].copy_from_slice(&id[..len]);
        ConnectionId { len: len as u8, bytes }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(MAX_CID)]
    }
}

/// What a service tells the parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A zero Fixed Bit is malformed.
    pub require_fixed_bit: bool,
    /// So is a version other than 1 and 2.
    pub refuse_unknown_versions: bool,
    /// Retry and Version Negotiation are not.
    pub also_client: bool,
}

/// What may open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The version field.
    pub version: u32,
    /// Destination Connection ID.
    pub dcid: ConnectionId,
    /// Source Connection ID.
    pub scid: ConnectionId,
    /// It is a version 1 or 2 Initial with a token.
    pub has_token: bool,
}

impl Opening {
    /// Whether this is an Initial, and not a long header of an unknown version.
    pub fn is_initial(&self) -> bool {
        is_known(self.version)
    }
}

/// The class of a well-formed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Short header.
    Short,
    /// Handshake or 0-RTT; a client's Retry or Version Negotiation.
    Other,
    /// Initial, or any long header of an unknown version.
    Opening(Opening),
}

/// Classifies a UDP payload by its first packet, and by the ones coalesced with it.
///
/// # Errors
/// The reason for which a malformed datagram is dropped.
pub fn classify(payload: Payload<'_>, rules: &Rules) -> Result<Class, Reason> {
    if payload.length == 0 {
        return Err(Reason::Empty);
    }
    let first_byte = *payload.data.first().ok_or(Reason::Truncated)?;
    let fixed_bit_missing = rules.require_fixed_bit && first_byte & 0x40 == 0;
    if first_byte & 0x80 == 0 {
        return if fixed_bit_missing {
            Err(Reason::FixedBit)
        } else if payload.length < MIN_SHORT_PACKET {
            Err(Reason::TinyShort)
        } else {
            Ok(Class::Short)
        };
    }
    let header = Invariant::parse(payload).ok_or(Reason::Truncated)?;
    if header.version == 0 {
        return if rules.also_client { Ok(Class::Other) } else { Err(Reason::VersionNegotiation) };
    }
    if !is_known(header.version) {
        return if rules.refuse_unknown_versions {
            Err(Reason::UnknownVersion)
        } else if payload.length < MIN_OPENING_DATAGRAM {
            Err(Reason::SmallVersion)
        } else {
            Ok(Class::Opening(header.opening(false)))
        };
    }
    if fixed_bit_missing {
        return Err(Reason::FixedBit);
    }
    let packet = header.parse_known(payload.length < MIN_OPENING_DATAGRAM)?;
    match packet.kind {
        Kind::Initial { has_token } => Ok(Class::Opening(header.opening(has_token))),
        Kind::Retry if rules.also_client => Ok(Class::Other),
        Kind::Retry => Err(Reason::Retry),
        Kind::Other => Ok(coalesced(&header, &packet, payload.length)),
    }
}

/// Looks for an Initial behind a 0-RTT or Handshake packet (RFC 9000 s.12.2).
fn coalesced(first: &Invariant<'_>, packet: &Packet<'_>, datagram_len: usize) -> Class {
    if datagram_len < MIN_OPENING_DATAGRAM {
        return Class::Other;
    }
    let mut behind = packet.behind;
    for _ in 0..MAX_FURTHER_PACKETS {
        let Some(header) = Invariant::parse(behind) else { break };
        if header.first_byte & 0x80 == 0 || header.version != first.version {
            break;
        }
        match header.parse_known(false) {
            Ok(Packet { kind: Kind::Initial { has_token }, .. }) => {
                return Class::Opening(header.opening(has_token));
            }
            Ok(Packet { kind: Kind::Other, behind: next }) => behind = next,
            Ok(Packet { kind: Kind::Retry, .. }) | Err(_) => break,
        }
    }
    Class::Other
}

fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_2)
}

/// The version-independent part of a long header (RFC 8999 s.5.1).
struct Invariant<'a> {
    first_byte: u8,
    version: u32,
    dcid: &'a [u8],
    scid: &'a [u8],
    behind: Payload<'a>,
}

#[derive(Clone, Copy)]
enum Kind {
    Initial { has_token: bool },
    Other,
    Retry,
}

/// A long-header packet of version 1 or 2, and what comes behind it in the datagram.
struct Packet<'a> {
    kind: Kind,
    behind: Payload<'a>,
}

impl<'a> Invariant<'a> {
    /// `None` if it runs past the end.
    fn parse(payload: Payload<'a>) -> Option<Self> {
        if payload.data.len() < MIN_LONG_HEADER {
            return None;
        }
        let mut cursor = Cursor(payload);
        let first_byte = cursor.u8()?;
        let version = u32::from_be_bytes(cursor.take(4)?.try_into().ok()?);
        let dcid_len = cursor.u8()?;
        let dcid = cursor.take(usize::from(dcid_len))?;
        let scid_len = cursor.u8()?;
        let scid = cursor.take(usize::from(scid_len))?;
        Some(Invariant { first_byte, version, dcid, scid, behind: cursor.0 })
    }

    fn opening(&self, has_token: bool) -> Opening {
        Opening {
            version: self.version,
            dcid: ConnectionId::new(self.dcid),
            scid: ConnectionId::new(self.scid),
            has_token,
        }
    }

    /// Rules 5 to 9 of policy.md section 3; a Retry is for the caller to refuse.
    fn parse_known(&self, datagram_is_small: bool) -> Result<Packet<'a>, Reason> {
        if self.dcid.len() > MAX_CID || self.scid.len() > MAX_CID {
            return Err(Reason::LongCid);
        }
        // RFC 9000 s.17.2, RFC 9369 s.3.2: version 2 numbers the types one further.
        let kind_bits = (self.first_byte >> 4) & 3;
        let kind = if self.version == VERSION_2 { (kind_bits + 3) & 3 } else { kind_bits };
        let mut cursor = Cursor(self.behind);
        let kind = match kind {
            0 => {
                if datagram_is_small {
                    return Err(Reason::SmallInitial);
                }
                let token_len = cursor.varint().ok_or(Reason::Truncated)?;
                cursor.skip(token_len).ok_or(Reason::BadLength)?;
                Kind::Initial { has_token: token_len > 0 }
            }
            3 => return Ok(Packet { kind: Kind::Retry, behind: cursor.0 }),
            _ => Kind::Other,
        };
        let length = cursor.varint().ok_or(Reason::Truncated)?;
        if length < MIN_PROTECTED {
            return Err(Reason::BadLength);
        }
        cursor.skip(length).ok_or(Reason::BadLength)?;
        Ok(Packet { kind, behind: cursor.0 })
    }
}

/// Reads from the front of a payload.
struct Cursor<'a>(Payload<'a>);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.0.data.get(..n)?;
        self.0 = self.0.behind(n)?;
        Some(taken)
    }

    /// Passes over `n` bytes of the payload, whether the frame holds them or not.
    fn skip(&mut self, n: u64) -> Option<()> {
        self.0 = self.0.behind(usize::try_from(n).ok()?)?;
        Some(())
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// RFC 9000 s.16.
    fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let more = (1usize << (first >> 6)) - 1;
        let rest = self.take(more)?;
        Some(rest.iter().fold(u64::from(first & 0x3f), |value, b| value << 8 | u64::from(*b)))
    }
}
