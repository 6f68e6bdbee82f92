//! The packet queues of ports. A [`Queue`] describes a queue, and a `Discipline` is a queue during
//! a run.
//!
//! * `fifo.rs`: first in, first out. Drop-tail is a FIFO with a limit.
//! * `red.rs`: random early detection.
//! * `codel.rs`: CoDel (RFC 8289); `fq_codel.rs`: FQ-CoDel (RFC 8290).
//!
//! A packet that is being transmitted is no longer in the queue, and does not count toward the
//! queue's limit.

mod codel;
mod fifo;
mod fq_codel;
mod red;
#[cfg(test)]
pub(crate) mod testing;

use crate::packet::{DropCause, Dropped, Packet};
use crate::time::Time;

pub use codel::CoDel;
pub use fq_codel::FqCoDel;
pub use red::Red;

use codel::CoDelQueue;
use fifo::Fifo;
use fq_codel::FqCoDelQueue;
use red::RedQueue;

/// The queueing discipline of a port. It determines the order of packets, and which packets are
/// dropped or marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// First in, first out. Packets that arrive while the queue is full are dropped.
    DropTail(Limit),
    /// First in, first out. Packets are dropped or marked at random before the queue is full.
    Red(Red),
    /// First in, first out. Packets are dropped or marked depending on their queueing delay (RFC
    /// 8289).
    CoDel(CoDel),
    /// A queue for each flow, with CoDel in each queue (RFC 8290).
    FqCoDel(FqCoDel),
}

impl Default for Queue {
    /// Returns a drop-tail queue with a limit of 1,000 packets, as on Linux interfaces.
    fn default() -> Queue {
        Queue::DropTail(Limit::Packets(1_000))
    }
}

/// The limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Number of packets.
    Packets(u32),
    /// Number of bytes, including the link's framing.
    Bytes(u64),
}

impl Limit {
    fn is_exceeded(self, packets: usize, bytes: u64) -> bool {
        match self {
            Limit::Packets(most) => packets > most as usize,
            Limit::Bytes(most) => bytes > most,
        }
    }
}

/// The reason why a [`Queue`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The limit is smaller than one packet of the link's MTU, so such a packet would always be
    /// dropped.
    SmallerThanAPacket,
    /// RED: the thresholds are negative, in the wrong order, or above the limit.
    Thresholds,
    /// RED: a value is out of range. The weight must be above 0 and at most 1, the maximum
    /// probability must be from 0 to 1, and the size of a typical packet must be above 0.
    Weight,
    /// CoDel: a value is out of range. Target and interval must be above 0, and the target must be
    /// below the interval.
    Interval,
    /// FQ-CoDel: a value is out of range. There must be 1 to 65,536 queues, and the quantum must be
    /// above 0.
    Flows,
}

impl std::fmt::Display for QueueError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            QueueError::SmallerThanAPacket => {
                "the queue has no room for a single packet of the size of the link's MTU"
            }
            QueueError::Thresholds => {
                "RED needs 0 <= min_threshold < max_threshold <= the limit, in the limit's unit"
            }
            QueueError::Weight => {
                "RED needs a weight above 0 and at most 1, max_probability from 0 to 1, and a \
                 typical_packet above 0"
            }
            QueueError::Interval => "CoDel needs a target above 0 and below its interval",
            QueueError::Flows => "FQ-CoDel needs from 1 to 65536 queues and a quantum above 0",
        })
    }
}

impl std::error::Error for QueueError {}

impl Queue {
    /// Returns the limit of the queue.
    pub fn limit(&self) -> Limit {
        match self {
            Queue::DropTail(limit) => *limit,
            Queue::Red(red) => red.limit,
            Queue::CoDel(codel) => codel.limit,
            Queue::FqCoDel(fq) => fq.limit,
        }
    }

    /// Checks that the queue can work on a link whose largest frame has `frame` bytes.
    pub(crate) fn check(&self, frame: u32) -> Result<(), QueueError> {
        let too_small = match self.limit() {
            Limit::Packets(most) => most == 0,
            Limit::Bytes(most) => most < u64::from(frame),
        };
        if too_small {
            return Err(QueueError::SmallerThanAPacket);
        }
        match self {
            Queue::DropTail(_) => Ok(()),
            Queue::Red(red) => red.check(),
            Queue::CoDel(codel) => codel.check(),
            Queue::FqCoDel(fq) => fq.check(),
        }
    }

    /// Creates the queue for a link. `rate` is the average rate of the link in bits per second.
    pub(crate) fn open(&self, rate: f64, frame: u32, seed: u64) -> Discipline {
        match *self {
            Queue::DropTail(limit) => Discipline::DropTail(limit, Fifo::default()),
            Queue::Red(red) => Discipline::Red(Box::new(RedQueue::new(red, rate, seed))),
            Queue::CoDel(codel) => Discipline::CoDel(Box::new(CoDelQueue::new(codel, frame))),
            Queue::FqCoDel(fq) => Discipline::FqCoDel(Box::new(FqCoDelQueue::new(fq, frame, seed))),
        }
    }
}

/// A [`Queue`] during a run.
pub(crate) enum Discipline {
    DropTail(Limit, Fifo),
    Red(Box<RedQueue>),
    CoDel(Box<CoDelQueue>),
    FqCoDel(Box<FqCoDelQueue>),
}

impl Discipline {
    /// Enqueues a packet. If the queue is full, drops this packet or another one.
    pub(crate) fn enqueue(&mut self, now: Time, mut packet: Packet, dropped: &mut Dropped) {
        packet.queued_at = now;
        match self {
            Discipline::DropTail(limit, fifo) => fifo.push_within(*limit, packet, dropped),
            Discipline::Red(red) => red.enqueue(now, packet, dropped),
            Discipline::CoDel(codel) => codel.enqueue(packet, dropped),
            Discipline::FqCoDel(fq) => fq.enqueue(packet, dropped),
        }
    }

    /// Returns the next packet to send, or `None` if the queue is empty.
    pub(crate) fn dequeue(&mut self, now: Time, dropped: &mut Dropped) -> Option<Packet> {
        match self {
            Discipline::DropTail(_, fifo) => fifo.pop(),
            Discipline::Red(red) => red.dequeue(now),
            Discipline::CoDel(codel) => codel.dequeue(now, dropped),
            Discipline::FqCoDel(fq) => fq.dequeue(now, dropped),
        }
    }

    /// Returns the number of queued packets.
    pub(crate) fn packets(&self) -> usize {
        match self {
            Discipline::DropTail(_, fifo) => fifo.packets(),
            Discipline::Red(red) => red.packets(),
            Discipline::CoDel(codel) => codel.packets(),
            Discipline::FqCoDel(fq) => fq.packets(),
        }
    }

    /// Returns the number of queued bytes, including the link's framing.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Discipline::DropTail(_, fifo) => fifo.bytes(),
            Discipline::Red(red) => red.bytes(),
            Discipline::CoDel(codel) => codel.bytes(),
            Discipline::FqCoDel(fq) => fq.bytes(),
        }
    }

    /// Returns the number of packets that were marked instead of dropped.
    pub(crate) fn marked(&self) -> u64 {
        match self {
            Discipline::DropTail(..) => 0,
            Discipline::Red(red) => red.marked(),
            Discipline::CoDel(codel) => codel.marked(),
            Discipline::FqCoDel(fq) => fq.marked(),
        }
    }
}

/// Drops a packet because the queue is full.
fn drop_full(packet: Packet, dropped: &mut Dropped) {
    dropped.push((packet, DropCause::Full));
}
