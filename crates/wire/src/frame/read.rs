//! Reads the frames in the payload of a packet.

use super::{Frame, FrameError, FrameErrorKind, FrameType};
use crate::Side;
use crate::cursor::{Reader, UnexpectedEnd};
use crate::packet::PacketType;

/// An iterator over the frames of a packet's payload, in order. It ends after the first malformed
/// frame. It also ends after a frame of unknown type. To continue after such a frame, call
/// [`Frames::resume`] with the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
}

impl From<UnexpectedEnd> for FrameErrorKind {
    fn from(_: UnexpectedEnd) -> Self {
        FrameErrorKind::Truncated
    }
}

impl<'a> Frames<'a> {
    /// Creates an iterator over the frames of `payload`, which must be decrypted and authenticated.
    ///
    /// # Errors
    /// Fails with PROTOCOL_VIOLATION if the payload is empty (RFC 9000 s.12.4).
    pub const fn new(payload: &'a [u8]) -> Result<Self, FrameError> {
        if payload.is_empty() {
            return Err(FrameError {
                frame_type: FrameType::PADDING,
                kind: FrameErrorKind::NoFrames,
            });
        }
        Ok(Frames { reader: Reader::new(payload) })
    }

    /// The bytes of the payload that have not been read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Continues after an unknown frame. `rest` is the part of
    /// [`UnknownFrame::rest`](super::UnknownFrame::rest) behind the fields that the extension has
    /// read.
    pub const fn resume(&mut self, rest: &'a [u8]) {
        self.reader = Reader::new(rest);
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let frame = Frame::read(&mut self.reader);
        if frame.is_err() {
            self.reader.take_rest();
        }
        Some(frame)
    }
}

impl<'a> Frame<'a> {
    /// Reads one frame. A frame of unknown type takes all remaining bytes, and so does a frame that
    /// has data but no Length field.
    ///
    /// # Errors
    /// Fails if the frame is malformed. The type of the packet is not considered. After an error,
    /// the position of `reader` is unspecified.
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
        let frame_type = FrameType::read(reader)?;
        Frame::read_fields(reader, frame_type).map_err(|kind| FrameError { frame_type, kind })
    }

    /// Checks that `sender` may send the frame in a packet of type `packet`.
    ///
    /// # Errors
    /// Fails with PROTOCOL_VIOLATION if such packets must not contain the frame, or if this side
    /// must not send it. A frame of unknown type passes, because its extension must check it.
    pub fn check_allowed(&self, packet: PacketType, sender: Side) -> Result<(), FrameError> {
        let frame_type = self.frame_type();
        if frame_type.allowed_in(packet) == Some(false) {
            return Err(FrameError { frame_type, kind: FrameErrorKind::WrongPacketType });
        }
        if !frame_type.may_be_sent_by(sender) {
            return Err(FrameError { frame_type, kind: FrameErrorKind::WrongSender });
        }
        Ok(())
    }
}
