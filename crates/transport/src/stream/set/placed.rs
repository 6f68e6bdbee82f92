//! Packets that are opened right to where a stream's data waits: which stream the next one is expected to be of.

use equic_wire::frame;

use super::{StreamEvent, Streams};
use crate::stream::place::{Form, Place};

/// What the next packet is expected to be: a STREAM frame and nothing else, of the stream that the last packets were of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// What the last packet was that was a STREAM frame and nothing else.
    last: Option<Form>,
    /// That before it was the same.
    sure: bool,
}

impl Streams {
    /// Place for a packet whose frames take so many bytes, if it is likely to be a STREAM frame that goes on where all
    /// data of its stream ends, and may come; none: it is to be opened elsewhere.
    #[inline(always)]
    pub(crate) fn place_for(&mut self, packet: usize) -> Option<Place<'_>> {
        let Expected { last: Some(form), sure: true } = self.expected else { return None };
        let room = self.room();
        let half = self.streams.get_mut(&form.id())?.receive.as_mut()?;
        let offset = half.next_offset();
        let (header, length) = form.split(packet, offset)?;
        Place::new(half.place(length, room)?, form, (header, offset))
    }

    /// A packet was opened to the place that it was given, and so many bytes of data are there.
    #[inline(always)]
    pub(crate) fn take_placed(&mut self, length: usize) {
        let Some(form) = self.expected.last else { return };
        let stream = self.streams.get_mut(&form.id());
        let half = stream.and_then(|stream| stream.receive.as_mut());
        debug_assert!(half.is_some(), "it gave the packet room, and nothing happened since");
        if let Some(half) = half {
            half.on_placed(length);
            self.received += length as u64;
            self.events.insert(StreamEvent::Readable(form.id()));
        }
    }

    /// A packet was this STREAM frame and nothing else.
    #[inline]
    pub(crate) fn expect_more(&mut self, frame: &frame::Stream<'_>) {
        let this = Some(Form::of(frame));
        self.expected = Expected { last: this, sure: self.expected.last == this };
    }

    /// A packet was not what it was expected to be.
    pub(crate) fn expect_nothing(&mut self) {
        self.expected.sure = false;
    }
}
