//! A FIFO of packets.

use std::collections::VecDeque;

use super::{Limit, drop_full};
use crate::packet::{Dropped, Packet};

/// A queue that returns packets in the order in which they arrived.
#[derive(Default)]
pub(crate) struct Fifo {
    packets: VecDeque<Packet>,
    bytes: u64,
}

impl Fifo {
    pub(crate) fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of queued bytes, including the link's framing.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, packet: Packet) {
        self.bytes += u64::from(packet.frame_bytes);
        self.packets.push_back(packet);
    }

    /// Enqueues the packet if the limit permits it. Otherwise drops the packet.
    pub(crate) fn push_within(&mut self, limit: Limit, packet: Packet, dropped: &mut Dropped) {
        if self.has_room(limit, &packet) {
            self.push(packet);
        } else {
            drop_full(packet, dropped);
        }
    }

    /// Returns `true` if the limit permits another packet of this size.
    pub(crate) fn has_room(&self, limit: Limit, packet: &Packet) -> bool {
        !limit.is_exceeded(self.packets.len() + 1, self.bytes + u64::from(packet.frame_bytes))
    }

    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.frame_bytes);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Queue;
    use crate::packet::DropCause;
    use crate::queue::testing::{At, packet};

    #[test]
    fn drop_tail_keeps_its_limit_and_the_order() {
        for (limit, fit) in [
            (Limit::Packets(5), 5),
            (Limit::Bytes(5_000), 5),
            (Limit::Bytes(5_999), 5),
            (Limit::Bytes(6_000), 6),
        ] {
            let mut queue = At::new(&Queue::DropTail(limit), 1e6);
            for label in 0..10 {
                queue.enqueue(0, packet(label, 1_000));
            }
            assert_eq!(queue.queue.packets(), fit, "{limit:?}");
            assert_eq!(queue.queue.bytes(), 1_000 * fit as u64);
            assert!(queue.dropped.iter().all(|(_, cause)| *cause == DropCause::Full));
            let left: Vec<u32> = queue.dropped.iter().map(|(packet, _)| packet.label).collect();
            assert_eq!(left, (fit as u32..10).collect::<Vec<_>>());
            let order: Vec<u32> =
                std::iter::from_fn(|| queue.dequeue(1).map(|packet| packet.label)).collect();
            assert_eq!(order, (0..fit as u32).collect::<Vec<_>>());
            assert_eq!(queue.queue.bytes(), 0);
        }
    }
}
