use equic_wire::{ConnectionId, ResetToken};

use super::local::KEPT_RETIRED_FOR;
use super::*;
use crate::Timestamp;

pub(super) const NOW: Timestamp = Timestamp::START;

pub(super) fn id(number: u64) -> ConnectionId {
    ConnectionId::new(&number.to_be_bytes()).unwrap()
}

pub(super) fn new(sequence: u64) -> NewId {
    NewId { sequence, id: id(sequence), token: ResetToken([sequence as u8; 16]) }
}

// RFC 9000 s.10.3.1 #2
#[test]
fn cid_changes_are_reported_to_the_endpoint() {
    let mut remote = RemoteIds::new(id(0), 3);
    remote.set_handshake_token(new(0).token);
    remote.on_new(new(1), 0).unwrap();
    remote.on_new(new(1), 0).unwrap();
    remote.on_new(new(2), 1).unwrap();
    assert_eq!((remote.take_into_use(1), remote.take_into_use(1)), (Some(id(1)), Some(id(1))));
    remote.retire(2);
    let changes: Vec<EndpointEvent> = std::iter::from_fn(|| remote.poll_change()).collect();
    let token = |sequence| new(sequence).token;
    // The reset token of a connection ID to which nothing was sent must not be reported to the
    // endpoint.
    assert_eq!(
        changes,
        [
            EndpointEvent::TokenLearned(token(0)),
            EndpointEvent::TokenForgotten(token(0)),
            EndpointEvent::TokenLearned(token(1)),
        ]
    );
    let mut local = LocalIds::new(id(0));
    local.issue(id(1), token(1));
    local.on_retire(NOW, 0, id(1)).unwrap();
    local.on_retire(NOW, 0, id(1)).unwrap();
    let changes: Vec<EndpointEvent> = std::iter::from_fn(|| local.poll_change()).collect();
    assert_eq!(
        changes,
        [EndpointEvent::Issued(id(1))],
        "packets to the retired ID may be in flight"
    );
    local.shrink(NOW + KEPT_RETIRED_FOR / 2);
    assert_eq!(local.poll_change(), None);
    local.shrink(NOW + KEPT_RETIRED_FOR);
    assert_eq!(
        (local.poll_change(), local.contains(id(0))),
        (Some(EndpointEvent::Retired(id(0))), false)
    );
}

// RFC 9000 s.10.3.2 #1 #5
// RFC 10069 s.2.1 #3
#[test]
fn cid_reset_tokens_depend_on_id_and_key() {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let suite = suite.quic_suite().unwrap();
    let (key, other) = (ResetKey::new(&suite, [1; 32]), ResetKey::new(&suite, [2; 32]));
    assert_eq!(key.token(id(1)), key.token(id(1)));
    assert_ne!(key.token(id(1)), key.token(id(2)));
    assert_ne!(key.token(id(1)), other.token(id(1)));
    assert_ne!(key.blind(new(1).token), key.blind(new(2).token));
    let mut rng: rand::rngs::StdRng = rand::SeedableRng::seed_from_u64(1);
    assert_eq!(RandomIds::new(0).generate(&mut rng).len(), 1);
    assert_eq!(RandomIds::new(99).generate(&mut rng).len(), 20);
}

// RFC 9000 s.5.1 #1 #2, s.10.3.2 #3 #4
#[test]
fn cid_random_ids_have_nothing_in_common() {
    let mut rng: rand::rngs::StdRng = rand::SeedableRng::seed_from_u64(1);
    let ids: Vec<ConnectionId> =
        (0..10_000).map(|_| RandomIds::new(8).generate(&mut rng)).collect();
    let distinct: std::collections::BTreeSet<&[u8]> =
        ids.iter().map(ConnectionId::as_bytes).collect();
    assert_eq!(distinct.len(), ids.len());
    // No bit says anything about an ID, and no bit is that of the ID before it.
    for bit in 0..64 {
        let of = |id: &ConnectionId| id.as_bytes()[bit / 8] >> (bit % 8) & 1;
        let ones = ids.iter().filter(|id| of(id) == 1).count();
        let same = ids.windows(2).filter(|pair| of(&pair[0]) == of(&pair[1])).count();
        assert!((4_700..=5_300).contains(&ones) && (4_700..=5_300).contains(&same), "{bit}");
    }
}
