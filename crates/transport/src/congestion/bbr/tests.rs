//! BBR, and CUBIC beside it, on one bottleneck: a queue of so many bytes, drained at a rate.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::congestion::{Algorithm, ControllerFactory, DeliveryRate, Pacer};

const DATAGRAM: u64 = 1200;

struct Path {
    /// Bytes a second.
    rate: f64,
    /// One way and back, without queueing.
    delay: Duration,
    queue: u64,
    loss: f64,
}

struct Outcome {
    /// Of the path's rate.
    utilization: f64,
    /// The mean time in the queue.
    queueing: Duration,
    lost: f64,
}

struct Packet {
    sent: Timestamp,
    mark: DeliveryMark,
    /// Time at which the packet's acknowledgement arrives; none: it is lost, and noticed with the next.
    acked_at: Option<Timestamp>,
}

/// Sends as fast as the controller lets it for `seconds`; measures the second half.
fn run(algorithm: Algorithm, path: &Path, seconds: u64) -> Outcome {
    let mut rng = StdRng::seed_from_u64(0x5eed);
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
        // Send what may be sent.
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
        // Then the next acknowledgement.
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
fn fills_the_path_without_filling_the_queue() {
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
fn random_loss_does_not_bring_it_down() {
    let path = path(20.0, 50, 2.0, 0.01);
    let bbr = run(Algorithm::Bbr, &path, 30);
    assert!(bbr.utilization > 0.8, "{}", bbr.utilization);
    let cubic = run(Algorithm::Cubic, &path, 30);
    assert!(cubic.utilization < 0.5, "CUBIC for comparison: {}", cubic.utilization);
}

#[test]
fn a_shallow_queue_is_not_flooded() {
    let path = path(20.0, 50, 0.25, 0.0);
    let bbr = run(Algorithm::Bbr, &path, 30);
    assert!(bbr.utilization > 0.8, "{}", bbr.utilization);
    assert!(bbr.lost < 0.05, "{}", bbr.lost);
}
