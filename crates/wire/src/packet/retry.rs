//! Retry packets (RFC 9000 s.17.2.5).

use super::{FIXED_BIT, HEADER_FORM, LongPacketType, PacketError};
use crate::cursor::{BufferFull, Writer};
use crate::id::ConnectionId;
use crate::version::{KnownVersion, Version};

/// A Retry packet. This crate does not verify its integrity tag, because that needs a key (RFC 9001
/// s.5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry<'a> {
    version: KnownVersion,
    dcid: ConnectionId,
    scid: ConnectionId,
    token: &'a [u8],
    without_tag: &'a [u8],
    integrity_tag: &'a [u8; Retry::TAG_LEN],
}

impl<'a> Retry<'a> {
    /// The Retry Integrity Tag, in bytes.
    pub const TAG_LEN: usize = 16;

    // RFC 9000 s.17.2.5 #1
    pub(super) fn parse(
        version: KnownVersion,
        dcid: ConnectionId,
        scid: ConnectionId,
        packet: &'a [u8],
        rest: &'a [u8],
    ) -> Result<Self, PacketError> {
        let (token, _) = rest.split_last_chunk::<16>().ok_or(PacketError::Truncated)?;
        let (without_tag, integrity_tag) =
            packet.split_last_chunk().ok_or(PacketError::Truncated)?;
        // RFC 9000 s.17.2.5.2: a client discards a Retry packet with an empty token.
        if token.is_empty() {
            return Err(PacketError::EmptyRetryToken);
        }
        Ok(Retry { version, dcid, scid, token, without_tag, integrity_tag })
    }

    /// The version of QUIC whose Retry key produced the integrity tag.
    pub const fn version(&self) -> KnownVersion {
        self.version
    }

    /// Destination Connection ID, which the client chose.
    pub const fn dcid(&self) -> ConnectionId {
        self.dcid
    }

    /// Source Connection ID, which the server chose.
    pub const fn scid(&self) -> ConnectionId {
        self.scid
    }

    /// The token. It is never empty.
    pub const fn token(&self) -> &'a [u8] {
        self.token
    }

    /// The packet without its integrity tag. These bytes are the last part of the Retry
    /// Pseudo-Packet (RFC 9001 s.5.8).
    pub const fn without_tag(&self) -> &'a [u8] {
        self.without_tag
    }

    /// The Retry Integrity Tag.
    pub const fn integrity_tag(&self) -> &'a [u8; Retry::TAG_LEN] {
        self.integrity_tag
    }

    /// Writes a Retry packet without its integrity tag, which the caller computes from these bytes.
    /// The lower four bits of `unused` go into the Unused field and may have any value.
    ///
    /// # Errors
    /// Fails if there is no room for the packet. Nothing is written then.
    pub fn write_without_tag(
        writer: &mut Writer<'_>,
        version: KnownVersion,
        dcid: ConnectionId,
        scid: ConnectionId,
        token: &[u8],
        unused: u8,
    ) -> Result<(), BufferFull> {
        let type_bits = LongPacketType::Retry.bits(version);
        writer.atomically(|writer| {
            writer.u8(HEADER_FORM | FIXED_BIT | type_bits | (unused & 0x0f))?;
            writer.bytes(&Version::from(version).0.to_be_bytes())?;
            writer.u8(dcid.len_byte())?;
            writer.bytes(dcid.as_bytes())?;
            writer.u8(scid.len_byte())?;
            writer.bytes(scid.as_bytes())?;
            writer.bytes(token)
        })
    }
}
