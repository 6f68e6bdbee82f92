//! The state of one direction of a link during a run: its queue, its sender, and the packets in
//! flight.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use equic_net::{Fate, Link, Trace, TraceCursor};

use crate::link::{Direction, Rate};
use crate::packet::{DropCause, Dropped, Framing, Packet, Pool};
use crate::queue::Discipline;
use crate::time::Time;

/// Counters of a port, which is the sending end of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets that were passed to the port, including those that it dropped.
    pub offered: u64,
    /// Packets sent, including those that were lost on the link.
    pub sent: u64,
    /// Bytes sent, including the link's framing.
    pub sent_bytes: u64,
    /// Packets that the queue dropped because it was full.
    pub dropped_full: u64,
    /// Packets that the queue dropped before it was full.
    pub dropped_early: u64,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Packets lost on the link.
    pub lost: u64,
    /// Packets dropped because they were larger than the MTU.
    pub too_large: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets that were delayed so that later packets could overtake them.
    pub reordered: u64,
    /// Packets that arrived with a corrupted byte.
    pub corrupted: u64,
    /// Largest number of packets in the queue.
    pub most_packets: usize,
    /// Largest number of bytes in the queue, including the link's framing.
    pub most_bytes: u64,
}

/// The transmitter of a port. It sends at a constant rate, or as a trace permits.
enum Sender {
    Constant(u64),
    Trace(Box<(Arc<Trace>, TraceCursor)>),
}

impl Sender {
    fn leaves(&mut self, now: Time, bytes: u32) -> Time {
        let now = now.as_nanos();
        Time::from_nanos(match self {
            // A packet has at most 2^17 bytes on the link, so this cannot overflow.
            Sender::Constant(rate) => now.saturating_add(u64::from(bytes) * 8_000_000_000 / *rate),
            Sender::Trace(recorded) => {
                let (trace, cursor) = &mut **recorded;
                cursor.leaves(trace, now, bytes.into())
            }
        })
    }
}

/// A packet in flight, with its arrival time.
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

/// The order is reversed, because `BinaryHeap` returns the greatest element, and the earliest
/// packet must come first.
impl Ord for Flying {
    fn cmp(&self, other: &Flying) -> Ordering {
        (other.arrival, other.number).cmp(&(self.arrival, self.number))
    }
}

/// The packets in flight on a link. A FIFO is sufficient if no packet can overtake another.
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

/// A [`Direction`] during a run. It has at most one scheduled time: the next arrival, or the next
/// transmission.
pub(crate) struct Port {
    framing: Framing,
    mtu: u32,
    queue: Discipline,
    sender: Sender,
    /// Time at which the current transmission ends. The sender is idle from then on.
    free_at: Time,
    /// Size of the packet in transmission, in bytes, including the link's framing.
    sending: u32,
    /// Propagation delay of the link.
    delay: Duration,
    /// Model of loss, reordering and other faults on the link. `None`: the link only delays
    /// packets.
    wire: Option<Box<equic_net::Port>>,
    way: OnTheWay,
    /// Number of packets sent on the link so far.
    number: u64,
    stats: PortStats,
}

impl Port {
    /// Creates a port for a valid direction. The seeds are those of its queue and of the faults of
    /// its link.
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
        // The link model knows only IP packets, so the framing is added as overhead.
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

    /// Returns the number of bytes sent until `now`, including the part of the current packet that
    /// was already sent.
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
            // With a trace, the whole packet still waits for its transmission opportunities.
            Sender::Trace(_) => self.sending.into(),
        };
        self.stats.sent_bytes - rest
    }

    /// Returns the number of packets and of bytes in the queue.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        (self.queue.packets(), self.queue.bytes())
    }

    /// Returns the time for the next call of [`Port::step`], or `None` if the port is idle.
    pub(crate) fn next(&self) -> Option<Time> {
        let turn = (self.queue.packets() > 0).then_some(self.free_at);
        match (self.way.next(), turn) {
            (Some(arrival), Some(turn)) => Some(arrival.min(turn)),
            (arrival, turn) => arrival.or(turn),
        }
    }

    /// Accepts a packet: sends it, queues it, or drops it.
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
            // Fast path: the port is idle, so the queue would only return this packet at once.
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

    /// Handles the event at the time that [`Port::next`] returned. Either a packet arrives, or the
    /// next one is sent.
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

    /// Sends packets from the queue while the sender is idle.
    fn send(&mut self, now: Time, pool: &mut Pool, dropped: &mut Dropped) {
        while self.free_at <= now {
            let before = dropped.len();
            let packet = self.queue.dequeue(now, dropped);
            self.count(&dropped[before..]);
            let Some(packet) = packet else { return };
            self.go(now, packet, pool, dropped);
        }
    }

    /// Sends a packet. Decides here whether the packet is lost, delayed or corrupted, because its
    /// transmission time is now known.
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
            // A packet that is corrupted in a header, in padding, or anywhere in a TCP segment is
            // lost, because a checksum detects the error.
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

/// Returns `true` if the link has no effect other than delay.
fn is_plain(wire: &Link) -> bool {
    let Link { delay, mtu, .. } = *wire;
    *wire == Link { delay, mtu, ..Link::default() }
}

#[cfg(test)]
mod tests;
