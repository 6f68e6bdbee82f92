//! A window that connections between the same two sockets share.
//!
//! Each connection has a window of its own, of which two datagrams are always left (RFC 9002 s.7.2), and begins with ten. A
//! thousand connections that begin at once send 14 MB, and ten thousand whose windows are as small as can be have 29 MB in
//! flight: more than the receiver's socket, which they have in common, takes. What it drops are whole flights, so that
//! nothing comes behind them that would show the loss, and connections wait for their probe timeouts, each longer than the
//! last. So what all of them have in flight together has a window, too (RFC 3124 has one for all flows to a host), and they
//! take turns at it.
//!
//! It does not take the place of congestion control. It never falls below thirty-two initial windows, heeds no loss that
//! comes without a queue, and otherwise grows and shrinks by shares of itself (as Kelly's Scalable TCP, 2003): connections
//! that do with less by themselves never meet it.

use std::time::Duration;

use super::{PACING_GAIN, Rate, initial_window};
use crate::Timestamp;
use crate::recovery::RttEstimator;

/// Initial windows that the shared window begins with, and never falls below.
const LEAST: u64 = 32;

/// Turns that fill the window.
const TURNS: u64 = 16;

/// Bytes in flight that a packet counts as at the least: a socket's buffer counts what a datagram takes of memory, however
/// little is in it, so that ten thousand small requests fill it, too.
const PACKET: u64 = 1200;

/// Before the first loss the window grows by this part (one fourth) of the bytes acknowledged, which is a quarter each round
/// trip. It does not double: what would be too much is lost by all connections at once.
const FIRST_GROWTH: u64 = 4;

/// After the first loss the window grows by this part (one 256th) of the bytes acknowledged.
const GROWTH: u64 = 256;

/// The window shrinks by this part (one eighth) of itself when packets are lost from a queue.
const REDUCTION: u64 = 8;

/// What all connections between two sockets have in flight, and how much that may be.
#[derive(Debug)]
pub struct SharedWindow {
    window: u64,
    least: u64,
    in_flight: u64,
    /// Time at which it last had no room; none: it always had.
    full_at: Option<Timestamp>,
    /// Time at which it was last made smaller; none: never yet.
    reduced_at: Option<Timestamp>,
    /// The least round-trip time of any connection; none: none is known yet.
    min_rtt: Option<Duration>,
    /// Rate at which the connections may send together.
    rate: Rate,
    /// The largest datagram that a connection found the path to take, in bytes of UDP payload; 0: none is known.
    datagram: u16,
}

/// What is counted of one connection in a [`SharedWindow`]; one that is not in it yet has the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    in_flight: u64,
    delivered: u64,
    lost: u64,
}

impl Share {
    /// So many bytes are in flight, in so many packets, and so many were delivered and lost until now.
    pub(crate) fn new((in_flight, packets): (u64, u64), delivered: u64, lost: u64) -> Share {
        Share { in_flight: in_flight.max(packets * PACKET), delivered, lost }
    }
}

impl SharedWindow {
    /// A window for datagrams of so many bytes of UDP payload.
    pub fn new(datagram: u16) -> SharedWindow {
        let least = LEAST * initial_window(datagram);
        SharedWindow {
            window: least,
            least,
            in_flight: 0,
            full_at: None,
            reduced_at: None,
            min_rtt: None,
            rate: Rate::bytes_per_second(0.0),
            datagram: 0,
        }
    }

    /// A window that was used up and has grown, at a rate that holds nobody back, of a path that takes datagrams of so many bytes.
    #[cfg(test)]
    pub(crate) fn used_up(datagram: u16, window: u64) -> SharedWindow {
        let rate = Rate::bytes_per_second(1e12);
        SharedWindow { window, datagram, rate, ..SharedWindow::new(1200) }
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Rate at which all connections may send together; the connection whose turn it is sends at this rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Bytes that a connection may send in its turn. The larger the window, the more is done for a connection while its memory is
    /// in the cache, and the more one acknowledgement is for.
    pub fn turn(&self) -> u64 {
        self.window / TURNS
    }

    /// Window in bytes that a connection may begin with: its part of a window that was used up and has grown, as large a part as an
    /// initial window is of the least ([`LEAST`]); 0: the path is not known yet, or has no room for more.
    pub(crate) fn first_window(&self) -> u64 {
        if self.window > self.least { self.window / LEAST } else { 0 }
    }

    /// The largest datagram that the path is known to take, in bytes of UDP payload; 0: none is known.
    pub(crate) fn datagram(&self) -> u16 {
        self.datagram
    }

    /// A connection found that the path takes datagrams of so many bytes, and none larger than the second number.
    pub(crate) fn see_datagrams(&mut self, (takes, most): (u16, u16)) {
        if takes > self.datagram || most < self.datagram {
            self.datagram = takes;
        }
    }

    /// Bytes in flight, of all connections.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// True if another connection may send.
    pub fn is_open(&self) -> bool {
        self.in_flight < self.window
    }

    /// As [`SharedWindow::is_open`], for a connection that has data to send: notes the time if it may not.
    pub fn has_room(&mut self, now: Timestamp) -> bool {
        let room = self.is_open();
        if !room {
            self.full_at = Some(now);
        }
        room
    }

    /// Counts what has become of a connection's packets since it was counted last.
    pub(crate) fn count(
        &mut self,
        now: Timestamp,
        share: &mut Share,
        after: Share,
        rtt: &RttEstimator,
    ) {
        let before = std::mem::replace(share, after);
        self.in_flight = self.in_flight.saturating_sub(before.in_flight) + after.in_flight;
        if rtt.first_sample().is_none() {
            return;
        }
        let min_rtt = self.min_rtt.map_or(rtt.min(), |min| min.min(rtt.min()));
        self.min_rtt = Some(min_rtt);
        // About: each connection knows when its own were sent.
        let sent = now - rtt.latest();
        let acked = after.delivered.saturating_sub(before.delivered);
        if acked > 0 {
            // RFC 9002 s.7.8: only a window that was used up may grow.
            if self.full_at.is_some_and(|at| at >= sent) {
                let part = if self.reduced_at.is_some() { GROWTH } else { FIRST_GROWTH };
                self.window += acked / part;
            }
            self.rate = Rate::of_window(self.window, rtt.smoothed(), PACING_GAIN);
        }
        // RFC 9002 s.7.3.2: once a round trip. What is lost without a queue is not lost for what these connections send.
        let queue = rtt.smoothed() > 2 * min_rtt;
        if after.lost > before.lost && queue && self.reduced_at.is_none_or(|at| sent > at) {
            self.window = (self.window - self.window / REDUCTION).max(self.least);
            self.reduced_at = Some(now);
        }
    }

    /// A connection is gone: what it had in flight is no more.
    pub fn leave(&mut self, share: &mut Share) {
        self.in_flight = self.in_flight.saturating_sub(share.in_flight);
        *share = Share::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LEAST_WINDOW: u64 = 32 * 12_000;

    /// A shared window, and the connections that share it.
    struct Crowd {
        now: Timestamp,
        window: SharedWindow,
        rtt: RttEstimator,
        shares: Vec<(Share, Share)>,
    }

    impl Crowd {
        /// The least round trip of any is 1 ms; now it is `rtt`.
        fn new(count: usize, rtt: Duration) -> Crowd {
            let now = Timestamp::START + 1000 * MS;
            let mut estimator = RttEstimator::new(MS);
            estimator.update(now, MS, Duration::ZERO);
            for _ in 0..100 {
                estimator.update(now, rtt, Duration::ZERO);
            }
            let shares = vec![(Share::default(), Share::default()); count];
            Crowd { now, window: SharedWindow::new(1200), rtt: estimator, shares }
        }

        fn count(&mut self, at: usize) {
            let (share, after) = &mut self.shares[at];
            self.window.count(self.now, share, *after, &self.rtt);
        }

        /// Who finds room sends ten datagrams, one after the other; how many did.
        fn send(&mut self) -> usize {
            let mut sent = 0;
            for at in 0..self.shares.len() {
                if self.window.has_room(self.now) {
                    self.shares[at].1.in_flight += 12_000;
                    self.count(at);
                    sent += 1;
                }
            }
            sent
        }

        /// A round trip later all is acknowledged, or lost.
        fn land(&mut self, lost: bool) {
            self.now += self.rtt.latest();
            for at in 0..self.shares.len() {
                let after = &mut self.shares[at].1;
                let bytes = std::mem::take(&mut after.in_flight);
                *(if lost { &mut after.lost } else { &mut after.delivered }) += bytes;
                self.count(at);
            }
        }
    }

    #[test]
    fn what_all_send_before_anything_is_acknowledged_has_a_bound() {
        let mut crowd = Crowd::new(10_000, MS);
        assert_eq!((crowd.send(), crowd.window.in_flight()), (32, LEAST_WINDOW));
        assert_eq!(crowd.send(), 0);
        crowd.land(false);
        assert_eq!(crowd.window.in_flight(), 0);
        assert_eq!(crowd.window.window(), LEAST_WINDOW + LEAST_WINDOW / 4);
        assert_eq!(crowd.send(), 40);
    }

    #[test]
    fn a_window_that_is_not_used_up_does_not_grow() {
        let mut crowd = Crowd::new(20, MS);
        for _ in 0..100 {
            assert_eq!(crowd.send(), 20);
            crowd.land(false);
        }
        assert_eq!(crowd.window.window(), LEAST_WINDOW);
    }

    /// A loss takes an eighth once a round trip, and never more than leaves the least.
    #[test]
    fn it_shrinks_once_a_round_trip_when_a_queue_overflows() {
        let mut crowd = Crowd::new(1000, 20 * MS);
        for _ in 0..8 {
            crowd.send();
            crowd.land(false);
        }
        let before = crowd.window.window();
        assert!(before > 5 * LEAST_WINDOW, "{before}");
        crowd.send();
        crowd.land(true);
        assert_eq!(crowd.window.window(), before - before / 8);
        crowd.send();
        crowd.land(false);
        let grown = crowd.window.window() - (before - before / 8);
        assert!(grown > 0 && grown < before / 200, "{grown}");
        for _ in 0..100 {
            crowd.send();
            crowd.land(true);
        }
        assert_eq!(crowd.window.window(), LEAST_WINDOW);
    }

    #[test]
    fn losses_without_a_queue_are_for_each_connection_alone() {
        let mut crowd = Crowd::new(1000, MS);
        crowd.send();
        crowd.land(true);
        assert_eq!(crowd.window.window(), LEAST_WINDOW);
        for _ in 0..8 {
            crowd.send();
            crowd.land(false);
        }
        let before = crowd.window.window();
        crowd.send();
        crowd.land(true);
        assert_eq!(crowd.window.window(), before);
    }

    #[test]
    fn turns_grow_with_a_window_that_is_used_up() {
        let mut crowd = Crowd::new(1000, MS);
        assert_eq!((crowd.window.turn(), crowd.window.first_window()), (24_000, 0));
        for _ in 0..8 {
            crowd.send();
            crowd.land(false);
        }
        let part = crowd.window.window() / 32;
        assert!(part > 5 * 12_000, "{part}");
        assert_eq!((crowd.window.turn() / 2, crowd.window.first_window()), (part, part));
    }

    #[test]
    fn the_largest_datagram_is_known_until_it_turns_out_not_to_arrive() {
        let mut window = SharedWindow::new(1200);
        assert_eq!(window.datagram(), 0);
        for (sizes, known) in
            [((1200, 1452), 1200), ((1452, 1452), 1452), ((1200, 1452), 1452), ((1200, 1451), 1200)]
        {
            window.see_datagrams(sizes);
            assert_eq!(window.datagram(), known, "{sizes:?}");
        }
    }

    #[test]
    fn small_packets_count_and_who_leaves_takes_its_own() {
        let mut crowd = Crowd::new(2, MS);
        crowd.shares[0].1 = Share::new((100, 2), 0, 0);
        crowd.shares[1].1 = Share::new((5000, 4), 0, 0);
        crowd.count(0);
        crowd.count(1);
        assert_eq!(crowd.window.in_flight(), 2400 + 5000);
        crowd.window.leave(&mut crowd.shares[1].0);
        assert_eq!(crowd.window.in_flight(), 2400);
        crowd.window.leave(&mut crowd.shares[1].0);
        assert_eq!(crowd.window.in_flight(), 2400);
    }
}
