//! State that a connection keeps of its paths: a path is a pair of addresses.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Index, IndexMut};

use equic_wire::packet::MIN_INITIAL_DATAGRAM;

use crate::Timestamp;
use crate::congestion::{Controller, DeliveryRate, Pacer, WindowUsage};
use crate::operation::Word;
use crate::path::{EcnValidation, MtuDiscovery};
use crate::recovery::RttEstimator;

use super::bounds::Hold;
use super::config::TransportConfig;
use super::space::PathId;
use super::validation::Validation;

/// Paths of a connection at a time; the oldest that is of no use goes first.
pub(super) const MAX_PATHS: usize = 4;

/// A datagram that would be smaller is not worth sending.
const LEAST: u64 = 64;

/// Names a path of a connection; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathKey(pub u32);

impl Word for PathKey {
    fn to_word(self) -> u64 {
        self.0.to_word()
    }

    fn from_word(word: u64) -> Option<PathKey> {
        u32::from_word(word).map(PathKey)
    }
}

/// All paths; there is always an active one.
pub(super) struct Paths {
    /// In the order in which they came; at most [`MAX_PATHS`].
    list: Vec<Path>,
    /// Index of the active path in `list`.
    active: usize,
    next: u32,
}

impl Paths {
    pub(super) fn new(first: Path) -> Paths {
        Paths { active: 0, next: first.key.0 + 1, list: vec![first] }
    }

    /// A name for another.
    pub(super) fn next_key(&mut self) -> PathKey {
        self.next += 1;
        PathKey(self.next - 1)
    }

    /// The path between these addresses; the active one, if there are several. Ours counts only
    /// where both are known and `strict` says so.
    pub(super) fn find(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        strict: bool,
    ) -> Option<PathKey> {
        let same = |path: &&Path| {
            let ours = !strict || path.local.is_none() || local.is_none() || path.local == local;
            path.remote == remote && ours
        };
        let active = Some(self.active()).filter(same);
        active.or_else(|| self.list.iter().find(same)).map(|path| path.key)
    }

    /// Adds a path; the one that had to go for it.
    pub(super) fn add(&mut self, path: Path) -> Option<Path> {
        let gone = if self.list.len() < MAX_PATHS {
            None
        } else {
            let active = self.active().key;
            let mut others = self.list.iter().filter(|path| path.key != active);
            let useless = others
                .clone()
                .find(|path| !path.validation.is_validated() && !path.validation.is_asking());
            let key = useless.or_else(|| others.next()).map(|path| path.key);
            key.and_then(|key| self.remove(key))
        };
        self.list.push(path);
        gone
    }

    /// Takes a path away that is not the active one.
    pub(super) fn remove(&mut self, key: PathKey) -> Option<Path> {
        let at = self.list.iter().position(|path| path.key == key)?;
        if at == self.active {
            return None;
        }
        self.active -= usize::from(at < self.active);
        Some(self.list.remove(at))
    }

    pub(super) fn set_active(&mut self, key: PathKey) {
        self.active = self.list.iter().position(|path| path.key == key).unwrap_or(self.active);
    }

    /// Another than the active one on which the peer was found.
    pub(super) fn last_validated(&self) -> Option<PathKey> {
        let active = self.active().key;
        let mut found = self.list.iter().rev();
        found.find(|path| path.validation.is_validated() && path.key != active).map(|path| path.key)
    }

    pub(super) fn active(&self) -> &Path {
        &self.list[self.active]
    }

    pub(super) fn active_mut(&mut self) -> &mut Path {
        &mut self.list[self.active]
    }

    /// None: it is gone.
    pub(super) fn get(&self, key: PathKey) -> Option<&Path> {
        self.list.iter().find(|path| path.key == key)
    }

    pub(super) fn get_mut(&mut self, key: PathKey) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.key == key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.list.iter_mut()
    }
}

/// For keys of paths that are known to be there: those found in the same call into the connection, in which no
/// path has been removed since. A key that was kept for later may name one that is gone: that is for
/// [`Paths::get`]. If one is gone all the same, that is a mistake of ours, at which debug builds stop; a peer's packets
/// must not stop a server, so other builds take the active path.
impl Index<PathKey> for Paths {
    type Output = Path;

    fn index(&self, key: PathKey) -> &Path {
        let found = self.get(key);
        debug_assert!(found.is_some(), "path {} was found in this call and is gone", key.0);
        found.unwrap_or_else(|| self.active())
    }
}

impl IndexMut<PathKey> for Paths {
    fn index_mut(&mut self, key: PathKey) -> &mut Path {
        let found = self.list.iter().position(|path| path.key == key);
        debug_assert!(found.is_some(), "path {} was found in this call and is gone", key.0);
        &mut self.list[found.unwrap_or(self.active)]
    }
}

pub(super) struct Path {
    pub key: PathKey,
    /// Path ID whose packet numbers and connection IDs the path uses (RFC 10069).
    pub id: PathId,
    pub remote: SocketAddr,
    /// Our address, as far as it is known.
    pub local: Option<IpAddr>,
    pub rtt: RttEstimator,
    pub controller: Box<dyn Controller>,
    pub pacer: Pacer,
    pub rates: DeliveryRate,
    /// The latest sample, in bytes a second; 0: none yet.
    pub delivery_rate: u64,
    pub usage: WindowUsage,
    /// Bytes in flight, of all spaces.
    pub in_flight: u64,
    pub mtu: MtuDiscovery,
    pub ecn: EcnValidation,
    /// Probe timeouts in a row.
    pub pto_count: u32,
    pub paced_until: Option<Timestamp>,
    pub validation: Validation,
    /// Sequence number of the peer's connection ID that is used on this path.
    pub remote_id: u64,
    /// The congestion window that a hook wants.
    pub hook_window: Option<u64>,
    pub hold: Option<Hold>,
}

impl Path {
    pub(super) fn new(
        now: Timestamp,
        key: PathKey,
        remote: SocketAddr,
        config: &TransportConfig,
        seed: u64,
        validation: Validation,
    ) -> Path {
        Path {
            key,
            id: PathId(0),
            remote,
            local: None,
            rtt: RttEstimator::new(config.initial_rtt),
            controller: config.start_controller(seed),
            pacer: Pacer::new(now, config.first_window()),
            rates: DeliveryRate::default(),
            delivery_rate: 0,
            usage: WindowUsage::default(),
            in_flight: 0,
            mtu: config.start_discovery(),
            ecn: if config.ecn { EcnValidation::default() } else { EcnValidation::disabled() },
            pto_count: 0,
            paced_until: None,
            validation,
            remote_id: 0,
            hook_window: None,
            hold: None,
        }
    }

    /// The peer's `max_udp_payload_size`: what is sent is no larger from now on.
    pub(super) fn on_peer_limit(&mut self, limit: u64) {
        let before = self.mtu.current();
        self.mtu.on_peer_limit(limit);
        if self.mtu.current() != before {
            self.controller.on_datagram_size(self.mtu.current());
        }
    }

    pub(super) fn on_datagram_sent(&mut self, bytes: usize) {
        self.validation.on_sent(bytes);
        self.hold = None;
    }

    /// A packet of so many bytes is in flight no more.
    pub(super) fn landed(&mut self, bytes: u64) {
        self.in_flight -= bytes.min(self.in_flight);
    }

    /// Whether there is credit for a datagram: one as large as those of the handshake must be
    /// (RFC 9000 s.14.1); later, as large as the path allows (s.8.2.1).
    pub(super) fn may_send(&self) -> bool {
        let least = if self.key == PathKey(0) { MIN_INITIAL_DATAGRAM as u64 } else { LEAST };
        self.validation.credit().is_none_or(|credit| credit >= least)
    }

    /// Whether a PATH_CHALLENGE or PATH_RESPONSE waits, and may be sent.
    pub(super) fn may_probe(&self) -> bool {
        self.validation.has_frames() && self.may_send()
    }
}
