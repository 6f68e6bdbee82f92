//! One direction of a link in use: decides the fate and the arrival time of each packet.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::loss::LossState;
use crate::{Chance, Link, Queue};

/// The fate of a packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It arrived.
    Delivered,
    /// The packet arrived twice.
    Duplicated,
    /// The packet arrived late, after packets that were sent later.
    Reordered,
    /// The packet arrived with one byte changed.
    Corrupted,
    /// The packet was lost on the link.
    Dropped,
    /// The packet was dropped because the queue was full.
    QueueFull,
    /// The packet was dropped because it was larger than the link's MTU.
    TooLarge,
    /// There was no receiver at the address. Only the caller can set this, because a [`Port`] knows
    /// no addresses.
    Unreachable,
}

impl Fate {
    /// Returns true if the packet arrived unchanged.
    pub const fn is_intact(self) -> bool {
        matches!(self, Fate::Delivered | Fate::Duplicated | Fate::Reordered)
    }

    /// Returns true if the packet arrived, changed or not.
    pub const fn arrived(self) -> bool {
        self.is_intact() || matches!(self, Fate::Corrupted)
    }
}

/// A byte that was changed in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Index of the changed byte in the packet, counted from 0.
    pub position: usize,
    /// Value with which the byte is XORed. It is never 0.
    pub flip: u8,
}

impl Corruption {
    /// Applies the change to the packet.
    pub fn apply(self, packet: &mut [u8]) {
        if let Some(byte) = packet.get_mut(self.position) {
            *byte ^= self.flip;
        }
    }
}

/// The effects of a link on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Fate of the packet.
    pub fate: Fate,
    /// Arrival time of the packet. If the packet does not arrive, this is the time at which it was
    /// sent.
    pub arrival: Duration,
    /// Arrival time of the copy, or `None` if the packet is not duplicated.
    pub copy: Option<Duration>,
    /// The changed byte, or `None` if the packet is not corrupted.
    pub corruption: Option<Corruption>,
}

/// One direction of a [`Link`] in use.
#[derive(Debug)]
pub struct Port {
    link: Link,
    rng: Xoshiro256PlusPlus,
    loss: LossState,
    /// Number of packets sent so far.
    number: u64,
    dropped: u32,
    corrupted: u32,
    duplicated: u32,
    reordered: u32,
    /// For a limited rate: time at which the last bit of all earlier packets has been sent.
    free_at: Duration,
    /// For each waiting packet, the time at which its last bit will have been sent, and its size in
    /// bytes.
    queue: VecDeque<(Duration, usize)>,
    queued_bytes: usize,
    /// Time before which no packet arrives.
    stalled_until: Duration,
}

/// The random numbers for one packet. All of them are drawn for every packet, even if the link does
/// not use them. So a link that also corrupts packets loses the same packets as a link that only
/// loses them.
struct Draws {
    drop: f64,
    corrupt: f64,
    duplicate: f64,
    reorder: f64,
    stall: f64,
    stall_length: f64,
    jitter: [f64; 2],
    position: u64,
    flip: u8,
}

impl Draws {
    fn new(rng: &mut Xoshiro256PlusPlus) -> Draws {
        let mut percent = || rng.random_range(0.0..100.0);
        let [drop, corrupt, duplicate, reorder, stall] = std::array::from_fn(|_| percent());
        Draws {
            drop,
            corrupt,
            duplicate,
            reorder,
            stall,
            stall_length: rng.random(),
            jitter: [rng.random(), rng.random()],
            position: rng.random(),
            flip: rng.random_range(1..=u8::MAX),
        }
    }
}

impl Port {
    /// Creates an idle direction of a link. The two directions of a link need different seeds.
    pub fn new(link: Link, seed: u64) -> Port {
        Port {
            loss: LossState::new(link.loss, seed),
            link,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            number: 0,
            dropped: 0,
            corrupted: 0,
            duplicated: 0,
            reordered: 0,
            free_at: Duration::ZERO,
            queue: VecDeque::new(),
            queued_bytes: 0,
            stalled_until: Duration::ZERO,
        }
    }

    /// Decides the fate of a packet of `len` bytes. `now` is the time since the start at which it
    /// is sent. Calls must be in the order of time.
    pub fn send(&mut self, now: Duration, len: usize) -> Delivery {
        self.number += 1;
        let draws = Draws::new(&mut self.rng);
        self.stall(now, &draws);
        let lost = |fate| Delivery { fate, arrival: now, copy: None, corruption: None };
        if self.mtu(now).is_some_and(|mtu| len > mtu) {
            return lost(Fate::TooLarge);
        }
        let chosen = happens(self.link.drop, draws.drop, &mut self.dropped);
        // This must be called for every packet, because it advances the state of the loss model.
        // Packets that are lost for another reason advance it, too.
        let unlucky = self.loss.loses(len + self.link.overhead);
        if chosen || unlucky || self.link.drop_list.contains(&self.number) {
            return lost(Fate::Dropped);
        }
        let Some(left) = self.serialise(now, len) else { return lost(Fate::QueueFull) };
        let verdict = |fate, arrival| Delivery { fate, arrival, copy: None, corruption: None };
        let arrival = self.arrival(left, draws.jitter[0]);
        if happens(self.link.corrupt, draws.corrupt, &mut self.corrupted) && len > 0 {
            let position = usize::try_from(draws.position % len as u64).unwrap_or(0);
            let corruption = Some(Corruption { position, flip: draws.flip });
            return Delivery { corruption, ..verdict(Fate::Corrupted, arrival) };
        }
        if happens(self.link.duplicate, draws.duplicate, &mut self.duplicated) {
            let copy = Some(self.arrival(left, draws.jitter[1]));
            return Delivery { copy, ..verdict(Fate::Duplicated, arrival) };
        }
        if happens(self.link.reorder, draws.reorder, &mut self.reordered) {
            return verdict(Fate::Reordered, arrival + self.link.reorder_by);
        }
        verdict(Fate::Delivered, arrival)
    }

    fn mtu(&self, now: Duration) -> Option<usize> {
        let hole = self.link.black_hole.filter(|hole| hole.from <= now).map(|hole| hole.mtu);
        [hole, self.link.mtu].into_iter().flatten().min()
    }

    fn stall(&mut self, now: Duration, draws: &Draws) {
        let stall = self.link.stall;
        if draws.stall < stall.percent && self.stalled_until <= now {
            let length =
                stall.least + stall.most.saturating_sub(stall.least).mul_f64(draws.stall_length);
            self.stalled_until = now + length;
        }
    }

    fn arrival(&self, left: Duration, jitter: f64) -> Duration {
        (left + self.link.delay + self.link.jitter.mul_f64(jitter)).max(self.stalled_until)
    }

    /// Returns the time at which the packet's last bit has been sent, or `None` if the queue is
    /// full.
    fn serialise(&mut self, now: Duration, len: usize) -> Option<Duration> {
        let Some(rate) = self.link.rate else { return Some(now) };
        while let Some(&(left, bytes)) = self.queue.front()
            && left <= now
        {
            self.queue.pop_front();
            self.queued_bytes -= bytes;
        }
        let bytes = len + self.link.overhead;
        let full = match self.link.queue {
            Queue::Unlimited => false,
            Queue::Packets(most) => self.queue.len() >= most,
            Queue::Bytes(most) => self.queued_bytes + bytes > most,
            Queue::Time(most) => self.free_at.saturating_sub(now) > most,
        };
        if full {
            return None;
        }
        let takes = (bytes as u64).saturating_mul(8_000_000_000) / rate;
        self.free_at = self.free_at.max(now) + Duration::from_nanos(takes);
        self.queue.push_back((self.free_at, bytes));
        self.queued_bytes += bytes;
        Some(self.free_at)
    }
}

/// Returns true if the event happens to this packet. `drawn` is the packet's random number, and
/// `in_a_row` counts consecutive events.
fn happens(chance: Chance, drawn: f64, in_a_row: &mut u32) -> bool {
    let enough = chance.burst > 0 && *in_a_row >= chance.burst;
    if drawn < chance.percent && !enough {
        *in_a_row += 1;
        return true;
    }
    *in_a_row = 0;
    false
}

#[cfg(test)]
mod tests;
