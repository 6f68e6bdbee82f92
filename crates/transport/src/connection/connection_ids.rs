//! The connection IDs of a connection, ours and the peer's (RFC 9000 s.5.1, s.7.2).

use equic_wire::ConnectionId;
use rand::rngs::StdRng;

use super::handshake::{ACTIVE_IDS, random_id};
use crate::cid::{IdChange, IdSource, LocalIds, RemoteIds};

/// All of them. Those of the handshake are changed here alone; the two sets look after themselves.
pub(super) struct ConnectionIds {
    /// Those that the peer may send to.
    pub(super) local: LocalIds,
    /// Those that we may send to.
    pub(super) remote: RemoteIds,
    /// Generator of connection IDs for this end.
    source: IdSource,
    /// Ours on long headers.
    scid: ConnectionId,
    /// What the client put on its first packet.
    original_dcid: ConnectionId,
    /// True if the peer's first ID is known.
    peer_known: bool,
    /// Ours are to be replaced as soon as they can be.
    replace: bool,
}

impl ConnectionIds {
    /// `scid` is ours, `remote` what the first packets are sent to, and `original_dcid` what the client's first
    /// packet was sent to.
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
            source,
            scid,
            original_dcid,
            peer_known: false,
            replace: false,
        }
    }

    /// Ours on long headers.
    pub(super) fn scid(&self) -> ConnectionId {
        self.scid
    }

    /// What the client put on its first packet.
    pub(super) fn original_dcid(&self) -> ConnectionId {
        self.original_dcid
    }

    /// An authentic packet with a long header came, from this ID. The first names the peer's; later ones change
    /// nothing (RFC 9000 s.7.2).
    pub(super) fn on_peer_packet(&mut self, scid: ConnectionId) {
        if !self.peer_known {
            self.peer_known = true;
            self.remote.set_handshake_id(scid);
        }
    }

    /// A client begins again: its first packet goes to another ID, and what it knows of the server is void.
    pub(super) fn begin_again(&mut self, rng: &mut StdRng) {
        self.original_dcid = random_id(rng);
        self.remote = RemoteIds::new(self.original_dcid, ACTIVE_IDS.into());
        self.peer_known = false;
    }

    /// Has ours replaced with the next [`ConnectionIds::issue`], or the one by which the peer owes no more than one set
    /// of those that were replaced before.
    pub(super) fn replace(&mut self) {
        self.replace = true;
    }

    /// Gives the peer as many as it keeps.
    pub(super) fn issue(&mut self, rng: &mut StdRng) {
        if self.replace && self.local.retire_all() {
            self.replace = false;
        }
        while self.local.wants_more() {
            let id = self.source.generate(rng);
            self.local.issue(id, self.source.token(id));
        }
    }

    /// True if the peer is to be told of any, ours or its own.
    pub(super) fn has_news(&self) -> bool {
        self.local.has_news() || self.remote.has_news()
    }

    /// What an endpoint has to know, one change at a time.
    pub(super) fn poll_change(&mut self) -> Option<IdChange> {
        self.local.poll_change().or_else(|| self.remote.poll_change())
    }

    /// Bytes kept of them.
    pub(super) fn memory(&self) -> usize {
        self.remote.memory() + self.local.memory()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
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
    fn the_first_packet_names_the_peer_and_no_other() {
        let mut ids = ids(&mut StdRng::seed_from_u64(1));
        assert_eq!((ids.remote.current(), ids.scid(), ids.original_dcid()), (id(2), id(1), id(2)));
        ids.on_peer_packet(id(3));
        ids.on_peer_packet(id(4));
        assert_eq!(ids.remote.current(), id(3));
    }

    #[test]
    fn who_begins_again_knows_nobody() {
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
    fn the_peer_gets_as_many_as_it_keeps() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut ids = ids(&mut rng);
        while ids.poll_change().is_some() {}
        ids.issue(&mut rng);
        assert!(!ids.has_news(), "the peer has not said how many");
        ids.local.set_limit(4, 3);
        ids.issue(&mut rng);
        assert!(ids.has_news());
        let told = std::iter::from_fn(|| ids.local.next_to_tell()).count();
        assert_eq!((told, std::iter::from_fn(|| ids.poll_change()).count()), (2, 2));
    }
}
