//! CoDel, a queueing discipline that controls the delay (RFC 8289).

use std::time::Duration;

use super::fifo::Fifo;
use super::{Limit, QueueError};
use crate::packet::{DropCause, Dropped, Ecn, Packet};
use crate::time::{Time, nanos};

/// CoDel: drops or marks packets when the smallest queueing delay has been above a target for a
/// whole interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Limit of the queue. Packets that exceed it are dropped.
    pub limit: Limit,
    /// Queueing delay that is always acceptable (RFC 8289 s.4.4).
    pub target: Duration,
    /// Time for which a delay above the target is tolerated. It should be about the longest usual
    /// round-trip time (RFC 8289 s.4.3).
    pub interval: Duration,
    /// True if ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CoDel {
    /// Returns a target of 5 ms and an interval of 100 ms (RFC 8289 s.4), a limit of 1,000 packets,
    /// and no ECN.
    fn default() -> CoDel {
        CoDel {
            limit: Limit::Packets(1_000),
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: false,
        }
    }
}

impl CoDel {
    pub(super) fn check(&self) -> Result<(), QueueError> {
        if self.target.is_zero() || self.target >= self.interval {
            return Err(QueueError::Interval);
        }
        Ok(())
    }
}

/// The state of CoDel for one queue (RFC 8289 s.5.2, s.5.3).
pub(super) struct Control {
    target: Duration,
    interval: Duration,
    ecn: bool,
    /// Size of a full frame in bytes. If the queue has at most this many bytes, nothing is dropped.
    frame: u64,
    /// Time at which the delay will have been above the target for a whole interval. `None` while
    /// the delay is below the target.
    first_above: Option<Time>,
    drop_next: Time,
    /// Number of packets dropped since the dropping state was entered.
    count: u32,
    /// The value that `count` had when the dropping state was last entered.
    last_count: u32,
    dropping: bool,
}

impl Control {
    pub(super) fn new(codel: CoDel, frame: u32) -> Control {
        Control {
            target: codel.target,
            interval: codel.interval,
            ecn: codel.ecn,
            frame: frame.into(),
            first_above: None,
            drop_next: Time::START,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// Returns the next packet, and whether it may be dropped. This is `dodequeue` of RFC 8289
    /// s.5.5.
    fn take(&mut self, now: Time, fifo: &mut Fifo) -> (Option<Packet>, bool) {
        let Some(packet) = fifo.pop() else {
            self.first_above = None;
            return (None, false);
        };
        if now.since(packet.queued_at) < self.target || fifo.bytes() <= self.frame {
            self.first_above = None;
            return (Some(packet), false);
        }
        let first_above = *self.first_above.get_or_insert(now + self.interval);
        // If `first_above` was set just now, it is in the future, so the packet may not be dropped.
        (Some(packet), now >= first_above)
    }

    /// Returns the next packet to send (RFC 8289 s.5.5). If a packet is marked instead of dropped,
    /// it is sent, and the next drop is scheduled as if it had been dropped.
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        fifo: &mut Fifo,
        marked: &mut u64,
        dropped: &mut Dropped,
    ) -> Option<Packet> {
        let (mut packet, mut may_drop) = self.take(now, fifo);
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.discard(packet.take(), marked, dropped, &mut packet) {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                (packet, may_drop) = self.take(now, fifo);
                self.dropping = may_drop;
                if may_drop {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if may_drop {
            if !self.discard(packet.take(), marked, dropped, &mut packet) {
                (packet, _) = self.take(now, fifo);
            }
            self.dropping = true;
            // If the queue was in the dropping state recently, start with the drop rate of that
            // time.
            let since = self.count.wrapping_sub(self.last_count);
            let recent = nanos(now.since(self.drop_next)) < nanos(self.interval).saturating_mul(16);
            self.count = if since > 1 && recent { since } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        packet
    }

    /// Drops the packet. If it can be marked instead, marks it, stores it in `sent`, and returns
    /// `true`.
    fn discard(
        &self,
        packet: Option<Packet>,
        marked: &mut u64,
        dropped: &mut Dropped,
        sent: &mut Option<Packet>,
    ) -> bool {
        let Some(mut packet) = packet else { return false };
        if !self.ecn || !packet.ecn.is_capable() {
            dropped.push((packet, DropCause::Early));
            return false;
        }
        packet.ecn = Ecn::Ce;
        *marked += 1;
        *sent = Some(packet);
        true
    }

    /// Returns the time of the next drop: `interval / sqrt(count)` after `from` (RFC 8289 s.5.6).
    /// IEEE 754 defines the rounding of `sqrt`, so runs are reproducible.
    fn control_law(&self, from: Time) -> Time {
        let gap = nanos(self.interval) as f64 / f64::from(self.count.max(1)).sqrt();
        from + Duration::from_nanos(gap as u64)
    }
}

/// A queue with CoDel: one FIFO and its control state.
pub(crate) struct CoDelQueue {
    limit: Limit,
    fifo: Fifo,
    control: Control,
    marked: u64,
}

impl CoDelQueue {
    pub(crate) fn new(codel: CoDel, frame: u32) -> CoDelQueue {
        let control = Control::new(codel, frame);
        CoDelQueue { limit: codel.limit, fifo: Fifo::default(), control, marked: 0 }
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

    pub(crate) fn enqueue(&mut self, packet: Packet, dropped: &mut Dropped) {
        self.fifo.push_within(self.limit, packet, dropped);
    }

    pub(crate) fn dequeue(&mut self, now: Time, dropped: &mut Dropped) -> Option<Packet> {
        self.control.dequeue(now, &mut self.fifo, &mut self.marked, dropped)
    }
}

#[cfg(test)]
mod tests;
