//! Frames that send and abort streams: STREAM, RESET_STREAM and STOP_SENDING (RFC 9000 s.19.4,
//! s.19.5, s.19.8).

use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType, write_varints};
use crate::cursor::{BufferFull, Counter, Reader, Sink, Writer};
use crate::{StreamId, VarInt};

/// Flag in the type of a STREAM frame: the frame ends the stream.
const STREAM_FIN: u64 = 0x01;
/// Flag in the type of a STREAM frame: the frame has a Length field.
const STREAM_LEN: u64 = 0x02;
/// Flag in the type of a STREAM frame: the frame has an Offset field.
const STREAM_OFF: u64 = 0x04;
/// Type of a STREAM frame without flags. With flags, the type is 0x08 to 0x0f.
pub(super) const STREAM: u64 = 0x08;
pub(super) const STREAM_LAST: u64 = 0x0f;

frame_types! {
    /// RESET_STREAM.
    RESET_STREAM = 0x04, "RESET_STREAM", Rules::USUAL;
    /// STOP_SENDING.
    STOP_SENDING = 0x05, "STOP_SENDING", Rules::USUAL;
    [STREAM..=STREAM_LAST], "STREAM", Rules::USUAL.with(FLOW_CONTROLLED);
}

/// Returns `offset + len`, or `None` if that exceeds 2^62-1 (RFC 9000 s.19.6, s.19.8).
#[inline]
pub(super) fn end_of(offset: VarInt, len: usize) -> Option<VarInt> {
    offset.checked_add(u64::try_from(len).ok()?)
}

/// A STREAM frame (RFC 9000 s.19.8). Its data does not extend beyond offset 2^62-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'a> {
    stream_id: StreamId,
    offset: VarInt,
    data: &'a [u8],
    fin: bool,
    to_end: bool,
}

impl<'a> Stream<'a> {
    /// Creates a frame with a Length field. Returns `None` if the data extends beyond offset
    /// 2^62-1.
    pub fn new(stream_id: StreamId, offset: VarInt, data: &'a [u8], fin: bool) -> Option<Self> {
        end_of(offset, data.len())?;
        Some(Stream { stream_id, offset, data, fin, to_end: false })
    }

    /// Returns the same frame without a Length field. It must be the last frame of its packet,
    /// because its data then extends to the packet's end.
    pub const fn to_end_of_packet(self) -> Self {
        Stream { to_end: true, ..self }
    }

    /// The stream.
    pub const fn stream_id(&self) -> StreamId {
        self.stream_id
    }

    /// Offset at which the data begins in the stream, in bytes.
    pub const fn offset(&self) -> VarInt {
        self.offset
    }

    /// The data.
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// True if this frame ends the stream.
    pub const fn fin(&self) -> bool {
        self.fin
    }

    /// True if the frame has no Length field, so that its data extends to the end of the packet.
    pub const fn is_to_end_of_packet(&self) -> bool {
        self.to_end
    }

    /// Offset at which the data ends in the stream, in bytes. If this frame ends the stream, this
    /// is the final size.
    pub fn end(&self) -> VarInt {
        // The constructors have checked that this sum does not exceed the maximum.
        end_of(self.offset, self.data.len()).unwrap_or(VarInt::MAX)
    }

    /// Returns the length of a STREAM frame's header in bytes. With `len`, the header includes a
    /// Length field.
    #[inline]
    pub fn header_len(stream_id: StreamId, offset: VarInt, len: Option<usize>) -> usize {
        Counter::of(|counter| Self::encode_header(counter, stream_id, offset, len, false))
    }

    /// Writes only the header of a STREAM frame. Use this if the data is not one contiguous slice.
    /// If `len` is given, the caller must write exactly that many bytes next. Without `len`, it
    /// must fill the packet up to its end. The caller must also ensure that the data does not
    /// extend beyond offset 2^62-1.
    ///
    /// # Errors
    /// Fails if there is no room for the header. Nothing is written then.
    #[inline]
    pub fn write_header(
        writer: &mut Writer<'_>,
        stream_id: StreamId,
        offset: VarInt,
        len: Option<usize>,
        fin: bool,
    ) -> Result<(), BufferFull> {
        writer.atomically(|writer| Self::encode_header(writer, stream_id, offset, len, fin))
    }

    /// Reads the STREAM frame at the beginning of `payload`. Returns the frame, and the bytes after
    /// it. Returns `None` if the payload begins with another frame, or if the frame is malformed.
    /// In this case, call [`Frame::read`](super::Frame::read), which returns the other frame or the
    /// error.
    #[inline]
    pub fn first_of(payload: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (first, fields) = payload.split_first()?;
        let frame_type = u64::from(*first);
        if !(STREAM..=STREAM_LAST).contains(&frame_type) {
            return None;
        }
        let mut reader = Reader::new(fields);
        let frame = Stream::read(&mut reader, frame_type).ok()?;
        Some((frame, reader.rest()))
    }

    // Packets with stream data call `first_of`, which is faster if this code is a part of it.
    #[inline(always)]
    pub(super) fn read(reader: &mut Reader<'a>, frame_type: u64) -> Result<Self, FrameErrorKind> {
        let stream_id = StreamId::from(reader.varint()?);
        let offset = if frame_type & STREAM_OFF != 0 { reader.varint()? } else { VarInt::ZERO };
        let to_end = frame_type & STREAM_LEN == 0;
        let data = if to_end { reader.take_rest() } else { reader.varint_bytes()? };
        let fin = frame_type & STREAM_FIN != 0;
        Stream::new(stream_id, offset, data, fin)
            .map(|stream| Stream { to_end, ..stream })
            .ok_or(FrameErrorKind::OffsetTooLarge)
    }

    pub(super) fn frame_type(&self) -> FrameType {
        Self::type_of(self.offset, !self.to_end, self.fin)
    }

    #[inline]
    fn type_of(offset: VarInt, has_len: bool, fin: bool) -> FrameType {
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        FrameType(VarInt::constant(
            STREAM
                | flag(offset != VarInt::ZERO, STREAM_OFF)
                | flag(has_len, STREAM_LEN)
                | flag(fin, STREAM_FIN),
        ))
    }

    #[inline]
    fn encode_header(
        sink: &mut impl Sink,
        stream_id: StreamId,
        offset: VarInt,
        len: Option<usize>,
        fin: bool,
    ) -> Result<(), BufferFull> {
        sink.varint(Self::type_of(offset, len.is_some(), fin).0)?;
        sink.varint(stream_id.as_varint())?;
        if offset != VarInt::ZERO {
            sink.varint(offset)?;
        }
        match len {
            Some(len) => sink.varint(VarInt::try_from(len).map_err(|_| BufferFull)?),
            None => Ok(()),
        }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let len = (!self.to_end).then_some(self.data.len());
        Self::encode_header(sink, self.stream_id, self.offset, len, self.fin)?;
        sink.bytes(self.data)
    }

    pub(super) fn fields(&self) -> Fields<'a> {
        let length = self.data.len() as u64;
        Stream::fields_of(self.stream_id, self.offset.get(), length, self.fin)
    }
}

impl Stream<'_> {
    /// Returns the fields of a frame with `length` bytes of data. Use this if the data itself is
    /// not available.
    pub fn fields_of<'f>(stream_id: StreamId, offset: u64, length: u64, fin: bool) -> Fields<'f> {
        let data = FieldValue::Data { offset, length, fin };
        Fields::of([Field::stream_id(stream_id), Field::new("raw", data)])
    }
}

/// A RESET_STREAM frame (RFC 9000 s.19.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetStream {
    /// The stream.
    pub stream_id: StreamId,
    /// Error code that the application chose.
    pub error_code: VarInt,
    /// Final size of the stream, in bytes: the number of bytes that the sender has sent on it.
    pub final_size: VarInt,
}

/// A STOP_SENDING frame (RFC 9000 s.19.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSending {
    /// The stream.
    pub stream_id: StreamId,
    /// Error code that the application chose.
    pub error_code: VarInt,
}

impl ResetStream {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(ResetStream {
            stream_id: read_stream_id(reader)?,
            error_code: reader.varint()?,
            final_size: reader.varint()?,
        })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let ResetStream { stream_id, error_code, final_size } = *self;
        let frame_type = FrameType::RESET_STREAM.0;
        write_varints(sink, [frame_type, stream_id.as_varint(), error_code, final_size])
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        Fields::of([
            Field::stream_id(self.stream_id),
            Field::new("error", FieldValue::ApplicationError(self.error_code)).with_label("error"),
            Field::integer("final_size", self.final_size).with_label("at"),
        ])
    }
}

impl StopSending {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(StopSending { stream_id: read_stream_id(reader)?, error_code: reader.varint()? })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = FrameType::STOP_SENDING.0;
        write_varints(sink, [frame_type, self.stream_id.as_varint(), self.error_code])
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        Fields::of([
            Field::stream_id(self.stream_id),
            Field::new("error", FieldValue::ApplicationError(self.error_code)).with_label("error"),
        ])
    }
}

pub(super) fn read_stream_id(reader: &mut Reader<'_>) -> Result<StreamId, FrameErrorKind> {
    Ok(StreamId::from(reader.varint()?))
}
