//! Memory that a connection keeps because of its peer, in bytes.

use std::collections::VecDeque;
use std::mem::size_of;

use super::close::Closing;
use super::space::SentFrame;
use super::{Connection, Event};
use crate::Timestamp;

impl Connection {
    /// Called when there is nothing to send. If nothing is in flight either, frees memory that is
    /// not in use, so that an idle connection takes little. The memory is allocated again when it
    /// is needed. See [`Activity::comes_to_rest`] for how often that happens.
    ///
    /// [`Activity::comes_to_rest`]: super::activity::Activity::comes_to_rest
    pub(super) fn may_rest(&mut self, now: Timestamp) {
        let quiet = self.handshake.is_confirmed() && matches!(self.closing, Closing::Open);
        if quiet && !self.spaces.are_in_flight() && self.activity.comes_to_rest(now) {
            self.shrink(now);
        }
    }

    #[cold]
    fn shrink(&mut self, now: Timestamp) {
        self.spaces.shrink();
        self.streams.shrink();
        self.ids.shrink(now);
        self.start.shrink();
        self.rng.shrink();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        self.outbox.shrink();
    }

    /// Returns the number of bytes kept because of what the peer sent or did not acknowledge. The
    /// number includes:
    ///
    /// * stream and CRYPTO data that waits for missing data or for the application;
    /// * packets that wait for their keys;
    /// * streams that the peer opened;
    /// * packets in flight, and the state of acknowledgements to send;
    /// * datagrams and connection IDs;
    /// * memory of hooks ([`Hook::memory`](crate::operation::Hook::memory)), including the peer's
    ///   plugins.
    ///
    /// The number is a lower estimate, without the allocator's overhead. It does not include data
    /// that the application wrote, memory of TLS, or free pages that the connection keeps while
    /// data waits (256 KiB at most).
    ///
    /// Apart from hooks, it is bounded by `max_connection_window`, `datagram_receive_buffer`, the
    /// congestion window, and some kilobytes for each stream that [`super::TransportConfig`] allows
    /// to be open.
    pub fn memory(&self) -> usize {
        let spaces: usize = self
            .spaces
            .iter()
            .map(|(_, space)| {
                let frames: usize =
                    space.loss.sent().contents().map(|sent| sent.frames.allocated()).sum();
                space.crypto_in.get().map_or(0, |data| data.memory())
                    + space.received.memory()
                    + space.loss.sent().memory()
                    + frames * size_of::<SentFrame>()
            })
            .sum();
        spaces
            + self.streams.memory()
            + self.waiting.memory()
            + self.start.memory()
            + self.datagrams.memory()
            + self.ids.memory()
            + self.events.len() * size_of::<Event>()
            + self.extensions.memory()
            + self.hooks.memory()
    }
}
