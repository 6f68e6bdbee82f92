use equic_wire::ResetToken;

use super::super::RemoteIds;
use super::super::tests::{NOW, id, new};
use super::*;

// RFC 9000 s.5.1.1 #1 #3 #4 #6, s.19.16 #1 #2
#[test]
fn cid_local_are_issued_and_retired() {
    let mut local = LocalIds::new(id(0));
    assert!(!local.wants_more());
    local.set_limit(8, 2);
    assert!(local.wants_more());
    local.issue(id(1), ResetToken([1; 16]));
    assert!(!local.wants_more());
    assert_eq!((local.next_to_announce(), local.next_to_announce()), (Some(new(1)), None));
    local.on_lost(1);
    assert_eq!(local.next_to_announce(), Some(new(1)));
    assert_eq!(local.on_retire(NOW, 0, id(0)), Err(Violation::RetiredIdInUse));
    assert_eq!(local.on_retire(NOW, 9, id(0)), Err(Violation::RetiredUnissuedId));
    assert_eq!(local.on_retire(NOW, 0, id(1)), Ok(Some(id(0))));
    assert_eq!(local.on_retire(NOW, 0, id(1)), Ok(None), "a repeated frame has no effect");
    assert!(local.wants_more() && local.contains(id(1)));
}

// RFC 9000 s.5.1.1 #2
#[test]
fn cid_local_last_retired_still_name_the_connection() {
    let mut local = LocalIds::new(id(0));
    local.set_limit(2, 2);
    for next in 1..20 {
        local.issue(id(next), new(next).token);
        assert_eq!(local.on_retire(NOW, next - 1, id(next)), Ok(Some(id(next - 1))));
        let retired = next.saturating_sub(KEPT_RETIRED as u64);
        assert!((0..=next).all(|old| local.contains(id(old)) == (old >= retired)), "{next}");
        assert!(
            local.contains_bytes(id(retired).as_bytes())
                && local.iter().count() <= KEPT_RETIRED + 1
        );
        assert_eq!(local.poll_change(), Some(EndpointEvent::Issued(id(next))));
        let gone = retired.checked_sub(1).map(|gone| EndpointEvent::Retired(id(gone)));
        assert_eq!(local.poll_change(), gone);
    }
    local.retire_for_good();
    assert_eq!(std::iter::from_fn(|| local.poll_change()).count(), KEPT_RETIRED + 1);
    assert_eq!(local.iter().count(), 0);
}

// RFC 9000 s.5.1.2 #7
#[test]
fn cid_local_are_replaced_one_set_at_a_time() {
    let mut local = LocalIds::new(id(0));
    local.set_limit(2, 8);
    local.issue(id(1), new(1).token);
    assert!(!local.wants_more());
    assert!(local.retire_all());
    for sequence in [2, 3] {
        assert!(local.wants_more());
        local.issue(id(sequence), new(sequence).token);
    }
    assert!(!local.wants_more(), "the peer's limit does not count IDs that it must retire");
    let told = std::iter::from_fn(|| local.next_to_announce().map(|new| new.sequence));
    assert_eq!(told.collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!([1, 2, 3].map(|sequence| local.retire_prior_to(sequence)), [1, 2, 2]);
    assert!(local.contains(id(0)), "packets to it may be in flight");
    assert!(local.retire_all(), "one outstanding request is permitted");
    for sequence in [4, 5] {
        local.issue(id(sequence), new(sequence).token);
    }
    assert!(!local.wants_more());
    assert!(!local.retire_all(), "two outstanding requests are not");
    assert_eq!(local.active.len(), 6);
    for sequence in [0, 1] {
        assert_eq!(local.on_retire(NOW, sequence, id(4)), Ok(Some(id(sequence))));
    }
    assert!(local.retire_all() && local.wants_more());
}

/// Replaces all connection IDs several times. The peer must continue with an ID of the new set and
/// must never have more IDs than its limit.
#[test]
fn cid_local_peer_switches_to_the_replacement() {
    let (mut local, mut remote) = (LocalIds::new(id(0)), RemoteIds::new(id(0), 3));
    local.set_limit(3, 8);
    for _ in 0..20 {
        while local.wants_more() {
            let next = local.next;
            local.issue(id(next), new(next).token);
        }
        while let Some(told) = local.next_to_announce() {
            let prior = local.retire_prior_to(told.sequence);
            remote.on_new(told, prior).unwrap();
        }
        assert!(
            local
                .active
                .iter()
                .any(|(number, own)| number >= local.retire_prior_to && own.id == remote.current())
        );
        while let Some(sequence) = remote.next_to_retire() {
            local.on_retire(NOW, sequence, remote.current()).unwrap();
            remote.on_acked(sequence);
        }
        assert_eq!(local.active.len(), 3);
        assert!(local.retire_all());
    }
}
