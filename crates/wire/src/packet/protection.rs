//! Header protection (RFC 9001 s.5.4): where it is in a packet, and which fields it hides. The
//! caller computes the mask from its keys.

use crate::TransportErrorCode;
use crate::packet_number::{PacketNumberLen, TruncatedPacketNumber};
use core::fmt;

/// Length in bytes of the ciphertext sample from which the mask is computed.
pub const SAMPLE_LEN: usize = 16;
/// Offset of the ciphertext sample from the start of the packet number, in bytes. For this purpose,
/// a packet number always counts as four bytes long (RFC 9001 s.5.4.2).
pub(super) const SAMPLE_OFFSET: usize = 4;
/// Minimum length of packet number and protected payload together, in bytes. A shorter packet has
/// no room for a header protection sample (RFC 9001 s.5.4.2).
pub const MIN_PROTECTED_LEN: usize = SAMPLE_OFFSET + SAMPLE_LEN;

/// Mask for header protection: one byte for the first byte of the packet, and four bytes for the
/// packet number.
pub type HeaderMask = [u8; 5];

/// Form of a packet header: long or short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderForm {
    /// A long header, which protects four bits of the first byte.
    Long,
    /// A short header, which protects five bits of the first byte.
    Short,
}

impl HeaderForm {
    const fn protected_bits(self) -> u8 {
        match self {
            HeaderForm::Long => 0x0f,
            HeaderForm::Short => 0x1f,
        }
    }

    const fn reserved_bits(self) -> u8 {
        match self {
            HeaderForm::Long => 0x0c,
            HeaderForm::Short => 0x18,
        }
    }
}

/// A protected header. The position of its packet number is known, but not the number's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    form: HeaderForm,
    pn_offset: usize,
}

/// A header whose protection has been removed. Do not trust its fields before the payload is
/// authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unprotected {
    form: HeaderForm,
    first_byte: u8,
    pn_offset: usize,
    packet_number: TruncatedPacketNumber,
}

/// Error: the Reserved Bits are not zero. In an authenticated packet, this is a PROTOCOL_VIOLATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedBitsSet;

impl Protected {
    pub(super) const fn new(form: HeaderForm, pn_offset: usize) -> Self {
        Protected { form, pn_offset }
    }

    /// Creates the header of a 1-RTT packet, given its first byte and the length of its connection
    /// ID in bytes. Returns `None` if the Fixed Bit is zero and `greased_fixed_bit` is false (RFC
    /// 9000 s.17.3.1, RFC 9287).
    #[inline]
    pub const fn of_short_header(
        first: u8,
        dcid_len: usize,
        greased_fixed_bit: bool,
    ) -> Option<Self> {
        if first & super::FIXED_BIT == 0 && !greased_fixed_bit {
            return None;
        }
        Some(Protected { form: HeaderForm::Short, pn_offset: dcid_len.saturating_add(1) })
    }

    /// Offset of the packet number in bytes, from the start of the packet.
    pub const fn pn_offset(self) -> usize {
        self.pn_offset
    }

    /// Returns the ciphertext sample from which the mask is computed. Returns `None` if `packet` is
    /// shorter than the packet that was parsed.
    #[inline]
    pub fn sample(self, packet: &[u8]) -> Option<&[u8; SAMPLE_LEN]> {
        let at = self.pn_offset.checked_add(SAMPLE_OFFSET)?;
        packet.get(at..)?.first_chunk()
    }

    /// Removes header protection from `packet`, in place. Returns `None` and changes nothing if
    /// `packet` is shorter than the packet that was parsed.
    #[inline(always)]
    pub fn remove(self, packet: &mut [u8], mask: &HeaderMask) -> Option<Unprotected> {
        let [first_mask, pn_mask @ ..] = mask;
        let first_byte = packet.first()? ^ (first_mask & self.form.protected_bits());
        let len = PacketNumberLen::of_first_byte(first_byte);
        // Four bytes can always be read. If the packet number is shorter, the other bytes belong to
        // the payload.
        let field = packet.get_mut(self.pn_offset..)?.first_chunk_mut()?;
        let plain = u32::from_be_bytes(*field) ^ u32::from_be_bytes(*pn_mask) & len.field_mask();
        *field = plain.to_be_bytes();
        *packet.first_mut()? = first_byte;
        let packet_number = TruncatedPacketNumber::of_field(plain, len);
        Some(Unprotected { form: self.form, first_byte, pn_offset: self.pn_offset, packet_number })
    }

    /// Applies the mask to the first byte of the packet, and to the `len` bytes of the packet
    /// number.
    #[inline]
    pub(super) fn apply(
        self,
        packet: &mut [u8],
        mask: &HeaderMask,
        len: PacketNumberLen,
    ) -> Option<()> {
        let end = self.pn_offset.checked_add(len.bytes())?;
        let [first_mask, pn_mask @ ..] = mask;
        let field = packet.get_mut(self.pn_offset..end)?;
        field.iter_mut().zip(pn_mask).for_each(|(byte, mask)| *byte ^= mask);
        *packet.first_mut()? ^= first_mask & self.form.protected_bits();
        Some(())
    }
}

impl Unprotected {
    /// The truncated packet number in the header.
    pub const fn packet_number(self) -> TruncatedPacketNumber {
        self.packet_number
    }

    /// Length of the header in bytes, including the packet number. The header is the AEAD's
    /// associated data (RFC 9001 s.5.3).
    pub const fn header_len(self) -> usize {
        self.pn_offset.saturating_add(self.packet_number.len().bytes())
    }

    /// Checks that the Reserved Bits are zero.
    ///
    /// # Errors
    /// Fails if the Reserved Bits are not zero. The caller must authenticate the packet first.
    /// Dropping an unauthenticated packet because of these bits would reveal bits of the header to
    /// an attacker (RFC 9001 s.9.5).
    pub const fn check_reserved_bits(self) -> Result<(), ReservedBitsSet> {
        match self.first_byte & self.form.reserved_bits() {
            0 => Ok(()),
            _ => Err(ReservedBitsSet),
        }
    }

    /// The Key Phase bit of a short header, or `None` for a long header (RFC 9000 s.17.3.1).
    pub const fn key_phase(self) -> Option<bool> {
        match self.form {
            HeaderForm::Long => None,
            HeaderForm::Short => Some(self.first_byte & 0x04 != 0),
        }
    }

    /// The Latency Spin Bit of a short header, or `None` for a long header (RFC 9000 s.17.4).
    pub const fn spin(self) -> Option<bool> {
        match self.form {
            HeaderForm::Long => None,
            HeaderForm::Short => Some(self.first_byte & 0x20 != 0),
        }
    }
}

impl ReservedBitsSet {
    /// Returns PROTOCOL_VIOLATION (RFC 9000 s.17.2, s.17.3.1).
    pub const fn code(self) -> TransportErrorCode {
        TransportErrorCode::PROTOCOL_VIOLATION
    }
}

impl fmt::Display for ReservedBitsSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the Reserved Bits are not zero")
    }
}

impl core::error::Error for ReservedBitsSet {}
