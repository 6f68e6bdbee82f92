//! Tests of `equic-transport` in virtual time. Needs the feature `quic`.

mod common;

use std::time::Duration;

use equic_sim::quic::{Algorithm, Bulk, BulkIds, BulkReceiver, BulkSender, Outcome, bulk};
use equic_sim::{
    CoDel, Direction, End, FqCoDel, Limit, Queue, Recording, Red, Simulation, Time, dumbbell,
    simple,
};

fn link() -> Direction {
    Direction::new(10_000_000, Duration::from_millis(50))
}

fn with(congestion: Algorithm, bytes: u64) -> Bulk {
    Bulk::new(bytes).congestion(congestion)
}

/// Runs a transfer between two nodes.
fn play(link: Direction, transfer: &Bulk, seed: u64) -> (Simulation, BulkIds) {
    let named = simple(link);
    let mut run = Simulation::new(named.topology, seed).expect("there can be such a network");
    run.sum_up();
    let ids = bulk(&mut run, named.clients[0], named.servers[0], transfer).expect("it can be");
    run.run(Time::from_secs(10_000)).expect("time goes on");
    (run, ids)
}

fn outcome(run: &Simulation, ids: BulkIds) -> Outcome {
    run.agent::<BulkReceiver>(ids.receiver).expect("it is the receiver").outcome().clone()
}

fn seconds(run: &Simulation, ids: BulkIds) -> f64 {
    let outcome = outcome(run, ids);
    assert_eq!(outcome.failure, None);
    outcome.completed.expect("it has completed").as_secs_f64()
}

/// 10 MB at 10 Mb/s without loss take 8 s, plus the time for headers, handshake and slow start.
#[test]
fn quic_fills_a_clean_link() {
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr] {
        let (mut run, ids) = play(link(), &with(algorithm, 10_000_000), 1);
        // Continue until no packet is in flight.
        assert_eq!(run.run(Time::from_secs(10_000)), Ok(End::Idle));
        let took = seconds(&run, ids);
        assert!((8.2..12.0).contains(&took), "{algorithm:?}: {took} s");
        assert_eq!(outcome(&run, ids).bytes, 10_000_000);
        let there = run.flow_stats(ids.there);
        assert_eq!(there.sent, there.delivered + there.dropped + there.unreachable);
        let sent = run.agent::<BulkSender>(ids.sender).unwrap().stats().datagrams_sent;
        assert_eq!(there.sent, sent);
    }
}

/// With 1 % loss, CUBIC stays far below the link's rate. It takes 52.8 s with a standard deviation
/// of 6.5 s over many seeds. BBR reacts less to loss, and takes 10.4 s.
#[test]
fn quic_takes_the_expected_time_at_1_percent_loss() {
    let lossy = link().loss_percent(1.0);
    let mean = |algorithm, seeds: std::ops::Range<u64>| {
        let count = (seeds.end - seeds.start) as f64;
        let transfer = with(algorithm, 10_000_000);
        let times = seeds.map(|seed| {
            let (run, ids) = play(lossy.clone(), &transfer, seed);
            seconds(&run, ids)
        });
        times.sum::<f64>() / count
    };
    let cubic = mean(Algorithm::Cubic, 1..5);
    assert!((40.0..66.0).contains(&cubic), "{cubic} s");
    let bbr = mean(Algorithm::Bbr, 1..3);
    assert!((9.0..13.0).contains(&bbr), "{bbr} s");
}

/// With random loss, BBR's goodput must reach at least this share of the link's rate. The remainder
/// is lost to retransmissions, headers, the startup phase, and rounds that probe for the minimum
/// round-trip time.
#[test]
fn bbr_uses_most_of_a_link_with_random_loss() {
    for (megabits, delay, loss, packets, least) in [
        (100, 20, 0.5, 350, 0.85),
        (100, 20, 1.0, 350, 0.85),
        (100, 5, 1.0, 100, 0.8),
        (20, 50, 1.0, 170, 0.8),
    ] {
        for seed in 1..4 {
            let link = Direction::new(1_000_000 * megabits, Duration::from_millis(delay))
                .queue(Queue::DropTail(Limit::Packets(packets)))
                .loss_percent(loss);
            // Bytes that take 15 s at the link's rate.
            let bytes = 15 * 1_000_000 / 8 * megabits;
            let (run, ids) = play(link, &with(Algorithm::Bbr, bytes), seed);
            let share = 15.0 / seconds(&run, ids);
            assert!(share > least, "{megabits} Mb/s, {delay} ms, {loss} %, seed {seed}: {share}");
        }
    }
}

/// Simulates transfers with ECN over a dumbbell whose bottleneck has this queue.
fn shared(queue: Queue, seed: u64) -> (Simulation, Vec<BulkIds>) {
    let named = dumbbell(4, link().queue(queue));
    let mut run = Simulation::new(named.topology, seed).expect("there can be such a network");
    run.sum_up();
    let transfer = with(Algorithm::Cubic, 1_000_000);
    let ids: Vec<BulkIds> = (0..4)
        .map(|pair| bulk(&mut run, named.clients[pair], named.servers[pair], &transfer).unwrap())
        .collect();
    let ports = vec![named.bottlenecks[0].there()];
    let agents = ids.iter().map(|ids| ids.receiver).collect();
    run.record(Recording { interval: Duration::from_millis(10), ports, agents }).unwrap();
    assert_eq!(run.run(Time::from_secs(1_000)), Ok(End::Finished));
    (run, ids)
}

#[test]
fn quic_flows_share_a_narrow_link_under_every_queue() {
    for queue in [
        Queue::DropTail(Limit::Packets(100)),
        Queue::Red(Red { ecn: true, ..Red::default() }),
        Queue::CoDel(CoDel { ecn: true, ..CoDel::default() }),
        Queue::FqCoDel(FqCoDel::default()),
    ] {
        let (run, ids) = shared(queue, 1);
        let longest = ids.iter().map(|ids| seconds(&run, *ids)).fold(0.0, f64::max);
        // A transfer takes 3.2 s at the link's rate, plus the handshake and slow start.
        assert!((3.3..8.0).contains(&longest), "{queue:?}: {longest} s");
        let marked: u64 = ids.iter().map(|ids| run.flow_stats(ids.there).marked).sum();
        let records = run.recorded();
        let recorded: u64 = records.iter().map(|record| record.ports[0].marked).sum();
        assert_eq!(marked > 0, !matches!(queue, Queue::DropTail(_)), "{queue:?}");
        assert!(recorded <= marked + 1_000 && (recorded > 0) == (marked > 0));
        let goodput: f64 = records.iter().flat_map(|record| &record.goodput).sum();
        let bytes = goodput * 0.01 / 8.0;
        // The time series has no data that arrived after the last record.
        assert!((3_900_000.0..=4_000_001.0).contains(&bytes), "{bytes}");
    }
}

/// The link corrupts packets. A checksum takes the place of the AEAD, and must detect this. The
/// receiver checks every byte, so it would notice an undetected error.
#[test]
fn quic_data_is_intact_despite_corruption_duplication_and_jitter() {
    let mut bad = link().loss_percent(2.0);
    bad.wire.corrupt = equic_sim::Chance::percent(2.0);
    bad.wire.duplicate = equic_sim::Chance::percent(5.0);
    bad.wire.jitter = Duration::from_millis(10);
    let (run, ids) = play(bad, &with(Algorithm::Bbr, 500_000), 1);
    seconds(&run, ids);
    assert_eq!(outcome(&run, ids).bytes, 500_000);
}

#[test]
fn quic_dead_link_ends_in_an_idle_timeout() {
    let named = simple(link().loss_percent(100.0));
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let ids = bulk(&mut run, named.clients[0], named.servers[0], &Bulk::new(1_000)).unwrap();
    assert_eq!(run.run(Time::from_secs(1_000)), Ok(End::Idle));
    assert_eq!(outcome(&run, ids), Outcome::default());
    assert!(run.now() <= Time::from_secs(100), "{}", run.now());
}

#[test]
fn quic_seed_determines_the_run_in_another_process() {
    let test = "quic_seed_determines_the_run_in_another_process";
    common::same_in_another_process(
        test,
        &["lossy", "bbr", "shared", "early"],
        |name| match name {
            "lossy" => play(link().loss_percent(1.0), &with(Algorithm::Cubic, 2_000_000), 5).0,
            "bbr" => play(link().loss_percent(1.0), &with(Algorithm::Bbr, 2_000_000), 5).0,
            "shared" => shared(Queue::FqCoDel(FqCoDel::default()), 5).0,
            "early" => shared(Queue::Red(Red::default()), 5).0,
            other => panic!("no run is called {other}"),
        },
    );
}
