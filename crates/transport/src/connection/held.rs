//! The event loop can hold a connection back while other connections have their turn
//! ([`Driver::hold_back`](super::driver::Driver::hold_back)).

use super::Connection;
use super::paths::PathKey;
use crate::Timestamp;

/// The state of a connection that an event loop can hold back.
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
    /// Called if nothing was sent on a path. Records whether the connection has data that it would
    /// send if it were not held back.
    pub(super) fn note_kept(&mut self, now: Timestamp, key: PathKey) {
        if !self.held.is_held() {
            return;
        }
        let waits = self.pending().is_for_any_path()
            || self.spaces.iter().any(|(_, space)| space.has_crypto());
        let path = &mut self.paths[key];
        let room = path.window().saturating_sub(path.in_flight()) >= u64::from(path.mtu());
        if room {
            // The window and the pace are not the reason, so the window is not fully used (RFC 9002
            // s.7.8).
            path.on_underused(now);
        }
        self.held = if waits && room { Held::Kept } else { Held::Yes };
    }
}
