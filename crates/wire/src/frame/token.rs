//! NEW_TOKEN frames (RFC 9000 s.19.7).

use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType};
use crate::VarInt;
use crate::cursor::{BufferFull, Reader, Sink};

frame_types! {
    /// NEW_TOKEN.
    NEW_TOKEN = 0x07, "NEW_TOKEN", Rules::USUAL.packets(IN_ONE_RTT).with(SERVER_ONLY);
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

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, FrameErrorKind> {
        NewToken::new(reader.varint_bytes()?).ok_or(FrameErrorKind::EmptyToken)
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(FrameType::NEW_TOKEN.0)?;
        sink.varint_bytes(self.token)
    }

    /// A token is secret, so its only field is its length.
    pub(super) fn fields(&self) -> Fields<'a> {
        let length = FieldValue::TokenLength(self.token.len() as u64);
        Fields::of([Field::new("token", length).with_unit("bytes")])
    }
}
