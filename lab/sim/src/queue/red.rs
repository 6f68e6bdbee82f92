//! Random early detection (RED), a queueing discipline that drops packets before the queue is full.
//!
//! S. Floyd, V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (1993), with
//! the gentle variant (S. Floyd, 2000) and ECN (RFC 3168 s.7).

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::fifo::Fifo;
use super::{Limit, QueueError, drop_full};
use crate::packet::{DropCause, Dropped, Ecn, Packet};
use crate::time::Time;

/// Random early detection (RED), as in the paper by Floyd and Jacobson.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Limit of the queue. The thresholds have the same unit: packets or bytes.
    pub limit: Limit,
    /// Average queue length below which no packet is dropped or marked, in the unit of `limit`.
    pub min_threshold: f64,
    /// Average queue length from which on all packets are dropped, in the unit of `limit`. With
    /// [`Red::gentle`], the drop probability continues to rise from this length on instead.
    pub max_threshold: f64,
    /// Weight of a new sample in the average queue length: w_q in the paper by Floyd and Jacobson.
    pub weight: f64,
    /// Drop probability at [`Red::max_threshold`]: max_p in the paper by Floyd and Jacobson.
    pub max_probability: f64,
    /// True if the probability rises to 1 linearly between `max_threshold` and twice that value. If
    /// false, it is 1 from `max_threshold` on.
    pub gentle: bool,
    /// True if ECN-capable packets are marked instead of dropped while the average is below
    /// `max_threshold`. Above it, they are dropped, too (RFC 3168 s.7).
    pub ecn: bool,
    /// Size of a typical packet in bytes. After the queue was idle, the average decays as if
    /// packets of this size had arrived at the empty queue during that time.
    pub typical_packet: u32,
}

impl Default for Red {
    /// Returns a limit of 1,000 packets, no ECN, and the values of the RED paper: thresholds of 5
    /// and 15, and a weight of 0.002. The maximum probability of 0.1 and the gentle mode are later
    /// recommendations of Floyd.
    fn default() -> Red {
        Red {
            limit: Limit::Packets(1_000),
            min_threshold: 5.0,
            max_threshold: 15.0,
            weight: 0.002,
            max_probability: 0.1,
            gentle: true,
            ecn: false,
            typical_packet: 1_000,
        }
    }
}

impl Red {
    pub(super) fn check(&self) -> Result<(), QueueError> {
        let limit = match self.limit {
            Limit::Packets(most) => f64::from(most),
            Limit::Bytes(most) => most as f64,
        };
        let (min, max) = (self.min_threshold, self.max_threshold);
        if !(0.0 <= min && min < max && max <= limit) {
            return Err(QueueError::Thresholds);
        }
        let weight = self.weight > 0.0 && self.weight <= 1.0;
        if !weight || !(0.0..=1.0).contains(&self.max_probability) || self.typical_packet == 0 {
            return Err(QueueError::Weight);
        }
        Ok(())
    }

    /// Returns the probability that a packet is dropped or marked at this average queue length.
    /// This is p_b in the RED paper; it does not depend on the time since the last drop.
    fn probability(&self, average: f64) -> f64 {
        let (min, max, most) = (self.min_threshold, self.max_threshold, self.max_probability);
        if average < min {
            0.0
        } else if average < max {
            most * (average - min) / (max - min)
        } else if self.gentle && average < 2.0 * max {
            most + (1.0 - most) * (average - max) / max
        } else {
            1.0
        }
    }
}

/// RED during a run; see [`Red`].
pub(crate) struct RedQueue {
    red: Red,
    fifo: Fifo,
    rng: Xoshiro256PlusPlus,
    average: f64,
    /// Number of packets since the last drop or mark, or since the average reached the first
    /// threshold.
    count: u32,
    /// Time at which the queue became empty, or at which a packet last arrived while it was empty.
    idle_since: Time,
    /// Time to transmit a typical packet, in nanoseconds.
    typical_time: f64,
    marked: u64,
}

impl RedQueue {
    pub(crate) fn new(red: Red, rate: f64, seed: u64) -> RedQueue {
        RedQueue {
            red,
            fifo: Fifo::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            average: 0.0,
            count: 0,
            idle_since: Time::START,
            typical_time: 8e9 * f64::from(red.typical_packet) / rate,
            marked: 0,
        }
    }

    pub(crate) fn packets(&self) -> usize {
        self.fifo.packets()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }

    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    pub(crate) fn enqueue(&mut self, now: Time, mut packet: Packet, dropped: &mut Dropped) {
        self.average(now);
        if self.is_chosen() {
            if !self.red.ecn || !packet.ecn.is_capable() || self.average >= self.red.max_threshold {
                dropped.push((packet, DropCause::Early));
                return;
            }
            if !self.fifo.has_room(self.red.limit, &packet) {
                drop_full(packet, dropped);
                return;
            }
            packet.ecn = Ecn::Ce;
            self.marked += 1;
        }
        self.fifo.push_within(self.red.limit, packet, dropped);
    }

    pub(crate) fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let packet = self.fifo.pop()?;
        if self.fifo.packets() == 0 {
            self.idle_since = now;
        }
        Some(packet)
    }

    fn average(&mut self, now: Time) {
        if self.fifo.packets() == 0 {
            let idle = now.since(self.idle_since).as_nanos() as f64;
            self.average *= libm::pow(1.0 - self.red.weight, idle / self.typical_time);
            self.idle_since = now;
            return;
        }
        let length = match self.red.limit {
            Limit::Packets(_) => self.fifo.packets() as f64,
            Limit::Bytes(_) => self.fifo.bytes() as f64,
        };
        self.average += self.red.weight * (length - self.average);
    }

    /// Returns whether this packet is dropped or marked. The probability is p_a in section 8 of the
    /// RED paper, which spaces drops evenly so that they do not cluster.
    fn is_chosen(&mut self) -> bool {
        let probability = self.red.probability(self.average);
        if probability == 0.0 {
            self.count = 0;
            return false;
        }
        let among = 1.0 - f64::from(self.count) * probability;
        if among <= probability || self.rng.random::<f64>() < probability / among {
            self.count = 0;
            return true;
        }
        self.count += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Queue;
    use crate::queue::testing::{At, capable, packet};

    /// Keeps the queue and its average length at `length`. Returns the shares of packets that are
    /// marked and dropped.
    fn share(red: Red, length: usize, packets: u32) -> (f64, f64) {
        let red = Red { weight: 1.0, ..red };
        let mut queue = RedQueue::new(red, 1e6, 7);
        let mut dropped = Vec::new();
        for label in 0..length as u32 {
            queue.fifo.push(packet(label, 1_000));
        }
        for label in 0..packets {
            let before = queue.packets();
            queue.enqueue(Time::START, capable(label, 1_000), &mut dropped);
            if queue.packets() > before {
                queue.dequeue(Time::START);
            }
        }
        let share = |count| count as f64 / f64::from(packets);
        (share(queue.marked), share(dropped.len() as u64))
    }

    /// Returns the expected share of marked packets if p_b is `probability` (p). The distance
    /// between marks is then uniform over 1 to 1/p (section 8 of the RED paper), so its mean is
    /// (1/p + 1) / 2.
    fn spaced(probability: f64) -> f64 {
        2.0 / (1.0 / probability + 1.0)
    }

    #[test]
    fn red_probability_follows_the_paper() {
        let red = Red { max_threshold: 25.0, ecn: true, ..Red::default() };
        // Between 5 and 25 packets, the probability rises from 0 to 0.1.
        for (length, probability) in [(0, 0.0), (4, 0.0), (10, 0.025), (15, 0.05), (20, 0.075)] {
            let (marked, dropped) = share(red, length, 100_000);
            let expected = if probability == 0.0 { 0.0 } else { spaced(probability) };
            assert!((marked - expected).abs() < 0.003, "{length}: {marked}, not {expected}");
            assert_eq!(dropped, 0.0, "{length}");
        }
        // Gentle mode: between 25 and 50 packets, the probability rises from 0.1 to 1. These
        // packets are dropped even if they could be marked.
        assert!((red.probability(37.5) - 0.55).abs() < 1e-12);
        let (marked, dropped) = share(red, 30, 100_000);
        assert!(marked == 0.0 && dropped > 0.28, "{marked} {dropped}");
        assert_eq!(share(red, 50, 1_000), (0.0, 1.0));
        // Without gentle mode, all packets are dropped from an average of 25 packets on.
        assert_eq!(share(Red { gentle: false, ..red }, 25, 1_000), (0.0, 1.0));
    }

    #[test]
    fn red_marks_are_evenly_spaced() {
        let red = Red { weight: 1.0, max_probability: 0.1, max_threshold: 15.0, ..Red::default() };
        let mut queue = RedQueue::new(red, 1e6, 3);
        queue.average = 10.0;
        let mut distances = vec![0; 22];
        let mut distance = 0;
        for _ in 0..100_000 {
            distance += 1;
            if queue.is_chosen() {
                distances[distance] += 1;
                distance = 0;
            }
        }
        // The distances must be uniform over 1 to 20, and never larger.
        let sum: u32 = distances.iter().sum();
        for count in &distances[1..=20] {
            let share = f64::from(*count) / f64::from(sum);
            assert!((0.04..0.06).contains(&share), "{distances:?}");
        }
        assert_eq!((distances[0], distances[21]), (0, 0));
    }

    #[test]
    fn red_average_follows_its_weight_and_decays_while_idle() {
        let mut queue = At::new(&Queue::Red(Red { weight: 0.25, ..Red::default() }), 8e6);
        for label in 0..5 {
            queue.enqueue(0, packet(label, 1_000));
        }
        let average = |queue: &At| match &queue.queue {
            super::super::Discipline::Red(red) => red.average,
            _ => unreachable!("it is RED"),
        };
        // The second to fifth packet find queue lengths of 1, 2, 3 and 4.
        let expected = [1.0, 2.0, 3.0, 4.0].iter().fold(0.0, |sum, q| 0.75 * sum + 0.25 * q);
        assert!((average(&queue) - expected).abs() < 1e-12);
        for _ in 0..5 {
            queue.dequeue(1_000);
        }
        // A typical packet takes a millisecond, so the queue was empty for as long as three packets
        // take.
        queue.enqueue(4_000, packet(5, 1_000));
        assert!((average(&queue) - expected * 0.75f64.powi(3)).abs() < 1e-9);
    }

    #[test]
    fn red_drops_packets_without_ecn() {
        let red = Red { weight: 1.0, max_probability: 1.0, ecn: true, ..Red::default() };
        let mut queue = At::new(&Queue::Red(red), 1e6);
        for label in 0..200 {
            let packet = if label % 2 == 0 { capable(label, 100) } else { packet(label, 100) };
            queue.enqueue(0, packet);
            if queue.queue.packets() > 12 {
                queue.dequeue(1);
            }
        }
        assert!(queue.queue.marked() > 10);
        assert!(queue.dropped.len() > 10);
        assert!(queue.dropped.iter().all(|(packet, cause)| {
            packet.label % 2 == 1 && *cause == DropCause::Early && packet.ecn == Ecn::NotEct
        }));
    }

    #[test]
    fn red_rejects_invalid_settings() {
        let red = Red::default();
        assert_eq!(red.check(), Ok(()));
        for wrong in [
            Red { min_threshold: -1.0, ..red },
            Red { min_threshold: 15.0, ..red },
            Red { max_threshold: 1_001.0, ..red },
            Red { max_threshold: f64::NAN, ..red },
        ] {
            assert_eq!(wrong.check(), Err(QueueError::Thresholds));
        }
        for wrong in [
            Red { weight: 0.0, ..red },
            Red { weight: 1.1, ..red },
            Red { max_probability: -0.1, ..red },
            Red { typical_packet: 0, ..red },
        ] {
            assert_eq!(wrong.check(), Err(QueueError::Weight));
        }
    }
}
