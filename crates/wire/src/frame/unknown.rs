//! Frames of types that this crate does not know (RFC 9000 s.19.21).

use super::field::{Field, FieldValue, Fields};
use super::{FrameError, FrameErrorKind, FrameType};
use crate::cursor::{BufferFull, Sink};

/// A frame of a type that this crate does not know. Its length is unknown, because QUIC frames do
/// not carry their own length (RFC 9000 s.19.21). An extension that knows the type reads the fields
/// from `rest`, and passes the remaining bytes to [`Frames::resume`](super::Frames::resume).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFrame<'a> {
    /// Type of the frame.
    pub frame_type: FrameType,
    /// All bytes after the frame type, up to the end of the packet.
    pub rest: &'a [u8],
}

impl UnknownFrame<'_> {
    /// Returns the error with which to close the connection if no extension knows the frame type
    /// (RFC 9000 s.12.4).
    pub const fn error(&self) -> FrameError {
        FrameError { frame_type: self.frame_type, kind: FrameErrorKind::UnknownType }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.frame_type.0)?;
        sink.bytes(self.rest)
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        Fields::of([Field::new("frame_type_bytes", FieldValue::FrameType(self.frame_type))])
    }
}
