//! Helpers for tests of queues. Times are in microseconds, and packets are identified by their
//! labels.

use super::{Discipline, Queue};
use crate::packet::{Address, Dropped, Ecn, FlowId, Packet};
use crate::time::Time;
use crate::topology::NodeId;

/// Creates a packet without payload. `bytes` is its size.
pub(crate) fn packet(label: u32, bytes: u32) -> Packet {
    let address = |node| Address { node: NodeId(node), port: 1 };
    Packet {
        source: address(0),
        destination: address(1),
        flow: FlowId(0),
        ip_bytes: bytes,
        frame_bytes: bytes,
        payload: 0,
        label,
        headers: 28,
        header_fields: 0,
        ecn: Ecn::NotEct,
        queued_at: Time::START,
        buffer: Vec::new(),
    }
}

/// Like [`packet`], but the packet is ECN-capable.
pub(crate) fn capable(label: u32, bytes: u32) -> Packet {
    Packet { ecn: Ecn::Ect0, ..packet(label, bytes) }
}

/// A queue under test, and the packets that it dropped.
pub(crate) struct At {
    pub queue: Discipline,
    pub dropped: Dropped,
}

impl At {
    pub(crate) fn new(queue: &Queue, rate: f64) -> At {
        At { queue: queue.open(rate, 1500, 1), dropped: Vec::new() }
    }

    pub(crate) fn enqueue(&mut self, micros: u64, packet: Packet) {
        self.queue.enqueue(Time::from_nanos(1_000 * micros), packet, &mut self.dropped);
    }

    pub(crate) fn dequeue(&mut self, micros: u64) -> Option<Packet> {
        self.queue.dequeue(Time::from_nanos(1_000 * micros), &mut self.dropped)
    }
}
