//! One direction of a link in use: a queue, who sends from it, and what is on the way.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use equic_net::{Fate, Link, Trace, TraceCursor};

use crate::link::{Direction, Rate};
use crate::packet::{DropCause, Dropped, Framing, Packet, Pool};
use crate::queue::Discipline;
use crate::time::Time;

/// Counters of a port: the sending end of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets handed to the port, whatever became of them.
    pub offered: u64,
    /// Packets sent; those that were lost on the way count.
    pub sent: u64,
    /// Bytes sent, with the link's framing.
    pub sent_bytes: u64,
    /// Packets that the queue dropped since it was full.
    pub dropped_full: u64,
    /// Packets that the queue dropped before it was full.
    pub dropped_early: u64,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// Packets dropped since they were larger than the MTU.
    pub too_large: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets that arrived late, behind others.
    pub reordered: u64,
    /// Packets that arrived with a byte changed.
    pub corrupted: u64,
    /// The most packets that waited at a time.
    pub most_packets: usize,
    /// The most bytes that waited at a time, with the link's framing.
    pub most_bytes: u64,
}

/// Rate at which packets leave: constant, or by a trace.
enum Sender {
    Constant(u64),
    Trace(Box<(Arc<Trace>, TraceCursor)>),
}

impl Sender {
    fn leaves(&mut self, now: Time, bytes: u32) -> Time {
        let now = now.as_nanos();
        Time::from_nanos(match self {
            // A packet has at most 2^17 bytes on the link: no overflow.
            Sender::Constant(rate) => now.saturating_add(u64::from(bytes) * 8_000_000_000 / *rate),
            Sender::Trace(recorded) => {
                let (trace, cursor) = &mut **recorded;
                cursor.leaves(trace, now, bytes.into())
            }
        })
    }
}

/// A packet on the way.
struct Flying {
    arrival: Time,
    number: u64,
    packet: Packet,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Flying) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Flying {}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Flying) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest, as `BinaryHeap` wants it.
impl Ord for Flying {
    fn cmp(&self, other: &Flying) -> Ordering {
        (other.arrival, other.number).cmp(&(self.arrival, self.number))
    }
}

/// Packets on the way: in a row, if none can overtake another.
enum OnTheWay {
    InOrder(VecDeque<Flying>),
    Sorted(BinaryHeap<Flying>),
}

impl OnTheWay {
    fn push(&mut self, flying: Flying) {
        match self {
            OnTheWay::InOrder(row) => row.push_back(flying),
            OnTheWay::Sorted(heap) => heap.push(flying),
        }
    }

    fn next(&self) -> Option<Time> {
        match self {
            OnTheWay::InOrder(row) => row.front().map(|flying| flying.arrival),
            OnTheWay::Sorted(heap) => heap.peek().map(|flying| flying.arrival),
        }
    }

    fn pop(&mut self) -> Option<Packet> {
        match self {
            OnTheWay::InOrder(row) => row.pop_front().map(|flying| flying.packet),
            OnTheWay::Sorted(heap) => heap.pop().map(|flying| flying.packet),
        }
    }
}

/// A [`Direction`] in use. It has one moment at a time: the next arrival, or the next packet's turn.
pub(crate) struct Port {
    framing: Framing,
    mtu: u32,
    queue: Discipline,
    sender: Sender,
    /// Time at which the packet that is being sent will have left. The sender is free after that.
    free_at: Time,
    /// Bytes of that packet, with the link's framing.
    sending: u32,
    /// Propagation delay of the link.
    delay: Duration,
    /// Loss, reordering and the like on the link; none: nothing but the delay.
    wire: Option<Box<equic_net::Port>>,
    way: OnTheWay,
    /// Packets that went on their way so far.
    number: u64,
    stats: PortStats,
}

impl Port {
    /// Of a direction that was checked; with the seeds of its queue and of what happens on the way.
    pub(crate) fn new(direction: &Direction, queue_seed: u64, wire_seed: u64) -> Port {
        let wire = &direction.wire;
        let in_order = wire.jitter.is_zero() && wire.reorder.percent == 0.0;
        let way = if in_order {
            OnTheWay::InOrder(VecDeque::new())
        } else {
            OnTheWay::Sorted(BinaryHeap::new())
        };
        let mtu = direction.mtu();
        let frame = direction.framing.frame(mtu);
        // The model is told of IP packets; frames are larger by this.
        let link = Link { mtu: None, overhead: (frame - mtu) as usize, ..wire.clone() };
        Port {
            framing: direction.framing,
            mtu,
            queue: direction.queue.open(direction.rate.mean(), frame, queue_seed),
            sender: match &direction.rate {
                Rate::BitsPerSecond(rate) => Sender::Constant(*rate),
                Rate::Trace(trace) => {
                    Sender::Trace(Box::new((trace.clone(), TraceCursor::default())))
                }
            },
            free_at: Time::START,
            sending: 0,
            delay: wire.delay,
            wire: (!is_plain(wire)).then(|| Box::new(equic_net::Port::new(link, wire_seed))),
            way,
            number: 0,
            stats: PortStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> PortStats {
        PortStats { marked: self.queue.marked(), ..self.stats }
    }

    /// Returns the bytes that have left by `now`: of the packet that is being sent, the part that has left.
    pub(crate) fn sent_by(&self, now: Time) -> u64 {
        if self.free_at <= now {
            return self.stats.sent_bytes;
        }
        let rest = match &self.sender {
            Sender::Constant(rate) => {
                let left = u128::from(self.free_at.as_nanos() - now.as_nanos());
                let bits = (left * u128::from(*rate)).div_ceil(1_000_000_000);
                u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX).min(self.sending.into())
            }
            // The opportunities that it waits for are still to come.
            Sender::Trace(_) => self.sending.into(),
        };
        self.stats.sent_bytes - rest
    }

    /// Packets and bytes that wait.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        (self.queue.packets(), self.queue.bytes())
    }

    /// Time at which [`Port::step`] is to be called; none while nothing waits.
    pub(crate) fn next(&self) -> Option<Time> {
        let turn = (self.queue.packets() > 0).then_some(self.free_at);
        match (self.way.next(), turn) {
            (Some(arrival), Some(turn)) => Some(arrival.min(turn)),
            (arrival, turn) => arrival.or(turn),
        }
    }

    /// A packet is to be sent.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        mut packet: Packet,
        pool: &mut Pool,
        dropped: &mut Dropped,
    ) {
        self.stats.offered += 1;
        if packet.ip_bytes > self.mtu {
            self.stats.too_large += 1;
            dropped.push((packet, DropCause::TooLarge));
            return;
        }
        packet.frame_bytes = self.framing.frame(packet.ip_bytes);
        if self.free_at <= now
            && matches!(&self.queue, Discipline::DropTail(_, fifo) if fifo.packets() == 0)
        {
            // Most packets of most ports: it would be the next anyway.
            self.go(now, packet, pool, dropped);
            return;
        }
        let before = dropped.len();
        self.queue.enqueue(now, packet, dropped);
        self.count(&dropped[before..]);
        self.send(now, pool, dropped);
        let (packets, bytes) = self.waiting();
        self.stats.most_packets = self.stats.most_packets.max(packets);
        self.stats.most_bytes = self.stats.most_bytes.max(bytes);
    }

    /// The moment of [`Port::next`] has come: a packet arrives, or the next one goes.
    pub(crate) fn step(
        &mut self,
        now: Time,
        pool: &mut Pool,
        dropped: &mut Dropped,
    ) -> Option<Packet> {
        if self.way.next().is_some_and(|arrival| arrival <= now) {
            return self.way.pop();
        }
        self.send(now, pool, dropped);
        None
    }

    /// Sends what waits, as long as nothing is being sent.
    fn send(&mut self, now: Time, pool: &mut Pool, dropped: &mut Dropped) {
        while self.free_at <= now {
            let before = dropped.len();
            let packet = self.queue.dequeue(now, dropped);
            self.count(&dropped[before..]);
            let Some(packet) = packet else { return };
            self.go(now, packet, pool, dropped);
        }
    }

    /// A packet is sent. What happens on the way is known as soon as it is known when it has left.
    fn go(&mut self, now: Time, mut packet: Packet, pool: &mut Pool, dropped: &mut Dropped) {
        self.free_at = self.sender.leaves(now, packet.frame_bytes);
        self.sending = packet.frame_bytes;
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(packet.frame_bytes);
        let Some(wire) = &mut self.wire else {
            self.fly(self.free_at + self.delay, packet);
            return;
        };
        let verdict = wire.send(self.free_at.elapsed(), packet.ip_bytes as usize);
        let mut arrived = verdict.fate.arrived();
        match verdict.fate {
            Fate::Duplicated => self.stats.duplicated += 1,
            Fate::Reordered => self.stats.reordered += 1,
            _ => {}
        }
        if let Some(corruption) = verdict.corruption {
            // Checksums find what is wrong with headers, padding and all of TCP.
            let begin = usize::from(packet.headers);
            let payload = begin..begin + packet.payload as usize;
            arrived = packet.header_fields == 0 && payload.contains(&corruption.position);
            if arrived {
                self.stats.corrupted += 1;
                packet.buffer[corruption.position - begin] ^= corruption.flip;
            }
        }
        if !arrived {
            self.stats.lost += 1;
            dropped.push((packet, DropCause::Lost));
            return;
        }
        let copy = verdict.copy.map(|arrival| (arrival, pool.copy(&packet)));
        for (arrival, packet) in std::iter::once((verdict.arrival, packet)).chain(copy) {
            self.fly(Time::START + arrival, packet);
        }
    }

    fn fly(&mut self, arrival: Time, packet: Packet) {
        self.way.push(Flying { arrival, number: self.number, packet });
        self.number += 1;
    }

    fn count(&mut self, dropped: &[(Packet, DropCause)]) {
        for (_, cause) in dropped {
            match cause {
                DropCause::Full => self.stats.dropped_full += 1,
                DropCause::Early => self.stats.dropped_early += 1,
                _ => {}
            }
        }
    }
}

/// True if nothing happens on the way but that it takes time.
fn is_plain(wire: &Link) -> bool {
    let Link { delay, mtu, .. } = *wire;
    *wire == Link { delay, mtu, ..Link::default() }
}

#[cfg(test)]
mod tests;
