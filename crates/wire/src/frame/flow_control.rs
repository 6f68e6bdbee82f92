//! Frames about limits: MAX_DATA, MAX_STREAM_DATA, MAX_STREAMS, DATA_BLOCKED, STREAM_DATA_BLOCKED
//! and STREAMS_BLOCKED (RFC 9000 s.19.9 to s.19.14).

use super::field::{Field, FieldValue, Fields};
use super::stream::read_stream_id;
use super::{FrameErrorKind, FrameType, write_varints};
use crate::cursor::{BufferFull, Reader, Sink};
use crate::{Direction, StreamCount, StreamId, VarInt};

frame_types! {
    /// MAX_DATA.
    MAX_DATA = 0x10, "MAX_DATA", Rules::USUAL;
    /// MAX_STREAM_DATA.
    MAX_STREAM_DATA = 0x11, "MAX_STREAM_DATA", Rules::USUAL;
    /// MAX_STREAMS, bidirectional.
    MAX_STREAMS_BIDI = 0x12, "MAX_STREAMS", Rules::USUAL;
    /// MAX_STREAMS, unidirectional.
    MAX_STREAMS_UNI = 0x13, "MAX_STREAMS", Rules::USUAL;
    /// DATA_BLOCKED.
    DATA_BLOCKED = 0x14, "DATA_BLOCKED", Rules::USUAL;
    /// STREAM_DATA_BLOCKED.
    STREAM_DATA_BLOCKED = 0x15, "STREAM_DATA_BLOCKED", Rules::USUAL;
    /// STREAMS_BLOCKED, bidirectional.
    STREAMS_BLOCKED_BIDI = 0x16, "STREAMS_BLOCKED", Rules::USUAL;
    /// STREAMS_BLOCKED, unidirectional.
    STREAMS_BLOCKED_UNI = 0x17, "STREAMS_BLOCKED", Rules::USUAL;
}

/// The fields of a MAX_STREAM_DATA or STREAM_DATA_BLOCKED frame (RFC 9000 s.19.10, s.19.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimit {
    /// The stream.
    pub stream_id: StreamId,
    /// The limit, in bytes from the beginning of the stream.
    pub limit: VarInt,
}

impl StreamLimit {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(StreamLimit { stream_id: read_stream_id(reader)?, limit: reader.varint()? })
    }

    pub(super) fn encode(
        &self,
        sink: &mut impl Sink,
        frame_type: FrameType,
    ) -> Result<(), BufferFull> {
        write_varints(sink, [frame_type.0, self.stream_id.as_varint(), self.limit])
    }

    /// Returns the fields. A log calls the limit `name`.
    pub(super) fn fields(&self, name: &'static str) -> Fields<'static> {
        Fields::of([Field::stream_id(self.stream_id), Field::integer(name, self.limit)])
    }
}

pub(super) fn read_stream_count(reader: &mut Reader<'_>) -> Result<StreamCount, FrameErrorKind> {
    StreamCount::new(reader.varint()?.get()).ok_or(FrameErrorKind::StreamCountTooLarge)
}

/// Returns the fields of a frame with a limit on streams of a direction. A log calls the limit
/// `name`.
pub(super) fn stream_count_fields(
    name: &'static str,
    direction: Direction,
    count: StreamCount,
) -> Fields<'static> {
    Fields::of([
        Field::new("stream_type", FieldValue::StreamType(direction)).hidden(),
        Field::integer(name, count.as_varint()),
    ])
}
