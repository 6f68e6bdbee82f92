//! Tests of TCP in virtual time. Needs the feature `tcp`.

mod common;

use std::time::Duration;

use equic_sim::tcp::{
    Algorithm, BulkIds, Classic, Outcome, TcpBulk, TcpBulkReceiver, TcpBulkSender, TlsConfig,
    TlsVersion, bulk,
};
use equic_sim::{
    CoDel, Direction, End, FqCoDel, Limit, Queue, Red, Simulation, Time, dumbbell, simple,
};

fn link() -> Direction {
    Direction::new(10_000_000, Duration::from_millis(50))
}

fn with(congestion: Algorithm, bytes: u64) -> TcpBulk {
    TcpBulk::new(bytes).congestion(congestion)
}

/// Runs a transfer between two nodes. `link` is the direction of the data. The opposite direction
/// has the same rate and delay, and no loss.
fn play(link: Direction, transfer: &TcpBulk, seed: u64) -> (Simulation, BulkIds) {
    let mut named = simple(link.clone());
    *named.topology.direction_mut(named.bottlenecks[0].back()) = link.loss_percent(0.0);
    let mut run = Simulation::new(named.topology, seed).expect("there can be such a network");
    run.sum_up();
    let ids = bulk(&mut run, named.clients[0], named.servers[0], transfer).expect("it can be");
    run.run(Time::from_secs(10_000)).expect("time goes on");
    (run, ids)
}

fn outcome(run: &Simulation, ids: BulkIds) -> Outcome {
    run.agent::<TcpBulkReceiver>(ids.receiver).expect("it is the receiver").outcome().clone()
}

fn sender(run: &Simulation, ids: BulkIds) -> &TcpBulkSender {
    run.agent(ids.sender).expect("it is the sender")
}

fn seconds(run: &Simulation, ids: BulkIds) -> f64 {
    let outcome = outcome(run, ids);
    assert_eq!(outcome.failure, None);
    outcome.completed.expect("it has completed").as_secs_f64()
}

/// A transfer of 10 MB at 10 Mb/s without loss. 1,448 of the 1,500 bytes of a packet are payload,
/// so the transfer takes 8.29 s plus the handshake and slow start.
#[test]
fn tcp_fills_a_clean_link() {
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr] {
        let (mut run, ids) = play(link(), &with(algorithm, 10_000_000), 1);
        let took = seconds(&run, ids);
        assert!((8.29..9.0).contains(&took), "{algorithm:?}: {took} s");
        // Continue until no packet is in flight.
        assert_eq!(run.run(Time::from_secs(10_000)), Ok(End::Idle));
        assert_eq!(outcome(&run, ids).bytes, 10_000_000);
        let there = run.flow_stats(ids.there);
        assert_eq!(there.sent, there.delivered + there.dropped + there.unreachable);
        let stats = sender(&run, ids).stats();
        assert_eq!((there.sent, stats.timeouts, stats.spurious), (stats.segments_sent, 0, 0));
    }
}

/// Vegas must keep the queue short, and CUBIC and BIC must fill it. All of them must fill the link.
#[test]
fn tcp_classic_controllers_fill_a_clean_link() {
    for classic in [Classic::Bic, Classic::Vegas, Classic::Westwood] {
        let shallow = link().queue(Queue::DropTail(Limit::Packets(100)));
        let (run, ids) = play(shallow, &TcpBulk::new(30_000_000).congestion(classic), 1);
        let took = seconds(&run, ids);
        assert!((24.86..30.0).contains(&took), "{classic}: {took} s");
        let stats = sender(&run, ids).stats();
        let queued = stats.smoothed_rtt - stats.min_rtt;
        // A full queue of a hundred packets causes a delay of 120 ms.
        assert_eq!(
            queued < Duration::from_millis(10),
            classic == Classic::Vegas,
            "{classic} {stats:?}"
        );
    }
}

/// The size on the wire must include headers: 20 bytes of IP, 20 of TCP, and options of 20 bytes on
/// the SYN and of 12 bytes on other segments.
#[test]
fn tcp_sizes_include_headers() {
    let (mut run, ids) = play(link(), &TcpBulk::new(100_000), 1);
    run.run(Time::from_secs(1_000)).expect("time goes on");
    let (there, back) = (run.flow_stats(ids.there), run.flow_stats(ids.back));
    let segments = 100_000u64.div_ceil(1_448);
    // The client sends the SYN, the data with FIN on the last segment, the ACK of the server's SYN,
    // and the ACK of the server's FIN.
    assert_eq!(there.sent, 1 + segments + 2);
    assert_eq!(there.sent_bytes, 60 + 100_000 + (segments + 2) * 52);
    assert_eq!(back.sent_bytes, 60 + (back.sent - 1) * 52);
}

/// Counts the round trips of a transfer of one segment, with and without TLS.
#[test]
fn tls_handshakes_cost_their_round_trips() {
    let fast = Direction::new(10_000_000_000, Duration::from_millis(50));
    let trips = |transfer: &TcpBulk| {
        let (run, ids) = play(fast.clone(), transfer, 1);
        assert_eq!(outcome(&run, ids).bytes, 1_000);
        (seconds(&run, ids) / 0.05).floor() as u64
    };
    let plain = TcpBulk::new(1_000);
    let full = TlsConfig::default();
    let resumed = TlsConfig { resumption: true, ..full };
    let old = TlsConfig { version: TlsVersion::Tls12, ..full };
    // Counted in half round trips: SYN, SYN-ACK, and data make three. Each round trip of TLS adds
    // two.
    assert_eq!(trips(&plain), 3);
    assert_eq!(trips(&plain.clone().tls(full)), 5);
    assert_eq!(trips(&plain.clone().tls(resumed)), 5);
    assert_eq!(trips(&plain.clone().tls(TlsConfig { early_data: true, ..resumed })), 3);
    assert_eq!(trips(&plain.clone().tls(old)), 7);
    assert_eq!(trips(&plain.tls(TlsConfig { resumption: true, ..old })), 5);
}

/// Returns the mean and the standard deviation of the completion time over 30 seeds, in seconds.
fn spread(link: &Direction, transfer: &TcpBulk) -> (f64, f64) {
    let times: Vec<f64> = (1..=30)
        .map(|seed| {
            let (run, ids) = play(link.clone(), transfer, seed);
            // The network does not reorder packets. Every packet that was declared lost was
            // therefore really lost, unless a queue grew faster than the retransmission timer could
            // adapt.
            let stats = sender(&run, ids).stats();
            assert!(stats.spurious <= stats.timeouts, "seed {seed}: {stats:?}");
            seconds(&run, ids)
        })
        .collect();
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}

/// Compares the completion times with those of ns-3.44: 51.7 s with CUBIC, 47.2 s with LinuxReno,
/// 97.1 s with NewReno, and 9.4 s with BBR (docs/notebook/benchmarks.md has the command). The
/// window of ns-3's NewReno grows more slowly than that of our NewReno, and the window of LinuxReno
/// grows faster. These two are therefore the bounds for our NewReno.
#[test]
fn tcp_takes_as_long_as_ns3_at_1_percent_loss() {
    let lossy = link().loss_percent(1.0);
    let time = |algorithm| {
        let (mean, deviation) = spread(&lossy, &with(algorithm, 10_000_000));
        println!("{algorithm:?}: {mean:.1} s, standard deviation {deviation:.1} s");
        mean
    };
    let cubic = time(Algorithm::Cubic);
    assert!((51.7 * 0.9..51.7 * 1.1).contains(&cubic), "{cubic} s");
    let bbr = time(Algorithm::Bbr);
    assert!((9.4 * 0.9..9.4 * 1.1).contains(&bbr), "{bbr} s");
    let reno = time(Algorithm::NewReno);
    assert!((47.2..97.1).contains(&reno), "{reno} s");
}

/// Simulates TCP transfers over a dumbbell whose bottleneck has this queue.
fn shared(queue: Queue, ecn: bool, seed: u64) -> (Simulation, Vec<BulkIds>) {
    let named = dumbbell(4, link().queue(queue));
    let mut run = Simulation::new(named.topology, seed).expect("there can be such a network");
    run.sum_up();
    let mut transfer = with(Algorithm::Cubic, 1_000_000);
    transfer.config.ecn = ecn;
    let ids: Vec<BulkIds> = (0..4)
        .map(|pair| bulk(&mut run, named.clients[pair], named.servers[pair], &transfer).unwrap())
        .collect();
    assert_eq!(run.run(Time::from_secs(1_000)), Ok(End::Finished));
    (run, ids)
}

#[test]
fn tcp_flows_share_a_narrow_link_under_every_queue() {
    for (queue, ecn) in [
        (Queue::DropTail(Limit::Packets(100)), false),
        (Queue::Red(Red { ecn: true, ..Red::default() }), true),
        (Queue::CoDel(CoDel { ecn: true, ..CoDel::default() }), true),
        (Queue::FqCoDel(FqCoDel::default()), false),
    ] {
        let (run, ids) = shared(queue, ecn, 1);
        let longest = ids.iter().map(|ids| seconds(&run, *ids)).fold(0.0, f64::max);
        // A transfer takes 3.3 s at the link's rate, plus the handshake and slow start.
        assert!((3.3..8.0).contains(&longest), "{queue:?}: {longest} s");
        let marked: u64 = ids.iter().map(|ids| run.flow_stats(ids.there).marked).sum();
        assert_eq!(marked > 0, ecn, "{queue:?}");
    }
}

#[test]
fn tcp_data_is_intact_despite_duplication_and_jitter() {
    let mut bad = link().loss_percent(2.0);
    bad.wire.duplicate = equic_sim::Chance::percent(5.0);
    bad.wire.jitter = Duration::from_millis(10);
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr] {
        let (run, ids) = play(bad.clone(), &with(algorithm, 1_000_000), 1);
        seconds(&run, ids);
        assert_eq!(outcome(&run, ids).bytes, 1_000_000);
    }
}

#[test]
fn tcp_survives_heavy_loss() {
    for percent in [10.0, 30.0] {
        for seed in 1..=10 {
            let lossy = link().loss_percent(percent);
            let (run, ids) = play(lossy, &TcpBulk::new(100_000), seed);
            seconds(&run, ids);
            assert_eq!(outcome(&run, ids).bytes, 100_000);
        }
    }
}

#[test]
fn tcp_dead_link_ends_in_a_timeout() {
    let named = simple(link().loss_percent(100.0));
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let ids = bulk(&mut run, named.clients[0], named.servers[0], &TcpBulk::new(1_000)).unwrap();
    assert_eq!(run.run(Time::from_secs(1_000)), Ok(End::Idle));
    assert_eq!(outcome(&run, ids), Outcome::default());
    // The SYN times out after 1 + 2 + 4 + 8 + 16 + 32 + 64 s (RFC 6298 s.5.7), because Linux
    // retransmits it six times.
    assert_eq!(run.now(), Time::from_secs(127));
}

#[test]
fn tcp_seed_determines_the_run_in_another_process() {
    let test = "tcp_seed_determines_the_run_in_another_process";
    common::same_in_another_process(
        test,
        &["lossy", "bbr", "shared", "early"],
        |name| match name {
            "lossy" => play(link().loss_percent(1.0), &with(Algorithm::Cubic, 2_000_000), 5).0,
            "bbr" => play(link().loss_percent(1.0), &with(Algorithm::Bbr, 2_000_000), 5).0,
            "shared" => shared(Queue::FqCoDel(FqCoDel::default()), false, 5).0,
            "early" => shared(Queue::Red(Red::default()), true, 5).0,
            other => panic!("no run is called {other}"),
        },
    );
}
