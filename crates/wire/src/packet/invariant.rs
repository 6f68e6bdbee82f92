//! Header fields that every version of QUIC has (RFC 8999).

use super::HEADER_FORM;
use crate::cursor::{Reader, UnexpectedEnd};
use crate::version::Version;

/// The version-independent part of a long header (RFC 8999 s.5.1). Its connection IDs may be up to
/// 255 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongInvariant<'a> {
    /// The first byte. Its highest bit is set, and the version defines the other bits.
    pub first_byte: u8,
    /// The version field. 0 marks a Version Negotiation packet.
    pub version: Version,
    /// Destination Connection ID.
    pub dcid: &'a [u8],
    /// Source Connection ID.
    pub scid: &'a [u8],
    /// All bytes after the Source Connection ID.
    pub rest: &'a [u8],
}

impl<'a> LongInvariant<'a> {
    /// Returns `true` if a packet with this first byte has a long header.
    pub const fn is_long(first_byte: u8) -> bool {
        first_byte & HEADER_FORM != 0
    }

    /// Parses a long header. Does not check the Header Form bit.
    ///
    /// # Errors
    /// Fails if the bytes end inside the header.
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<Self, UnexpectedEnd> {
        let mut reader = Reader::new(packet);
        let first_byte = reader.u8()?;
        let version = Version(reader.u32()?);
        let dcid_len = reader.u8()?;
        let dcid = reader.bytes(dcid_len.into())?;
        let scid_len = reader.u8()?;
        let scid = reader.bytes(scid_len.into())?;
        Ok(LongInvariant { first_byte, version, dcid, scid, rest: reader.rest() })
    }
}
