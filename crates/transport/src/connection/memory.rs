//! Memory that a connection keeps because of its peer, in bytes.

use std::collections::VecDeque;
use std::mem::size_of;

use super::close::Closing;
use super::space::SentFrame;
use super::{Connection, Event};
use crate::Timestamp;
use crate::lazy::LazyBox;

impl Connection {
    /// There is nothing to send now. If nothing is in flight, either, memory that nothing is in goes back, so that a
    /// connection that does nothing takes little; what comes next makes it anew. See [`Activity::comes_to_rest`] for
    /// how often that is.
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
        if self.tokens.is_empty() {
            self.tokens = LazyBox::default();
        }
    }

    /// Bytes kept because of what the peer sent or did not acknowledge: stream and CRYPTO data waiting
    /// for its place or for the application, packets before their keys, streams that it opened, packets in flight,
    /// what is to be acknowledged, datagrams, connection IDs, and what hooks keep
    /// ([`Hook::memory`](crate::operation::Hook::memory)), plugins of the peer among them. An estimate from below,
    /// without the allocator's share; what the application wrote and TLS keeps are not in it, nor are free pages that
    /// the connection keeps while data waits (256 KiB at most).
    ///
    /// But for hooks, it is bounded by `max_connection_window`, `datagram_receive_buffer`, the congestion window, and
    /// some kilobytes for each stream that [`super::TransportConfig`] allows to be open.
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
