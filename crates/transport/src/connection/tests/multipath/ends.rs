//! Paths that are closed, whose validation fails, or that stop working.

use equic_wire::Direction;

use super::*;

const POOR: TransportErrorCode = TransportErrorCode::PATH_UNSTABLE_OR_POOR;
const ASKED: TransportErrorCode = TransportErrorCode::APPLICATION_ABANDON_PATH;

fn two(seed: u64) -> Pair {
    let mut pair = Pair::new(seed, &[link(10), link(20)]);
    pair.connect();
    pair.open(1);
    pair
}

fn closed(events: &[Event]) -> Vec<(u32, TransportErrorCode)> {
    let closed = events.iter().filter_map(|event| match event {
        Event::PathClosed(id, code) => Some((id.get(), *code)),
        _ => None,
    });
    closed.collect()
}

#[test]
fn multipath_path_is_closed_by_either_end_with_data_in_flight() {
    for (by_client, id) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let mut pair = two(1);
        let mut done = false;
        pair.exchange(500_000, |pair, read| {
            if read > 100_000 && !done {
                done = true;
                let now = pair.now;
                let end = if by_client { &mut pair.client } else { pair.server() };
                end.close_path(now, PathId::new(id), ASKED).unwrap();
                assert_eq!(end.paths().count(), 1);
            }
        });
        for events in &pair.events {
            assert_eq!(closed(events), [(id, ASKED)]);
        }
        // Most packets in flight arrived, and their acknowledgements arrived on the other path.
        for end in pair.ends() {
            assert_eq!(ids(end), [1 - id], "{}", pair.describe());
            assert!(end.stats().packets_lost < 10, "{}", pair.describe());
        }
        pair.wait(Duration::from_secs(5));
        let gone = SpaceId::Data(PathId::new(id));
        for end in pair.ends() {
            assert_eq!(end.paths.iter().count(), 1, "{}", pair.describe());
            assert!(end.spaces.get(gone).is_none() || id == 0);
            assert!(!end.ids.local_of(PathId::new(id)).is_some_and(|ids| ids.has_any()));
        }
        pair.exchange(100_000, |_, _| {});
    }
}

/// Closes the connection at every moment of the end of a path. The path's packet number space is
/// discarded during this time.
#[test]
fn multipath_close_of_the_connection_while_a_path_ends() {
    let limit = Duration::from_secs(100);
    for (by_client, id) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        for (steps, closes) in (0..20).flat_map(|steps| [(steps, true), (steps, false)]) {
            let mut pair = two(1);
            let stream = pair.client.open(Direction::Unidirectional).unwrap();
            pair.client.streams().write(stream, &[7; 20_000]).unwrap();
            let start = pair.now;
            let end = if by_client { &mut pair.client } else { pair.server() };
            end.close_path(start, PathId::new(id), ASKED).unwrap();
            let mut step = 0;
            pair.run_until(limit, |client, server| {
                step += 1;
                step > steps || client.is_drained() && server.is_drained()
            });
            let now = pair.now;
            if now.since(start) > Duration::from_secs(29) {
                // The path's end is complete, and only the idle timeout remains.
                assert!(steps > 5, "{}", pair.describe());
                continue;
            }
            let end = if closes { &mut pair.client } else { pair.server() };
            end.close(now, VarInt::from_u32(7), "done");
            pair.run_until(limit, |client, server| client.is_drained() && server.is_drained());
            let error = ConnectionError {
                application: true,
                code: 7,
                reason: "done".into(),
                violation: None,
            };
            let told = &pair.events[usize::from(closes)];
            let told = told.last();
            assert_eq!(told, Some(&Event::Closed(CloseReason::Peer(error))), "{}", pair.describe());
        }
    }
}

#[test]
fn multipath_last_path_cannot_be_closed() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    let (now, only) = (pair.now, PathId::ZERO);
    assert_eq!(pair.client.close_path(now, only, ASKED), Err(ClosePathError::LastPath));
    // The other path is not validated.
    pair.down[1] = true;
    pair.begin(1);
    assert_eq!(pair.client.close_path(now, only, ASKED), Err(ClosePathError::LastPath));
    assert_eq!(pair.client.close_path(now, PathId::new(2), ASKED), Err(ClosePathError::NoSuchPath));
    pair.exchange(10_000, |_, _| {});
}

#[test]
fn multipath_silent_path_is_closed() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    pair.down[1] = true;
    let id = pair.begin(1);
    pair.exchange(100_000, |_, _| {});
    pair.wait(Duration::from_secs(10));
    assert_eq!(closed(&pair.events[0]), [(1, POOR)]);
    assert!(!pair.events[0].contains(&Event::PathOpened(id)));
    assert_eq!(closed(&pair.events[1]), [], "the server received no packet on this path");
    // The path ID is used up. The next path gets another ID.
    pair.down[1] = false;
    assert_eq!(pair.open(1), PathId::new(2));
    pair.exchange(100_000, |_, _| {});
}

/// RFC 9000 s.9.4.
#[test]
fn multipath_challenge_that_is_lost_is_no_congestion() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    let lost = pair.client.stats().packets_lost;
    pair.down[1] = true;
    let id = pair.begin(1);
    pair.wait(100 * MS);
    pair.down[1] = false;
    pair.run_until(Duration::from_secs(60), |client, _| {
        client.paths().any(|path| path.id == id && path.validated)
    });
    pair.wait(Duration::from_secs(1));
    assert!(
        pair.client.stats().packets_lost > lost,
        "the first challenge was not lost: {}",
        pair.describe()
    );
    let path = pair.client.paths().find(|path| path.id == id).unwrap();
    assert_eq!(path.stats.slow_start_threshold, None, "{path:?}");
}

#[test]
fn multipath_path_ids_are_granted_for_those_that_end() {
    let mut pair = Pair::with(1, &[link(5), link(5)], |config| config.max_paths = 2);
    pair.connect();
    for number in 1..12 {
        assert_eq!(pair.open(1).get(), number);
        let (now, id) = (pair.now, PathId::new(number));
        pair.client.close_path(now, id, ASKED).unwrap();
        let again = pair.client.open_path(now, local(1), SERVER.parse().unwrap());
        assert_eq!(again, Err(OpenPathError::TooMany), "the closed path still counts");
        pair.wait(Duration::from_secs(5));
        assert!(pair.client.memory() < 100_000 && pair.server().memory() < 100_000);
        assert_eq!(pair.client.ids.local_of(id).map(|_| ()), None);
    }
    pair.exchange(10_000, |_, _| {});
}

#[test]
fn multipath_connection_survives_a_dead_path() {
    for dead in [0, 1] {
        let mut pair = two(2);
        let mut died = None;
        pair.exchange(600_000, |pair, read| {
            if read > 200_000 && died.is_none() {
                pair.down[dead] = true;
                died = Some(pair.now);
            }
        });
        let took = pair.now.since(died.unwrap());
        assert!(took < Duration::from_secs(2), "{took:?}: {}", pair.describe());
        // The exchange does not wait for the dead path.
        let start = pair.now;
        pair.exchange(20_000, |_, _| {});
        assert!(pair.now.since(start) < 500 * MS, "{}", pair.describe());
        // The path works again, and probes detect this.
        pair.down[dead] = false;
        pair.wait(Duration::from_secs(10));
        for end in pair.ends() {
            assert!(end.paths().all(|path| path.stats.probe_timeouts == 0), "{}", pair.describe());
        }
        let before = packets(pair.server(), 0);
        pair.exchange(600_000, |_, _| {});
        assert!(
            packets(pair.server(), 0) > before + 50,
            "path 0 is faster and must be used: {}",
            pair.describe()
        );
    }
}

/// Packets that are sent on a dead path now and then must not keep its data in flight there.
#[test]
fn multipath_dead_path_returns_its_data() {
    let trickle = |config: &mut TransportConfig| {
        config.scheduler = Scheduler::RoundRobin;
        // The interval is shorter than a PTO.
        config.keep_alive = 50 * MS;
    };
    let mut pair = Pair::with(1, &[link(40), link(40)], trickle);
    pair.connect();
    pair.open(1);
    let start = pair.now;
    pair.exchange(60_000, |pair, read| pair.down[1] |= read > 20_000);
    assert!(pair.now.since(start) < Duration::from_secs(2), "{}", pair.describe());
}

/// Handover: the client opens a new path and closes the old one as soon as the new one works. The
/// exchange never stops for longer than that takes.
#[test]
fn multipath_handover_leaves_no_gap() {
    let mut pair = Pair::new(3, &[link(20), link(20)]);
    pair.connect();
    let (mut opened, mut longest, mut last, mut over) = (false, Duration::ZERO, pair.now, false);
    pair.exchange(800_000, |pair, read| {
        longest = longest.max(pair.now.since(last));
        last = pair.now;
        if read > 100_000 && !opened {
            opened = true;
            pair.begin(1);
        }
        if !over && pair.events[0].contains(&Event::PathOpened(ONE)) {
            over = true;
            let now = pair.now;
            pair.client.close_path(now, PathId::ZERO, ASKED).unwrap();
            pair.down[0] = true;
        }
    });
    assert!(over && longest < 400 * MS, "{longest:?}");
    assert_eq!(ids(pair.server()), [1]);
    assert_eq!(pair.client.local_ip(), local(1));
}

#[test]
fn multipath_late_packets_of_a_closed_path_are_acknowledged() {
    let mut pair = two(1);
    let known: Vec<_> = pair.server().ids.local.iter().collect();
    assert!(!known.is_empty());
    pair.held = Some(0);
    let id = pair.client.open(Direction::Unidirectional).unwrap();
    pair.client.streams().write(id, &[7; 3000]).unwrap();
    pair.wait(MS);
    let now = pair.now;
    pair.client.close_path(now, PathId::ZERO, ASKED).unwrap();
    pair.wait(30 * MS);
    let before = pair.server().stats();
    assert!(pair.let_go() > 1);
    let after = pair.server().stats();
    assert!(after.packets_received > before.packets_received, "{before:?} {after:?}");
    assert_eq!(after.packets_dropped, before.packets_dropped);
    pair.wait(100 * MS);
    assert_eq!(pair.client.stats().packets_lost, 0, "{}", pair.describe());
    // After the path's state is discarded, its connection IDs are unknown.
    assert!(known.iter().all(|id| pair.server().ids.path_of(*id) == Some(PathId::ZERO)));
    pair.wait(Duration::from_secs(5));
    assert!(known.iter().all(|id| pair.server().ids.path_of(*id).is_none()));
}

#[test]
fn multipath_idle_timeout_counts_all_paths() {
    let mut pair = Pair::with(1, &[link(10), link(10)], |config| {
        config.max_idle_timeout = Duration::from_secs(5);
    });
    pair.connect();
    pair.open(1);
    // Packets on one path keep both paths open.
    pair.down[0] = true;
    for _ in 0..5 {
        pair.client.ping();
        pair.wait(Duration::from_secs(3));
        assert!(!pair.client.closing.is_closed() && !pair.server().closing.is_closed());
    }
    pair.wait(Duration::from_secs(9));
    for events in &pair.events {
        assert!(events.contains(&Event::Closed(CloseReason::IdleTimeout)), "{events:?}");
    }
}

#[test]
fn multipath_close_is_sent_on_a_working_path() {
    let mut pair = two(1);
    pair.down[0] = true;
    // The client detects that path 0 does not work.
    pair.exchange(50_000, |_, _| {});
    let now = pair.now;
    pair.client.close(now, VarInt::from_u32(7), "done");
    pair.wait(500 * MS);
    let told = pair.events[1]
        .iter()
        .any(|event| matches!(event, Event::Closed(CloseReason::Peer(error)) if error.code == 7));
    assert!(told, "{:?}", pair.events[1]);
}
