//! Variable-length integers (RFC 9000 s.16).

use core::fmt;

/// An integer from 0 to 2^62-1, encoded in 1, 2, 4 or 8 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarInt(u64);

/// Error: the value does not fit into 62 bits, or not into the requested encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VarIntOutOfRange;

/// Number of bytes that an encoded [`VarInt`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VarIntLen {
    /// One byte, for values up to 63.
    One,
    /// Two bytes, for values up to 16,383.
    Two,
    /// Four bytes, for values up to 1,073,741,823.
    Four,
    /// Eight bytes, for values up to 2^62-1.
    Eight,
}

impl VarIntLen {
    /// Length in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            VarIntLen::One => 1,
            VarIntLen::Two => 2,
            VarIntLen::Four => 4,
            VarIntLen::Eight => 8,
        }
    }

    /// The largest value that fits into this length.
    pub const fn max(self) -> VarInt {
        VarInt(match self {
            VarIntLen::One => (1 << 6) - 1,
            VarIntLen::Two => (1 << 14) - 1,
            VarIntLen::Four => (1 << 30) - 1,
            VarIntLen::Eight => (1 << 62) - 1,
        })
    }

    /// Reads the length from the first byte of an encoded integer.
    pub const fn of_first_byte(first: u8) -> Self {
        match first >> 6 {
            0 => VarIntLen::One,
            1 => VarIntLen::Two,
            2 => VarIntLen::Four,
            _ => VarIntLen::Eight,
        }
    }

    /// The two most significant bits of the first byte, which encode the length.
    pub(crate) const fn prefix(self) -> u8 {
        match self {
            VarIntLen::One => 0x00,
            VarIntLen::Two => 0x40,
            VarIntLen::Four => 0x80,
            VarIntLen::Eight => 0xc0,
        }
    }
}

impl VarInt {
    /// 0.
    pub const ZERO: VarInt = VarInt(0);
    /// 2^62-1.
    pub const MAX: VarInt = VarIntLen::Eight.max();

    /// Converts a 32-bit number, which always fits.
    pub const fn from_u32(value: u32) -> Self {
        VarInt(value as u64)
    }

    /// Creates an integer.
    ///
    /// # Errors
    /// Fails if the value exceeds 2^62-1.
    pub const fn new(value: u64) -> Result<Self, VarIntOutOfRange> {
        if value <= Self::MAX.0 { Ok(VarInt(value)) } else { Err(VarIntOutOfRange) }
    }

    /// Creates a constant. Call it only in constants, because it silently cuts a value above 2^62-1
    /// to its lower 62 bits.
    pub(crate) const fn constant(value: u64) -> Self {
        VarInt(value & Self::MAX.0)
    }

    /// Returns the integer whose encoding, read as a big-endian number, is `value`: its lower bits
    /// without the length prefix.
    pub(crate) const fn from_encoding(value: u64, len: VarIntLen) -> Self {
        VarInt(value & len.max().0)
    }

    /// The value.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the value as a length. A value that does not fit into `usize` becomes `usize::MAX`,
    /// which exceeds any real length.
    pub fn as_len(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Returns the length of the shortest encoding.
    pub const fn shortest(self) -> VarIntLen {
        match self.0 {
            0..=0x3f => VarIntLen::One,
            0x40..=0x3fff => VarIntLen::Two,
            0x4000..=0x3fff_ffff => VarIntLen::Four,
            _ => VarIntLen::Eight,
        }
    }

    /// Returns the length of the shortest encoding in bytes.
    pub const fn encoded_len(self) -> usize {
        self.shortest().bytes()
    }

    /// Returns `self + other`, or `None` if that exceeds 2^62-1.
    pub fn checked_add(self, other: u64) -> Option<VarInt> {
        VarInt::new(self.0.checked_add(other)?).ok()
    }

    /// Returns `self - other`, or `None` if that is negative.
    pub fn checked_sub(self, other: u64) -> Option<VarInt> {
        self.0.checked_sub(other).map(VarInt)
    }
}

impl From<u8> for VarInt {
    fn from(value: u8) -> Self {
        VarInt(value.into())
    }
}

impl From<u16> for VarInt {
    fn from(value: u16) -> Self {
        VarInt(value.into())
    }
}

impl From<u32> for VarInt {
    fn from(value: u32) -> Self {
        VarInt(value.into())
    }
}

impl TryFrom<u64> for VarInt {
    type Error = VarIntOutOfRange;

    fn try_from(value: u64) -> Result<Self, VarIntOutOfRange> {
        VarInt::new(value)
    }
}

impl TryFrom<usize> for VarInt {
    type Error = VarIntOutOfRange;

    fn try_from(value: usize) -> Result<Self, VarIntOutOfRange> {
        u64::try_from(value).map_err(|_| VarIntOutOfRange).and_then(VarInt::new)
    }
}

impl From<VarInt> for u64 {
    fn from(value: VarInt) -> u64 {
        value.0
    }
}

impl fmt::Debug for VarInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VarInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::LowerHex for VarInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VarIntOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is too large for a variable-length integer")
    }
}

impl core::error::Error for VarIntOutOfRange {}
