//! For event loops that serve many connections: the calls of [`Driver`].
//!
//! An application with a few connections needs none of this. [`Connection::poll_transmit`] and its
//! other methods are sufficient. An event loop can use a [`Driver`] for two purposes:
//!
//! * to write several datagrams at once, for generic segmentation offload (GSO);
//! * to let connections between the same two sockets share a congestion window. Then the
//!   connections take turns.
//!
//! An event loop calls the methods for a shared window in this order, each time that it serves a
//! connection:
//!
//! 1. [`Driver::count_in`] counts the packets of the connection in the [`SharedWindow`].
//! 2. If the window has room, and it is the connection's turn, [`Driver::take_turn`]. Otherwise
//!    [`Driver::hold_back`].
//! 3. [`Connection::poll_transmit`] and [`Driver::poll_transmit_more`], as often as there is
//!    something to send.
//! 4. [`Driver::count_in`] again, then [`Driver::end_turn`]. If [`Driver::is_held_back`] returns
//!    true, the connection waits for its next turn.

use super::held::Held;
use super::space::SpaceId;
use super::{Connection, Transmit};
use crate::Timestamp;

pub use crate::congestion::shared::{Share, SharedWindow};

/// The methods of a connection that only event loops call. See [`Connection::driver`].
pub struct Driver<'a>(&'a mut Connection);

impl Connection {
    /// Returns the methods that only event loops call. See the [module](crate::driver).
    pub fn driver(&mut self) -> Driver<'_> {
        Driver(self)
    }
}

impl Driver<'_> {
    /// Writes more datagrams for the GSO message in which the datagram `last` will be sent. They
    /// have the addresses, ECN mark and size of `last`, but the final one may be shorter.
    ///
    /// Writes at most `most` datagrams to `buffer`, without gaps. Returns the number of bytes
    /// written. If it returns 0, the next datagram, if any, must come from
    /// [`Connection::poll_transmit`].
    ///
    /// The caller must call it directly after [`Connection::poll_transmit`], with the same time.
    /// Together, both functions return the datagrams that `poll_transmit` would return by itself.
    #[inline]
    pub fn poll_transmit_more(
        &mut self,
        now: Timestamp,
        last: &Transmit,
        buffer: &mut [u8],
        most: usize,
    ) -> usize {
        self.0.poll_transmit_more(now, last, buffer, most)
    }

    /// Updates `window`, which several connections share, with the packets that this connection has
    /// sent, and those that were acknowledged or lost, since the last call. `share` belongs to this
    /// connection. The caller must call it before and after the connection sends.
    pub fn count_in(&self, now: Timestamp, window: &mut SharedWindow, share: &mut Share) {
        let connection = &*self.0;
        if connection.closing.is_closed() {
            // No more acknowledgements arrive.
            return window.leave(share);
        }
        let path = connection.path();
        let space = connection.spaces.get(SpaceId::Data(path.id()));
        let packets = space.map_or(0, |space| space.loss.ack_eliciting() as u64);
        window.count(now, share, path.share(packets), path.rtt());
        window.see_datagrams(path.datagram_sizes());
    }

    /// Holds back packets that count toward bytes in flight, because other connections have their
    /// turn. The connection still sends acknowledgements and probes. Does nothing during the
    /// handshake, and if the connection may have several paths.
    pub fn hold_back(&mut self) {
        let connection = &mut *self.0;
        let held = connection.handshake.is_complete() && connection.multipath.is_none();
        connection.held = if held { Held::Yes } else { Held::No };
    }

    /// Begins the connection's turn. During its turn, the connection is not held back. It sends at
    /// the pace of all connections together, not at its own. It also adopts what the other
    /// connections know about the path.
    pub fn take_turn(&mut self, window: &SharedWindow) {
        self.0.held = Held::No;
        let path = self.0.path_mut();
        path.set_turn(Some(window.rate()));
        path.learn_from_others(window.datagram(), window.first_window());
    }

    /// Ends the connection's turn. The connection uses its own pace again.
    pub fn end_turn(&mut self) {
        self.0.path_mut().set_turn(None);
    }

    /// Ends the sharing of a window, for example because the connection has migrated. The
    /// connection is no longer held back, and uses its own pace again.
    pub fn send_alone(&mut self) {
        self.0.held = Held::No;
        self.end_turn();
    }

    /// Returns true if the connection had data that it would have sent, when
    /// [`Connection::poll_transmit`] last returned `None`, but was held back.
    pub fn is_held_back(&self) -> bool {
        self.0.held == Held::Kept
    }
}
