//! Path identifiers of multipath QUIC (RFC 10069 s.1).

use crate::VarInt;
use core::fmt;

/// Identifier of a path in a multipath connection. Each path has its own connection IDs and packet
/// numbers. Path 0 is the path of the handshake. IDs go up to 2^32-1, because the nonce for a
/// packet has 32 bits for the path ID (RFC 10069 s.2.4).
// RFC 10069 s.4.6 #1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u32);

impl PathId {
    /// The path of the handshake.
    pub const ZERO: PathId = PathId(0);
    /// 2^32-1.
    pub const MAX: PathId = PathId(u32::MAX);

    /// Creates a path ID. Every 32-bit number is valid.
    pub const fn new(id: u32) -> Self {
        PathId(id)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The path ID as an integer for the wire.
    pub const fn as_varint(self) -> VarInt {
        VarInt::from_u32(self.0)
    }

    /// Returns the next path ID, or `None` after the last.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(PathId)
    }

    /// Creates a path ID from an integer. Returns `None` if `id` exceeds 2^32-1.
    pub(crate) fn from_varint(id: VarInt) -> Option<Self> {
        u32::try_from(id.get()).ok().map(PathId)
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
