//! Packets from new addresses, migration and path validation (RFC 9000 s.8.2, s.9).

use std::net::{IpAddr, SocketAddr};

use equic_wire::{ConnectionId, Side};
use rand::{Rng, RngCore};

use super::path::{AddressOrigin, Addresses, Answer, Path};
use super::paths::PathKey;
use super::presence::MayBeAttached;
use super::space::{PathId, SpaceId};
use super::{CloseReason, Connection, DatagramMeta, Event};
use crate::Timestamp;
use crate::cid::RemoteIds;
use crate::operation::Operation;

/// Bytes that answers to challenges may use beyond the congestion window.
const BEYOND_WINDOW: u64 = 8 * 1200;

/// Reason for which a connection cannot migrate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateError {
    /// The handshake is not confirmed yet (RFC 9000 s.9).
    NotConfirmed,
    /// The peer has forbidden migration (`disable_active_migration`).
    Forbidden,
    /// A server cannot migrate.
    Server,
    /// The peer has issued no connection ID for the new path (RFC 9000 s.9.5).
    NoConnectionId,
}

impl std::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MigrateError::NotConfirmed => "the handshake is not confirmed yet",
            MigrateError::Forbidden => "the peer does not permit migration",
            MigrateError::Server => "a server cannot migrate",
            MigrateError::NoConnectionId => "the peer has issued no connection ID for another path",
        })
    }
}

impl std::error::Error for MigrateError {}

/// Path that a received datagram belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Known(PathKey),
    /// Addresses that belong to no path: the peer's, and ours if known. Nothing is stored until a
    /// packet proves to be authentic.
    New(SocketAddr, Option<IpAddr>),
}

impl Connection {
    /// Migrates a client at once to another of its addresses (RFC 9000 s.9.2). `local` is the new
    /// address, if it is known. The caller must switch the socket. With several paths, the active
    /// one migrates (RFC 10069 s.3.1.2). The alternative is to open another path
    /// ([`Connection::open_path`]).
    ///
    /// # Errors
    /// Returns a [`MigrateError`] if the connection cannot migrate. Nothing has changed in that
    /// case.
    pub fn migrate(&mut self, now: Timestamp, local: Option<IpAddr>) -> Result<(), MigrateError> {
        if self.side == Side::Server {
            return Err(MigrateError::Server);
        }
        if !self.handshake.is_confirmed() {
            return Err(MigrateError::NotConfirmed);
        }
        if self.peer.is_some_and(|peer| peer.forbids_migration()) {
            return Err(MigrateError::Forbidden);
        }
        let (remote, id) = (self.path().remote(), self.path().id());
        let sequence = self.unused_id(id).ok_or(MigrateError::NoConnectionId)?;
        let key = self.add_path(now, id, Addresses { remote, local });
        if let Some(path) = self.paths.get_mut(key) {
            path.use_remote_id(Some(sequence));
        }
        self.move_to(now, key);
        Ok(())
    }

    /// Returns the sequence number of a connection ID of the peer for path ID `id` that no path
    /// uses.
    pub(super) fn unused_id(&self, id: PathId) -> Option<u64> {
        let used = |sequence: u64| {
            self.paths.iter().any(|path| path.id() == id && path.remote_id() == Some(sequence))
        };
        self.ids.remote_of(id)?.sequences().find(|sequence| !used(*sequence))
    }

    /// Returns the sequence number of the peer's connection ID for a new path, on which the first
    /// packet was sent to `dcid`. Returns `None` if nothing may be sent there.
    ///
    /// RFC 9000 s.9.5: a connection ID is not used for two addresses, so that observers cannot link
    /// them. A peer that migrates or probes a path uses another of our IDs there. Without an unused
    /// ID of the peer, this end does not answer on the path. A NAT changes the address of a peer
    /// that continues to use the same ID. The addresses are then linked anyway, so the new path
    /// uses the ID of the current one.
    fn id_for_path(
        &self,
        space: SpaceId,
        local: Option<IpAddr>,
        dcid: ConnectionId,
    ) -> Option<u64> {
        let current = self.path_of(space);
        let id = current.id();
        if self.ids.remote_of(id).is_some_and(RemoteIds::are_empty_ids) {
            return current.remote_id();
        }
        let same_local = match (current.local(), local) {
            (Some(known), Some(local)) => known.to_canonical() == local.to_canonical(),
            _ => true,
        };
        let linked = same_local && !self.ids.is_unused(dcid);
        self.unused_id(id).or_else(|| current.remote_id().filter(|_| linked))
    }

    /// Returns true if there is a connection ID for packets on a path (RFC 9000 s.9.5). The current
    /// path of a path ID always has one: if the peer has retired it, the path takes an unused one
    /// first.
    pub(super) fn has_id(&self, path: &Path) -> bool {
        let id = path.id();
        let Some(ids) = self.ids.remote_of(id) else { return path.is_current() };
        let has =
            |path: &Path| path.remote_id().is_some_and(|sequence| ids.get(sequence).is_some());
        let current = || self.paths.current(id).is_some_and(has);
        path.is_current() || has(path) || (current() && self.unused_id(id).is_some())
    }

    /// Returns the path of a datagram whose first packet has path ID `id`, or `None` if the
    /// datagram must be dropped.
    pub(super) fn find_path(&mut self, arrival: &DatagramMeta, id: PathId) -> Option<From> {
        let server = self.side == Side::Server;
        let found = self.paths.find(id, arrival.remote, arrival.local, server);
        match found {
            Some(key) => Some(From::Known(key)),
            // A late packet on an abandoned path does not cause a migration.
            None if self.multipath.is_some()
                && let Some(path) = self.paths.current(id).filter(|path| path.is_abandoned()) =>
            {
                Some(From::Known(path.key()))
            }
            // RFC 9000 s.9: servers do not migrate, so a client drops the datagram.
            None if self.side == Side::Client => None,
            None => Some(From::New(arrival.remote, arrival.local)),
        }
    }

    /// Creates a path for an authentic packet from new addresses or with a new path ID, if there is
    /// room. Returns the path of the packet.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        from: From,
        datagram: usize,
        space: SpaceId,
        dcid: ConnectionId,
    ) -> PathKey {
        match (from, space) {
            (From::Known(key), _) => key,
            // RFC 9000 s.9: no migration before the handshake is confirmed.
            (From::New(..), SpaceId::Initial | SpaceId::Handshake) => self.path().key(),
            (From::New(remote, local), SpaceId::Data(id)) if self.may_begin_path(id) => {
                let key = self.begin_path(now, id, Addresses { remote, local });
                self.paths[key].on_datagram_received(datagram);
                key
            }
            (From::New(remote, local), _) => {
                let id = self.path_of(space).id();
                let sequence = self.id_for_path(space, local, dcid);
                let key = self.add_path(now, id, Addresses { remote, local });
                if let Some(path) = self.paths.get_mut(key) {
                    path.on_datagram_received(datagram);
                    path.use_remote_id(sequence);
                }
                if self.is_preferred(local) {
                    // RFC 9000 s.9.6.2: the new path must be validated.
                    self.challenge(now, key);
                }
                key
            }
        }
    }

    pub(super) fn add_path(&mut self, now: Timestamp, id: PathId, addresses: Addresses) -> PathKey {
        let key = self.paths.next_key();
        let seed = self.rng.random();
        let origin = match self.side {
            Side::Client => AddressOrigin::Chosen,
            Side::Server => AddressOrigin::Claimed,
        };
        let mut path = Path::new(now, key, addresses, &self.config, seed, origin);
        path.set_id(id);
        // The peer counts ECN marks per path ID.
        if let Some(current) = self.paths.current(id) {
            path.restart_ecn(current.ecn(), self.config.ecn);
        }
        if let Some(peer) = &self.peer {
            path.on_peer_limit(peer.max_udp_payload_size());
        }
        if let Some(gone) = self.paths.add(path) {
            self.on_path_gone(&gone);
        }
        self.notify(Operation::PathAdded, key);
        key
    }

    fn on_path_gone(&mut self, gone: &Path) {
        self.release_id(gone.id(), gone.remote_id());
        self.notify(Operation::PathRemoved, gone.key());
    }

    /// Retires the connection ID of a removed path, unless another path uses it (RFC 9000 s.9.5).
    fn release_id(&mut self, id: PathId, sequence: Option<u64>) {
        if self.paths.iter().all(|path| path.id() != id || path.remote_id() != sequence)
            && let (Some(remote), Some(sequence)) = (self.ids.remote_of_mut(id), sequence)
        {
            remote.retire(sequence);
        }
    }

    /// Called after all frames of a packet on path `key` are processed, if the packet had a
    /// non-probing frame and the highest number so far. The peer has migrated if the path is not
    /// the current one (RFC 9000 s.9.3).
    pub(super) fn on_peer_packet(&mut self, now: Timestamp, key: PathKey) {
        // A PATH_RESPONSE in the same packet may have removed the path.
        let Some(path) = self.paths.get(key) else { return };
        if path.is_current() || self.side == Side::Client {
            return;
        }
        if !self.has_id(path) {
            // RFC 9000 s.9.5: without a connection ID for the new address, the migration is not
            // followed.
            return;
        }
        let id = path.id();
        let (validated, local) = (path.is_validated(), path.local());
        let before = self.path_of(SpaceId::Data(id)).key();
        let input = (key, before);
        if !self.decide(Operation::FollowPeer, input, true) {
            return;
        }
        if !validated && self.is_preferred(local) {
            // RFC 9000 s.9.6.2: the server sends from its old address until the new path is
            // validated.
            self.preferred = Some(key);
            if !self.paths[key].is_asking() {
                self.challenge(now, key);
            }
            return;
        }
        // RFC 9000 s.9.5: an unused ID may have arrived since the path was created.
        if self.shares_id(key)
            && let Some(sequence) = self.unused_id(id)
            && let Some(path) = self.paths.get_mut(key)
        {
            path.use_remote_id(Some(sequence));
        }
        self.move_to(now, key);
        // RFC 9000 s.9.3.3: if the peer still answers at the old address, an attacker has forwarded
        // its packets.
        if self.paths.get(before).is_some_and(|path| path.is_validated()) {
            self.challenge(now, before);
        }
    }

    /// Returns true if another path uses the same connection ID of the peer.
    fn shares_id(&self, key: PathKey) -> bool {
        let (id, sequence) = (self.paths[key].id(), self.paths[key].remote_id());
        let same = |path: &Path| path.id() == id && path.remote_id() == sequence;
        self.paths.iter().any(|path| path.key() != key && same(path))
    }

    /// Returns true if this is our preferred address as a server (RFC 9000 s.9.6), and not the
    /// address in use.
    fn is_preferred(&self, local: Option<IpAddr>) -> bool {
        if self.side == Side::Client {
            return false;
        }
        let (Some(local), Some(preferred)) = (local, &self.preferred_address) else { return false };
        let local = local.to_canonical();
        let is_it = preferred.ipv4().is_some_and(|own| IpAddr::V4(*own.ip()) == local)
            || preferred.ipv6().is_some_and(|own| IpAddr::V6(*own.ip()) == local);
        is_it && self.path().local().is_some_and(|current| current.to_canonical() != local)
    }

    /// Makes a path the current one of its path ID, and validates it if necessary.
    fn move_to(&mut self, now: Timestamp, key: PathKey) {
        let ecn = self.config.ecn;
        let before = self.paths.current(self.paths[key].id()).map(|path| path.ecn().clone());
        if let Some(before) = before
            && let Some(path) = self.paths.get_mut(key).filter(|path| !path.is_current())
        {
            // The peer counts ECN marks of all addresses together, and more packets may have been
            // sent since the path was created.
            path.restart_ecn(&before, ecn);
        }
        self.paths.set_current(key);
        let path = &self.paths[key];
        let validated = path.is_validated();
        if key == self.path().key() {
            self.tell_of_move();
        }
        if !validated {
            self.challenge(now, key);
        }
    }

    /// Notifies the application that another path is the active one.
    pub(super) fn tell_of_move(&mut self) {
        // Only the last event is relevant. A peer that migrates all the time must not fill the
        // queue.
        self.events.retain(|event| !matches!(event, Event::Moved(_)));
        self.events.push_back(Event::Moved(self.path().remote()));
    }

    /// Starts or continues the validation of a path.
    pub(super) fn challenge(&mut self, now: Timestamp, key: PathKey) {
        let mut data = [0; 8];
        self.rng.fill_bytes(&mut data);
        // RFC 9000 s.8.2.4: three times the larger one of the current PTO and the PTO of a new
        // path.
        let patience = self.longest_pto().max(self.new_path_pto(key)) * 3;
        self.act(Operation::ChallengePath, key, |connection| {
            if let Some(path) = connection.paths.get_mut(key) {
                path.ask(now, data, patience);
            }
        });
    }

    /// Processes a PATH_CHALLENGE frame. Each one is answered (RFC 9000 s.8.2.2), up to as many as
    /// fit into a datagram.
    pub(super) fn on_path_challenge(&mut self, key: PathKey, data: [u8; 8]) {
        // Answers do not wait for the congestion window. The limit stops a peer that sends endless
        // challenges and acknowledges nothing. An honest peer sends its challenge again.
        let answer = self.decide(Operation::AnswerChallenge, key, true);
        // An earlier PATH_RESPONSE in the packet may have removed its path. Then there is no path
        // for the answer.
        if !answer || self.paths.get(key).is_none() {
            return;
        }
        let window = self.window(MayBeAttached, key);
        let path = &mut self.paths[key];
        if path.in_flight() <= window.saturating_add(BEYOND_WINDOW) {
            path.answer(data);
        }
    }

    /// Processes a PATH_RESPONSE frame. It may arrive on any path, and validates the path of its
    /// challenge (RFC 9000 s.8.2.3).
    pub(super) fn on_path_response(&mut self, data: [u8; 8]) {
        let answered = |path: &mut Path| Some((path.key(), path.on_path_response(data)?));
        let Some((key, answer)) = self.paths.iter_mut().find_map(answered) else { return };
        let Some(path) = self.paths.get(key) else { return };
        let (id, remote, current) = (path.id(), path.remote(), path.is_current());
        let first = answer != Answer::Size;
        if first {
            self.notify(Operation::PathValidated, key);
            let same = Event::PathValidated(remote);
            self.events.retain(|event| *event != same);
            self.events.push_back(same);
        }
        let now = self.now;
        if answer == Answer::Address && !self.paths.get(key).is_none_or(Path::is_asking) {
            // RFC 9000 s.8.2.1: the address is valid, but the path may not support 1,200 bytes.
            self.challenge(now, key);
        }
        if self.paths.get(key).is_some_and(Path::is_asking) {
            return;
        }
        if current {
            self.on_path_proved(id);
        }
        if self.preferred == Some(key) {
            // RFC 9000 s.9.6.1, s.9.6.2: the connection migrates when the path is validated.
            self.preferred = None;
            self.move_to(now, key);
        }
        // The old path is removed even if it is validated. Its address may belong to another host
        // when packets arrive from there again.
        if self.paths.current(id).is_some_and(|path| path.is_validated() && !path.is_asking()) {
            self.leave_others(id);
        }
    }

    /// Removes the unused paths of a path ID. Keeps paths with a pending challenge or answer, and
    /// the path at a server's preferred address, which the client has validated and will soon use.
    fn leave_others(&mut self, id: PathId) {
        let useless = |path: &&Path| {
            let pending = path.is_asking() || path.owes_responses();
            let wanted = path.is_validated() && self.is_preferred(path.local());
            path.id() == id && !path.is_current() && !pending && !wanted
        };
        let keys: Vec<PathKey> = self.paths.iter().filter(useless).map(|path| path.key()).collect();
        for key in keys {
            self.remove_path(key);
        }
    }

    /// Returns the time at which a PATH_CHALLENGE must be repeated or its validation fails, or
    /// `None` if no challenge is pending.
    pub(super) fn challenge_timer(&self) -> Option<Timestamp> {
        self.paths.iter().filter_map(|path| path.challenge_timer()).min()
    }

    /// Processes the challenges that are due.
    pub(super) fn on_challenge_timer(&mut self, now: Timestamp) {
        let mut failed = Vec::new();
        for path in self.paths.iter_mut() {
            if path.on_challenge_timer(now, &mut self.rng) {
                failed.push(path.key());
            }
        }
        for key in failed {
            self.on_validation_failed(now, key);
        }
    }

    /// Processes a failed path validation. The connection returns to the last validated path, or is
    /// closed (RFC 9000 s.9.3.2).
    fn on_validation_failed(&mut self, now: Timestamp, key: PathKey) {
        if self.preferred == Some(key) {
            self.preferred = None;
        }
        let Some(path) = self.paths.get(key) else { return };
        let id = path.id();
        if !path.is_current() {
            // This fallback path was challenged because the peer seemed to have left it (s.9.3.3).
            // The path is kept while the current path's validation, of its address or of the size
            // of 1,200 bytes, can still fail. A peer that did not migrate and is silent answers on
            // neither path.
            let current = self.paths.current(id);
            let validated = current.is_some_and(|path| path.is_validated() && !path.is_asking());
            if validated || !path.is_fallback() {
                self.remove_path(key);
            }
            return;
        }
        if let Some(other) = self.paths.fallback(id).map(Path::key) {
            self.move_to(now, other);
            self.remove_path(key);
            return;
        }
        // RFC 10069 s.3.1: a silent path is abandoned if there are others.
        let abandoned = self.abandon_silent(now, id);
        // A client trusts its server's address, and continues until the idle timeout. A validated
        // path that was challenged again because of another path remains in use.
        let known = self.side == Side::Client || self.path().is_validated();
        if abandoned || known {
            return;
        }
        self.forget(CloseReason::NoValidatedPath);
    }

    fn remove_path(&mut self, key: PathKey) {
        if let Some(gone) = self.paths.remove(key) {
            self.on_path_gone(&gone);
        }
    }

    /// Begins the migration of a client to the server's preferred address (RFC 9000 s.9.6).
    pub(super) fn try_preferred(&mut self, now: Timestamp) {
        if self.side == Side::Server {
            return;
        }
        let Some(preferred) = self.preferred_address.take() else { return };
        if !self.config.follow_preferred_address {
            return;
        }
        let remote = match self.path().remote() {
            SocketAddr::V4(_) => preferred.ipv4().map(SocketAddr::V4),
            // A dual-stack socket maps IPv4 addresses to IPv6 (RFC 4291 s.2.5.5.2).
            SocketAddr::V6(now) if now.ip().to_ipv4_mapped().is_some() => preferred
                .ipv4()
                .map(|other| SocketAddr::from((other.ip().to_ipv6_mapped(), other.port()))),
            SocketAddr::V6(_) => preferred.ipv6().map(SocketAddr::V6),
        };
        let Some(remote) = remote else { return };
        let local = self.path().local();
        // RFC 10069 s.2.2: this also applies with several paths.
        let key = self.add_path(now, PathId::ZERO, Addresses { remote, local });
        if let Some(path) = self.paths.get_mut(key) {
            // RFC 9000 s.5.1.1: the ID of the preferred address has sequence number 1.
            path.use_remote_id(Some(1));
        }
        self.preferred = Some(key);
        self.challenge(now, key);
    }

    /// Returns the Destination Connection ID for packets of a path. If the peer has retired it, the
    /// path takes another one.
    pub(super) fn dcid(&mut self, key: PathKey) -> ConnectionId {
        let path = &self.paths[key];
        let (path, sequence) = (path.id(), path.remote_id());
        let Some(ids) = self.ids.remote_of_mut(path) else { return ConnectionId::EMPTY };
        if let Some(id) = sequence.and_then(|sequence| ids.take_into_use(sequence)) {
            return id;
        }
        // Only a current path may have to share another path's ID: see `has_id`.
        let any = ids.sequences().next();
        let sequence = self.unused_id(path).or(any);
        self.paths[key].use_remote_id(sequence);
        let ids = self.ids.remote_of_mut(path).zip(sequence);
        ids.and_then(|(ids, sequence)| ids.take_into_use(sequence)).unwrap_or(ConnectionId::EMPTY)
    }

    /// Returns a path that has a probe to send, if there is one.
    pub(super) fn probing_path(&self) -> Option<PathKey> {
        let probing = |path: &&Path| !path.is_current() && path.may_probe() && self.has_id(path);
        self.paths.iter().find(probing).map(|path| path.key())
    }
}
