//! Networks of two paths, by seed. Each path has loss, reordering, duplication and damage, and some
//! have a limited rate. Now and then a path stops working and recovers, or is closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use equic_net::{Chance, Link, Queue, Stall};
use equic_wire::PathId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::cases;
use super::super::operations::{doing, replace};
use super::super::short_way::{LONG, SHORT, attach_to};
use super::*;
use crate::connection::path::Path;
use crate::connection::presence::NoneAttached;
use crate::operation::{Decision, Field, Hook};

fn by_chance(rng: &mut StdRng) -> Link {
    let ms = Duration::from_millis;
    let mut often =
        |most: f64| if rng.random_bool(0.6) { rng.random_range(0.0..most) } else { 0.0 };
    let (drop, duplicate, corrupt, jitter) = (often(15.0), often(10.0), often(3.0), often(30.0));
    let stall = Stall { percent: often(0.3), least: ms(100), most: ms(600) };
    Link {
        delay: ms(rng.random_range(1..80)),
        jitter: ms(jitter as u64),
        rate: rng.random_bool(0.4).then(|| rng.random_range(1_000_000..20_000_000)),
        queue: Queue::Time(ms(rng.random_range(20..200))),
        mtu: Some(if rng.random_bool(0.3) { 1250 } else { 1500 }),
        drop: Chance::percent(drop),
        duplicate: Chance::percent(duplicate),
        corrupt: Chance::percent(corrupt),
        stall,
        ..Link::default()
    }
}

/// Change of a path in the middle of a run.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Nothing,
    Dies,
    DiesForAWhile,
    IsClosed { by_client: bool },
    Rebinds,
}

/// Results that must be the same on the fast routes and on the general ones: all datagrams, and all
/// counters of the ends.
type Transcript = (Vec<(Timestamp, usize, bool, usize, EcnCodepoint)>, Vec<String>);

/// How a run is made.
#[derive(Debug, Clone, Copy)]
struct Played<'a> {
    /// Operations that an idle hook at each end observes.
    watched: &'a [Operation],
    /// Maximum number of datagrams that are requested together.
    together: usize,
    /// If set, a hook at each end chooses paths, well or badly.
    chooses: bool,
}

impl<'a> Played<'a> {
    /// Returns a run without hooks that choose paths, and with datagrams that are requested one by
    /// one.
    fn with(watched: &'a [Operation]) -> Played<'a> {
        Played { watched, together: 0, chooses: false }
    }
}

/// Returns a hook that chooses the path with the most room, and makes the choice hold for some
/// datagrams. Now and then it chooses a full path or a path that does not exist, or leaves the
/// choice to the default. Also returns the number of its calls.
fn choosing(seed: u64) -> (Box<dyn Hook>, Arc<Mutex<u64>>) {
    let calls = Arc::<Mutex<u64>>::default();
    let counted = calls.clone();
    let hook = doing(move |host, _, outputs| {
        let mut count = counted.lock().unwrap();
        *count += 1;
        let room = |path| host.get_of(Field::PathRoom, path).unwrap_or(0);
        let most = u64::from(room(1) > room(0));
        outputs[0] = match *count % 13 {
            3 => 1 - most,
            7 => 77,
            11 => return Ok(Decision::Default),
            _ => most,
        };
        host.set(Field::ChoiceHolds, [0, 3, 15, 64][(seed % 4) as usize]).unwrap();
        Ok(Decision::Done)
    });
    (hook, calls)
}

/// Plays a network. The second exchange goes in one direction, so that the sender has only stream
/// data to send. Returns the transcript, which must be the same for all ways of playing, and the
/// number of datagrams that came together.
fn run(seed: u64, played: Played<'_>) -> (Transcript, usize) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x9a70);
    let links = [by_chance(&mut rng), by_chance(&mut rng)];
    let schedulers =
        [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant, Scheduler::Backup];
    let scheduler = schedulers[rng.random_range(0..schedulers.len())];
    let fates = [
        Fate::Nothing,
        Fate::Dies,
        Fate::DiesForAWhile,
        Fate::IsClosed { by_client: true },
        Fate::IsClosed { by_client: false },
        Fate::Rebinds,
    ];
    let (fate, victim) = (fates[rng.random_range(0..fates.len())], rng.random_range(0..2usize));
    let length = rng.random_range(1..120_000);
    let at = rng.random_range(0..length);
    let mut pair = Pair::with(seed, &links, |config| {
        config.scheduler = scheduler;
        // An end that only waits must send, because the peer may send to an address that this end
        // has lost.
        config.keep_alive = Duration::from_millis(300);
    });
    pair.connect();
    pair.together = played.together;
    attach_to(&mut pair.client, played.watched);
    attach_to(pair.server(), played.watched);
    let mut calls = Vec::new();
    if played.chooses {
        let ((ours, of_ours), (theirs, of_theirs)) = (choosing(seed), choosing(seed / 4));
        replace(&mut pair.client, Operation::SelectPath, ours);
        replace(pair.server(), Operation::SelectPath, theirs);
        calls.extend([of_ours, of_theirs]);
    }
    let opened = pair.begin(1);
    let (mut done, mut back) = (false, None);
    pair.exchange(length, |pair, read| {
        let now = pair.now;
        if back.is_some_and(|back| back <= now) {
            pair.down[victim] = false;
        }
        let ready = pair.client.paths().filter(|path| path.validated).count() == 2
            && pair.server().paths().filter(|path| path.validated).count() == 2;
        if done || read < at || !ready {
            return;
        }
        done = true;
        match fate {
            Fate::Nothing => {}
            Fate::Dies => pair.down[victim] = true,
            Fate::DiesForAWhile => {
                pair.down[victim] = true;
                back = Some(now + Duration::from_millis(1500));
            }
            Fate::IsClosed { by_client } => {
                let end = if by_client { &mut pair.client } else { pair.server() };
                let id = if victim == 0 { PathId::ZERO } else { opened };
                end.close_path(now, id, TransportErrorCode::NO_ERROR).unwrap();
            }
            Fate::Rebinds => pair.rebound[victim] = true,
        }
    });
    assert!(!pair.client.closing.is_closed() && !pair.server().closing.is_closed());
    let mut counts = vec![pair.describe()];
    counts.extend(calls.iter().map(|calls| format!("{calls:?}")));
    let one_way = rng.random_range(1..120_000);
    pair.exchange_of([[one_way, 1], [1, one_way]][usize::from(rng.random_bool(0.5))], |_, _| {});
    counts.push(pair.describe());
    for end in pair.ends() {
        assert!(end.memory() < 4 << 20, "{}", pair.describe());
    }
    let now = pair.now;
    pair.client.close(now, VarInt::from_u32(1), "done");
    pair.wait(Duration::from_secs(60));
    assert!(pair.client.is_drained() && pair.server().is_drained(), "{}", pair.describe());
    counts.extend(calls.iter().map(|calls| format!("{calls:?}")));
    ((pair.trace, counts), pair.gathered)
}

/// Faults of one or two paths do not lose or reorder bytes, and the connection continues. A failure
/// prints its seed. `EQUIC_SEED` runs one seed, and `EQUIC_CASES` is the number of seeds.
#[test]
fn multipath_over_two_bad_paths_loses_no_data() {
    if let Ok(seed) = std::env::var("EQUIC_SEED") {
        run(seed.parse().expect("EQUIC_SEED is a number"), Played::with(&[]));
        return;
    }
    for seed in 0..cases(300) {
        run(seed, Played::with(&[]));
    }
}

fn assert_same(seed: u64, one: Played<'_>, other: Played<'_>) -> usize {
    let ((ones, gathered), (others, _)) = (run(seed, one), run(seed, other));
    let same = ones.0.iter().zip(&others.0).take_while(|(one, other)| one == other).count();
    let (first, second) = (ones.0.get(same), others.0.get(same));
    assert_eq!(first, second, "seed {seed}: datagram {same}, {one:?} {other:?}");
    assert_eq!(ones.1, others.1, "seed {seed}, {one:?} {other:?}");
    gathered
}

/// The fast routes must have the same result as the general ones, on two paths as on one. Datagrams
/// that are requested together must be the same as those requested one by one, with and without
/// hooks that choose the paths. A hook is called equally often in all cases.
#[test]
fn multipath_fast_path_equals_slow_path_over_two_bad_paths() {
    let mut total = [0; 2];
    for seed in 0..cases(60) {
        for chooses in [false, true] {
            let played = |watched, together| Played { watched, together, chooses };
            let alone = played(SHORT, 0);
            assert_same(seed, alone, played(LONG, 0));
            for together in [3, 43] {
                let gathered = assert_same(seed, played(SHORT, together), alone);
                total[usize::from(chooses)] += gathered;
            }
            let gathered = assert_same(seed, played(LONG, 43), alone);
            assert_eq!(gathered, 0, "seed {seed}: the general route does not batch datagrams");
        }
    }
    assert!(total.iter().all(|total| *total as u64 > 20 * cases(60)), "{total:?} were together");
}

/// The fast route works with several paths. For a burst of stream data, it makes all datagrams that
/// the windows permit, on the paths that the scheduler uses. It leaves everything else to the
/// general route.
#[test]
fn multipath_fast_path_sends_on_all_paths() {
    for (scheduler, used) in [
        (Scheduler::LowestRtt, [true, true]),
        (Scheduler::RoundRobin, [true, true]),
        (Scheduler::Backup, [true, false]),
        (Scheduler::Redundant, [false, false]),
    ] {
        let mut pair = Pair::with(1, &[link(10), link(20)], |config| config.scheduler = scheduler);
        pair.connect();
        pair.open(1);
        pair.exchange(100_000, |_, _| {});
        pair.wait(Duration::from_secs(2));
        let now = pair.now;
        let (client, mut buffer) = (&mut pair.client, [0; 1500]);
        // There is nothing to send, so no window is full.
        assert!(client.poll_transmit(now, &mut buffer).is_none());
        assert!(client.paths.iter().all(|path| path.is_app_limited(now)));
        // The first path has room for two datagrams. The pacer limits the burst on the second one.
        let first = client.paths.active_mut();
        first.pretend_in_flight(first.window() - 3_000);
        let id = client.open(Direction::Bidirectional).unwrap();
        client.streams().write(id, &[7; 400_000]).unwrap();
        let sent = client.stats();
        let mut bytes = [0; 2];
        while let Some(transmit) = client.next_stream_datagram(NoneAttached, now, None, &mut buffer)
        {
            let path = client.paths().position(|path| path.local == transmit.source).unwrap();
            bytes[path] += transmit.size;
            // The fast route records that the better path is full, as the general route does.
            let passed = scheduler == Scheduler::LowestRtt && path == 1;
            assert!(!passed || !client.path().is_app_limited(now), "{scheduler:?}");
        }
        assert_eq!(bytes.map(|bytes| bytes > 2_000), used, "{scheduler:?}: {bytes:?}");
        let made = client.stats().packets_sent - sent.packets_sent;
        assert_eq!(made > 1, used[0], "{scheduler:?}: {made}");
        // The fast route makes no datagram that the general one would not make: no path has room
        // for another.
        let room = |path: &Path| path.room(now) > 0;
        let left = client.paths.iter().filter(|path| room(path)).count();
        let others = if used[0] { used.iter().filter(|used| !**used).count() } else { 2 };
        assert_eq!(left, others, "{scheduler:?}");
    }
}

/// Packets that arrive on any of several paths take the early exit, unless a hook must see them.
#[test]
fn multipath_fast_path_receives_on_all_paths() {
    for (watched, taken) in [(SHORT, true), (LONG, false)] {
        let round_robin = |config: &mut TransportConfig| config.scheduler = Scheduler::RoundRobin;
        let mut pair = Pair::with(1, &[link(10), link(20)], round_robin);
        pair.connect();
        pair.open(1);
        attach_to(&mut pair.client, watched);
        attach_to(pair.server(), watched);
        pair.wait(Duration::from_secs(2));
        pair.tried = Some(vec![[0; 2]; 2]);
        pair.exchange(100_000, |_, _| {});
        let tried = pair.tried.take().unwrap();
        for [short, long] in &tried {
            assert!(short + long > 20, "a path carries no data: {tried:?}");
            assert_eq!((*short > 20, *long > 0), (taken, !taken), "{tried:?}");
        }
    }
}

/// If a hook chooses the path, its datagrams use the fast route, and are batched while the choice
/// holds.
#[test]
fn multipath_fast_path_follows_a_hooks_choice() {
    for (holds, others, gathers) in [(5, None, true), (0, None, false), (5, Some(LONG), false)] {
        let mut pair = Pair::with(1, &[link(10), link(20)], |_| {});
        pair.connect();
        pair.open(1);
        pair.exchange(100_000, |_, _| {});
        pair.wait(Duration::from_secs(2));
        let calls = Arc::<Mutex<u64>>::default();
        let counted = calls.clone();
        let hook = doing(move |host, _, outputs| {
            *counted.lock().unwrap() += 1;
            outputs[0] = 1;
            host.set(Field::ChoiceHolds, holds).unwrap();
            Ok(Decision::Done)
        });
        replace(&mut pair.client, Operation::SelectPath, hook);
        if let Some(others) = others {
            attach_to(&mut pair.client, others);
        }
        let (now, client, mut buffer) = (pair.now, &mut pair.client, [0; 44 * 1500]);
        let id = client.open(Direction::Bidirectional).unwrap();
        client.streams().write(id, &[7; 400_000]).unwrap();
        let sent = client.poll_transmit(now, &mut buffer[..1500]).unwrap();
        assert_eq!(sent.source, local(1), "not on the path that the hook chose");
        // As many datagrams as the choice holds for, and no more than requested.
        let few = client.poll_transmit_more(now, &sent, &mut buffer, 2).div_ceil(sent.size);
        let more = client.poll_transmit_more(now, &sent, &mut buffer, 43).div_ceil(sent.size);
        let wanted = if gathers { (2, holds as usize - 2) } else { (0, 0) };
        assert_eq!((few, more), wanted, "{holds} {others:?}");
        assert_eq!(*calls.lock().unwrap(), 1, "one call for the first datagram");
        let next = client.poll_transmit(now, &mut buffer[..1500]).unwrap();
        assert_eq!((next.source, next.size), (sent.source, sent.size));
        let asked = if holds > 0 && !gathers { 1 } else { 2 };
        assert_eq!(*calls.lock().unwrap(), asked, "called again after the choice ended");
    }
}
