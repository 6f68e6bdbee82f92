//! Where the next packet of a stream is opened to: its STREAM frame's data comes to lie where the stream goes on.
//!
//! The frame's header comes with it, and lies before the data, on what may be waiting to be read. That is kept, and put back.

use equic_wire::frame;
use equic_wire::{StreamId, VarInt};

/// Bytes before the data that may be the frame's header: of all but those of streams with immense IDs.
pub(super) const BEFORE: usize = 16;

/// Least bytes of a packet: in less there is little to be gained. With so many a Length takes two bytes or four.
const LEAST: usize = 512;

/// What a STREAM frame that fills a packet has before its data, if its sender writes integers as short as they can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    id: StreamId,
    has_length: bool,
    /// Bytes of the header beside the offset.
    fixed: u8,
}

impl Form {
    /// The form of a frame.
    #[inline]
    pub(super) fn of(frame: &frame::Stream<'_>) -> Form {
        let (id, has_length) = (frame.stream_id(), !frame.is_to_end_of_packet());
        let length = if has_length { 2 } else { 0 };
        Form { id, has_length, fixed: 1 + id.as_varint().encoded_len() as u8 + length }
    }

    /// The stream.
    pub(super) fn id(self) -> StreamId {
        self.id
    }

    /// Bytes of the header of a frame at this offset, and of the data that fills a packet of so many bytes behind it; none: it is not
    /// worth it.
    #[inline]
    pub(super) fn split(self, packet: usize, offset: u64) -> Option<(usize, usize)> {
        // Without an offset there is nothing before the data either.
        let offset = VarInt::new(offset).ok()?.encoded_len();
        let header = usize::from(self.fixed) + offset;
        let fits = packet >= LEAST && header <= BEFORE;
        fits.then(|| (header, packet - header))
    }
}

/// Memory that a packet is opened to.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// [`BEFORE`] bytes, and as many as there is data.
    memory: &'a mut [u8],
    /// What is in the former.
    kept: [u8; BEFORE],
    /// Bytes of the header.
    header: usize,
    form: Form,
    offset: u64,
}

impl<'a> Place<'a> {
    /// Of memory of a stream that has [`BEFORE`] bytes before the data, which is at this offset of it and has so many bytes of header;
    /// none: the memory has not.
    #[inline(always)]
    pub(super) fn new(
        memory: &'a mut [u8],
        form: Form,
        (header, offset): (usize, u64),
    ) -> Option<Place<'a>> {
        let kept = *memory.first_chunk()?;
        (header <= BEFORE).then_some(Place { memory, kept, header, form, offset })
    }

    /// What the packet is opened to: as many bytes as it was asked for.
    #[inline(always)]
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory[BEFORE - self.header..]
    }

    /// The packet was opened. Returns the number of bytes of data that are in place; none: it is not what was expected, and was moved
    /// to `packet`, as if it had been opened there, which has as many bytes or more.
    #[inline(always)]
    pub(crate) fn settle(mut self, packet: &mut [u8]) -> Option<usize> {
        let data = self.memory.len() - BEFORE;
        let (form, offset) = (self.form, self.offset);
        let expected = match frame::Stream::first_of(self.memory()) {
            Some((frame, behind)) => {
                frame.stream_id() == form.id
                    && frame.offset().get() == offset
                    && frame.data().len() == data
                    && behind.is_empty()
                    && !frame.fin()
                    && frame.is_to_end_of_packet() != form.has_length
            }
            None => false,
        };
        if !expected {
            let opened = self.memory();
            packet[..opened.len()].copy_from_slice(opened);
        }
        self.leave();
        expected.then_some(data)
    }

    /// The packet did not open, or was not opened.
    #[inline(always)]
    pub(crate) fn leave(self) {
        if let Some(before) = self.memory.first_chunk_mut() {
            *before = self.kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equic_wire::Writer;
    use equic_wire::frame::Stream;

    /// A packet of nothing but a frame without its end.
    fn packet(id: u64, offset: u64, data: &[u8], has_length: bool) -> Vec<u8> {
        let id = StreamId::from(VarInt::new(id).unwrap());
        let mut buffer = vec![0; data.len() + 32];
        let mut writer = Writer::new(&mut buffer);
        let offset = VarInt::new(offset).unwrap();
        let length = has_length.then_some(data.len());
        Stream::write_header(&mut writer, id, offset, length, false).unwrap();
        writer.bytes(data).unwrap();
        writer.written_mut().to_vec()
    }

    fn form_of(packet: &[u8]) -> Form {
        Form::of(&Stream::first_of(packet).unwrap().0)
    }

    /// Opens a packet where one like `last` is expected, with `offset` as the stream's end: the data that came to lie in place, or the
    /// packet as it was moved.
    fn settled(last: &[u8], offset: u64, packet: &[u8]) -> Option<Result<Vec<u8>, Vec<u8>>> {
        let (header, data) = form_of(last).split(packet.len(), offset)?;
        let mut memory = vec![0xdb; BEFORE + data];
        let mut place = Place::new(&mut memory, form_of(last), (header, offset)).unwrap();
        place.memory().copy_from_slice(packet);
        let mut moved = vec![0; packet.len() + 16];
        let settled = place.settle(&mut moved);
        assert_eq!(memory[..BEFORE], [0xdb; BEFORE], "what waits is as it was");
        moved.truncate(packet.len());
        Some(match settled {
            Some(length) => {
                assert_eq!(length, data);
                Ok(memory[BEFORE..].to_vec())
            }
            None => Err(moved),
        })
    }

    /// What is expected is what senders write, whatever the lengths of its integers.
    #[test]
    fn the_next_frame_comes_to_lie_in_place() {
        let mut placed = 0;
        for id in [0, 3, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            for offset in [1, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 20_000] {
                for (length, has_length) in
                    [(600, false), (600, true), (1_400, true), (16_000, true), (17_000, false)]
                {
                    let data: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                    let next = packet(id, offset, &data, has_length);
                    let before = packet(id, offset - 1, b"x", has_length);
                    let header = next.len() - data.len();
                    match settled(&before, offset, &next) {
                        Some(found) => assert_eq!(found, Ok(data)),
                        None => assert!(header > BEFORE),
                    }
                    placed += usize::from(header <= BEFORE);
                }
            }
        }
        assert!(placed > 200, "{placed}");
    }

    #[test]
    fn anything_else_is_moved_as_it_is() {
        let last = packet(4, 1_000, b"x", false);
        let data = vec![7; 1_200];
        let next = packet(4, 1_001, &data, false);
        assert!(settled(&last, 1_001, &next).unwrap().is_ok());
        let fin = [&[next[0] | 1], &next[1..]].concat();
        let ack_before = [&[0x02, 9, 0, 0, 0][..], &next].concat();
        let others = [
            packet(8, 1_001, &data, false),
            packet(4, 1_002, &data, false),
            packet(4, 900, &data, false),
            packet(4, 20_000, &data, false),
            packet(4, 1_001, &data, true),
            [&packet(4, 1_001, &data, true)[..], &[1]].concat(),
            fin,
            ack_before,
            vec![0; 1_200],
            vec![0xff; 1_200],
        ];
        for other in others {
            assert_eq!(settled(&last, 1_001, &other), Some(Err(other.clone())));
        }
        assert_eq!(settled(&last, 1_001, &next[..511]), None, "not worth it");
    }

    #[test]
    fn what_does_not_open_leaves_what_waits() {
        let last = packet(4, 1_000, b"x", false);
        let (header, data) = form_of(&last).split(600, 1_001).unwrap();
        let mut memory = vec![0xdb; BEFORE + data];
        let mut place = Place::new(&mut memory, form_of(&last), (header, 1_001)).unwrap();
        place.memory().fill(0);
        place.leave();
        assert_eq!(memory[..BEFORE], [0xdb; BEFORE]);
        assert!(Place::new(&mut [0; BEFORE - 1], form_of(&last), (header, 1_001)).is_none());
    }
}
