//! Datagram size of a path (RFC 9000 s.14.3; DPLPMTUD, RFC 8899).

use std::time::Duration;

use crate::Timestamp;

/// Every QUIC path takes this (RFC 9000 s.14).
pub const BASE_SIZE: u16 = 1200;

/// RFC 8899 s.5.1.2, MAX_PROBES: a size that was lost so often does not fit.
const MAX_PROBES: u8 = 3;

/// The search ends when so few bytes are left to gain.
const CLOSE_ENOUGH: u16 = 20;

/// RFC 8899 s.5.1.1, PMTU_RAISE_TIMER.
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Datagrams larger than the base, lost in a row without one delivered, that make a black hole.
const BLACK_HOLE: u8 = 6;

/// Searches how large datagrams on a path may be.
#[derive(Debug, Clone)]
pub struct MtuDiscovery {
    /// What is known to fit.
    current: u16,
    /// What may fit.
    upper: u16,
    /// The most that peer and configuration allow.
    max: u16,
    probe: Option<u16>,
    probes_lost: u8,
    /// When to search again.
    raise_at: Option<Timestamp>,
    /// Large datagrams lost in a row.
    lost_in_row: u8,
}

impl MtuDiscovery {
    /// Starts at the base; up to `max` bytes of UDP payload.
    pub fn new(max: u16) -> MtuDiscovery {
        let max = max.max(BASE_SIZE);
        MtuDiscovery {
            current: BASE_SIZE,
            upper: max,
            max,
            probe: None,
            probes_lost: 0,
            raise_at: None,
            lost_in_row: 0,
        }
    }

    /// The size of datagrams to send, in bytes of UDP payload.
    pub fn current(&self) -> u16 {
        self.current
    }

    /// The peer's `max_udp_payload_size` (RFC 9000 s.18.2), at least 1,200.
    pub fn on_peer_limit(&mut self, limit: u64) {
        let limit = u16::try_from(limit).unwrap_or(u16::MAX).max(BASE_SIZE);
        self.max = self.max.min(limit);
        self.upper = self.upper.min(self.max);
        self.current = self.current.min(self.max);
    }

    /// The size of a probe to send now, if one is due. One is in flight at a time.
    pub fn next_probe(&mut self, now: Timestamp) -> Option<u16> {
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
        // The largest first: most paths take all that was configured.
        let size = if self.upper == self.max && self.probes_lost == 0 {
            self.max
        } else {
            self.current + (self.upper - self.current).div_ceil(2)
        };
        self.probe = Some(size);
        self.probe
    }

    /// The probe arrived: whether the size grew.
    pub fn on_probe_acked(&mut self) -> bool {
        let Some(size) = self.probe.take() else { return false };
        (self.probes_lost, self.lost_in_row) = (0, 0);
        let grew = size > self.current;
        self.current = self.current.max(size.min(self.max));
        grew
    }

    /// The probe was lost.
    pub fn on_probe_lost(&mut self) {
        let Some(size) = self.probe.take() else { return };
        self.probes_lost += 1;
        if size == self.max || self.probes_lost >= MAX_PROBES {
            // The largest gets one try: if it fits, a later search finds it.
            self.upper = size.saturating_sub(1).max(self.current);
            self.probes_lost = u8::from(self.upper == self.max);
        }
    }

    /// A datagram of this size, no probe, arrived.
    pub fn on_acked(&mut self, size: u16) {
        if size > BASE_SIZE {
            self.lost_in_row = 0;
        }
    }

    /// A datagram of this size, no probe, was lost: whether the path turned out to be a black hole for
    /// large ones, and the size fell back to the base (RFC 8899 s.4.3).
    pub fn on_lost(&mut self, size: u16) -> bool {
        if size <= BASE_SIZE || self.current == BASE_SIZE {
            return false;
        }
        self.lost_in_row += 1;
        if self.lost_in_row < BLACK_HOLE {
            return false;
        }
        let failed = self.current;
        *self = MtuDiscovery { upper: failed - 1, max: self.max, ..MtuDiscovery::new(self.max) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::START;

    /// Searches on a path that takes `fits` bytes; the size found and the probes it took.
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
    fn finds_what_fits() {
        for fits in [1200, 1201, 1280, 1400, 1452, 1471, 1472] {
            let (found, probes) = search(&mut MtuDiscovery::new(1472), fits, START);
            assert!(found <= fits && fits - found < CLOSE_ENOUGH, "{fits}: {found}");
            assert!(probes <= 20, "{fits}: {probes} probes");
        }
        let (found, probes) = search(&mut MtuDiscovery::new(1472), 1500, START);
        assert_eq!((found, probes), (1472, 1), "the usual path takes one probe");
    }

    #[test]
    fn searches_again_later() {
        let mut discovery = MtuDiscovery::new(1472);
        search(&mut discovery, 1300, START);
        assert_eq!(discovery.next_probe(START + Duration::from_secs(599)), None);
        let (found, _) = search(&mut discovery, 1500, START + Duration::from_secs(601));
        assert_eq!(found, 1472);
    }

    #[test]
    fn one_lost_probe_is_no_proof() {
        let mut discovery = MtuDiscovery::new(1472);
        discovery.next_probe(START).unwrap();
        discovery.on_probe_lost();
        let size = discovery.next_probe(START).unwrap();
        assert!(size < 1472);
        discovery.on_probe_lost();
        assert_eq!(discovery.next_probe(START), Some(size), "the same again");
    }

    #[test]
    fn a_black_hole_is_left() {
        let mut discovery = MtuDiscovery::new(1472);
        search(&mut discovery, 1500, START);
        for _ in 0..BLACK_HOLE - 1 {
            assert!(!discovery.on_lost(1472));
        }
        discovery.on_acked(1472);
        for _ in 0..BLACK_HOLE - 1 {
            assert!(!discovery.on_lost(1472));
        }
        assert!(!discovery.on_lost(BASE_SIZE), "small ones say nothing");
        assert!(discovery.on_lost(1472));
        assert_eq!(discovery.current(), BASE_SIZE);
        let (found, _) = search(&mut discovery, 1300, START);
        assert!((1281..=1300).contains(&found), "{found}");
    }

    #[test]
    fn the_peers_limit_holds() {
        let mut discovery = MtuDiscovery::new(9000);
        discovery.on_peer_limit(1350);
        assert_eq!(search(&mut discovery, 9000, START).0, 1350);
        discovery.on_peer_limit(0);
        assert_eq!(discovery.current(), BASE_SIZE);
    }
}
