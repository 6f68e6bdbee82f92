//! Frames whose fields must satisfy conditions. Their constructors reject values that violate a
//! condition.

use super::frame_type::{STREAM, STREAM_FIN, STREAM_LAST, STREAM_LEN, STREAM_OFF};
use super::{FrameErrorKind, FrameType};
use crate::cursor::{BufferFull, Counter, Reader, Sink, Writer};
use crate::{ConnectionId, ResetToken, StreamId, VarInt};

/// Returns `offset + len`, or `None` if that exceeds 2^62-1 (RFC 9000 s.19.6, s.19.8).
#[inline]
fn end_of(offset: VarInt, len: usize) -> Option<VarInt> {
    offset.checked_add(u64::try_from(len).ok()?)
}

/// A CRYPTO frame (RFC 9000 s.19.6). Its data does not extend beyond offset 2^62-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crypto<'a> {
    offset: VarInt,
    data: &'a [u8],
}

impl<'a> Crypto<'a> {
    /// Creates a frame. Returns `None` if the data extends beyond offset 2^62-1.
    pub fn new(offset: VarInt, data: &'a [u8]) -> Option<Self> {
        end_of(offset, data.len()).map(|_| Crypto { offset, data })
    }

    /// Offset at which the data begins, in bytes.
    pub const fn offset(&self) -> VarInt {
        self.offset
    }

    /// The data.
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, FrameErrorKind> {
        let offset = reader.varint()?;
        Crypto::new(offset, reader.varint_bytes()?).ok_or(FrameErrorKind::OffsetTooLarge)
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(FrameType::CRYPTO.0)?;
        sink.varint(self.offset)?;
        sink.varint_bytes(self.data)
    }
}

/// A NEW_TOKEN frame (RFC 9000 s.19.7). Its token is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewToken<'a> {
    token: &'a [u8],
}

impl<'a> NewToken<'a> {
    /// Creates a frame. Returns `None` if the token is empty.
    pub const fn new(token: &'a [u8]) -> Option<Self> {
        if token.is_empty() { None } else { Some(NewToken { token }) }
    }

    /// The token. It is never empty.
    pub const fn token(&self) -> &'a [u8] {
        self.token
    }
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

    #[inline]
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
}

/// A NEW_CONNECTION_ID frame (RFC 9000 s.19.15). Its ID is not empty, and `retire_prior_to` does
/// not exceed `sequence_number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewConnectionId {
    sequence_number: VarInt,
    retire_prior_to: VarInt,
    connection_id: ConnectionId,
    reset_token: ResetToken,
}

impl NewConnectionId {
    /// Creates a frame. Returns `None` if the ID is empty, or if `retire_prior_to` is larger than
    /// `sequence_number`.
    pub fn new(
        sequence_number: VarInt,
        retire_prior_to: VarInt,
        connection_id: ConnectionId,
        reset_token: ResetToken,
    ) -> Option<Self> {
        let legal = !connection_id.is_empty() && retire_prior_to <= sequence_number;
        legal.then_some(NewConnectionId {
            sequence_number,
            retire_prior_to,
            connection_id,
            reset_token,
        })
    }

    /// The sequence number of the new connection ID.
    pub const fn sequence_number(&self) -> VarInt {
        self.sequence_number
    }

    /// The peer must retire all connection IDs whose sequence number is smaller than this.
    pub const fn retire_prior_to(&self) -> VarInt {
        self.retire_prior_to
    }

    /// The connection ID, of 1 to 20 bytes.
    pub const fn connection_id(&self) -> ConnectionId {
        self.connection_id
    }

    /// The stateless reset token of the new connection ID.
    pub const fn reset_token(&self) -> ResetToken {
        self.reset_token
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let sequence_number = reader.varint()?;
        let retire_prior_to = reader.varint()?;
        let len = reader.u8()?;
        // The length is checked before the ID is read. So an invalid length is reported as such,
        // even if the bytes end inside the ID.
        if len == 0 || usize::from(len) > ConnectionId::MAX_LEN {
            return Err(FrameErrorKind::ConnectionIdLength);
        }
        let connection_id = ConnectionId::new(reader.bytes(len.into())?)
            .map_err(|_| FrameErrorKind::ConnectionIdLength)?;
        let reset_token = ResetToken(*reader.array()?);
        NewConnectionId::new(sequence_number, retire_prior_to, connection_id, reset_token)
            .ok_or(FrameErrorKind::RetirePriorTo)
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(FrameType::NEW_CONNECTION_ID.0)?;
        self.encode_fields(sink)
    }

    /// Writes all fields of the frame after its type. A PATH_NEW_CONNECTION_ID frame has the same
    /// fields after its path ID.
    pub(super) fn encode_fields(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.sequence_number)?;
        sink.varint(self.retire_prior_to)?;
        sink.u8(self.connection_id.len_byte())?;
        sink.bytes(self.connection_id.as_bytes())?;
        sink.bytes(&self.reset_token.0)
    }
}

/// A DATAGRAM frame (RFC 9221 s.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramFrame<'a> {
    /// The application's datagram. It may be empty.
    pub data: &'a [u8],
    /// True if the frame has no Length field, so that its data extends to the end of the packet.
    pub to_end_of_packet: bool,
}

impl DatagramFrame<'_> {
    pub(super) const fn frame_type(&self) -> FrameType {
        if self.to_end_of_packet { FrameType::DATAGRAM } else { FrameType::DATAGRAM_LEN }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.frame_type().0)?;
        if self.to_end_of_packet { sink.bytes(self.data) } else { sink.varint_bytes(self.data) }
    }
}
