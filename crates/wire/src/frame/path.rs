//! Frames that validate paths: PATH_CHALLENGE and PATH_RESPONSE (RFC 9000 s.19.17, s.19.18).

use super::FrameType;
use super::field::{Field, FieldValue, Fields};
use crate::VarInt;
use crate::cursor::{BufferFull, Sink};

frame_types! {
    /// PATH_CHALLENGE.
    PATH_CHALLENGE = 0x1a, "PATH_CHALLENGE", Rules::USUAL.with(PROBING);
    /// PATH_RESPONSE.
    PATH_RESPONSE = 0x1b, "PATH_RESPONSE", Rules::USUAL.packets(IN_ONE_RTT).with(PROBING);
}

/// Writes a frame of either type with this data.
pub(super) fn encode(
    sink: &mut impl Sink,
    frame_type: FrameType,
    data: &[u8; 8],
) -> Result<(), BufferFull> {
    sink.varint(frame_type.0)?;
    sink.bytes(data)
}

pub(super) fn fields(data: &[u8; 8]) -> Fields<'_> {
    Fields::of([Field::new("data", FieldValue::Bytes(data)).hidden()])
}
