//! Tests the properties that the papers on LIA and OLIA promise, on paths in virtual time. Which
//! packets a path loses depends only on their count, so every run is the same.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Algorithm, ControllerFactory, RttEstimator, TcpControllerFactory};
use super::*;

const DATAGRAM: u16 = 1_000;

const COUPLED: [Algorithm; 2] = [Algorithm::Lia, Algorithm::Olia];

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// A simulated path whose window is always fully used. One step of the simulation is a round trip.
struct Road {
    controller: Box<dyn Controller>,
    rtt: RttEstimator,
    trip_ms: u64,
    /// Time at which the current round trip began, in milliseconds.
    begun: u64,
    /// The path loses one datagram out of this many.
    one_of: u64,
    sent: u64,
    /// Number of datagrams of this path acknowledged so far.
    acked: u64,
    /// Number of datagrams that the path must still lose as its share of the losses at a shared
    /// bottleneck.
    owed: f64,
}

impl Road {
    fn new(factory: &dyn ControllerFactory, trip_ms: u64, one_of: u64) -> Road {
        let mut rtt = RttEstimator::new(Duration::from_millis(trip_ms));
        rtt.update(at(0), Duration::from_millis(trip_ms), Duration::ZERO);
        let controller = factory.start(DATAGRAM, 0);
        Road { controller, rtt, trip_ms, begun: 1, one_of, sent: 0, acked: 0, owed: 0.0 }
    }

    fn window(&self) -> u64 {
        self.controller.window() / u64::from(DATAGRAM)
    }

    fn ends(&self) -> u64 {
        self.begun + self.trip_ms
    }

    /// Ends the current round trip and begins the next one. If `lossy` is true, the round trip
    /// loses at least one datagram.
    fn round(&mut self, lossy: bool) {
        let (window, end, bytes) = (self.window(), self.ends(), u64::from(DATAGRAM));
        for _ in 0..window {
            self.controller.on_sent(at(self.begun), bytes, window * bytes);
        }
        let before = self.sent / self.one_of;
        self.sent += window;
        let lost = (self.sent / self.one_of - before).max(u64::from(lossy));
        if lost > 0 {
            let signal = Signal::Loss { bytes: lost * bytes };
            self.controller.on_congestion(at(end), at(self.begun), signal);
        }
        for _ in lost..window {
            self.acked += 1;
            self.controller.on_ack(&AckSample {
                now: at(end),
                acked: bytes,
                largest_sent: at(self.begun),
                in_flight: window * bytes,
                app_limited: false,
                rtt: &self.rtt,
                rate: None,
            });
        }
        self.begun = end + 1;
    }
}

/// Creates the paths of a connection. Each path is given as its RTT in milliseconds, and the number
/// of datagrams out of which one is lost.
fn connection(algorithm: Algorithm, roads: &[(u64, u64)]) -> Vec<Road> {
    let factory = algorithm.for_connection().unwrap_or_else(|| Arc::new(algorithm));
    roads.iter().map(|(trip_ms, one_of)| Road::new(&*factory, *trip_ms, *one_of)).collect()
}

/// Runs all paths until the time `until`, in milliseconds. Returns the throughput of each path in
/// datagrams per second, and its mean window. Both ignore the first tenth of the time.
fn play(roads: &mut [Road], until: u64) -> Vec<(f64, f64)> {
    let mut totals = vec![(0, 0, 0); roads.len()];
    while let Some((index, road)) = roads
        .iter_mut()
        .enumerate()
        .min_by_key(|(_, road)| road.ends())
        .filter(|(_, road)| road.ends() <= until)
    {
        let (window, before) = (road.window(), road.acked);
        road.round(false);
        if road.begun > until / 10 {
            let (acked, windows, rounds) = totals[index];
            totals[index] = (acked + road.acked - before, windows + window, rounds + 1);
        }
    }
    let seconds = until as f64 * 0.9 / 1000.0;
    let mean = |(acked, windows, rounds): (u64, u64, u64)| {
        (acked as f64 / seconds, windows as f64 / rounds.max(1) as f64)
    };
    totals.into_iter().map(mean).collect()
}

fn rate(algorithm: Algorithm, roads: &[(u64, u64)]) -> f64 {
    play(&mut connection(algorithm, roads), 200_000).iter().map(|(rate, _)| rate).sum()
}

/// Returns the mean windows of connections that share one bottleneck, which carries `room`
/// datagrams in a round trip. Whenever more are in flight, one path loses a datagram. A path loses
/// datagrams in proportion to its window.
fn shared(connections: &mut [Vec<Road>], room: u64) -> Vec<f64> {
    const ROUNDS: u64 = 4_000;
    let mut sums = vec![0; connections.len()];
    for round in 0..ROUNDS {
        let total: u64 = connections.iter().flatten().map(Road::window).sum();
        let full = total > room;
        let mut most = f64::MIN;
        if full {
            for road in connections.iter_mut().flatten() {
                road.owed += road.window() as f64 / total as f64;
                most = most.max(road.owed);
            }
        }
        for (roads, sum) in connections.iter_mut().zip(&mut sums) {
            for road in roads {
                if round >= ROUNDS / 10 {
                    *sum += road.window();
                }
                let loses = full && road.owed >= most;
                if loses {
                    // Only one path loses a datagram in each round trip.
                    (road.owed, most) = (road.owed - 1.0, f64::MAX);
                }
                road.round(loses);
            }
        }
    }
    sums.into_iter().map(|sum| sum as f64 / (ROUNDS * 9 / 10) as f64).collect()
}

/// RFC 6356 s.2, goal 2: paths that share a bottleneck must not take more of it than one TCP
/// connection.
#[test]
fn coupled_paths_take_one_share_of_a_shared_bottleneck() {
    let against_newreno = |algorithm, paths: &[(u64, u64)]| {
        let mut both = [connection(Algorithm::NewReno, &paths[..1]), connection(algorithm, paths)];
        let windows = shared(&mut both, 120);
        windows[1] / windows[0]
    };
    const PATH: (u64, u64) = (100, u64::MAX);
    let alone = against_newreno(Algorithm::NewReno, &[PATH]);
    assert!((0.9..1.1).contains(&alone), "one path against one path: {alone}");
    let uncoupled = against_newreno(Algorithm::NewReno, &[PATH; 2]);
    assert!(uncoupled > 1.7, "two uncoupled paths take two shares: {uncoupled}");
    for algorithm in COUPLED {
        for paths in 2..=4 {
            let share = against_newreno(algorithm, &[PATH; 4][..paths]);
            // The share of the bottleneck is not exactly 1, because windows are whole datagrams and
            // only one path loses at a time.
            assert!((0.7..1.25).contains(&share), "{algorithm}, {paths} paths: {share}");
        }
    }
}

/// RFC 6356 s.2, goal 1: the paths together must not be slower than one TCP connection on the best
/// path. Goal 2 limits them to a fair share, so their total is about that of the best path.
#[test]
fn coupled_paths_are_no_slower_than_the_best_path() {
    let cases: [&[(u64, u64)]; 5] = [
        &[(100, 400), (100, 400)],
        &[(100, 2_000), (100, 200)],
        &[(20, 400), (200, 400)],
        &[(50, 100), (150, 3_000)],
        &[(50, 1_000), (80, 2_000), (30, 300)],
    ];
    for paths in cases {
        let alone = |path: &(u64, u64)| rate(Algorithm::NewReno, &[*path]);
        let best = paths.iter().map(alone).fold(0.0, f64::max);
        let uncoupled = rate(Algorithm::NewReno, paths);
        for algorithm in COUPLED {
            let total = rate(algorithm, paths);
            assert!(total > 0.9 * best, "{algorithm}, {paths:?}: {total} of {best}");
            assert!(total < uncoupled, "{algorithm}, {paths:?}: {total}, uncoupled {uncoupled}");
        }
    }
}

/// Khalili et al. s.III: LIA continues to send on a path with more losses. OLIA must send almost
/// nothing on that path, and the connection must have the same throughput as with LIA.
#[test]
fn coupled_olia_leaves_the_congested_path() {
    let paths = [(100, 4_000), (100, 800)];
    let windows = |algorithm| {
        let figures = play(&mut connection(algorithm, &paths), 300_000);
        (figures[0].1, figures[1].1)
    };
    let (lia, olia) = (windows(Algorithm::Lia), windows(Algorithm::Olia));
    assert!(lia.1 > 8.0, "LIA: {lia:?}");
    assert!(olia.1 < 4.0 && olia.1 < lia.1 / 2.0, "OLIA: {olia:?}, LIA: {lia:?}");
    assert!(olia.0 + olia.1 > 0.9 * (lia.0 + lia.1), "OLIA: {olia:?}, LIA: {lia:?}");
}

/// Khalili et al. s.IV, responsiveness: if the losses of two paths are swapped, OLIA must move to
/// the path that is now better.
#[test]
fn coupled_olia_returns_when_the_paths_change_places() {
    let mut roads = connection(Algorithm::Olia, &[(100, 4_000), (100, 200)]);
    play(&mut roads, 200_000);
    let before = [roads[0].window(), roads[1].window()];
    assert!(before[0] > 4 * before[1], "{before:?}");
    (roads[0].one_of, roads[1].one_of) = (200, 4_000);
    play(&mut roads, 400_000);
    let after = [roads[0].window(), roads[1].window()];
    assert!(after[1] > 4 * after[0], "{after:?}");
}

/// A path on which nothing is sent must not slow down the growth of the other path.
#[test]
fn coupled_idle_path_has_no_effect() {
    for algorithm in COUPLED {
        let mut roads = connection(algorithm, &[(100, 400), (100, 400)]);
        play(&mut roads, 20_000);
        let rate = |roads: &mut [Road]| {
            let figures = play(roads, 400_000);
            figures[0].0
        };
        let alone = rate(&mut connection(Algorithm::NewReno, &[(100, 400)]));
        let with_idle = rate(&mut roads[..1]);
        assert!((0.9..1.1).contains(&(with_idle / alone)), "{algorithm}: {with_idle} of {alone}");
    }
}

/// Slow start, the reaction to loss and its undoing must be the same for coupled controllers as for
/// NewReno. With a single path, the growth must be that of TCP's NewReno.
#[test]
fn coupled_decrease_is_that_of_newreno() {
    for algorithm in COUPLED {
        let mut coupled = algorithm.start_tcp(DATAGRAM, 0);
        let mut alone = Algorithm::NewReno.start_tcp(DATAGRAM, 0);
        let mut both = |step: &dyn Fn(&mut dyn TcpController)| {
            step(&mut *coupled);
            step(&mut *alone);
            // The windows of both controllers may differ by a fraction of a byte.
            let apart = coupled.window().abs_diff(alone.window());
            assert!(apart <= 1, "{algorithm}: {} and {}", coupled.window(), alone.window());
            assert_eq!(coupled.slow_start_threshold(), alone.slow_start_threshold());
            assert_eq!(coupled.state(), alone.state());
        };
        let rtt = Road::new(&Algorithm::NewReno, 100, 1).rtt;
        let ack = |now: u64, sent: u64, app_limited| AckSample {
            now: at(now),
            acked: 5_000,
            largest_sent: at(sent),
            in_flight: 10_000,
            app_limited,
            rtt: &rtt,
            rate: None,
        };
        let loss = Signal::Loss { bytes: 1_000 };
        both(&|one| one.set_initial_window(12_000));
        both(&|one| one.on_ack(&ack(100, 0, false)));
        both(&|one| one.on_ack(&ack(101, 0, true)));
        both(&|one| one.on_congestion(at(102), at(1), loss));
        both(&|one| one.on_congestion(at(103), at(2), Signal::Ecn));
        both(&|one| one.on_spurious_loss(at(104)));
        both(&|one| one.on_congestion(at(210), at(205), loss));
        both(&|one| one.on_ack(&ack(220, 206, false)));
        both(&|one| one.on_ack(&ack(400, 300, false)));
        both(&|one| one.on_persistent_congestion(at(500)));
        both(&|one| one.on_retransmission_timeout(at(600)));
        both(&|one| one.on_datagram_size(1_400));
        both(&|one| one.adjustable().unwrap().set_window(50_000));
        both(&|one| one.adjustable().unwrap().set_slow_start_threshold(Some(20_000)));
        assert_eq!(coupled.name(), algorithm.to_string());
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
}

/// Each connection has its own group, so connections must not affect each other.
#[test]
fn coupled_connections_are_independent() {
    for algorithm in COUPLED {
        let mut one = connection(algorithm, &[(100, 400)]);
        one.append(&mut connection(algorithm, &[(100, 400)]));
        let two: f64 = play(&mut one, 400_000).iter().map(|(rate, _)| rate).sum();
        let alone = play(&mut connection(algorithm, &[(100, 400)]), 400_000)[0].0;
        assert!((1.9..2.1).contains(&(two / alone)), "{algorithm}: {two} of {alone}");
    }
}
