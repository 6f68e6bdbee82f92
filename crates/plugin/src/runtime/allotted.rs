//! Translates frame types between two kinds of numbers. The numbers in a plugin's manifest are
//! those that its bytecode uses. The numbers on the wire are those that the plugin's offer chose.
//! This module translates the arguments of calls and the type at the beginning of frames.

use equic_transport::operation::{Bytes, Call, HookError};
use equic_wire::{Reader, VarInt, Writer};

use crate::manifest::Frame;

/// A frame type, with its number in the manifest and its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameTypes {
    /// Number in the manifest.
    pub(super) named: u64,
    /// Number on the wire.
    pub(super) wire: u64,
}

/// The frame types of a plugin on a connection, in the order of its manifest.
#[derive(Clone, Debug)]
pub(super) struct Allotted(Vec<FrameTypes>);

impl Allotted {
    /// Pairs the frame types of a manifest with those that an offer chose for the wire.
    pub(super) fn new(frames: &[Frame], wire: &[u64]) -> Allotted {
        let pairs = frames.iter().zip(wire);
        Allotted(
            pairs.map(|(own, wire)| FrameTypes { named: own.frame_type, wire: *wire }).collect(),
        )
    }

    /// Returns `true` if at least one frame type has different numbers in the manifest and on the
    /// wire.
    pub(super) fn differ(&self) -> bool {
        self.0.iter().any(|one| one.named != one.wire)
    }

    /// Returns the wire number for a frame type of the manifest, or `None` if the plugin does not
    /// define this type.
    pub(super) fn wire(&self, named: u64) -> Option<u64> {
        self.0.iter().find(|one| one.named == named).map(|one| one.wire)
    }

    /// Returns the frame type of a call, or `None` if the plugin does not define that type.
    pub(super) fn of(&self, call: &Call<'_>) -> Option<FrameTypes> {
        self.0.iter().find(|one| one.wire == call.parameter).copied()
    }
}

impl FrameTypes {
    /// Returns the bytes of a call after replacing the frame type on the wire by the manifest's.
    /// Also returns how many bytes longer they are because of that.
    pub(super) fn seen(self, bytes: &Bytes<'_>) -> Option<(Vec<u8>, isize)> {
        match bytes {
            Bytes::None => None,
            Bytes::In(frame) => Some(self.named_in(frame)),
            // A function that only observes gets an empty buffer.
            Bytes::Out(buffer) => Some((vec![0; buffer.len()], 0)),
        }
    }

    fn named_in(self, frame: &[u8]) -> (Vec<u8>, isize) {
        let mut reader = Reader::new(frame);
        if reader.varint().map(VarInt::get) != Ok(self.wire) {
            // The bytes do not begin with this frame type.
            return (frame.to_vec(), 0);
        }
        let mut head = [0; 8];
        let mut writer = Writer::new(&mut head);
        // The buffer has eight bytes, which is enough for every frame type.
        let _ = writer.varint(varint(self.named));
        let seen = [writer.written(), reader.rest()].concat();
        let more = seen.len() as isize - frame.len() as isize;
        (seen, more)
    }

    /// Returns the space that a plugin has for a frame with the manifest's type if a packet has
    /// room for this many bytes.
    pub(super) fn room(self, bytes: usize) -> usize {
        let longer =
            varint(self.wire).encoded_len().saturating_sub(varint(self.named).encoded_len());
        bytes.saturating_sub(longer)
    }

    /// Copies a frame that a plugin wrote into `buffer`, with the wire's frame type instead of the
    /// manifest's. Returns its new length.
    ///
    /// # Errors
    /// The plugin's frame does not begin with the manifest's type, or the buffer is too small.
    pub(super) fn write(self, written: &[u8], buffer: &mut [u8]) -> Result<usize, HookError> {
        let mut reader = Reader::new(written);
        let found = reader.varint().map(VarInt::get);
        let wrong = || {
            HookError(format!(
                "the plugin did not write exactly one frame of type {:#x}",
                self.named
            ))
        };
        if found != Ok(self.named) {
            return Err(wrong());
        }
        let mut writer = Writer::new(buffer);
        writer.varint(varint(self.wire)).map_err(|_| wrong())?;
        writer.bytes(reader.rest()).map_err(|_| wrong())?;
        Ok(writer.position())
    }
}

fn varint(value: u64) -> VarInt {
    VarInt::new(value).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_type_is_translated_to_the_wire_and_back() {
        for (named, wire) in
            [(0x1f00, 0x1f03), (0x1f00, 0x4001), (0x2f50_0000, 0x41), (0x40, 1 << 40)]
        {
            let types = FrameTypes { named, wire };
            let mut space = [0; 64];
            let mut writer = Writer::new(&mut space);
            writer.varint(varint(named)).unwrap();
            writer.bytes(b"\x05hello").unwrap();
            let written = writer.written().to_vec();
            let mut packet = vec![0; written.len() + 8];
            let length = types.write(&written, &mut packet).unwrap();
            assert!(types.room(length) <= written.len());
            let more = written.len() as isize - length as isize;
            assert_eq!(types.seen(&Bytes::In(&packet[..length])), Some((written.clone(), more)));
            // These cases must fail: a buffer that is too small, another frame type, and an empty
            // frame.
            assert!(types.write(&written, &mut packet[..length - 1]).is_err());
            assert!(types.write(b"\x41\x05hello", &mut packet[..]).is_err());
            assert!(types.write(b"", &mut packet).is_err());
            assert_eq!(types.seen(&Bytes::In(b"\x01")), Some((b"\x01".to_vec(), 0)));
        }
    }
}
