//! Decrypts packets directly into a stream's buffer. The stream of the next packet is predicted
//! from earlier packets.

use equic_wire::frame;

use super::{StreamEvent, Streams};
use crate::stream::place::{Form, Place};

/// Predicts the next packet: a single STREAM frame, of the same stream as in the last packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Form of the STREAM frame in the last packet that consisted of a single STREAM frame.
    last: Option<Form>,
    /// True if the STREAM frames in the last two packets had the same form.
    sure: bool,
}

impl Streams {
    /// Returns the part of a stream's buffer into which the next packet should be decrypted.
    /// `packet` is the length of the packet's frames in bytes. Returns `None` unless the packet
    /// probably contains a single STREAM frame whose data directly follows the received data of its
    /// stream, within the limits.
    #[inline(always)]
    pub(crate) fn place_for(&mut self, packet: usize) -> Option<Place<'_>> {
        let Expected { last: Some(form), sure: true } = self.expected else { return None };
        let room = self.room();
        let half = self.streams.get_mut(&form.id())?.receive.as_mut()?;
        let offset = half.next_offset();
        let (header, length) = form.split(packet, offset)?;
        Place::new(half.place(length, room)?, form, (header, offset))
    }

    /// Records that a packet was decrypted into a stream's buffer, with this many bytes of data.
    #[inline(always)]
    pub(crate) fn take_placed(&mut self, length: usize) {
        let Some(form) = self.expected.last else { return };
        let stream = self.streams.get_mut(&form.id());
        let half = stream.and_then(|stream| stream.receive.as_mut());
        debug_assert!(half.is_some(), "the stream that provided the place exists");
        if let Some(half) = half {
            half.on_placed(length);
            self.received += length as u64;
            self.events.insert(StreamEvent::Readable(form.id()));
        }
    }

    /// Records that a packet consisted of this single STREAM frame.
    #[inline]
    pub(crate) fn expect_more(&mut self, frame: &frame::Stream<'_>) {
        let this = Some(Form::of(frame));
        self.expected = Expected { last: this, sure: self.expected.last == this };
    }

    /// Records that the last packet did not have the expected form.
    pub(crate) fn expect_nothing(&mut self) {
        self.expected.sure = false;
    }
}
