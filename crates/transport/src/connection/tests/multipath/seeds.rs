//! Networks of two paths, by seed: loss, reordering, duplication and damage on each, a limited rate on some, and now and
//! then a path that dies and comes back, or is closed.

use std::time::Duration;

use equic_net::{Chance, Link, Queue, Stall};
use equic_wire::PathId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::cases;
use super::*;

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

/// Something that befalls a path in the middle.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Nothing,
    Dies,
    DiesForAWhile,
    IsClosed { by_client: bool },
    Rebinds,
}

fn run(seed: u64) {
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
        // Who waits for what is sent to where it is no more must say so.
        config.keep_alive = Duration::from_millis(300);
    });
    pair.connect();
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
    for end in pair.ends() {
        assert!(end.memory() < 4 << 20, "{}", pair.describe());
    }
    let now = pair.now;
    pair.client.close(now, VarInt::from_u32(1), "done");
    pair.wait(Duration::from_secs(60));
    assert!(pair.client.is_drained() && pair.server().is_drained(), "{}", pair.describe());
}

/// Whatever befalls one of two paths: all bytes arrive, in order, and the connection goes on. A failure names its seed;
/// `EQUIC_SEED` runs it alone, `EQUIC_CASES` is how many there are.
#[test]
fn everything_arrives_over_two_bad_paths() {
    if let Ok(seed) = std::env::var("EQUIC_SEED") {
        return run(seed.parse().expect("EQUIC_SEED is a number"));
    }
    (0..cases(300)).for_each(run);
}
