//! Several paths at a time (RFC 10069), between a client with several addresses and a server.
//!
//! * this file: paths are opened, used and migrated, up to the number that both ends allow;
//! * `choices.rs`: the fields of paths that hooks read, and the paths that they choose for data;
//!   `ends.rs`: paths that are closed or stop working;
//! * `hostile.rs`: a peer that breaks the rules;
//! * `logs.rs`: log entries about paths;
//! * `seeds.rs`: networks of two paths with loss on each, by seed; `pair.rs`: the two ends and
//!   their network.

mod choices;
mod ends;
mod hostile;
#[cfg(feature = "qlog")]
mod logs;
mod pair;
mod pending;
mod seeds;

use std::time::Duration;

use equic_wire::{PathId, TransportErrorCode, VarInt};

use super::MS;
use crate::connection::space::SpaceId;
use crate::connection::*;
use crate::operation::{AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation};
pub(super) use choices::watch_copies;
use pair::{Pair, SERVER, client_address, link, local};

const ONE: PathId = PathId::new(1);

/// Changes the configuration of an end for a test.
type Set<'a> = &'a dyn Fn(&mut TransportConfig);

fn ids(connection: &Connection) -> Vec<u32> {
    connection.paths().map(|path| path.id.get()).collect()
}

/// Returns the client of a connection with two paths, and the time. The second path is slower.
pub(super) fn two_paths(set: impl Fn(&mut TransportConfig)) -> (Connection, Timestamp) {
    let mut pair = Pair::with(1, &[link(10), link(40)], set);
    pair.connect();
    pair.open(1);
    pair.exchange(20_000, |_, _| {});
    pair.wait(Duration::from_secs(1));
    (pair.client, pair.now)
}

/// Returns the number of packets that a connection sent with a path ID.
fn packets(connection: &Connection, id: u32) -> u64 {
    let space = connection.spaces.get(SpaceId::Data(PathId::new(id)));
    space.map_or(0, |space| space.numbers.next())
}

#[test]
fn multipath_needs_both_ends() {
    let one = |config: &mut TransportConfig| config.max_paths = 1;
    let four = |config: &mut TransportConfig| config.max_paths = 4;
    for (client, server) in [(true, false), (false, true), (false, false)] {
        let set =
            |several: bool| -> &dyn Fn(&mut TransportConfig) { if several { &four } else { &one } };
        let mut pair = Pair::unlike(1, &[link(10)], set(client), set(server));
        pair.connect();
        let opened = pair.client.open_path(pair.now, None, SERVER.parse().unwrap());
        assert_eq!(opened, Err(OpenPathError::NotAgreed));
        assert!(pair.client.multipath.is_none() && pair.server().multipath.is_none());
        assert_eq!((ids(&pair.client), ids(pair.server())), (vec![0], vec![0]));
        pair.exchange(20_000, |_, _| {});
    }
}

#[test]
fn multipath_data_on_two_paths() {
    let mut pair = Pair::new(1, &[link(20), link(30)]);
    pair.connect();
    assert_eq!(pair.open(1), ONE);
    for events in &pair.events {
        let opened = events.iter().filter(|event| **event == Event::PathOpened(ONE));
        assert_eq!(opened.count(), 1, "{events:?}");
    }
    pair.exchange(1_000_000, |_, _| {});
    for end in pair.ends() {
        assert!(packets(end, 0) > 100 && packets(end, 1) > 100, "{}", pair.describe());
        let paths: Vec<PathInfo> = end.paths().collect();
        assert!(paths.iter().all(|path| path.validated && path.status == PathStatus::Available));
        // Each path has its own round-trip time, and acknowledgements were sent on the path of the
        // packets.
        assert!((40..50).contains(&paths[0].stats.min_rtt.as_millis()), "{paths:?}");
        assert!((60..70).contains(&paths[1].stats.min_rtt.as_millis()), "{paths:?}");
        assert!(paths.iter().all(|path| path.stats.current_mtu > 1200), "{paths:?}");
    }
    let server = pair.server();
    assert_eq!(server.paths().nth(1).unwrap().remote, client_address(1));
    assert_eq!(server.stats().packets_lost, 0);
}

#[test]
fn multipath_paths_are_opened_by_clients_after_the_handshake() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    let remote = SERVER.parse().unwrap();
    assert_eq!(pair.client.open_path(pair.now, None, remote), Err(OpenPathError::NotConfirmed));
    pair.connect();
    let now = pair.now;
    assert_eq!(pair.server().open_path(now, None, remote), Err(OpenPathError::Server));
    let forbids = |config: &mut TransportConfig| config.allow_migration = false;
    let mut pair = Pair::with(1, &[link(10), link(10)], forbids);
    pair.connect();
    assert_eq!(pair.client.open_path(pair.now, None, remote), Err(OpenPathError::Forbidden));
}

#[test]
fn multipath_path_count_is_limited_by_both_ends() {
    let links: Vec<_> = (0..5).map(|_| link(10)).collect();
    let three = |config: &mut TransportConfig| config.max_paths = 3;
    let many = |config: &mut TransportConfig| config.max_paths = 100;
    for most in [0, 1] {
        let (client, server): (Set<'_>, Set<'_>) =
            if most == 0 { (&three, &many) } else { (&many, &three) };
        let mut pair = Pair::unlike(1, &links, client, server);
        pair.connect();
        assert_eq!((pair.open(1).get(), pair.open(2).get()), (1, 2));
        let fourth = pair.client.open_path(pair.now, local(3), SERVER.parse().unwrap());
        assert_eq!(fourth, Err(OpenPathError::TooMany));
        pair.wait(100 * MS);
        assert_eq!(ids(pair.server()), [0, 1, 2]);
        pair.exchange(100_000, |_, _| {});
    }
}

#[test]
fn multipath_paths_between_the_same_addresses() {
    let mut pair = Pair::new(1, &[link(10)]);
    pair.connect();
    pair.open(0);
    pair.open(0);
    assert_eq!((ids(&pair.client), ids(pair.server())), (vec![0, 1, 2], vec![0, 1, 2]));
    pair.exchange(400_000, |_, _| {});
    assert!((0..3).all(|id| packets(&pair.client, id) > 20), "{}", pair.describe());
}

#[test]
fn multipath_key_update_on_all_paths() {
    let mut pair = Pair::new(1, &[link(10), link(40)]);
    pair.connect();
    pair.open(1);
    // Updates keys as often as permitted.
    pair.exchange(16_000_000, |pair, _| {
        pair.client.update_keys();
    });
    assert!(pair.client.key_updates() >= 2, "{}", pair.client.key_updates());
    // If the last update was at the end, the server detects it with the next packets.
    pair.exchange(10_000, |_, _| {});
    assert_eq!(pair.client.key_updates(), pair.server().key_updates());
    for end in pair.ends() {
        assert_eq!(end.stats().packets_lost, 0, "{}", pair.describe());
        assert!(packets(end, 0) > 50 && packets(end, 1) > 20, "{}", pair.describe());
    }
}

/// A path on which no packet was sent during a key update is used after it.
#[test]
fn multipath_key_update_while_a_path_is_idle() {
    let backup = |config: &mut TransportConfig| config.scheduler = Scheduler::Backup;
    let mut pair = Pair::with(1, &[link(10), link(10)], backup);
    pair.connect();
    pair.open(1);
    for _ in 0..3 {
        assert!(pair.client.update_keys());
        pair.exchange(30_000, |_, _| {});
        pair.wait(Duration::from_secs(3));
    }
    let before = packets(&pair.client, 1);
    let now = pair.now;
    pair.client.close_path(now, PathId::ZERO, TransportErrorCode::NO_ERROR).unwrap();
    pair.exchange(30_000, |_, _| {});
    assert!(packets(&pair.client, 1) > before + 10);
    assert_eq!(pair.server().key_updates(), 3);
}

#[test]
fn multipath_path_status_is_followed_and_withdrawn() {
    let mut pair = Pair::new(1, &[link(30), link(10)]);
    pair.connect();
    pair.open(1);
    // Without this status, the scheduler would prefer this path.
    pair.client.set_path_status(ONE, PathStatus::Backup).unwrap();
    pair.wait(200 * MS);
    assert_eq!(pair.server().paths().nth(1).unwrap().peer_status, PathStatus::Backup);
    assert_eq!(pair.client.paths().nth(1).unwrap().status, PathStatus::Backup);
    let before = [packets(&pair.client, 1), packets(pair.server(), 1)];
    pair.exchange(100_000, |_, _| {});
    let after = [packets(&pair.client, 1), packets(pair.server(), 1)];
    assert!(after[0] - before[0] < 5 && after[1] - before[1] < 5, "{before:?} {after:?}");
    pair.client.set_path_status(ONE, PathStatus::Available).unwrap();
    pair.wait(200 * MS);
    pair.exchange(100_000, |_, _| {});
    assert!(packets(pair.server(), 1) > after[1] + 20);
    let unknown = pair.client.set_path_status(PathId::new(2), PathStatus::Backup);
    assert_eq!(unknown, Err(ClosePathError::NoSuchPath));
}

#[test]
fn multipath_round_robin() {
    let turns = |config: &mut TransportConfig| config.scheduler = Scheduler::RoundRobin;
    let mut pair = Pair::with(1, &[link(10), link(30), link(50)], turns);
    pair.connect();
    pair.open(1);
    pair.open(2);
    // Less than a window, so that no path is full.
    pair.exchange(12_000, |_, _| {});
    let sent: Vec<u64> = (0..3).map(|id| packets(pair.server(), id)).collect();
    assert!(sent.iter().skip(1).all(|count| *count >= 4), "{sent:?}");
}

/// Each byte is sent on both paths. If one path loses it, the other delivers it without a
/// retransmission.
#[test]
fn multipath_loss_on_one_path_is_repaired_on_another() {
    let lossy = |ms| equic_net::Link { drop: equic_net::Chance::percent(20.0), ..link(ms) };
    let mut times = Vec::new();
    for scheduler in [Scheduler::LowestRtt, Scheduler::Redundant] {
        let redundant = |config: &mut TransportConfig| config.scheduler = scheduler;
        let mut pair = Pair::with(4, &[link(60), lossy(50)], redundant);
        pair.connect();
        pair.open(1);
        let (start, sent) = (pair.now, [0, 1].map(|link| pair.sent[link][1]));
        for _ in 0..20 {
            pair.exchange(4_000, |_, _| {});
        }
        times.push(pair.now.since(start));
        if scheduler == Scheduler::Redundant {
            // The path that loses 20 % has a small window, and carries what the window permits.
            assert!(pair.sent[0][1] - sent[0] > 60_000, "{}", pair.describe());
            assert!(pair.sent[1][1] - sent[1] > 30_000, "{}", pair.describe());
        }
    }
    assert!(times[1] < times[0], "{times:?}");
    assert!(times[1] < 20 * 160 * MS, "longer than about one round trip each: {times:?}");
}

/// Hook that always returns the same answer.
struct Always(u64);

impl Hook for Always {
    fn replace(
        &mut self,
        _host: &mut HookContext<'_>,
        _call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        outputs[0] = self.0;
        Ok(Decision::Done)
    }
}

/// A hook's choice is followed, unless it names a path that does not exist, or a path that does not
/// work while another one does.
#[test]
fn multipath_hook_schedules_and_starves_nobody() {
    for (named, followed) in [(1, true), (99, false), (u64::MAX, false)] {
        let mut pair = Pair::new(1, &[link(10), link(30)]);
        pair.connect();
        pair.open(1);
        let points = [AttachPoint::replace(Operation::SelectPath)];
        pair.client.attach(Box::new(Always(named)), &points).unwrap();
        let before = [0, 1].map(|id| packets(&pair.client, id));
        pair.exchange(40_000, |_, _| {});
        let sent = [0, 1].map(|id| packets(&pair.client, id) - before[id as usize]);
        assert_eq!(sent[1] > 25, followed, "{sent:?}");
        let refused = pair.client.stats().path_choices_refused;
        let told = Event::ChoiceOverruled(Operation::SelectPath, Overruled::NoSuchPath);
        let told = pair.events[0].iter().filter(|event| **event == told).count();
        let failed = pair.events[0].iter().any(|event| matches!(event, Event::HookFailed(..)));
        // All ones is not a path number. This answer detaches the hook.
        assert_eq!(
            (refused > 10, told, failed),
            (named == 99, (named == 99).into(), named == u64::MAX)
        );
        // Packets that arrive at the same time are acknowledged together, so there is one
        // acknowledgement for each round trip of the data.
        assert!(sent[0] > 1, "no acknowledgements were sent on path 0: {sent:?}");
        pair.down[1] = true;
        let start = pair.now;
        pair.exchange(100_000, |_, _| {});
        assert!(pair.now.since(start) < Duration::from_secs(3), "{}", pair.describe());
    }
}

/// RFC 10069 s.5.4: the round-trip time consists of the delay of the packets on their path and that
/// of the acknowledgements on theirs.
#[test]
fn multipath_hook_moves_acknowledgements_to_another_path() {
    let mut pair = Pair::new(1, &[link(20), link(60)]);
    pair.connect();
    let points = [AttachPoint::replace(Operation::SelectACKPath)];
    pair.client.attach(Box::new(Always(0)), &points).unwrap();
    pair.open(1);
    pair.exchange(400_000, |_, _| {});
    let rtt = |paths: Vec<PathInfo>| paths[1].stats.rtt.as_millis();
    assert!((80..90).contains(&rtt(pair.server().paths().collect())), "{}", pair.describe());
    assert!((120..130).contains(&rtt(pair.client.paths().collect())), "{}", pair.describe());
    // The hook still chooses a closed path.
    let now = pair.now;
    pair.client.close_path(now, PathId::ZERO, TransportErrorCode::NO_ERROR).unwrap();
    pair.exchange(100_000, |_, _| {});
    assert!(pair.client.stats().path_choices_refused > 10);
    let told = Event::ChoiceOverruled(Operation::SelectACKPath, Overruled::NotUsable);
    assert!(pair.events[0].contains(&told), "{:?}", pair.events[0]);
}

#[test]
fn multipath_nat_rebinding_of_one_path() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    pair.open(1);
    pair.exchange(50_000, |_, _| {});
    pair.rebound[1] = true;
    pair.exchange(400_000, |_, _| {});
    pair.wait(Duration::from_secs(4));
    let paths: Vec<PathInfo> = pair.server().paths().collect();
    assert_eq!(paths[0].remote, client_address(0), "path 0 has migrated");
    assert_eq!((paths[1].remote.port(), paths[1].id), (5544, ONE));
    assert!(paths[1].validated);
    let before = pair.sent[1][1];
    pair.exchange(400_000, |_, _| {});
    assert!(pair.sent[1][1] > before + 50_000, "{}", pair.describe());
}

/// The endpoint gets the connection IDs of all paths, and loses them when the connection retires
/// them.
#[test]
fn multipath_endpoint_knows_the_ids_of_all_paths() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    let mut known = std::collections::BTreeSet::new();
    let mut learn = |end: &mut Connection| {
        while let Some(change) = end.poll_endpoint_event() {
            match change {
                crate::EndpointEvent::Issued(id) => assert!(known.insert(id)),
                crate::EndpointEvent::Retired(id) => assert!(known.remove(&id)),
                _ => {}
            }
        }
        known.clone()
    };
    let ids = learn(pair.server());
    for id in 1..4 {
        let given = pair.server().ids.local_of(PathId::new(id)).unwrap();
        assert_eq!(given.iter().filter(|id| ids.contains(id)).count(), 4, "path {id}");
    }
    assert_eq!(pair.server().local_ids().filter(|id| ids.contains(id)).count(), ids.len());
    pair.open(1);
    let now = pair.now;
    pair.client.close_path(now, ONE, TransportErrorCode::NO_ERROR).unwrap();
    let of_path: Vec<_> = pair.server().ids.local_of(ONE).unwrap().iter().collect();
    pair.wait(30 * MS);
    assert_eq!(self::ids(pair.server()), [0]);
    let ids = learn(pair.server());
    assert!(of_path.iter().all(|id| ids.contains(id)), "late packets cannot be routed");
    pair.wait(Duration::from_secs(5));
    let ids = learn(pair.server());
    assert!(!of_path.iter().any(|id| ids.contains(id)));
    assert_eq!(pair.server().local_ids().filter(|id| ids.contains(id)).count(), ids.len());
}
