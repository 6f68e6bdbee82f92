//! Searches for the largest datagram size that a path carries (RFC 9000 s.14.3; DPLPMTUD, RFC
//! 8899).

use std::time::Duration;

use crate::Timestamp;

/// Datagram size that every QUIC path carries, in bytes of UDP payload (RFC 9000 s.14 #1).
// RFC 9000 s.14.3 #1
pub(crate) const BASE_SIZE: u16 = 1200;

/// Number of lost probes after which a datagram size counts as too large (MAX_PROBES in RFC 8899
/// s.5.1.2).
const MAX_PROBES: u8 = 3;

/// The search for the largest datagram size ends when fewer than this many bytes can be gained.
const CLOSE_ENOUGH: u16 = 20;

/// The search only tries datagram sizes that are multiples of this number of bytes, the block size
/// of AES-GCM. A partial last block costs as much as several whole blocks
/// (docs/notebook/performance.md, "Whole blocks"). With connection IDs of 13 bytes, header and tag
/// take one block each, so the encrypted part consists of whole blocks.
const BLOCK: u16 = 16;

/// Time after which the search for a larger datagram size starts again (PMTU_RAISE_TIMER in RFC
/// 8899 s.5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// The path counts as a black hole for large datagrams if large datagrams were lost in this number
/// of round trips and none was delivered since the first loss. One round trip is not enough: an
/// overflowing queue drops much of a flight, and a short failure of the path drops all of it.
const BLACK_HOLE_ROUNDS: u8 = 3;

/// Smallest number of lost large datagrams, in all round trips together, for which the path counts
/// as a black hole. Fewer losses can be random.
const BLACK_HOLE_LOSSES: u8 = 6;

/// Searches for the largest datagram size of a path.
// RFC 9000 s.14.2 #1
#[derive(Debug, Clone)]
pub(crate) struct MtuDiscovery {
    /// Largest datagram size that is known to arrive at the peer, in bytes of UDP payload.
    current: u16,
    /// Largest datagram size that may still arrive at the peer, in bytes of UDP payload: the upper
    /// end of the search.
    upper: u16,
    /// Largest datagram size that the peer and the configuration permit, in bytes of UDP payload.
    max: u16,
    probe: Option<u16>,
    probes_lost: u8,
    /// Time at which the search for a larger datagram size starts again. `None` if no search is
    /// planned.
    raise_at: Option<Timestamp>,
    /// Send time and size of the datagram that was sent last among those that have arrived and are
    /// larger than the base size.
    arrived: Option<(Timestamp, u16)>,
    suspicion: Option<Suspicion>,
    /// True if the connection searches for larger datagram sizes on this path.
    searches: bool,
    /// True once this end has had enough data to send to benefit from larger datagrams. The search
    /// does not start until then.
    wanted: bool,
}

/// A suspected black hole: large datagrams were lost, and since the first of them was sent, no
/// datagram of their size has arrived.
#[derive(Debug, Clone, Copy)]
struct Suspicion {
    /// Size of the smallest lost large datagram, in bytes of UDP payload.
    size: u16,
    /// Time at which the first of the lost large datagrams was sent.
    since: Timestamp,
    /// Time at which the first loss of the current round trip was noticed. Datagrams that are sent
    /// later belong to the next round trip.
    noticed: Timestamp,
    rounds: u8,
    losses: u8,
    /// True if a smaller datagram that was sent after the first lost one has arrived. So the path
    /// has not failed completely.
    smaller_arrived: bool,
}

impl Suspicion {
    fn is_proof(&self) -> bool {
        self.rounds >= BLACK_HOLE_ROUNDS && self.losses >= BLACK_HOLE_LOSSES && self.smaller_arrived
    }
}

impl MtuDiscovery {
    /// Creates the state for a search that starts at the base size and goes up to `max` bytes of
    /// UDP payload.
    #[cfg(test)]
    pub(crate) fn new(max: u16) -> MtuDiscovery {
        MtuDiscovery::starting_at(BASE_SIZE, max, true)
    }

    /// Creates the state for a path that is assumed to carry datagrams of the size `current`. If
    /// `searches` is true, searches up to `max` bytes of UDP payload, rounded down to a multiple of
    /// `BLOCK`.
    pub(crate) fn starting_at(current: u16, max: u16, searches: bool) -> MtuDiscovery {
        let max = (max - max % BLOCK).max(current);
        MtuDiscovery {
            current,
            upper: max,
            max,
            probe: None,
            probes_lost: 0,
            raise_at: None,
            arrived: None,
            suspicion: None,
            searches,
            wanted: false,
        }
    }

    /// Returns the size of datagrams to send, in bytes of UDP payload.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Returns the largest datagram size that may still arrive at the peer, in bytes of UDP
    /// payload.
    pub(crate) fn upper(&self) -> u16 {
        self.upper
    }

    /// Starts the search, because this end now has enough data to send. Each probe costs a packet,
    /// its protection and a system call at both ends, so the search would not pay for a connection
    /// that sends little.
    #[inline]
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Returns true if [`MtuDiscovery::want`] was called, or if the path is not searched for larger
    /// datagram sizes.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted || !self.searches
    }

    /// Adopts the datagram size that another connection found for the same path (RFC 8899 s.3, item
    /// 9), unless this connection found it to be too large. Returns true if the datagram size grew.
    pub(crate) fn adopt(&mut self, size: u16) -> bool {
        let takes = self.searches && size > self.current && size <= self.upper;
        if takes {
            self.current = size;
        }
        takes
    }

    /// Applies the peer's `max_udp_payload_size` (RFC 9000 s.18.2), which is at least 1,200 bytes.
    pub(crate) fn on_peer_limit(&mut self, limit: u64) {
        let limit = u16::try_from(limit).unwrap_or(u16::MAX).max(BASE_SIZE);
        self.max = self.max.min((limit - limit % BLOCK).max(self.current.min(limit)));
        self.upper = self.upper.min(self.max);
        self.current = self.current.min(self.max);
    }

    /// Returns the size of the PMTU probe to send now, or `None` if no probe is due. Only one probe
    /// is in flight at a time.
    pub(crate) fn next_probe(&mut self, now: Timestamp) -> Option<u16> {
        if !self.searches || !self.wanted {
            return None;
        }
        if self.raise_at.is_some_and(|at| at <= now) {
            (self.upper, self.raise_at, self.probes_lost) = (self.max, None, 0);
        }
        if self.probe.is_some() || self.raise_at.is_some() {
            return None;
        }
        if self.upper - self.current < CLOSE_ENOUGH {
            self.raise_at = (self.current < self.max).then(|| now + RAISE_AFTER);
            return None;
        }
        // Try the largest size first, because most paths carry the configured maximum.
        let size = if self.upper == self.max && self.probes_lost == 0 {
            self.max
        } else {
            // Try the middle, rounded down to a whole block. The result is above the current size,
            // because more than a block is left to search.
            let middle = self.current + (self.upper - self.current).div_ceil(2);
            (middle - middle % BLOCK).max(self.current - self.current % BLOCK + BLOCK)
        };
        self.probe = Some(size);
        self.probe
    }

    /// Returns true if [`MtuDiscovery::next_probe`] would return `None` and change nothing, whether
    /// or not larger datagrams are wanted.
    #[inline]
    pub(crate) fn is_resting(&self, now: Timestamp) -> bool {
        let found = self.upper - self.current < CLOSE_ENOUGH && self.current >= self.max;
        !self.searches || self.raise_at.map_or(self.probe.is_some() || found, |at| at > now)
    }

    /// Records that the probe arrived. Returns true if the datagram size grew.
    pub(crate) fn on_probe_acked(&mut self) -> bool {
        let Some(size) = self.probe.take() else { return false };
        (self.probes_lost, self.suspicion) = (0, None);
        let grew = size > self.current;
        self.current = self.current.max(size.min(self.max));
        grew
    }

    /// Records that the PMTU probe was lost.
    pub(crate) fn on_probe_lost(&mut self) {
        let Some(size) = self.probe.take() else { return };
        self.probes_lost += 1;
        if size == self.max || self.probes_lost >= MAX_PROBES {
            // The largest size gets only one probe. If that probe was lost at random, a later
            // search finds the size.
            self.upper = size.saturating_sub(1).max(self.current);
            self.probes_lost = u8::from(self.upper == self.max);
        }
    }

    /// Records that a datagram other than a probe arrived. `size` is its size, and `sent` is the
    /// time at which it was sent.
    pub(crate) fn on_acked(&mut self, size: u16, sent: Timestamp) {
        if size > BASE_SIZE && self.arrived.is_none_or(|(latest, _)| sent >= latest) {
            self.arrived = Some((sent, size));
        }
        match &mut self.suspicion {
            Some(suspicion) if sent < suspicion.since => {}
            Some(suspicion) if size < suspicion.size => suspicion.smaller_arrived = true,
            _ => self.suspicion = None,
        }
    }

    /// Records that a datagram other than a probe was lost. `size` is its size, and `sent` is the
    /// time at which it was sent. Returns true if the path is a black hole for large datagrams, so
    /// that the size falls back to the base size (RFC 8899 s.4.3).
    pub(crate) fn on_lost(&mut self, now: Timestamp, size: u16, sent: Timestamp) -> bool {
        if size <= BASE_SIZE || self.current == BASE_SIZE {
            return false;
        }
        if self.arrived.is_some_and(|(later, other)| later >= sent && other >= size) {
            // The path carried a datagram of this size that was sent at that time or later. So this
            // loss has another cause, for example a full queue.
            return false;
        }
        let suspicion = self.suspicion.get_or_insert(Suspicion {
            size,
            since: sent,
            noticed: now,
            rounds: 1,
            losses: 0,
            smaller_arrived: false,
        });
        if sent > suspicion.noticed {
            suspicion.rounds = suspicion.rounds.saturating_add(1);
            suspicion.noticed = now;
        }
        suspicion.losses = suspicion.losses.saturating_add(1);
        suspicion.size = suspicion.size.min(size);
        if !suspicion.is_proof() {
            return false;
        }
        let failed = self.current;
        let base = MtuDiscovery::starting_at(BASE_SIZE, self.max, self.searches);
        *self = MtuDiscovery { upper: failed - 1, wanted: self.wanted, ..base };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::START;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Creates the state for a search up to `max` bytes that starts at once.
    fn wanted(max: u16) -> MtuDiscovery {
        let mut discovery = MtuDiscovery::new(max);
        discovery.want();
        discovery
    }

    /// Searches a path that carries datagrams of `fits` bytes. Returns the size found and the
    /// number of probes.
    fn search(discovery: &mut MtuDiscovery, fits: u16, now: Timestamp) -> (u16, u32) {
        let mut probes = 0;
        while let Some(size) = discovery.next_probe(now) {
            probes += 1;
            assert!(size > discovery.current() && probes < 100);
            if size <= fits {
                assert!(discovery.on_probe_acked());
            } else {
                discovery.on_probe_lost();
            }
        }
        (discovery.current(), probes)
    }

    #[test]
    fn mtu_search_finds_the_largest_size() {
        for fits in [1200, 1201, 1280, 1400, 1452, 1471, 1472] {
            let (found, probes) = search(&mut wanted(1472), fits, START);
            assert!(found <= fits && fits - found < CLOSE_ENOUGH, "{fits}: {found}");
            assert!(probes <= 20, "{fits}: {probes} probes");
        }
        let (found, probes) = search(&mut wanted(1472), 1500, START);
        assert_eq!((found, probes), (1472, 1), "the usual path takes one probe");
    }

    #[test]
    fn mtu_fixed_size_does_not_search_after_a_black_hole() {
        let mut discovery = MtuDiscovery::starting_at(1400, 1400, false);
        discovery.want();
        assert_eq!(discovery.next_probe(START), None);
        let mut now = 0;
        while discovery.current() > BASE_SIZE {
            now += 100;
            assert!(now < 10_000);
            discovery.on_lost(at(now + 50), 1400, at(now));
            discovery.on_lost(at(now + 50), 1400, at(now));
            discovery.on_acked(BASE_SIZE, at(now));
        }
        assert_eq!(discovery.next_probe(at(now) + RAISE_AFTER * 2), None);
    }

    #[test]
    fn mtu_search_is_repeated_later() {
        let mut discovery = wanted(1472);
        search(&mut discovery, 1300, START);
        assert_eq!(discovery.next_probe(START + Duration::from_secs(599)), None);
        let (found, _) = search(&mut discovery, 1500, START + Duration::from_secs(601));
        assert_eq!(found, 1472);
    }

    #[test]
    fn mtu_search_waits_until_it_is_wanted() {
        let mut discovery = MtuDiscovery::new(1472);
        assert_eq!((discovery.is_wanted(), discovery.next_probe(START)), (false, None));
        assert!(!discovery.is_resting(START), "`next_probe` must be called again");
        discovery.want();
        assert_eq!((discovery.is_wanted(), discovery.next_probe(START)), (true, Some(1472)));
        assert!(
            MtuDiscovery::starting_at(1200, 1200, false).is_wanted(),
            "no search is configured"
        );
    }

    // RFC 9000 s.14.4 #1
    #[test]
    fn mtu_one_lost_probe_is_no_proof() {
        let mut discovery = wanted(1472);
        discovery.next_probe(START).unwrap();
        discovery.on_probe_lost();
        let size = discovery.next_probe(START).unwrap();
        assert!(size < 1472);
        discovery.on_probe_lost();
        assert_eq!(discovery.next_probe(START), Some(size), "the same size is probed again");
    }

    #[test]
    fn mtu_black_hole_is_left() {
        let mut discovery = wanted(1472);
        search(&mut discovery, 1500, START);
        // Each round trip loses three datagrams that were sent at the same time. A smaller datagram
        // that arrives reveals the losses.
        let lose = |discovery: &mut MtuDiscovery, round: u64| {
            let (sent, now) = (at(100 * round), at(100 * round + 50));
            discovery.on_acked(400, sent);
            assert!(
                !discovery.on_lost(now, BASE_SIZE, sent),
                "losses of small datagrams do not count"
            );
            (0..3).any(|_| discovery.on_lost(now, 1472, sent))
        };
        assert!((0..2).all(|round| !lose(&mut discovery, round)));
        discovery.on_acked(1472, at(150));
        assert!(
            (2..4).all(|round| !lose(&mut discovery, round)),
            "a large datagram has arrived since"
        );
        discovery.on_acked(1300, at(350));
        assert!(lose(&mut discovery, 4), "the arrival of a smaller datagram does not count");
        assert_eq!(discovery.current(), BASE_SIZE);
        let (found, _) = search(&mut discovery, 1300, START);
        assert!((1281..=1300).contains(&found), "{found}");
    }

    /// An overflowing queue drops most of a flight, and some datagrams of the flight arrive. That
    /// must not count as a black hole.
    #[test]
    fn mtu_overflowing_queue_is_no_black_hole() {
        let mut discovery = wanted(1472);
        search(&mut discovery, 1500, START);
        for round in 0..50 {
            let sent = at(100 * round);
            // The last datagram of the flight arrives, which reveals that earlier ones were lost.
            discovery.on_acked(1472, sent);
            for _ in 0..200 {
                assert!(!discovery.on_lost(at(100 * round + 50), 1472, sent));
            }
        }
    }

    /// The path fails for a while and loses a whole flight. That must not count as a black hole.
    #[test]
    fn mtu_lost_flight_is_no_black_hole() {
        let mut discovery = wanted(1472);
        search(&mut discovery, 1500, START);
        for flight in 0..50 {
            let (sent, now) = (at(1000 * flight), at(1000 * flight + 500));
            discovery.on_acked(BASE_SIZE, now);
            for _ in 0..200 {
                assert!(!discovery.on_lost(now, 1472, sent));
            }
            discovery.on_acked(1472, now);
        }
    }

    /// Nothing arrives for a long time. That must not count as a black hole, because datagrams of
    /// every size are lost.
    #[test]
    fn mtu_silence_is_no_black_hole() {
        let mut discovery = wanted(1472);
        search(&mut discovery, 1500, START);
        for round in 0..50 {
            assert!(!discovery.on_lost(at(100 * round + 50), 1472, at(100 * round)));
        }
    }

    /// If another connection found a datagram size on the same path, no probe must be needed. A
    /// size that was lost on this connection must not be adopted.
    #[test]
    fn mtu_of_another_connection_is_adopted() {
        let mut discovery = wanted(1472);
        assert!(!discovery.adopt(0) && !discovery.adopt(1473));
        assert!(discovery.adopt(1472) && !discovery.adopt(1400));
        assert_eq!((discovery.current(), discovery.next_probe(START)), (1472, None));
        let mut discovery = wanted(1472);
        assert_eq!(discovery.next_probe(START), Some(1472));
        assert!(discovery.adopt(1452), "a probe is in flight");
        discovery.on_probe_lost();
        assert_eq!(discovery.current(), 1452);
        assert!(!discovery.adopt(1472), "a probe of this size was lost");
        assert!(
            !MtuDiscovery::starting_at(1200, 1472, false).adopt(1472),
            "no search is configured"
        );
    }

    #[test]
    fn mtu_limit_of_the_peer_holds() {
        let mut discovery = wanted(9000);
        discovery.on_peer_limit(1350);
        assert_eq!(search(&mut discovery, 9000, START).0, 1344);
        discovery.on_peer_limit(1343);
        assert_eq!(discovery.current(), 1343, "only probes must be whole blocks");
        discovery.on_peer_limit(0);
        assert_eq!(discovery.current(), BASE_SIZE);
    }

    #[test]
    fn mtu_probe_sizes_are_whole_blocks() {
        for (first, max, fits) in (1200..1240).flat_map(|first| {
            let most = (first..1290).chain([1452, 1471, 1472, 9000, u16::MAX]);
            most.flat_map(move |max| [first, first + 30, 1400, max].map(|fits| (first, max, fits)))
        }) {
            let mut discovery = MtuDiscovery::starting_at(first, max, true);
            discovery.want();
            while let Some(size) = discovery.next_probe(START) {
                assert!(size % BLOCK == 0 && size > discovery.current(), "{first} {max}: {size}");
                assert!(size <= max && size <= discovery.upper(), "{first} {max}: {size}");
                match size <= fits {
                    true => assert!(discovery.on_probe_acked()),
                    false => discovery.on_probe_lost(),
                }
            }
            let (found, most) = (discovery.current(), fits.min(max).max(first));
            // The search may end below `max` by the partial last block of `max`, and by a gain that
            // is not worth a probe.
            let left = BLOCK - 1 + CLOSE_ENOUGH;
            assert!(found <= most && most - found < left, "{first} {max} {fits}: {found}");
            assert!(discovery.is_resting(START) || discovery.raise_at.is_some());
        }
    }
}
