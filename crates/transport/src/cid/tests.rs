use equic_wire::{ConnectionId, ResetToken};

use super::local::{PARTED, PARTED_FOR};
use super::remote::MAX_RETIRED;
use super::*;
use crate::Timestamp;

const NOW: Timestamp = Timestamp::START;

fn id(number: u64) -> ConnectionId {
    ConnectionId::new(&number.to_be_bytes()).unwrap()
}

fn new(sequence: u64) -> NewId {
    NewId { sequence, id: id(sequence), token: ResetToken([sequence as u8; 16]) }
}

#[test]
fn the_peer_asks_for_another() {
    let mut remote = RemoteIds::new(id(0), 3);
    remote.on_new(new(1), 0).unwrap();
    assert_eq!(remote.current(), id(0));
    remote.on_new(new(2), 1).unwrap();
    assert_eq!((remote.current(), remote.next_to_retire()), (id(1), Some(0)));
    remote.on_lost(0);
    assert_eq!(remote.next_to_retire(), Some(0));
    remote.on_acked(0);
    remote.on_lost(0);
    assert!(!remote.has_news());
    // The same again does no harm; late ones are retired at once.
    remote.on_new(new(2), 1).unwrap();
    assert!(!remote.is_reset(ResetToken([2; 16])), "nothing was sent to it");
    assert_eq!(remote.take_into_use(2), Some(id(2)));
    assert!(remote.is_reset(ResetToken([2; 16])) && !remote.is_reset(ResetToken([9; 16])));
}

#[test]
fn what_an_endpoint_has_to_know() {
    let mut remote = RemoteIds::new(id(0), 3);
    remote.set_handshake_token(new(0).token);
    remote.on_new(new(1), 0).unwrap();
    remote.on_new(new(1), 0).unwrap();
    remote.on_new(new(2), 1).unwrap();
    assert_eq!((remote.take_into_use(1), remote.take_into_use(1)), (Some(id(1)), Some(id(1))));
    remote.retire(2);
    let changes: Vec<EndpointEvent> = std::iter::from_fn(|| remote.poll_change()).collect();
    let token = |sequence| new(sequence).token;
    // Of an ID that nothing was sent to nobody has to know.
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
    assert_eq!(changes, [EndpointEvent::Issued(id(1))], "packets may be under way to the other");
    local.rest(NOW + PARTED_FOR / 2);
    assert_eq!(local.poll_change(), None);
    local.rest(NOW + PARTED_FOR);
    assert_eq!(
        (local.poll_change(), local.contains(id(0))),
        (Some(EndpointEvent::Retired(id(0))), false)
    );
}

#[test]
fn tokens_belong_to_ids_and_keys() {
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

#[test]
fn limits_and_lies() {
    let mut remote = RemoteIds::new(id(0), 2);
    remote.on_new(new(1), 0).unwrap();
    assert_eq!(remote.on_new(new(2), 0), Err(IdError::Limit));
    let mut remote = RemoteIds::new(id(0), 2);
    remote.on_new(new(1), 0).unwrap();
    let other = NewId { id: id(7), ..new(1) };
    assert_eq!(remote.on_new(other, 0), Err(IdError::Violation), "another ID");
    let token = NewId { token: ResetToken([7; 16]), ..new(1) };
    assert_eq!(remote.on_new(token, 0), Err(IdError::Violation), "another token");
    let twice = NewId { id: id(1), ..new(2) };
    assert_eq!(remote.on_new(twice, 0), Err(IdError::Violation), "the same ID twice");
    let mut none = RemoteIds::new(ConnectionId::EMPTY, 2);
    assert_eq!(none.on_new(new(1), 0), Err(IdError::Violation), "we use none");
}

#[test]
fn churn_is_bounded() {
    let mut remote = RemoteIds::new(id(0), 2);
    let refused = (1..1000).find(|sequence| remote.on_new(new(*sequence), *sequence).is_err());
    assert!(refused.is_some_and(|sequence| sequence <= MAX_RETIRED as u64 + 2), "{refused:?}");
    assert!(remote.ids.len() <= 3 && remote.owed.len() <= MAX_RETIRED + 1);
    assert!(!remote.current().is_empty(), "there is one to send CONNECTION_CLOSE to");
}

#[test]
fn ours_are_told_and_retired() {
    let mut local = LocalIds::new(id(0));
    assert!(!local.wants_more());
    local.set_limit(8, 2);
    assert!(local.wants_more());
    local.issue(id(1), ResetToken([1; 16]));
    assert!(!local.wants_more());
    assert_eq!((local.next_to_tell(), local.next_to_tell()), (Some(new(1)), None));
    local.on_lost(1);
    assert_eq!(local.next_to_tell(), Some(new(1)));
    assert_eq!(local.on_retire(NOW, 0, id(0)), Err(IdError::Violation));
    assert_eq!(local.on_retire(NOW, 9, id(0)), Err(IdError::Violation));
    assert_eq!(local.on_retire(NOW, 0, id(1)), Ok(Some(id(0))));
    assert_eq!(local.on_retire(NOW, 0, id(1)), Ok(None), "again");
    assert!(local.wants_more() && local.contains(id(1)));
}

#[test]
fn the_last_that_were_retired_still_name_the_connection() {
    let mut local = LocalIds::new(id(0));
    local.set_limit(2, 2);
    for next in 1..20 {
        local.issue(id(next), new(next).token);
        assert_eq!(local.on_retire(NOW, next - 1, id(next)), Ok(Some(id(next - 1))));
        let parted = next.saturating_sub(PARTED as u64);
        assert!((0..=next).all(|old| local.contains(id(old)) == (old >= parted)), "{next}");
        assert!(local.contains_bytes(id(parted).as_bytes()) && local.iter().count() <= PARTED + 1);
        assert_eq!(local.poll_change(), Some(EndpointEvent::Issued(id(next))));
        let gone = parted.checked_sub(1).map(|gone| EndpointEvent::Retired(id(gone)));
        assert_eq!(local.poll_change(), gone);
    }
    local.retire_for_good();
    assert_eq!(std::iter::from_fn(|| local.poll_change()).count(), PARTED + 1);
    assert_eq!(local.iter().count(), 0);
}

#[test]
fn ours_are_replaced_one_set_at_a_time() {
    let mut local = LocalIds::new(id(0));
    local.set_limit(2, 8);
    local.issue(id(1), new(1).token);
    assert!(!local.wants_more());
    assert!(local.retire_all());
    for sequence in [2, 3] {
        assert!(local.wants_more());
        local.issue(id(sequence), new(sequence).token);
    }
    assert!(!local.wants_more(), "as many as the peer keeps, beside those that it retires");
    let told = std::iter::from_fn(|| local.next_to_tell().map(|new| new.sequence));
    assert_eq!(told.collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!([1, 2, 3].map(|sequence| local.retire_prior_to(sequence)), [1, 2, 2]);
    assert!(local.contains(id(0)), "packets may be under way to it");
    assert!(local.retire_all(), "the peer may owe one set");
    for sequence in [4, 5] {
        local.issue(id(sequence), new(sequence).token);
    }
    assert!(!local.wants_more());
    assert!(!local.retire_all(), "and not two");
    assert_eq!(local.active.len(), 6);
    for sequence in [0, 1] {
        assert_eq!(local.on_retire(NOW, sequence, id(4)), Ok(Some(id(sequence))));
    }
    assert!(local.retire_all() && local.wants_more());
}

/// Both ends: the peer goes on with an ID of the new set, and never has more than it keeps.
#[test]
fn a_peer_takes_up_what_replaces_its_ids() {
    let (mut local, mut remote) = (LocalIds::new(id(0)), RemoteIds::new(id(0), 3));
    local.set_limit(3, 8);
    for _ in 0..20 {
        while local.wants_more() {
            let next = local.next;
            local.issue(id(next), new(next).token);
        }
        while let Some(told) = local.next_to_tell() {
            let prior = local.retire_prior_to(told.sequence);
            remote.on_new(told, prior).unwrap();
        }
        assert!(
            local
                .active
                .iter()
                .any(|(number, id)| number >= local.retire_prior_to && *id == remote.current())
        );
        while let Some(sequence) = remote.next_to_retire() {
            local.on_retire(NOW, sequence, remote.current()).unwrap();
            remote.on_acked(sequence);
        }
        assert_eq!(local.active.len(), 3);
        assert!(local.retire_all());
    }
}
