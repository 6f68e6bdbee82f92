//! Tests BBR and CUBIC on a simulated bottleneck, whose queue has a limited size in bytes and
//! drains at a constant rate.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::congestion::{Algorithm, ControllerFactory, DeliveryRate, Pacer};

const DATAGRAM: u64 = 1200;

struct Path {
    /// Rate of the bottleneck in bytes per second.
    rate: f64,
    /// Round-trip time of the path without queueing.
    delay: Duration,
    queue: u64,
    loss: f64,
}

struct Outcome {
    /// Fraction of the path's rate that was used.
    utilization: f64,
    /// Mean time that packets spend in the queue.
    queueing: Duration,
    lost: f64,
}

struct Packet {
    sent: Timestamp,
    mark: DeliveryMark,
    /// Time at which the packet's acknowledgment arrives. `None` if the packet is lost. The next
    /// acknowledgment reveals the loss.
    acked_at: Option<Timestamp>,
}

/// Sends for `seconds` as fast as the controller permits. Returns what was measured in the second
/// half of this time.
fn run(algorithm: Algorithm, path: &Path, seconds: u64) -> Outcome {
    run_seed(algorithm, path, seconds, 0x5eed)
}

fn run_seed(algorithm: Algorithm, path: &Path, seconds: u64, seed: u64) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut controller = algorithm.start(DATAGRAM as u16, 7);
    let mut rtt = RttEstimator::new(Duration::from_millis(100));
    let (mut rates, mut pacer) = (DeliveryRate::default(), Pacer::new(Timestamp::START, 12_000));
    let mut flight: VecDeque<Packet> = VecDeque::new();
    let (mut now, mut in_flight, mut free_at) = (Timestamp::START, 0u64, Timestamp::START);
    let end = Timestamp::START + Duration::from_secs(seconds);
    let half = Timestamp::START + Duration::from_secs(seconds) / 2;
    let (mut delivered, mut sent, mut lost, mut queued) = (0u64, 0u64, 0u64, Duration::ZERO);
    while now < end {
        let mut next = end;
        // Send as many packets as the window and the pacer permit.
        while in_flight + DATAGRAM <= controller.window() {
            if let Some(later) = pacer.next(now, controller.pacing_rate(&rtt), DATAGRAM as u16) {
                next = next.min(later);
                break;
            }
            pacer.on_sent(DATAGRAM);
            let mark = rates.on_sent(now, DATAGRAM, in_flight);
            in_flight += DATAGRAM;
            controller.on_sent(now, DATAGRAM, in_flight);
            let start = free_at.max(now);
            let waiting = start.since(now);
            let fits = waiting.as_secs_f64() * path.rate <= path.queue as f64;
            let acked_at = (fits && !rng.random_bool(path.loss)).then(|| {
                free_at = start + Duration::from_secs_f64(DATAGRAM as f64 / path.rate);
                free_at + path.delay
            });
            if now >= half {
                sent += 1;
                lost += u64::from(acked_at.is_none());
                queued += if fits { waiting } else { Duration::ZERO };
            }
            flight.push_back(Packet { sent: now, mark, acked_at });
        }
        // No more packets may be sent now, so process the next acknowledgment.
        let arrival = flight.iter().find_map(|packet| packet.acked_at);
        if let Some(arrival) = arrival.filter(|arrival| *arrival <= next) {
            now = now.max(arrival);
            let before = in_flight;
            while flight.front().is_some_and(|packet| packet.acked_at.is_none()) {
                let packet = flight.pop_front().unwrap();
                in_flight -= DATAGRAM;
                rates.on_lost(DATAGRAM);
                controller.on_packet_lost(now, DATAGRAM, &packet.mark, rates.lost());
                controller.on_congestion(now, packet.sent, Signal::Loss { bytes: DATAGRAM });
            }
            let packet = flight.pop_front().unwrap();
            in_flight -= DATAGRAM;
            rtt.update(now, now.since(packet.sent), Duration::ZERO);
            let acked = std::iter::once((packet.sent, DATAGRAM, packet.mark));
            let rate = rates.on_acked(now, acked, rtt.min());
            if now >= half {
                delivered += DATAGRAM;
            }
            controller.on_ack(&AckSample {
                now,
                acked: DATAGRAM,
                largest_sent: packet.sent,
                in_flight: before,
                app_limited: false,
                rtt: &rtt,
                rate,
            });
        } else {
            now = next;
        }
    }
    let span = end.since(half).as_secs_f64();
    Outcome {
        utilization: delivered as f64 / span / path.rate,
        queueing: queued / (sent.max(1) as u32),
        lost: lost as f64 / sent.max(1) as f64,
    }
}

fn path(megabits: f64, delay_ms: u64, queue_bdp: f64, loss: f64) -> Path {
    let rate = megabits * 125_000.0;
    let queue = (rate * delay_ms as f64 / 1000.0 * queue_bdp) as u64;
    Path { rate, delay: Duration::from_millis(delay_ms), queue, loss }
}

#[test]
fn bbr_fills_the_path_without_filling_the_queue() {
    for (megabits, delay) in [(10.0, 40), (50.0, 20), (100.0, 5)] {
        let path = path(megabits, delay, 4.0, 0.0);
        let bbr = run(Algorithm::Bbr, &path, 20);
        assert!(bbr.utilization > 0.9, "{megabits} Mb/s: {}", bbr.utilization);
        assert!(bbr.queueing < path.delay, "{megabits} Mb/s: {:?}", bbr.queueing);
        let cubic = run(Algorithm::Cubic, &path, 20);
        assert!(cubic.queueing > bbr.queueing, "{:?} {:?}", cubic.queueing, bbr.queueing);
    }
}

#[test]
fn bbr_random_loss_does_not_lower_the_rate() {
    for (megabits, delay, loss, least) in [
        (20.0, 50, 0.01, 0.9),
        (100.0, 40, 0.005, 0.9),
        (100.0, 40, 0.01, 0.9),
        (100.0, 40, 0.02, 0.5),
        (100.0, 10, 0.01, 0.9),
    ] {
        for seed in 0..4 {
            let path = path(megabits, delay, 2.0, loss);
            let Outcome { utilization, .. } = run_seed(Algorithm::Bbr, &path, 20, seed);
            assert!(
                utilization > least,
                "{megabits} Mb/s, {delay} ms, loss {loss}, seed {seed}: {utilization}"
            );
        }
    }
    let cubic = run(Algorithm::Cubic, &path(20.0, 50, 2.0, 0.01), 30);
    assert!(cubic.utilization < 0.5, "CUBIC for comparison: {}", cubic.utilization);
}

#[test]
fn bbr_shallow_queue_is_not_flooded() {
    let path = path(20.0, 50, 0.25, 0.0);
    let bbr = run(Algorithm::Bbr, &path, 30);
    assert!(bbr.utilization > 0.8, "{}", bbr.utilization);
    assert!(bbr.lost < 0.05, "{}", bbr.lost);
}

/// Drives one controller packet by packet. A packet is sent every millisecond. After 50 ms, its
/// acknowledgment arrives or its loss is detected.
struct Steps {
    controller: Bbr,
    rates: DeliveryRate,
    rtt: RttEstimator,
    flight: VecDeque<(Timestamp, DeliveryMark)>,
    now: Timestamp,
}

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    Lost,
    Marked,
}

impl Steps {
    const ROUND: usize = 50;

    fn new() -> Steps {
        Steps {
            controller: Bbr::new(DATAGRAM as u16, 7),
            rates: DeliveryRate::default(),
            rtt: RttEstimator::new(Duration::from_millis(100)),
            flight: VecDeque::new(),
            now: Timestamp::START,
        }
    }

    fn step(&mut self, fate: Fate) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        if self.flight.len() == Steps::ROUND {
            let in_flight = self.in_flight();
            let (sent, mark) = self.flight.pop_front().unwrap();
            match fate {
                Fate::Arrives => {}
                Fate::Lost => {
                    self.rates.on_lost(DATAGRAM);
                    let lost = self.rates.lost();
                    self.controller.on_packet_lost(now, DATAGRAM, &mark, lost);
                    self.controller.on_congestion(now, sent, Signal::Loss { bytes: DATAGRAM });
                }
                Fate::Marked => self.controller.on_congestion(now, sent, Signal::Ecn),
            }
            if fate != Fate::Lost {
                self.rtt.update(now, now.since(sent), Duration::ZERO);
                let acked = std::iter::once((sent, DATAGRAM, mark));
                let rate = self.rates.on_acked(now, acked, self.rtt.min());
                self.controller.on_ack(&AckSample {
                    now,
                    acked: DATAGRAM,
                    largest_sent: sent,
                    in_flight,
                    app_limited: false,
                    rtt: &self.rtt,
                    rate,
                });
            }
        }
        let mark = self.rates.on_sent(now, DATAGRAM, self.in_flight());
        self.flight.push_back((now, mark));
        let in_flight = self.in_flight();
        self.controller.on_sent(now, DATAGRAM, in_flight);
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * DATAGRAM
    }

    /// Plays `rounds` round trips. Every packet whose number is a multiple of `every` has this
    /// fate. The other packets arrive.
    fn rounds(&mut self, rounds: usize, every: usize, fate: Fate) {
        for number in 0..rounds * Steps::ROUND {
            self.step(if number % every == every - 1 { fate } else { Fate::Arrives });
        }
    }

    fn until(&mut self, state: &str) {
        for _ in 0..200 * Steps::ROUND {
            if self.controller.state() == state {
                return;
            }
            self.step(Fate::Arrives);
        }
        panic!("{} instead of {state}", self.controller.state());
    }

    fn pace(&self) -> f64 {
        self.controller.pacing_rate(&self.rtt).as_bytes_per_second()
    }
}

#[test]
fn bbr_few_losses_a_round_are_no_congestion_and_many_are() {
    let mut steps = Steps::new();
    steps.until("probe_bw_cruise");
    let before = steps.pace();
    steps.rounds(20, Steps::ROUND, Fate::Lost);
    assert_eq!((steps.controller.state(), steps.pace()), ("probe_bw_cruise", before), "2 %");
    steps.rounds(5, 10, Fate::Lost);
    assert_eq!(steps.controller.state(), "probe_bw_cruise");
    assert!(steps.pace() < 0.95 * before, "10 %: {} of {before}", steps.pace());
}

#[test]
fn bbr_one_mark_is_congestion() {
    let mut steps = Steps::new();
    steps.until("probe_bw_cruise");
    let window = steps.controller.window();
    steps.rounds(10, Steps::ROUND, Fate::Marked);
    assert_eq!(steps.controller.state(), "probe_bw_cruise");
    assert!(steps.controller.window() < window, "{} of {window}", steps.controller.window());
}

/// s.5.3.1.3: excessive loss must end Startup even if the application sends so little that its rate
/// samples do not show the bandwidth of the path.
#[test]
fn bbr_much_loss_ends_startup_of_an_application_limited_sender() {
    let limited = |loss: Fate| {
        let mut steps = Steps::new();
        for number in 0..20 * Steps::ROUND {
            steps.rates.on_app_limited(steps.in_flight());
            steps.step(if number % 5 == 4 { loss } else { Fate::Arrives });
        }
        steps.controller.state()
    };
    assert_eq!(limited(Fate::Arrives), "startup");
    assert_ne!(limited(Fate::Lost), "startup");
}

/// s.5.3.3.6: while the long-term bound limits the sender, the bandwidth may stop growing without
/// ending the probe. If something else limits the sender, the probe must end.
#[test]
fn bbr_probe_that_finds_nothing_ends_at_the_bound() {
    let mut steps = Steps::new();
    steps.until("probe_bw_cruise");
    steps.controller.model.inflight_longterm = Some(70 * DATAGRAM);
    steps.until("probe_bw_up");
    steps.rounds(6, 1, Fate::Arrives);
    assert_eq!(steps.controller.window(), 70 * 85 * DATAGRAM / 100, "at the bound, with headroom");
    assert!(steps.controller.state().starts_with("probe_bw_"), "{}", steps.controller.state());
    assert_ne!(steps.controller.state(), "probe_bw_up");
}
