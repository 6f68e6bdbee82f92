//! FQ-CoDel: a queue for each flow, with CoDel in each queue (RFC 8290).

use std::collections::VecDeque;

use super::codel::{CoDel, Control};
use super::fifo::Fifo;
use super::{Limit, QueueError, drop_full};
use crate::packet::{Dropped, Packet};
use crate::random;
use crate::time::Time;

/// Largest number of packets dropped at a time when the queue is full (RFC 8290 s.4.1).
const BATCH: usize = 64;

/// FQ-CoDel: flows take turns, flows that send rarely have priority, and CoDel keeps each queue
/// short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// Limit of all queues in total (RFC 8290 s.5.2.3).
    pub limit: Limit,
    /// Number of queues. A hash assigns flows to queues (RFC 8290 s.5.2.5).
    pub flows: u32,
    /// Number of bytes that a queue may send per turn (RFC 8290 s.5.2.4).
    pub quantum: u32,
    /// Target, interval and ECN setting of each queue. Its `limit` is ignored.
    pub codel: CoDel,
}

impl Default for FqCoDel {
    /// Returns 10,240 packets, 1,024 queues, a quantum of 1,514 bytes, and CoDel with ECN (RFC 8290
    /// s.5.2).
    fn default() -> FqCoDel {
        FqCoDel {
            limit: Limit::Packets(10_240),
            flows: 1_024,
            quantum: 1_514,
            codel: CoDel { ecn: true, ..CoDel::default() },
        }
    }
}

impl FqCoDel {
    pub(super) fn check(&self) -> Result<(), QueueError> {
        if !(1..=65_536).contains(&self.flows) || self.quantum == 0 {
            return Err(QueueError::Flows);
        }
        self.codel.check()
    }
}

struct Row {
    fifo: Fifo,
    control: Control,
    /// Number of bytes that the queue may still send in this turn. It is negative if the last
    /// packet was larger than the rest of the turn.
    credits: i64,
    /// True if the queue is in the list of new or of old queues.
    is_listed: bool,
}

/// FQ-CoDel during a run; see [`FqCoDel`].
pub(crate) struct FqCoDelQueue {
    fq: FqCoDel,
    rows: Vec<Row>,
    /// Queues that were empty before their latest packet arrived. They have priority (RFC 8290
    /// s.4).
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Random input of the hash, so that an attacker cannot predict which flows share a queue.
    perturbation: u64,
    packets: usize,
    bytes: u64,
    marked: u64,
}

impl FqCoDelQueue {
    pub(crate) fn new(fq: FqCoDel, frame: u32, seed: u64) -> FqCoDelQueue {
        let row = || Row {
            fifo: Fifo::default(),
            control: Control::new(fq.codel, frame),
            credits: 0,
            is_listed: false,
        };
        FqCoDelQueue {
            fq,
            rows: (0..fq.flows).map(|_| row()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            perturbation: seed,
            packets: 0,
            bytes: 0,
            marked: 0,
        }
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Returns the index of the queue for a packet, from its addresses and its label (RFC 8290
    /// s.4.1).
    fn classify(&self, packet: &Packet) -> u32 {
        let pair =
            |address: crate::Address| u64::from(address.node.0) << 16 | u64::from(address.port);
        let ends = random::mix(pair(packet.source), pair(packet.destination));
        let hash = random::mix(random::mix(ends, packet.label.into()), self.perturbation);
        (hash % u64::from(self.fq.flows)) as u32
    }

    pub(crate) fn enqueue(&mut self, packet: Packet, dropped: &mut Dropped) {
        let index = self.classify(&packet);
        let row = &mut self.rows[index as usize];
        self.packets += 1;
        self.bytes += u64::from(packet.frame_bytes);
        row.fifo.push(packet);
        if !row.is_listed {
            row.is_listed = true;
            row.credits = self.fq.quantum.into();
            self.new.push_back(index);
        }
        while self.fq.limit.is_exceeded(self.packets, self.bytes) {
            self.shorten(dropped);
        }
    }

    /// Drops packets from the head of the longest queue, until half of its bytes or [`BATCH`]
    /// packets are dropped (RFC 8290 s.4.1).
    fn shorten(&mut self, dropped: &mut Dropped) {
        let longest = self.rows.iter_mut().reduce(|longest, row| {
            if row.fifo.bytes() > longest.fifo.bytes() { row } else { longest }
        });
        let Some(row) = longest else { return };
        let batch = (row.fifo.packets() / 2).clamp(1, BATCH);
        for _ in 0..batch {
            let Some(packet) = row.fifo.pop() else { break };
            self.packets -= 1;
            self.bytes -= u64::from(packet.frame_bytes);
            drop_full(packet, dropped);
        }
    }

    /// Returns the next packet, or `None` if all queues are empty (RFC 8290 s.4.2).
    pub(crate) fn dequeue(&mut self, now: Time, dropped: &mut Dropped) -> Option<Packet> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let row = &mut self.rows[index as usize];
            if row.credits <= 0 {
                row.credits += i64::from(self.fq.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let (packets, bytes) = (row.fifo.packets(), row.fifo.bytes());
            let packet = row.control.dequeue(now, &mut row.fifo, &mut self.marked, dropped);
            self.packets -= packets - row.fifo.packets();
            self.bytes -= bytes - row.fifo.bytes();
            if let Some(packet) = packet {
                row.credits -= i64::from(packet.frame_bytes);
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                // An empty queue stays in the list of old queues for one more turn. Otherwise its
                // flow could become new again and again, and always have priority.
                self.old.push_back(index);
            } else {
                row.is_listed = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
