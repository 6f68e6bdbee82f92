//! Version Negotiation packets (RFC 8999 s.6, RFC 9000 s.17.2.1).

use super::{HEADER_FORM, LongInvariant, PacketError};
use crate::cursor::{BufferFull, Writer};
use crate::version::Version;

/// A Version Negotiation packet. Its connection IDs may be up to 255 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionNegotiation<'a> {
    dcid: &'a [u8],
    scid: &'a [u8],
    versions: Versions<'a>,
}

/// A list of versions, four bytes each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Versions<'a> {
    bytes: &'a [u8],
}

impl<'a> Versions<'a> {
    /// Creates a list from its encoding. Returns `None` if the bytes end inside a version.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        match bytes.as_chunks::<4>() {
            (_, []) => Some(Versions { bytes }),
            _ => None,
        }
    }

    /// The encoded versions, as on the wire.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The versions in the sender's order.
    pub fn iter(&self) -> impl Iterator<Item = Version> + use<'a> {
        let (versions, _) = self.bytes.as_chunks::<4>();
        versions.iter().map(|version| Version(u32::from_be_bytes(*version)))
    }

    /// True if `version` is in the list.
    pub fn contains(&self, version: Version) -> bool {
        self.iter().any(|listed| listed == version)
    }
}

impl core::fmt::Debug for Versions<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> VersionNegotiation<'a> {
    // RFC 9000 s.17.2.1 #1
    pub(super) fn parse(header: &LongInvariant<'a>) -> Result<Self, PacketError> {
        let versions = Versions::new(header.rest).ok_or(PacketError::VersionList)?;
        Ok(VersionNegotiation { dcid: header.dcid, scid: header.scid, versions })
    }

    /// Destination Connection ID: the Source Connection ID of the client's packet.
    pub const fn dcid(&self) -> &'a [u8] {
        self.dcid
    }

    /// Source Connection ID: the Destination Connection ID of the client's packet.
    pub const fn scid(&self) -> &'a [u8] {
        self.scid
    }

    /// Versions that the server supports.
    pub const fn versions(&self) -> Versions<'a> {
        self.versions
    }

    /// Writes a Version Negotiation packet. The lower seven bits of `unused` go into the first byte
    /// and may have any value. If bit 0x40 is set, software that shares the port between protocols
    /// can recognise the packet as QUIC (RFC 9000 s.17.2.1 #2 #3).
    ///
    /// # Errors
    /// Fails if there is no room for the packet, or if an ID is longer than 255 bytes. Nothing is
    /// written then.
    pub fn write(
        writer: &mut Writer<'_>,
        dcid: &[u8],
        scid: &[u8],
        versions: impl IntoIterator<Item = Version>,
        unused: u8,
    ) -> Result<(), BufferFull> {
        let dcid_len = u8::try_from(dcid.len()).map_err(|_| BufferFull)?;
        let scid_len = u8::try_from(scid.len()).map_err(|_| BufferFull)?;
        writer.atomically(|writer| {
            writer.u8(HEADER_FORM | unused)?;
            writer.bytes(&Version::NEGOTIATION.0.to_be_bytes())?;
            writer.u8(dcid_len)?;
            writer.bytes(dcid)?;
            writer.u8(scid_len)?;
            writer.bytes(scid)?;
            versions.into_iter().try_for_each(|version| writer.bytes(&version.0.to_be_bytes()))
        })
    }
}
