//! Packet numbers, and their truncated form (RFC 9000 s.12.3, s.17.1, appendices A.2 and A.3).

use crate::cursor::{Reader, UnexpectedEnd};
use crate::varint::VarInt;
use core::fmt;

/// A full packet number, from 0 to 2^62-1.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(VarInt);

/// The length of a truncated packet number, from one to four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketNumberLen {
    /// 8 bits.
    One,
    /// 16 bits.
    Two,
    /// 24 bits.
    Three,
    /// 32 bits.
    Four,
}

/// The least significant bytes of a packet number, as a header carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TruncatedPacketNumber {
    bits: u32,
    len: PacketNumberLen,
}

impl PacketNumberLen {
    /// Length in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            PacketNumberLen::One => 1,
            PacketNumberLen::Two => 2,
            PacketNumberLen::Three => 3,
            PacketNumberLen::Four => 4,
        }
    }

    /// The Packet Number Length bits: one less than the length (RFC 9000 s.17.2).
    pub const fn field(self) -> u8 {
        match self {
            PacketNumberLen::One => 0,
            PacketNumberLen::Two => 1,
            PacketNumberLen::Three => 2,
            PacketNumberLen::Four => 3,
        }
    }

    /// Reads the length from the two lowest bits of the first byte of a header without protection.
    pub const fn of_first_byte(first: u8) -> Self {
        match first & 0x03 {
            0 => PacketNumberLen::One,
            1 => PacketNumberLen::Two,
            2 => PacketNumberLen::Three,
            _ => PacketNumberLen::Four,
        }
    }

    /// Mask for a four-byte field in network order: keeps the bits that a packet number of this
    /// length occupies.
    pub(crate) const fn field_mask(self) -> u32 {
        match self {
            PacketNumberLen::One => 0xff00_0000,
            PacketNumberLen::Two => 0xffff_0000,
            PacketNumberLen::Three => 0xffff_ff00,
            PacketNumberLen::Four => 0xffff_ffff,
        }
    }

    /// Number of packet numbers that this length can distinguish.
    const fn window(self) -> u64 {
        match self {
            PacketNumberLen::One => 1 << 8,
            PacketNumberLen::Two => 1 << 16,
            PacketNumberLen::Three => 1 << 24,
            PacketNumberLen::Four => 1 << 32,
        }
    }
}

impl PacketNumber {
    /// The first number of each packet number space.
    pub const ZERO: PacketNumber = PacketNumber(VarInt::ZERO);
    /// 2^62-1.
    pub const MAX: PacketNumber = PacketNumber(VarInt::MAX);

    /// Creates a packet number. Returns `None` if it exceeds 2^62-1.
    #[inline]
    pub fn new(number: u64) -> Option<Self> {
        VarInt::new(number).ok().map(PacketNumber)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The packet number as an integer for the wire.
    pub const fn as_varint(self) -> VarInt {
        self.0
    }

    /// Returns the next number, or `None` after the last.
    // RFC 9000 s.12.3 #3
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(PacketNumber)
    }

    /// Truncates the packet number to the shortest form from which the peer can restore it. The
    /// peer must have received no later packet, and everything up to `largest_acked` must be
    /// acknowledged (RFC 9000 s.17.1, A.2). Returns `None` if four bytes are not enough, or if this
    /// number does not exceed `largest_acked`.
    // RFC 9000 s.17.1 #1 #2
    #[inline(always)]
    pub fn truncate(self, largest_acked: Option<PacketNumber>) -> Option<TruncatedPacketNumber> {
        let unacked = match largest_acked {
            Some(acked) => self.get().checked_sub(acked.get())?,
            None => self.get().checked_add(1)?,
        };
        if unacked == 0 {
            return None;
        }
        // RFC 9000 s.17.1: the encoding must cover a range that is more than twice as large as the
        // number of unacknowledged packets.
        let range = unacked.checked_mul(2)?;
        use PacketNumberLen::{Four, One, Three, Two};
        [One, Two, Three, Four]
            .into_iter()
            .find(|len| range < len.window())
            .map(|len| self.truncate_to(len))
    }

    /// Truncates the number to `len` bytes, whether or not a peer can restore it.
    #[inline]
    pub fn truncate_to(self, len: PacketNumberLen) -> TruncatedPacketNumber {
        let low = self.get() & len.window().saturating_sub(1);
        TruncatedPacketNumber { bits: u32::try_from(low).unwrap_or(u32::MAX), len }
    }
}

impl From<VarInt> for PacketNumber {
    fn from(number: VarInt) -> Self {
        PacketNumber(number)
    }
}

impl TruncatedPacketNumber {
    /// Reads a Packet Number field without header protection.
    ///
    /// # Errors
    /// Fails if the bytes end inside the field.
    pub fn read(reader: &mut Reader<'_>, len: PacketNumberLen) -> Result<Self, UnexpectedEnd> {
        let bytes = reader.bytes(len.bytes())?;
        let bits = bytes.iter().fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte));
        Ok(TruncatedPacketNumber { bits, len })
    }

    /// Reads a packet number of length `len` from four bytes in network order. If the number is
    /// shorter than four bytes, the bytes behind it are ignored.
    #[inline]
    pub(crate) const fn of_field(field: u32, len: PacketNumberLen) -> Self {
        let bits = match len {
            PacketNumberLen::One => field >> 24,
            PacketNumberLen::Two => field >> 16,
            PacketNumberLen::Three => field >> 8,
            PacketNumberLen::Four => field,
        };
        TruncatedPacketNumber { bits, len }
    }

    /// The bits of the truncated number.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// The length of the truncated number in bytes.
    pub const fn len(self) -> PacketNumberLen {
        self.len
    }

    /// The number in network order: the last `len` of the four bytes.
    pub(crate) const fn be_bytes(self) -> [u8; 4] {
        self.bits.to_be_bytes()
    }

    /// Restores the full packet number: the one closest to `largest + 1`. `largest` is the largest
    /// number that was received and authenticated in this packet number space (RFC 9000 A.3).
    /// Returns `None` if the result exceeds 2^62-1.
    #[inline]
    pub fn restore(self, largest: Option<PacketNumber>) -> Option<PacketNumber> {
        // All values are below 2^63, so the additions never saturate.
        let expected = largest.map_or(0, |largest| largest.get().saturating_add(1));
        let window = self.len.window();
        let half = window >> 1;
        let mask = window.saturating_sub(1);
        let candidate = (expected & !mask) | u64::from(self.bits);
        let after = candidate.saturating_add(window);
        let before = candidate.checked_sub(window);
        let nearest = if candidate.saturating_add(half) <= expected && after <= VarInt::MAX.get() {
            after
        } else if candidate > expected.saturating_add(half) {
            before.unwrap_or(candidate)
        } else {
            candidate
        };
        PacketNumber::new(nearest)
    }
}

impl fmt::Debug for PacketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketNumber({})", self.0)
    }
}

impl fmt::Display for PacketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
