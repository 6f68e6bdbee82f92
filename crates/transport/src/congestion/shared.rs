//! A congestion window that many connections between the same two sockets share.
//!
//! Each connection has its own window, which begins with ten datagrams and has at least two (RFC
//! 9002 s.7.2). A thousand connections that begin at the same time send 14 MB. Ten thousand
//! connections with the smallest window have 29 MB in flight. The receiver's socket, which all of
//! them share, has a smaller buffer, so it drops whole flights. If a whole flight is lost, no later
//! packet reveals the loss. So each connection waits for its PTO, which becomes longer each time.
//!
//! For that reason, there is also a shared window, which limits the bytes in flight of all
//! connections together. The connections take turns at sending. (RFC 3124 has such a window for all
//! flows to a host.)
//!
//! The shared window does not replace congestion control. It is never smaller than 32 initial
//! windows, and it ignores losses that occur without a queue. It grows and shrinks by a fraction of
//! its size (like Kelly's Scalable TCP, 2003). While the connections have fewer bytes in flight,
//! the shared window does not affect them.

use std::time::Duration;

use super::{PACING_GAIN, Rate, initial_window};
use crate::Timestamp;
use crate::recovery::RttEstimator;

/// Size of the smallest shared window, in initial windows of one connection. The shared window
/// begins with this size.
const MIN_WINDOW: u64 = 32;

/// Number of turns of connections that fill the shared window.
const TURNS: u64 = 16;

/// Smallest number of bytes that a packet counts as. A socket's buffer counts the memory that a
/// datagram takes, so small datagrams fill it, too.
const PACKET: u64 = 1200;

/// Before the first loss, the shared window grows by the acknowledged bytes divided by this number.
/// That is a fourth of the window in each round trip. Doubling it would be too fast, because all
/// connections would lose the excess at the same time.
const FIRST_GROWTH: u64 = 4;

/// After the first loss, the shared window grows by the acknowledged bytes divided by this number.
const GROWTH: u64 = 256;

/// If a queue causes losses, the shared window is reduced by its size divided by this number: an
/// eighth.
const REDUCTION: u64 = 8;

/// The shared window: the bytes in flight of all connections between two sockets, and the limit for
/// them.
#[derive(Debug)]
pub struct SharedWindow {
    window: u64,
    least: u64,
    in_flight: u64,
    /// Last time at which the shared window was full. `None` if it never was.
    full_at: Option<Timestamp>,
    /// Time at which the shared window was last reduced. `None` before the first reduction.
    reduced_at: Option<Timestamp>,
    /// Smallest RTT of all connections. `None` if no RTT is known.
    min_rtt: Option<Duration>,
    /// Pacing rate of all connections together.
    rate: Rate,
    /// Largest datagram size that the path is known to carry, in bytes of UDP payload. One of the
    /// connections has found it. Zero if it is unknown.
    datagram: u16,
}

/// The bytes that one connection has in flight, delivered and lost, as counted in a
/// [`SharedWindow`]. A new connection has the default value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    in_flight: u64,
    delivered: u64,
    lost: u64,
}

impl Share {
    /// Creates the counts of a connection: the bytes and packets in flight, and the bytes delivered
    /// and lost so far.
    pub(crate) fn new((in_flight, packets): (u64, u64), delivered: u64, lost: u64) -> Share {
        Share { in_flight: in_flight.max(packets * PACKET), delivered, lost }
    }
}

impl SharedWindow {
    /// Creates a shared window for datagrams of this size, in bytes of UDP payload.
    pub fn new(datagram: u16) -> SharedWindow {
        let least = MIN_WINDOW * initial_window(datagram);
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

    /// Creates a shared window for datagrams of this size that was full and has grown. Its pacing
    /// rate is so high that it limits nothing.
    #[cfg(test)]
    pub(crate) fn used_up(datagram: u16, window: u64) -> SharedWindow {
        let rate = Rate::bytes_per_second(1e12);
        SharedWindow { window, datagram, rate, ..SharedWindow::new(1200) }
    }

    /// Returns the size of the shared window in bytes.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Returns the pacing rate of all connections together. During its turn, a connection sends at
    /// this rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the number of bytes that a connection may send in its turn. It is larger if the
    /// shared window is larger. A long turn is efficient: the connection's memory is in the cache,
    /// and one acknowledgment covers more packets.
    pub fn turn(&self) -> u64 {
        self.window / TURNS
    }

    /// Returns the initial window of a new connection in bytes. If the shared window was full and
    /// has grown, this is a fraction of it: the fraction that an initial window is of the smallest
    /// shared window ([`MIN_WINDOW`]). Returns 0 if the path is not known yet or has no room for
    /// more.
    pub(crate) fn first_window(&self) -> u64 {
        if self.window > self.least { self.window / MIN_WINDOW } else { 0 }
    }

    /// Returns the largest datagram size that the path is known to carry, in bytes of UDP payload.
    /// Returns 0 if it is unknown.
    pub(crate) fn datagram(&self) -> u16 {
        self.datagram
    }

    /// Records the datagram sizes that a connection found, in bytes: the path carries `takes`, and
    /// at most `most`.
    pub(crate) fn see_datagrams(&mut self, (takes, most): (u16, u16)) {
        if takes > self.datagram || most < self.datagram {
            self.datagram = takes;
        }
    }

    /// Returns the bytes in flight of all connections.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns true if a connection may send, because the shared window has room.
    pub fn is_open(&self) -> bool {
        self.in_flight < self.window
    }

    /// Like [`SharedWindow::is_open`], for a connection that has data to send. If the window is
    /// full, records `now` as the time of that.
    pub fn has_room(&mut self, now: Timestamp) -> bool {
        let room = self.is_open();
        if !room {
            self.full_at = Some(now);
        }
        room
    }

    /// Replaces the counts `share` of a connection by `after`, and adapts the shared window to the
    /// difference.
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
        // The time at which the acknowledged packets were sent is an estimate. Only the connection
        // knows it exactly.
        let sent = now - rtt.latest();
        let acked = after.delivered.saturating_sub(before.delivered);
        if acked > 0 {
            // RFC 9002 s.7.8: the shared window may grow only if it was full.
            if self.full_at.is_some_and(|at| at >= sent) {
                let part = if self.reduced_at.is_some() { GROWTH } else { FIRST_GROWTH };
                self.window += acked / part;
            }
            self.rate = Rate::of_window(self.window, rtt.smoothed(), PACING_GAIN);
        }
        // RFC 9002 s.7.3.2: react to losses once per round trip. If there is no queue, something
        // other than these connections causes the losses.
        let queue = rtt.smoothed() > 2 * min_rtt;
        if after.lost > before.lost && queue && self.reduced_at.is_none_or(|at| sent > at) {
            self.window = (self.window - self.window / REDUCTION).max(self.least);
            self.reduced_at = Some(now);
        }
    }

    /// Removes the counts of a connection that has ended from the shared window.
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
        /// Creates `count` connections whose smallest RTT is 1 ms and whose current RTT is `rtt`.
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

        /// Lets each connection send ten datagrams if the shared window has room. Returns how many
        /// connections sent.
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

        /// Acknowledges all bytes in flight one round trip later, or declares them lost.
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
    fn cwnd_shared_bounds_the_first_flight_of_all_members() {
        let mut crowd = Crowd::new(10_000, MS);
        assert_eq!((crowd.send(), crowd.window.in_flight()), (32, LEAST_WINDOW));
        assert_eq!(crowd.send(), 0);
        crowd.land(false);
        assert_eq!(crowd.window.in_flight(), 0);
        assert_eq!(crowd.window.window(), LEAST_WINDOW + LEAST_WINDOW / 4);
        assert_eq!(crowd.send(), 40);
    }

    #[test]
    fn cwnd_shared_that_is_not_used_does_not_grow() {
        let mut crowd = Crowd::new(20, MS);
        for _ in 0..100 {
            assert_eq!(crowd.send(), 20);
            crowd.land(false);
        }
        assert_eq!(crowd.window.window(), LEAST_WINDOW);
    }

    /// A loss must reduce the shared window by an eighth, once per round trip, down to the smallest
    /// window.
    #[test]
    fn cwnd_shared_shrinks_once_a_round_trip() {
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
    fn cwnd_shared_ignores_losses_without_a_queue() {
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
    fn cwnd_shared_turns_grow_with_the_window() {
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
    fn cwnd_shared_remembers_the_largest_datagram_until_it_is_lost() {
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
    fn cwnd_shared_counts_small_packets_and_returns_what_leavers_used() {
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
