//! The fields of a frame, for logs. All formats of a log show the same list of fields.

use super::{Ack, FrameType};
use crate::{ConnectionId, Direction, PathId, StreamId, TransportErrorCode, VarInt};
use core::time::Duration;

/// Maximum number of fields of a frame.
const MAX_FIELDS: usize = 4;

/// A field of a frame, for logs. It has no content of the application, and no secrets: of tokens
/// and data, it has only the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name of the field in qlog files.
    pub name: &'static str,
    /// The field's value.
    pub value: FieldValue<'a>,
    /// The form of the field in a line of text.
    pub text: FieldText,
}

/// The value of a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// An integer.
    Integer(VarInt),
    /// A fixed word.
    Word(&'static str),
    /// The direction of streams.
    StreamType(Direction),
    /// A duration.
    Duration(Duration),
    /// Bytes without a meaning for people.
    Bytes(&'a [u8]),
    /// A connection ID.
    ConnectionId(ConnectionId),
    /// A path ID.
    PathId(PathId),
    /// A frame type.
    FrameType(FrameType),
    /// An error code that the application chose.
    ApplicationError(VarInt),
    /// An error of the transport, shown by its name.
    TransportError(TransportErrorCode),
    /// An error code that logs show as a number, because qlog has no name for it.
    ErrorCode(TransportErrorCode),
    /// A reason phrase, which may be invalid UTF-8.
    Reason(&'a [u8]),
    /// Number of bytes that the frames themselves fill.
    PayloadLength(u64),
    /// Length of the frame's data, in bytes.
    DataLength(u64),
    /// Length of a token, in bytes.
    TokenLength(u64),
    /// Data of a stream, or of the TLS handshake.
    Data {
        /// Offset at which the data begins, in bytes.
        offset: u64,
        /// Length of the data, in bytes.
        length: u64,
        /// True if the stream ends with this data.
        fin: bool,
    },
    /// ACK Delay, ACK ranges and ECN counts.
    Ack(Ack<'a>),
}

/// Form of a [`Field`] in a line of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldText {
    /// The line leaves the field out.
    Hidden,
    /// The value only.
    Value,
    /// This word, then the value.
    Label(&'static str),
    /// The value, then this unit.
    Unit(&'static str),
}

impl<'a> Field<'a> {
    pub(super) const fn new(name: &'static str, value: FieldValue<'a>) -> Self {
        Field { name, value, text: FieldText::Value }
    }

    pub(super) const fn integer(name: &'static str, value: VarInt) -> Self {
        Field::new(name, FieldValue::Integer(value))
    }

    pub(super) const fn stream_id(id: StreamId) -> Self {
        Field::integer("stream_id", id.as_varint())
    }

    pub(super) const fn hidden(self) -> Self {
        Field { text: FieldText::Hidden, ..self }
    }

    pub(super) const fn with_label(self, label: &'static str) -> Self {
        Field { text: FieldText::Label(label), ..self }
    }

    pub(super) const fn with_unit(self, unit: &'static str) -> Self {
        Field { text: FieldText::Unit(unit), ..self }
    }
}

/// The fields of a frame, in the order of a log. [`Frame::fields`](super::Frame::fields) returns
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    fields: [Option<Field<'a>>; MAX_FIELDS],
}

impl<'a> Fields<'a> {
    /// A frame without fields.
    pub(super) const NONE: Fields<'static> = Fields { fields: [None; MAX_FIELDS] };

    pub(super) fn of<const N: usize>(fields: [Field<'a>; N]) -> Self {
        const { assert!(N <= MAX_FIELDS) };
        let mut list = Fields { fields: [None; MAX_FIELDS] };
        list.fields.iter_mut().zip(fields).for_each(|(place, field)| *place = Some(field));
        list
    }

    /// Appends a field. Does nothing if the list is full.
    pub(super) fn push(&mut self, field: Field<'a>) {
        if let Some(place) = self.fields.iter_mut().find(|place| place.is_none()) {
            *place = Some(field);
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let first = self.fields.iter_mut().find(|place| place.is_some())?;
        first.take()
    }
}
