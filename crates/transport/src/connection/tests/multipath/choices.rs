//! Hooks that choose among paths: the fields of each path that they read, the data that they
//! duplicate, and the paths that they may omit.

use std::sync::{Arc, Mutex};

use equic_wire::{Direction, PathId, TransportErrorCode};

use super::super::operations::{Calls, doing, replace, watch_all};
use super::pair::{Pair, link, local};
use super::{Always, ONE};
use crate::connection::*;
use crate::operation::{AttachPoint, Decision, Field, Operation};

/// Watches all operations of an end that sends its data on both paths.
pub(in super::super) fn watch_copies(calls: &Calls) {
    let redundant = |config: &mut TransportConfig| config.scheduler = Scheduler::Redundant;
    let mut pair = Pair::with(1, &[link(10), link(30)], redundant);
    pair.connect();
    pair.open(1);
    watch_all(&mut pair.client, calls);
    pair.exchange(20_000, |_, _| {});
}

/// A hook can duplicate data on both paths, and can prevent the duplicates of the redundant
/// scheduler.
#[test]
fn multipath_hook_has_data_copied() {
    for (scheduler, copy, most) in
        [(Scheduler::LowestRtt, 1, false), (Scheduler::Redundant, 0, true)]
    {
        let set = |config: &mut TransportConfig| config.scheduler = scheduler;
        let sent = [false, true].map(|hooked| {
            let mut pair = Pair::with(1, &[link(10), link(30)], set);
            pair.connect();
            pair.open(1);
            if hooked {
                let points = [AttachPoint::replace(Operation::CopyStreamData)];
                pair.client.attach(Box::new(Always(copy)), &points).unwrap();
            }
            let before = pair.sent[0][0] + pair.sent[1][0];
            pair.exchange(100_000, |_, _| {});
            pair.sent[0][0] + pair.sent[1][0] - before
        });
        let (fewer, more) = if most { (sent[1], sent[0]) } else { (sent[0], sent[1]) };
        assert!(more > fewer + 20_000, "{scheduler:?}: {sent:?}");
    }
}

/// A hook reads the fields of each path.
#[test]
fn multipath_hook_reads_each_path() {
    let mut pair = Pair::new(1, &[link(20), link(30)]);
    pair.connect();
    pair.open(1);
    pair.client.set_path_cost(ONE, 7).unwrap();
    pair.client.set_path_status(ONE, PathStatus::Backup).unwrap();
    let unknown = pair.client.set_path_cost(PathId::new(2), 1);
    assert_eq!(unknown, Err(ClosePathError::NoSuchPath));
    let read = Arc::<Mutex<Vec<[u64; 6]>>>::default();
    let into = read.clone();
    let hook = doing(move |host, _, _| {
        use Field::{PathBytesSent, PathCost, PathId, PathPacketsLost, PathRoom, PathStatus};
        let mut next = host.get_of(Field::NextPath, 0);
        let mut read = into.lock().unwrap();
        read.clear();
        while let Some(path) = next.filter(|path| *path != u64::MAX) {
            let of = |field| host.get_of(field, path).unwrap();
            let fields = [PathId, PathStatus, PathCost, PathPacketsLost, PathBytesSent, PathRoom];
            read.push(fields.map(of));
            next = host.get_of(Field::NextPath, path + 1);
        }
        Ok(Decision::Default)
    });
    replace(&mut pair.client, Operation::SelectPath, hook);
    pair.exchange(50_000, |_, _| {});
    let read = read.lock().unwrap().clone();
    let [first, second] = read[..] else { panic!("{read:?}") };
    assert_eq!((&first[..4], &second[..4]), (&[0, 1, 0, 0][..], &[1, 3, 7, 0][..]));
    let sent = [0, 1].map(|link| pair.sent[link][0] as u64);
    assert_eq!([first[4], second[4]], sent, "the counts differ from those of the links");
    assert!(first[5] > 10_000 && second[5] > 10_000, "nothing is in flight: {read:?}");
}

/// If a hook never chooses a path that has room for waiting data, the path still gets a datagram a
/// second. A hook may leave out a path that has a cost, and a backup path.
#[test]
fn multipath_hook_does_not_starve_a_path() {
    for (cost, backup) in [(0, false), (1, false), (0, true)] {
        let slow = equic_net::Link { rate: Some(2_000_000), ..link(20) };
        let mut pair = Pair::new(1, &[slow, link(30)]);
        pair.connect();
        pair.open(1);
        pair.client.set_path_cost(ONE, cost).unwrap();
        if backup {
            pair.client.set_path_status(ONE, PathStatus::Backup).unwrap();
        }
        let points = [AttachPoint::replace(Operation::SelectPath)];
        pair.client.attach(Box::new(Always(0)), &points).unwrap();
        pair.exchange(2_000_000, |_, _| {});
        let starved = pair.client.stats().paths_starved;
        let told = Event::ChoiceOverruled(Operation::SelectPath, Overruled::Starves);
        let told = pair.events[0].iter().filter(|event| **event == told).count();
        match (cost, backup) {
            (0, false) => assert!((4..20).contains(&starved) && told == 1, "{starved} {told}"),
            _ => assert_eq!((starved, told), (0, 0)),
        }
    }
}

/// If a choice holds for nine more datagrams, the hook is called less often. The data uses the same
/// paths as without the batch.
#[test]
fn multipath_hook_choice_holds_for_a_batch() {
    let [each, held] = [0, 9].map(|more| {
        let mut pair = Pair::new(1, &[link(10), link(30)]);
        pair.connect();
        pair.open(1);
        let calls = Arc::<Mutex<usize>>::default();
        let counted = calls.clone();
        let hook = doing(move |host, _, outputs| {
            *counted.lock().unwrap() += 1;
            // The first path if it has room, otherwise the second.
            let room = host.get_of(Field::PathRoom, 0).unwrap();
            outputs[0] = u64::from(room == 0);
            assert_eq!(host.get(Field::ChoiceHolds), 0, "the last choice still holds");
            host.set(Field::ChoiceHolds, more).unwrap();
            assert_eq!(host.get(Field::ChoiceHolds), more);
            Ok(Decision::Done)
        });
        replace(&mut pair.client, Operation::SelectPath, hook);
        let before = [0, 1].map(|link| pair.sent[link][0]);
        pair.exchange(500_000, |_, _| {});
        let sent = [0, 1].map(|link| pair.sent[link][0] - before[link]);
        assert_eq!(pair.client.stats().path_choices_refused, 0);
        let calls = *calls.lock().unwrap();
        (calls, sent)
    });
    assert!(3 * held.0 < 2 * each.0, "{} calls instead of {}", held.0, each.0);
    assert!(held.1.iter().all(|bytes| *bytes > 20_000), "a path is not used: {:?}", held.1);
}

/// A choice holds no longer than the path can be used. If the chosen path is closed at the same
/// moment, the hook is called again.
#[test]
fn multipath_hook_choice_ends_with_its_path() {
    let mut pair = Pair::new(1, &[link(10), link(30)]);
    pair.connect();
    pair.open(1);
    let calls = Arc::<Mutex<usize>>::default();
    let counted = calls.clone();
    let hook = doing(move |host, _, outputs| {
        *counted.lock().unwrap() += 1;
        let second = host.get_of(Field::PathStatus, 1).is_some_and(|status| status & 1 == 1);
        outputs[0] = second.into();
        // The value is limited to the maximum of 64.
        host.set(Field::ChoiceHolds, u64::MAX).unwrap();
        assert_eq!(host.get(Field::ChoiceHolds), 64);
        Ok(Decision::Done)
    });
    replace(&mut pair.client, Operation::SelectPath, hook);
    let id = pair.client.open(Direction::Bidirectional).unwrap();
    pair.client.streams().write(id, &[0; 20_000]).unwrap();
    let now = pair.now;
    let mut buffer = [0; 1500];
    let mut next = |client: &mut Connection| client.poll_transmit(now, &mut buffer).unwrap().source;
    for _ in 0..3 {
        assert_eq!(next(&mut pair.client), local(1));
    }
    assert_eq!(*calls.lock().unwrap(), 1, "one call for three datagrams");
    pair.client.close_path(now, ONE, TransportErrorCode::NO_ERROR).unwrap();
    for _ in 0..3 {
        assert_eq!(next(&mut pair.client), local(0));
    }
    assert_eq!(*calls.lock().unwrap(), 2, "one more call");
    assert_eq!(pair.client.stats().path_choices_refused, 0);
}

/// The windows of all paths are added. A hook's answer is bounded, so that the sum does not
/// overflow.
#[test]
fn cwnd_of_a_hook_is_bounded_on_each_path() {
    for window in [u64::MAX, u64::MAX >> 1, u64::MAX >> 2] {
        let mut pair = Pair::new(1, &[link(10), link(30)]);
        pair.connect();
        pair.open(1);
        let points = [AttachPoint::replace(Operation::CongestionWindow)];
        pair.client.attach(Box::new(Always(window)), &points).unwrap();
        pair.exchange(100_000, |_, _| {});
        let windows: Vec<u64> = pair.client.paths.iter().map(|path| path.window()).collect();
        assert_eq!(windows, [1 << 30; 2]);
    }
}
