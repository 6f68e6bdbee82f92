//! Held back by the endpoint: other connections have their turn, and what is acknowledged goes on.

use super::Connection;
use super::paths::PathKey;
use super::space::SpaceId;
use crate::Timestamp;
use crate::congestion::{Share, SharedWindow};

/// Whether an endpoint holds a connection back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Held {
    /// The connection may send.
    #[default]
    No,
    /// The connection is held back.
    Yes,
    /// The connection is held back, and has data that it would send otherwise.
    Kept,
}

impl Held {
    pub(super) fn is_held(self) -> bool {
        self != Held::No
    }
}

impl Connection {
    /// Counts in a window that connections share what has become of this one's packets since it was counted last. To be
    /// called before and after it sends.
    pub fn count_in(&self, now: Timestamp, window: &mut SharedWindow, share: &mut Share) {
        if self.closing.is_closed() {
            // Nothing comes back any more.
            return window.leave(share);
        }
        let path = self.path();
        let space = self.spaces.get(SpaceId::Data(path.id()));
        let packets = space.map_or(0, |space| space.loss.ack_eliciting() as u64);
        window.count(now, share, path.share(packets), path.rtt());
        window.see_datagrams(path.datagram_sizes());
    }

    /// Holds back packets that count toward bytes in flight, as others have their turn: acknowledgements and
    /// probes go nevertheless. Those of a handshake are not, and not those of a connection that may have several paths.
    pub fn hold_back(&mut self) {
        let held = self.handshake.is_complete() && self.multipath.is_none();
        self.held = if held { Held::Yes } else { Held::No };
    }

    /// It is the connection's turn: it is held back no longer, and while it sends it keeps to the pace that all of them
    /// have together, not to its own. It need not find out by itself what the others know of the path.
    pub fn take_turn(&mut self, window: &SharedWindow) {
        self.held = Held::No;
        let path = self.path_mut();
        path.set_turn(Some(window.rate()));
        path.learn_from_others(window.datagram(), window.first_window());
    }

    /// The turn is over, and the connection has its own pace again.
    pub fn end_turn(&mut self) {
        self.path_mut().set_turn(None);
    }

    /// The connection shares a window no longer, as when it has moved: it is not held back, and has its own pace.
    pub fn send_alone(&mut self) {
        self.held = Held::No;
        self.end_turn();
    }

    /// True if [`Connection::poll_transmit`], when it last said that there is nothing, had something that was held back.
    pub fn is_held_back(&self) -> bool {
        self.held == Held::Kept
    }

    /// Notes, when nothing is sent on a path, whether that is because the connection is held back.
    pub(super) fn note_kept(&mut self, now: Timestamp, key: PathKey) {
        if !self.held.is_held() {
            return;
        }
        let waits = self.pending().is_for_any_path()
            || self.spaces.iter().any(|(_, space)| space.has_crypto());
        let path = &mut self.paths[key];
        let room = path.window().saturating_sub(path.in_flight()) >= u64::from(path.mtu());
        if room {
            // Neither the window nor the pace: it is no use of the window (RFC 9002 s.7.8).
            path.on_underused(now);
        }
        self.held = if waits && room { Held::Kept } else { Held::Yes };
    }
}
