//! Decrypts a packet that probably continues a stream directly into the stream's buffer, so that
//! the data of its STREAM frame need not be copied.
//!
//! Decryption also writes the header of the STREAM frame, into the bytes before the place of the
//! data. These bytes may contain data that was not read yet. So they are saved before, and restored
//! afterwards.

use equic_wire::frame;
use equic_wire::{StreamId, VarInt};

/// Number of bytes before the data that the header of the STREAM frame may overwrite. They suffice
/// for all headers except those with extremely large stream IDs.
pub(super) const BEFORE: usize = 16;

/// Smallest size in bytes of a packet that is decrypted directly into a stream's buffer. Smaller
/// packets would gain little. In packets of at least this size, a Length field takes two or four
/// bytes.
const MIN_PACKET_SIZE: usize = 512;

/// The form of a STREAM frame that fills a packet: its header without the offset. The integers in
/// the header must have the shortest encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    id: StreamId,
    has_length: bool,
    /// Length of the frame's header without the offset field, in bytes.
    fixed: u8,
}

impl Form {
    /// Returns the form of the header of a STREAM frame.
    #[inline]
    pub(super) fn of(frame: &frame::Stream<'_>) -> Form {
        let (id, has_length) = (frame.stream_id(), !frame.is_to_end_of_packet());
        let length = if has_length { 2 } else { 0 };
        Form { id, has_length, fixed: 1 + id.as_varint().encoded_len() as u8 + length }
    }

    /// Returns the ID of the stream.
    pub(super) fn id(self) -> StreamId {
        self.id
    }

    /// Returns the lengths of the header and of the data of a STREAM frame at this offset that
    /// fills a packet of this size. Returns `None` if the packet is too small.
    #[inline]
    pub(super) fn split(self, packet: usize, offset: u64) -> Option<(usize, usize)> {
        // A frame at offset 0 has no offset field. Such a frame need not be considered, because
        // there is no room before the data on a stream's first page.
        let offset = VarInt::new(offset).ok()?.encoded_len();
        let header = usize::from(self.fixed) + offset;
        let fits = packet >= MIN_PACKET_SIZE && header <= BEFORE;
        fits.then(|| (header, packet - header))
    }
}

/// The part of a stream's buffer into which a packet is decrypted.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// [`BEFORE`] bytes, followed by the room for the data of the packet.
    memory: &'a mut [u8],
    /// The saved content of the first [`BEFORE`] bytes of `memory`.
    kept: [u8; BEFORE],
    /// Expected length of the header of the STREAM frame, in bytes.
    header: usize,
    form: Form,
    offset: u64,
}

impl<'a> Place<'a> {
    /// Creates a place from memory of a stream's buffer, with [`BEFORE`] bytes before the data. The
    /// place is for a STREAM frame whose header has this length. Returns `None` if the memory is
    /// too small.
    #[inline(always)]
    pub(super) fn new(
        memory: &'a mut [u8],
        form: Form,
        (header, offset): (usize, u64),
    ) -> Option<Place<'a>> {
        let kept = *memory.first_chunk()?;
        (header <= BEFORE).then_some(Place { memory, kept, header, form, offset })
    }

    /// Returns the buffer into which the packet must be decrypted.
    #[inline(always)]
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory[BEFORE - self.header..]
    }

    /// Restores the overwritten bytes after the packet was decrypted. Returns the number of bytes
    /// of data that are now in place. If the packet does not have the expected form, moves it to
    /// `packet`, as if it had been decrypted there, and returns `None`.
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

    /// Restores the overwritten bytes if the packet could not be decrypted, or was never decrypted.
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

    /// Returns a packet that consists of a single STREAM frame without FIN.
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

    /// Decrypts `packet`, after a packet like `last` has led to the expectation of more data at the
    /// stream offset `offset`. Returns the data if it was decrypted in place, or the packet if it
    /// had to be moved.
    fn settled(last: &[u8], offset: u64, packet: &[u8]) -> Option<Result<Vec<u8>, Vec<u8>>> {
        let (header, data) = form_of(last).split(packet.len(), offset)?;
        let mut memory = vec![0xdb; BEFORE + data];
        let mut place = Place::new(&mut memory, form_of(last), (header, offset)).unwrap();
        place.memory().copy_from_slice(packet);
        let mut moved = vec![0; packet.len() + 16];
        let settled = place.settle(&mut moved);
        assert_eq!(memory[..BEFORE], [0xdb; BEFORE], "unread bytes are unchanged");
        moved.truncate(packet.len());
        Some(match settled {
            Some(length) => {
                assert_eq!(length, data);
                Ok(memory[BEFORE..].to_vec())
            }
            None => Err(moved),
        })
    }

    /// The header that the receiver expects must be the one that senders write. This holds for all
    /// lengths of its integers.
    #[test]
    fn in_place_next_frame_is_decrypted_into_its_place() {
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
    fn in_place_other_packets_are_copied() {
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
        assert_eq!(settled(&last, 1_001, &next[..511]), None, "the packet is too small");
    }

    #[test]
    fn in_place_failure_leaves_waiting_data_unchanged() {
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
