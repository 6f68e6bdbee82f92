//! CRYPTO frames (RFC 9000 s.19.6).

use super::field::{Field, FieldValue, Fields};
use super::stream::end_of;
use super::{FrameErrorKind, FrameType};
use crate::VarInt;
use crate::cursor::{BufferFull, Reader, Sink};

frame_types! {
    /// CRYPTO.
    CRYPTO = 0x06, "CRYPTO", Rules::USUAL.packets(IN_INITIAL | IN_HANDSHAKE | IN_ONE_RTT);
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

    pub(super) fn fields(&self) -> Fields<'a> {
        Crypto::fields_of(self.offset.get(), self.data.len() as u64)
    }
}

impl Crypto<'_> {
    /// Returns the fields of a frame with `length` bytes of data. Use this if the data itself is
    /// not available.
    pub fn fields_of<'f>(offset: u64, length: u64) -> Fields<'f> {
        let data = FieldValue::Data { offset, length, fin: false };
        Fields::of([Field::new("raw", data)])
    }
}
