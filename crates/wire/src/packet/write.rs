//! Writes packets: the caller opens a header, writes frames, and then calls [`OpenPacket::finish`],
//! which reserves room for the tag and fills in the Length.

use super::protection::{HeaderForm, HeaderMask, MIN_PROTECTED_LEN, Protected};
use super::{FIXED_BIT, HEADER_FORM, LongKind};
use crate::cursor::{BufferFull, Counter, Sink, Writer};
use crate::id::ConnectionId;
use crate::packet_number::{PacketNumberLen, TruncatedPacketNumber};
use crate::varint::{VarInt, VarIntLen};
use crate::version::{KnownVersion, Version};
use core::fmt;
use core::ops::Range;

/// The header of an Initial, 0-RTT or Handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongHeader<'a> {
    /// The version.
    pub version: KnownVersion,
    /// The packet type, and the token of an Initial packet.
    pub kind: LongKind<'a>,
    /// Destination Connection ID.
    pub dcid: ConnectionId,
    /// Source Connection ID.
    pub scid: ConnectionId,
    /// The Fixed Bit. It must be true, unless the peer sent grease_quic_bit (RFC 9287).
    pub fixed_bit: bool,
}

/// The header of a 1-RTT packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortHeader {
    /// Destination Connection ID.
    pub dcid: ConnectionId,
    /// The Latency Spin Bit (RFC 9000 s.17.4).
    pub spin: bool,
    /// The Key Phase bit (RFC 9001 s.6).
    pub key_phase: bool,
    /// The Fixed Bit. It must be true, unless the peer sent grease_quic_bit (RFC 9287).
    pub fixed_bit: bool,
}

/// A packet whose header has been written. The caller writes the frames with the same writer, and
/// then calls [`OpenPacket::finish`].
#[must_use = "the Length is not filled in before `finish`"]
#[derive(Debug)]
pub struct OpenPacket {
    start: usize,
    header: Protected,
    packet_number: TruncatedPacketNumber,
    /// Offset of the Length field and its size in bytes, or `None` if the header has no Length.
    length: Option<(usize, VarIntLen)>,
}

/// Offsets of the parts of a finished packet in the buffer. The packet is not protected yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedPacket {
    /// The whole packet, including the tag.
    pub packet: Range<usize>,
    /// Length of the header in bytes, including the packet number.
    pub header_len: usize,
    header: Protected,
    packet_number: TruncatedPacketNumber,
}

/// Reason why a packet cannot be finished. After the error, the writer is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishError {
    /// There is no room for the tag, or the packet was begun with another writer.
    BufferFull,
    /// The packet has no room for a header protection sample. Add as much padding as
    /// [`OpenPacket::padding_needed`] returns.
    TooShortToSample,
    /// The packet is too long for the Length field, whose size was chosen in [`LongHeader::open`].
    LengthTooSmall,
}

impl LongHeader<'_> {
    // RFC 9000 s.17.2 #8
    fn encode(&self, sink: &mut impl Sink, pn: TruncatedPacketNumber) -> Result<(), BufferFull> {
        let fixed = if self.fixed_bit { FIXED_BIT } else { 0 };
        let kind = self.kind.long_type().bits(self.version);
        sink.u8(HEADER_FORM | fixed | kind | pn.len().field())?;
        sink.bytes(&Version::from(self.version).0.to_be_bytes())?;
        sink.u8(self.dcid.len_byte())?;
        sink.bytes(self.dcid.as_bytes())?;
        sink.u8(self.scid.len_byte())?;
        sink.bytes(self.scid.as_bytes())?;
        match self.kind {
            LongKind::Initial { token } => sink.varint_bytes(token),
            LongKind::ZeroRtt | LongKind::Handshake => Ok(()),
        }
    }

    /// Returns the length of the header in bytes. It includes the packet number, and a Length field
    /// of the given size.
    pub fn encoded_len(&self, pn: TruncatedPacketNumber, length: VarIntLen) -> usize {
        Counter::of(|counter| self.encode(counter, pn))
            .saturating_add(length.bytes())
            .saturating_add(pn.len().bytes())
    }

    /// Writes the header, with a Length field of the size `length` that [`OpenPacket::finish`]
    /// fills in. Two bytes are enough for a length of up to 16,383.
    ///
    /// # Errors
    /// Fails if there is no room for the header. Nothing is written then.
    pub fn open(
        &self,
        writer: &mut Writer<'_>,
        pn: TruncatedPacketNumber,
        length: VarIntLen,
    ) -> Result<OpenPacket, BufferFull> {
        let start = writer.position();
        writer.atomically(|writer| {
            self.encode(writer, pn)?;
            let length_at = writer.position();
            writer.varint_of_len(VarInt::ZERO, length)?;
            OpenPacket::at(writer, start, HeaderForm::Long, pn, Some((length_at, length)))
        })
    }
}

impl ShortHeader {
    /// Returns the length of the header in bytes, including the packet number.
    // RFC 9000 s.17.3.1 #2
    pub fn encoded_len(&self, pn: TruncatedPacketNumber) -> usize {
        self.dcid.len().saturating_add(1).saturating_add(pn.len().bytes())
    }

    /// Writes the header.
    ///
    /// # Errors
    /// Fails if there is no room for the header. Nothing is written then.
    #[inline(always)]
    pub fn open(
        &self,
        writer: &mut Writer<'_>,
        pn: TruncatedPacketNumber,
    ) -> Result<OpenPacket, BufferFull> {
        let start = writer.position();
        let open = self.write(writer, pn);
        writer.kept(start, open)
    }

    #[inline(always)]
    fn write(
        &self,
        writer: &mut Writer<'_>,
        pn: TruncatedPacketNumber,
    ) -> Result<OpenPacket, BufferFull> {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let first = bit(self.fixed_bit, FIXED_BIT)
            | bit(self.spin, 0x20)
            | bit(self.key_phase, 0x04)
            | pn.len().field();
        let start = writer.position();
        writer.u8(first)?;
        writer.bytes(self.dcid.as_bytes())?;
        OpenPacket::at(writer, start, HeaderForm::Short, pn, None)
    }
}

impl OpenPacket {
    #[inline(always)]
    fn at(
        writer: &mut Writer<'_>,
        start: usize,
        form: HeaderForm,
        packet_number: TruncatedPacketNumber,
        length: Option<(usize, VarIntLen)>,
    ) -> Result<OpenPacket, BufferFull> {
        let pn_offset = writer.position().saturating_sub(start);
        // Arrays of a fixed size compile to one or two store instructions for each length. A slice
        // would compile to a call of `memcpy`.
        match (packet_number.len(), packet_number.be_bytes()) {
            (PacketNumberLen::One, [.., a]) => writer.bytes(&[a]),
            (PacketNumberLen::Two, [.., a, b]) => writer.bytes(&[a, b]),
            (PacketNumberLen::Three, [_, a, b, c]) => writer.bytes(&[a, b, c]),
            (PacketNumberLen::Four, all) => writer.bytes(&all),
        }?;
        Ok(OpenPacket { start, header: Protected::new(form, pn_offset), packet_number, length })
    }

    #[inline]
    fn header_len(&self) -> usize {
        self.header.pn_offset().saturating_add(self.packet_number.len().bytes())
    }

    /// Returns the number of bytes written since the start of the packet number.
    #[inline]
    fn behind_length(&self, writer: &Writer<'_>) -> usize {
        writer.position().saturating_sub(self.start).saturating_sub(self.header.pn_offset())
    }

    /// Returns the number of bytes that the frames take so far.
    #[inline]
    pub fn payload_len(&self, writer: &Writer<'_>) -> usize {
        writer.position().saturating_sub(self.start).saturating_sub(self.header_len())
    }

    /// Returns the number of PADDING frames that the packet needs to be long enough for a header
    /// protection sample (RFC 9001 s.5.4.2).
    #[inline]
    pub fn padding_needed(&self, writer: &Writer<'_>, tag_len: usize) -> usize {
        MIN_PROTECTED_LEN.saturating_sub(self.behind_length(writer).saturating_add(tag_len))
    }

    /// Reserves room for the AEAD tag after the frames, and fills in the Length field.
    ///
    /// # Errors
    /// See [`FinishError`].
    #[inline(always)]
    pub fn finish(
        self,
        writer: &mut Writer<'_>,
        tag_len: usize,
    ) -> Result<FinishedPacket, FinishError> {
        let before = writer.position();
        let finished = self.close(writer, tag_len);
        writer.kept(before, finished)
    }

    #[inline(always)]
    fn close(self, writer: &mut Writer<'_>, tag_len: usize) -> Result<FinishedPacket, FinishError> {
        writer.zeros(tag_len)?;
        let behind = self.behind_length(writer);
        if behind < MIN_PROTECTED_LEN {
            return Err(FinishError::TooShortToSample);
        }
        if let Some((at, len)) = self.length {
            let length = VarInt::try_from(behind).map_err(|_| FinishError::LengthTooSmall)?;
            if length > len.max() {
                return Err(FinishError::LengthTooSmall);
            }
            writer.patch_varint(at, length, len)?;
        }
        Ok(FinishedPacket {
            packet: self.start..writer.position(),
            header_len: self.header_len(),
            header: self.header,
            packet_number: self.packet_number,
        })
    }
}

impl FinishedPacket {
    /// Returns the part of the packet that needs header protection. Its `sample` must be taken from
    /// the encrypted packet.
    #[inline]
    pub const fn header(&self) -> Protected {
        self.header
    }

    /// Applies header protection to `packet`, in place. Returns `None` if `packet` is shorter than
    /// the packet that was written.
    #[inline]
    pub fn protect(&self, packet: &mut [u8], mask: &HeaderMask) -> Option<()> {
        self.header.apply(packet, mask, self.packet_number.len())
    }
}

impl From<BufferFull> for FinishError {
    fn from(_: BufferFull) -> Self {
        FinishError::BufferFull
    }
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FinishError::BufferFull => "the buffer has no room for the authentication tag",
            FinishError::TooShortToSample => {
                "the packet is too short for a header protection sample"
            }
            FinishError::LengthTooSmall => "the packet is longer than its Length field can express",
        })
    }
}

impl core::error::Error for FinishError {}
