//! Frames that wait to be sent, and that are sent again unchanged if they are lost. Frames whose
//! content depends on the present state, such as limits, are not stored but built when they are
//! sent.

use std::collections::VecDeque;

use equic_wire::Writer;

use super::Connection;
use super::frames::SentFrame;
use super::space::{FrameList, SpaceId};
use crate::lazy::LazyBox;

/// Frames that wait for a 1-RTT packet. Whoever adds a frame limits how many of its type wait.
#[derive(Default)]
pub(super) struct Outbox {
    frames: LazyBox<VecDeque<SentFrame>>,
}

impl Outbox {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of frames for which `alike` is true.
    pub(super) fn count(&self, alike: impl Fn(&SentFrame) -> bool) -> usize {
        self.frames.iter().filter(|frame| alike(frame)).count()
    }

    /// Adds a frame. [`SentFrame::stored`] must return the frame to send.
    pub(super) fn push(&mut self, frame: SentFrame) {
        debug_assert!(frame.stored().is_some(), "{frame:?} has no content to send");
        self.frames.push_back(frame);
    }

    /// Frees memory if no frame waits.
    pub(super) fn shrink(&mut self) {
        if self.frames.is_empty() {
            self.frames = LazyBox::default();
        }
    }

    fn pop(&mut self) -> Option<SentFrame> {
        self.frames.get_mut_if_allocated()?.pop_front()
    }

    fn put_back(&mut self, frame: SentFrame) {
        self.frames.push_front(frame);
    }
}

impl Connection {
    /// Returns true if a frame of the outbox must be sent now.
    #[inline]
    pub(super) fn has_stored_frames(&self) -> bool {
        self.handshake.is_complete() && !self.outbox.is_empty()
    }

    /// Writes the frames of the outbox. Before the handshake is complete, they wait: they are not
    /// sent in 0-RTT packets.
    pub(super) fn write_stored_frames(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        while self.handshake.is_complete()
            && let Some(sent) = self.outbox.pop()
        {
            let Some(frame) = sent.stored() else { continue };
            if self.write_frame(id, &frame, writer).is_err() {
                self.outbox.put_back(sent);
                return;
            }
            frames.push(sent);
        }
    }
}
