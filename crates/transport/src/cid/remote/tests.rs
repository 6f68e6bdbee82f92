use super::super::tests::{id, new};
use super::*;

// RFC 9000 s.5.1.2 #3, s.10.3.1 #2, s.19.15 #4
#[test]
fn cid_remote_retire_prior_to() {
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
    // A repeated NEW_CONNECTION_ID frame must have no effect. An ID that arrives after the peer
    // requested its retirement must be retired at once.
    remote.on_new(new(2), 1).unwrap();
    assert!(!remote.is_reset(ResetToken([2; 16])), "no packet was sent to this ID");
    assert_eq!(remote.take_into_use(2), Some(id(2)));
    assert!(remote.is_reset(ResetToken([2; 16])) && !remote.is_reset(ResetToken([9; 16])));
}

// RFC 9000 s.5.1.1 #5, s.19.15 #3
#[test]
fn cid_remote_violations() {
    let mut remote = RemoteIds::new(id(0), 2);
    remote.on_new(new(1), 0).unwrap();
    assert_eq!(remote.on_new(new(2), 0), Err(Violation::ConnectionIdLimit));
    let mut remote = RemoteIds::new(id(0), 2);
    remote.on_new(new(1), 0).unwrap();
    let other = NewId { id: id(7), ..new(1) };
    assert_eq!(remote.on_new(other, 0), Err(Violation::ConnectionIdReused), "another ID");
    let token = NewId { token: ResetToken([7; 16]), ..new(1) };
    assert_eq!(remote.on_new(token, 0), Err(Violation::ConnectionIdReused), "another token");
    let twice = NewId { id: id(1), ..new(2) };
    assert_eq!(remote.on_new(twice, 0), Err(Violation::ConnectionIdReused), "the same ID twice");
    let mut none = RemoteIds::new(ConnectionId::EMPTY, 2);
    assert_eq!(
        none.on_new(new(1), 0),
        Err(Violation::NewConnectionIdWithoutIds),
        "the peer uses zero-length IDs"
    );
}

// RFC 9000 s.5.1.2 #4 #5 #6
#[test]
fn cid_remote_churn_is_bounded() {
    let mut remote = RemoteIds::new(id(0), 2);
    let refused = (1..1000).find(|sequence| remote.on_new(new(*sequence), *sequence).is_err());
    assert!(refused.is_some_and(|sequence| sequence <= MAX_RETIRED as u64 + 2), "{refused:?}");
    assert!(remote.ids.len() <= 3 && remote.owed.len() <= MAX_RETIRED + 1);
    assert!(!remote.current().is_empty(), "CONNECTION_CLOSE needs an ID");
}

/// The frame with the largest Retire Prior To field arrives first.
// RFC 9000 s.19.15 #7 #8
#[test]
fn cid_remote_frames_in_another_order() {
    let mut remote = RemoteIds::new(id(0), 3);
    remote.on_new(new(3), 2).unwrap();
    assert_eq!((remote.next_to_retire(), remote.next_to_retire()), (Some(0), None));
    // A lower Retire Prior To field changes nothing.
    remote.on_new(new(2), 0).unwrap();
    assert_eq!((remote.get(2), remote.get(3)), (Some(id(2)), Some(id(3))));
    assert!(!remote.has_news());
    // This ID was retired before its frame arrived.
    remote.on_new(new(1), 1).unwrap();
    assert_eq!((remote.get(1), remote.next_to_retire()), (None, Some(1)));
}
