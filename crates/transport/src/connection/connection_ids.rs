//! The connection IDs of a connection, ours and the peer's (RFC 9000 s.5.1, s.7.2).

use std::collections::VecDeque;

use equic_wire::{ConnectionId, ResetToken};
use rand::RngCore;

use super::handshake::{ACTIVE_IDS, random_id};
use super::space::PathId;
use crate::Timestamp;
use crate::cid::{Changes, EndpointEvent, IdSource, LocalIds, RemoteIds, note};

/// The connection IDs of a path ID other than 0 (RFC 10069 s.3.2).
struct OfPath {
    id: PathId,
    local: LocalIds,
    remote: RemoteIds,
}

/// All connection IDs of a connection. This type manages the IDs of the handshake; `LocalIds` and
/// `RemoteIds` manage the others.
pub(super) struct ConnectionIds {
    /// Our IDs on path 0, to which the peer may send.
    pub(super) local: LocalIds,
    /// The peer's IDs on path 0, to which we may send.
    pub(super) remote: RemoteIds,
    /// The IDs of other path IDs. Empty without multipath.
    others: Vec<OfPath>,
    /// Events for the endpoint about path IDs that were removed.
    left: Changes,
    /// Generator of our connection IDs.
    source: IdSource,
    /// Our Source Connection ID in long headers.
    scid: ConnectionId,
    /// Destination Connection ID of the client's first packet.
    original_dcid: ConnectionId,
    /// The Source Connection ID of the peer's packets; `None` until the first authentic one came.
    peer_scid: Option<ConnectionId>,
    /// Set if our IDs must be replaced as soon as possible.
    replace: bool,
    /// Set if the endpoint must be notified that the handshake is complete.
    completed: bool,
}

impl ConnectionIds {
    /// Creates the state. `scid` is our Source Connection ID, `remote` is the destination of the
    /// first packets, and `original_dcid` is the Destination Connection ID of the client's first
    /// packet.
    pub(super) fn new(
        scid: ConnectionId,
        remote: ConnectionId,
        original_dcid: ConnectionId,
        source: IdSource,
    ) -> ConnectionIds {
        let (local, remote) = (LocalIds::new(scid), RemoteIds::new(remote, ACTIVE_IDS.into()));
        ConnectionIds {
            local,
            remote,
            others: Vec::new(),
            left: Changes::default(),
            source,
            scid,
            original_dcid,
            peer_scid: None,
            replace: false,
            completed: false,
        }
    }

    /// Returns our Source Connection ID in long headers.
    pub(super) fn scid(&self) -> ConnectionId {
        self.scid
    }

    /// Replaces our Source Connection ID in long headers.
    #[cfg(test)]
    pub(super) fn pretend_scid(&mut self, scid: ConnectionId) {
        self.scid = scid;
    }

    /// Returns the stateless reset token of our Source Connection ID in long headers.
    #[cfg(test)]
    pub(super) fn own_token(&self) -> ResetToken {
        self.source.token(self.scid)
    }

    /// Returns the length of each of our IDs in bytes.
    pub(super) fn id_len(&self) -> usize {
        self.scid.len()
    }

    /// Returns the Destination Connection ID of the client's first packet.
    pub(super) fn original_dcid(&self) -> ConnectionId {
        self.original_dcid
    }

    /// Records the Source Connection ID of an authentic packet with a long header. The first one
    /// determines the peer's ID (RFC 9000 s.7.2).
    pub(super) fn on_peer_packet(&mut self, scid: ConnectionId) {
        if self.peer_scid.is_none() {
            self.peer_scid = Some(scid);
            self.remote.set_handshake_id(scid);
        }
    }

    /// Returns false if the Source Connection ID of a packet differs from that of the peer's first
    /// packet. The packet must then be discarded (RFC 9000 s.7.2).
    pub(super) fn is_of_peer(&self, scid: ConnectionId) -> bool {
        self.peer_scid.is_none_or(|known| known == scid)
    }

    /// Restarts a client's connection: selects a new ID for its first packet and discards what it
    /// has learned about the server.
    pub(super) fn begin_again(&mut self, rng: &mut dyn RngCore) {
        self.original_dcid = random_id(rng);
        self.remote = RemoteIds::new(self.original_dcid, ACTIVE_IDS.into());
        self.peer_scid = None;
    }

    /// Requests that our IDs be replaced. The first [`ConnectionIds::issue`] at which the peer owes
    /// retirements of at most one earlier set replaces them.
    pub(super) fn replace(&mut self) {
        self.replace = true;
    }

    /// Issues as many IDs for each path ID as the peer permits.
    pub(super) fn issue(&mut self, rng: &mut dyn RngCore) {
        if std::mem::take(&mut self.replace) {
            self.replace = !self.local.retire_all();
            for other in &mut self.others {
                let _ = other.local.retire_all();
            }
        }
        if !self.local.wants_more() && !self.others.iter().any(|other| other.local.wants_more()) {
            return;
        }
        let others = self.others.iter_mut().map(|other| &mut other.local);
        for local in std::iter::once(&mut self.local).chain(others) {
            while local.wants_more() {
                let id = self.source.generate(rng);
                local.issue(id, self.source.token(id));
            }
        }
    }

    /// Returns true if a frame about connection IDs, ours or the peer's, must be sent.
    pub(super) fn has_news(&self) -> bool {
        self.local.has_news()
            || self.remote.has_news()
            || self.others.iter().any(|other| other.local.has_news() || other.remote.has_news())
    }

    /// Records that a server's handshake is complete.
    pub(super) fn complete(&mut self) {
        self.completed = true;
    }

    /// Returns the next change that the endpoint must learn.
    pub(super) fn poll_change(&mut self) -> Option<EndpointEvent> {
        if std::mem::take(&mut self.completed) {
            return Some(EndpointEvent::HandshakeComplete);
        }
        let left = self.left.get_mut_if_allocated().and_then(VecDeque::pop_front);
        let first = left.or_else(|| self.local.poll_change().or_else(|| self.remote.poll_change()));
        first.or_else(|| {
            let mut others = self.others.iter_mut();
            others
                .find_map(|other| other.local.poll_change().or_else(|| other.remote.poll_change()))
        })
    }

    /// Permits another path ID. No IDs are issued for it yet.
    pub(super) fn add_path(&mut self, id: PathId) {
        if id != PathId::ZERO && self.local_of(id).is_none() {
            let (local, remote) = (LocalIds::none(), RemoteIds::none(ACTIVE_IDS.into()));
            self.others.push(OfPath { id, local, remote });
        }
    }

    /// Removes a path ID that neither end uses any longer. Its IDs no longer identify the
    /// connection.
    pub(super) fn remove_path(&mut self, id: PathId) {
        if id == PathId::ZERO {
            self.local.retire_for_good();
            return self.remote.forget_all();
        }
        let Some(at) = self.others.iter().position(|other| other.id == id) else { return };
        let mut gone = self.others.remove(at);
        gone.local.retire_for_good();
        gone.remote.forget_all();
        // Changes not yet reported must still reach the endpoint.
        while let Some(change) = gone.local.poll_change().or_else(|| gone.remote.poll_change()) {
            note(&mut self.left, change);
        }
    }

    /// Returns our IDs for a path ID, or `None` if the path ID is not permitted.
    pub(super) fn local_of(&self, id: PathId) -> Option<&LocalIds> {
        if id == PathId::ZERO {
            return Some(&self.local);
        }
        self.others.iter().find(|other| other.id == id).map(|other| &other.local)
    }

    /// Mutable variant of [`ConnectionIds::local_of`].
    pub(super) fn local_of_mut(&mut self, id: PathId) -> Option<&mut LocalIds> {
        if id == PathId::ZERO {
            return Some(&mut self.local);
        }
        self.others.iter_mut().find(|other| other.id == id).map(|other| &mut other.local)
    }

    /// Returns the peer's IDs for a path ID, or `None` if the path ID is not permitted.
    pub(super) fn remote_of(&self, id: PathId) -> Option<&RemoteIds> {
        if id == PathId::ZERO {
            return Some(&self.remote);
        }
        self.others.iter().find(|other| other.id == id).map(|other| &other.remote)
    }

    /// Mutable variant of [`ConnectionIds::remote_of`].
    pub(super) fn remote_of_mut(&mut self, id: PathId) -> Option<&mut RemoteIds> {
        if id == PathId::ZERO {
            return Some(&mut self.remote);
        }
        self.others.iter_mut().find(|other| other.id == id).map(|other| &mut other.remote)
    }

    /// Returns the path ID for which we issued an ID, or `None` if the ID is not ours.
    pub(super) fn path_of(&self, id: ConnectionId) -> Option<PathId> {
        if self.local.contains(id) {
            return Some(PathId::ZERO);
        }
        self.others.iter().find(|other| other.local.contains(id)).map(|other| other.id)
    }

    /// Variant of [`ConnectionIds::path_of`] for the bytes of an ID in a packet.
    #[inline]
    pub(super) fn path_of_bytes(&self, id: &[u8]) -> Option<PathId> {
        if self.local.contains_bytes(id) {
            return Some(PathId::ZERO);
        }
        self.others.iter().find(|other| other.local.contains_bytes(id)).map(|other| other.id)
    }

    /// Records that an authentic packet of the peer was sent to this ID of ours.
    pub(super) fn set_used(&mut self, id: ConnectionId) {
        self.local.set_used(id);
        self.others.iter_mut().for_each(|other| other.local.set_used(id));
    }

    /// Returns true if this is an ID of ours that the peer has not used yet.
    pub(super) fn is_unused(&self, id: ConnectionId) -> bool {
        self.local.is_unused(id) || self.others.iter().any(|other| other.local.is_unused(id))
    }

    /// Returns true if the peer has issued this ID for another path ID than `path`.
    pub(super) fn is_of_another(&self, id: ConnectionId, path: PathId) -> bool {
        path != PathId::ZERO && self.remote.has_id(id)
            || self.others.iter().any(|other| other.id != path && other.remote.has_id(id))
    }

    /// Returns true if `token` is the stateless reset token of an ID in use, on any path (RFC 9000
    /// s.10.3.1).
    pub(super) fn is_reset(&self, token: ResetToken) -> bool {
        // The search does not stop early, so that it takes the same time for every token.
        let others = self.others.iter();
        others
            .fold(self.remote.is_reset(token), |found, other| found | other.remote.is_reset(token))
    }

    /// Returns all of our IDs that identify the connection.
    pub(super) fn all_local(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.local.iter().chain(self.others.iter().flat_map(|other| other.local.iter()))
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self, now: Timestamp) {
        let others = self.others.iter_mut().map(|other| (&mut other.local, &mut other.remote));
        for (local, remote) in std::iter::once((&mut self.local, &mut self.remote)).chain(others) {
            local.shrink(now);
            remote.shrink();
        }
        if self.left.is_empty() {
            self.left = Changes::default();
        }
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        let others = self.others.iter().map(|other| other.local.memory() + other.remote.memory());
        self.remote.memory() + self.local.memory() + others.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;

    use super::*;

    fn id(byte: u8) -> ConnectionId {
        ConnectionId::cut(&[byte; 8])
    }

    fn ids(rng: &mut StdRng) -> ConnectionIds {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite()).unwrap();
        ConnectionIds::new(id(1), id(2), id(2), IdSource::random(&suite, rng))
    }

    #[test]
    fn cid_source_of_the_first_packet_is_kept() {
        let mut ids = ids(&mut StdRng::seed_from_u64(1));
        assert_eq!((ids.remote.current(), ids.scid(), ids.original_dcid()), (id(2), id(1), id(2)));
        assert!(ids.is_of_peer(id(4)));
        ids.on_peer_packet(id(3));
        assert!(ids.is_of_peer(id(3)) && !ids.is_of_peer(id(4)));
        ids.on_peer_packet(id(4));
        assert_eq!(ids.remote.current(), id(3));
    }

    #[test]
    fn cid_of_a_new_attempt_is_unknown() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut ids = ids(&mut rng);
        ids.on_peer_packet(id(3));
        ids.begin_again(&mut rng);
        assert_ne!(ids.original_dcid(), id(2));
        assert_eq!((ids.remote.current(), ids.scid()), (ids.original_dcid(), id(1)));
        ids.on_peer_packet(id(5));
        assert_eq!(ids.remote.current(), id(5));
    }

    #[test]
    fn cid_count_is_what_the_peer_accepts() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut ids = ids(&mut rng);
        while ids.poll_change().is_some() {}
        ids.issue(&mut rng);
        assert!(!ids.has_news(), "the peer's limit is unknown");
        ids.local.set_limit(4, 3);
        ids.issue(&mut rng);
        assert!(ids.has_news());
        let told = std::iter::from_fn(|| ids.local.next_to_announce()).count();
        assert_eq!((told, std::iter::from_fn(|| ids.poll_change()).count()), (2, 2));
    }

    #[test]
    fn cid_sequence_of_each_path_id_is_its_own() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut ids = ids(&mut rng);
        let one = PathId::new(1);
        ids.add_path(one);
        ids.issue(&mut rng);
        assert_eq!(ids.local_of(one).unwrap().iter().count(), 0, "no IDs before the limit");
        ids.local_of_mut(one).unwrap().set_limit(2, 2);
        ids.issue(&mut rng);
        let given: Vec<ConnectionId> = ids.local_of(one).unwrap().iter().collect();
        assert_eq!(given.len(), 2);
        assert!(given.iter().all(|id| ids.path_of(*id) == Some(one)));
        assert_eq!((ids.path_of(id(1)), ids.path_of(id(9))), (Some(PathId::ZERO), None));
        assert_eq!(ids.all_local().count(), 3);
        let new =
            |byte| crate::cid::NewId { sequence: 0, id: id(byte), token: ResetToken([7; 16]) };
        let remote = ids.remote_of_mut(one).unwrap();
        remote.on_new(new(5), 0).unwrap();
        assert!(ids.is_of_another(id(5), PathId::ZERO) && !ids.is_of_another(id(5), one));
        assert!(ids.is_of_another(id(2), one) && !ids.is_of_another(id(2), PathId::ZERO));
        assert!(!ids.is_reset(ResetToken([7; 16])), "we have not sent to this ID");
        assert_eq!(ids.remote_of_mut(one).unwrap().take_into_use(0), Some(id(5)));
        assert!(ids.is_reset(ResetToken([7; 16])) && !ids.is_reset(ResetToken([8; 16])));
        // The path is abandoned and then removed. The endpoint learns of both.
        ids.remote_of_mut(one).unwrap().forget_all();
        assert!(!ids.is_reset(ResetToken([7; 16])), "the token of an abandoned path is invalid");
        ids.remove_path(one);
        let changes: Vec<EndpointEvent> = std::iter::from_fn(|| ids.poll_change()).collect();
        assert_eq!(changes.len(), 6, "two issued, two retired, a token learned and forgotten");
        assert!(ids.local_of(one).is_none() && ids.path_of(given[0]).is_none());
    }
}
