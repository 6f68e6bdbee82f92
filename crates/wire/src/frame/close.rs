//! CONNECTION_CLOSE frames (RFC 9000 s.19.19).

use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType, write_varints};
use crate::cursor::{BufferFull, Reader, Sink};
use crate::{TransportErrorCode, VarInt};

frame_types! {
    /// CONNECTION_CLOSE by the transport.
    CONNECTION_CLOSE = 0x1c, "CONNECTION_CLOSE", Rules::USUAL.packets(IN_ALL).with(NOT_ELICITING);
    /// CONNECTION_CLOSE by the application.
    CONNECTION_CLOSE_APPLICATION = 0x1d, "CONNECTION_CLOSE", Rules::USUAL.with(NOT_ELICITING);
}

/// A CONNECTION_CLOSE frame (RFC 9000 s.19.19). The reason phrase of a received frame may be
/// invalid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionClose<'a> {
    /// Type 0x1c: the transport closes the connection.
    Transport {
        /// Reason for the close.
        error_code: TransportErrorCode,
        /// Type of the frame that caused the error, or PADDING if that is unknown.
        frame_type: FrameType,
        /// Reason phrase, which explains the close to people.
        reason: &'a [u8],
    },
    /// Type 0x1d: the application closes the connection.
    Application {
        /// Error code that the application chose.
        error_code: VarInt,
        /// Reason phrase, which explains the close to people.
        reason: &'a [u8],
    },
}

impl<'a> ConnectionClose<'a> {
    pub(super) fn read_transport(reader: &mut Reader<'a>) -> Result<Self, FrameErrorKind> {
        Ok(ConnectionClose::Transport {
            error_code: TransportErrorCode(reader.varint()?),
            frame_type: FrameType(reader.varint()?),
            reason: reader.varint_bytes()?,
        })
    }

    pub(super) fn read_application(reader: &mut Reader<'a>) -> Result<Self, FrameErrorKind> {
        let error_code = reader.varint()?;
        Ok(ConnectionClose::Application { error_code, reason: reader.varint_bytes()? })
    }

    pub(super) const fn frame_type(&self) -> FrameType {
        match self {
            ConnectionClose::Transport { .. } => FrameType::CONNECTION_CLOSE,
            ConnectionClose::Application { .. } => FrameType::CONNECTION_CLOSE_APPLICATION,
        }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.frame_type().0)?;
        match self {
            ConnectionClose::Transport { error_code, frame_type, reason } => {
                write_varints(sink, [error_code.0, frame_type.0])?;
                sink.varint_bytes(reason)
            }
            ConnectionClose::Application { error_code, reason } => {
                sink.varint(*error_code)?;
                sink.varint_bytes(reason)
            }
        }
    }

    pub(super) fn fields(&self) -> Fields<'a> {
        let space = |name| Field::new("error_space", FieldValue::Word(name));
        let reason = |bytes: &'a [u8]| Field::new("reason", FieldValue::Reason(bytes));
        match *self {
            ConnectionClose::Transport { error_code, frame_type, reason: bytes } => {
                let error = Field::new("error", FieldValue::TransportError(error_code));
                let mut fields = Fields::of([space("transport").hidden(), error]);
                if frame_type != FrameType::PADDING {
                    let trigger = FieldValue::FrameType(frame_type);
                    fields.push(Field::new("trigger_frame_type", trigger).hidden());
                }
                fields.push(reason(bytes));
                fields
            }
            ConnectionClose::Application { error_code, reason: bytes } => {
                let error = Field::new("error", FieldValue::ApplicationError(error_code));
                Fields::of([space("application"), error, reason(bytes)])
            }
        }
    }
}
