//! DATAGRAM frames (RFC 9221 s.4).

use super::FrameType;
use super::field::{Field, FieldValue, Fields};
use crate::VarInt;
use crate::cursor::{BufferFull, Reader, Sink, UnexpectedEnd};

frame_types! {
    /// DATAGRAM without a Length field, up to the end of the packet (RFC 9221).
    DATAGRAM = 0x30, "DATAGRAM", Rules::USUAL;
    /// DATAGRAM with a Length field (RFC 9221).
    DATAGRAM_LEN = 0x31, "DATAGRAM", Rules::USUAL;
}

/// A DATAGRAM frame (RFC 9221 s.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramFrame<'a> {
    /// The application's datagram. It may be empty.
    pub data: &'a [u8],
    /// True if the frame has no Length field, so that its data extends to the end of the packet.
    pub to_end_of_packet: bool,
}

impl<'a> DatagramFrame<'a> {
    pub(super) fn read(
        reader: &mut Reader<'a>,
        to_end_of_packet: bool,
    ) -> Result<Self, UnexpectedEnd> {
        let data = if to_end_of_packet { reader.take_rest() } else { reader.varint_bytes()? };
        Ok(DatagramFrame { data, to_end_of_packet })
    }

    pub(super) const fn frame_type(&self) -> FrameType {
        if self.to_end_of_packet { FrameType::DATAGRAM } else { FrameType::DATAGRAM_LEN }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.frame_type().0)?;
        if self.to_end_of_packet { sink.bytes(self.data) } else { sink.varint_bytes(self.data) }
    }

    pub(super) fn fields(&self) -> Fields<'a> {
        let length = FieldValue::DataLength(self.data.len() as u64);
        Fields::of([Field::new("raw", length).with_unit("bytes")])
    }
}
