//! Stream IDs, and numbers of streams (RFC 9000 s.2.1, s.4.6).

use crate::varint::VarInt;
use core::fmt;

/// One of the two endpoints of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The endpoint that sent the first Initial packet.
    Client,
    /// The endpoint that received the first Initial packet.
    Server,
}

/// Direction of a stream: which sides may send on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Both ends.
    Bidirectional,
    /// Only the side that opened the stream may send.
    Unidirectional,
}

/// A stream ID. It encodes which side opened the stream, the stream's direction, and an index among
/// all streams with the same two properties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(VarInt);

/// A number of streams since the start of the connection. It is at most 2^60, so that every stream
/// ID fits into a variable-length integer (RFC 9000 s.4.6 #1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamCount(u64);

impl core::ops::Not for Side {
    type Output = Side;

    /// Returns the other side of the connection.
    fn not(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

impl StreamId {
    /// Returns the ID of the stream with this `index`, counted from 0, among the streams that
    /// `initiator` opens in this direction. Returns `None` if the index is 2^60 or more.
    pub fn new(initiator: Side, direction: Direction, index: u64) -> Option<Self> {
        let initiator_bit = match initiator {
            Side::Client => 0,
            Side::Server => 1,
        };
        let direction_bit = match direction {
            Direction::Bidirectional => 0,
            Direction::Unidirectional => 2,
        };
        let index = index.checked_mul(4)?;
        VarInt::new(index | initiator_bit | direction_bit).ok().map(StreamId)
    }

    /// Side that opened the stream.
    pub const fn initiator(self) -> Side {
        if self.0.get() & 1 == 0 { Side::Client } else { Side::Server }
    }

    /// Direction of the stream: which sides may send on it.
    pub const fn direction(self) -> Direction {
        if self.0.get() & 2 == 0 { Direction::Bidirectional } else { Direction::Unidirectional }
    }

    /// The stream's index, counted from 0, among the streams that the same side opened in the same
    /// direction.
    pub const fn index(self) -> u64 {
        self.0.get() >> 2
    }

    /// True if `side` may send on the stream.
    pub fn may_send(self, side: Side) -> bool {
        self.direction() == Direction::Bidirectional || self.initiator() == side
    }

    /// The stream ID as an integer for the wire.
    pub const fn as_varint(self) -> VarInt {
        self.0
    }
}

impl From<VarInt> for StreamId {
    fn from(id: VarInt) -> Self {
        StreamId(id)
    }
}

impl StreamCount {
    /// 2^60.
    pub const MAX: StreamCount = StreamCount(1 << 60);

    /// Creates a number of streams. Returns `None` if `count` exceeds 2^60.
    pub const fn new(count: u64) -> Option<Self> {
        if count <= Self::MAX.0 { Some(StreamCount(count)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of streams as an integer for the wire.
    pub const fn as_varint(self) -> VarInt {
        VarInt::constant(self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
