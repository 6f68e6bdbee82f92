//! Describes one direction of a link: the sender's port, and the effects of the link on packets.

use std::sync::Arc;
use std::time::Duration;

use equic_net::{Chance, Link, LinkError, Trace};

use crate::packet::Framing;
use crate::queue::{Queue, QueueError};

/// MTU of a link that does not set its own, in bytes of the IP packet.
pub const DEFAULT_MTU: u32 = 1_500;

/// Largest MTU, in bytes. Packet buffers are never larger.
pub const MAX_MTU: u32 = 65_535;

/// The rate at which a port sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// Constant rate, in bits per second.
    BitsPerSecond(u64),
    /// Rate from a recorded trace, which repeats when it ends.
    Trace(Arc<Trace>),
}

impl Rate {
    /// Returns the average rate in bits per second.
    pub fn mean(&self) -> f64 {
        match self {
            Rate::BitsPerSecond(rate) => *rate as f64,
            Rate::Trace(trace) => trace.mean_rate(),
        }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Rate of the port. It includes the bytes of [`Direction::framing`].
    pub rate: Rate,
    /// Queue for packets that wait for the port.
    pub queue: Queue,
    /// Framing that the link adds to each IP packet. Its bytes count toward the rate and toward
    /// queue limits in bytes, and bit errors can hit them.
    pub framing: Framing,
    /// Effects on a packet after it has left its port: delay, jitter, loss, duplication,
    /// reordering, corruption and stalls. `wire` also has the MTU, in bytes of the IP packet; the
    /// default is 1,500.
    ///
    /// A packet that is lost on the link still takes its transmission time, as with ns-3's
    /// `RateErrorModel`. A packet that is corrupted in a header or in padding is lost, because the
    /// receiver's checksum detects the error. In `wire`, the fields `rate`, `queue` and `overhead`
    /// must keep their defaults, because fields of `Direction` replace them.
    pub wire: Link,
}

impl Direction {
    /// Creates a direction with this rate and propagation delay, a drop-tail queue, and no faults.
    pub fn new(bits_per_second: u64, delay: Duration) -> Direction {
        Direction {
            rate: Rate::BitsPerSecond(bits_per_second),
            queue: Queue::default(),
            framing: Framing::None,
            wire: Link { delay, ..Link::default() },
        }
    }

    /// Returns the direction with another queue.
    #[must_use]
    pub fn queue(self, queue: Queue) -> Direction {
        Direction { queue, ..self }
    }

    /// Returns the direction with random loss: each packet is lost with this probability in
    /// percent, independently of the others.
    #[must_use]
    pub fn loss_percent(self, percent: f64) -> Direction {
        let wire = Link { drop: Chance::percent(percent), ..self.wire };
        Direction { wire, ..self }
    }

    /// Returns the size of the largest IP packet, in bytes.
    pub fn mtu(&self) -> u32 {
        self.wire.mtu.map_or(DEFAULT_MTU, |mtu| u32::try_from(mtu).unwrap_or(u32::MAX))
    }

    /// Checks that all values are in range and do not contradict each other.
    ///
    /// # Errors
    /// Returns the first mistake.
    pub fn check(&self) -> Result<(), DirectionError> {
        if self.rate == Rate::BitsPerSecond(0) {
            return Err(DirectionError::Rate);
        }
        let Link { rate, queue, overhead, .. } = &self.wire;
        if rate.is_some() || *queue != equic_net::Queue::Unlimited || *overhead != 0 {
            return Err(DirectionError::SaidTwice);
        }
        if !(68..=MAX_MTU).contains(&self.mtu()) {
            return Err(DirectionError::Mtu);
        }
        self.wire.check().map_err(DirectionError::Wire)?;
        self.queue.check(self.framing.frame(self.mtu())).map_err(DirectionError::Queue)
    }
}

/// The reason why a [`Direction`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectionError {
    /// The rate is 0, so no packet would ever be sent.
    Rate,
    /// [`Direction::wire`] sets a rate, a queue or an overhead. The fields of [`Direction`] must
    /// set these instead.
    SaidTwice,
    /// The MTU is below the minimum of IP, 68 bytes (RFC 791 s.3.2), or above the largest IP
    /// packet.
    Mtu,
    /// A value of [`Direction::wire`] is out of range.
    Wire(LinkError),
    /// A value of [`Direction::queue`] is out of range.
    Queue(QueueError),
}

impl std::fmt::Display for DirectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DirectionError::Rate => f.write_str("the rate is 0, so no packet would be sent"),
            DirectionError::SaidTwice => f.write_str(
                "each direction has its own rate, queue and overhead: leave those of `wire` unset",
            ),
            DirectionError::Mtu => write!(f, "an MTU must be from 68 to {MAX_MTU} bytes"),
            DirectionError::Wire(error) => error.fmt(f),
            DirectionError::Queue(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DirectionError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Limit;

    #[test]
    fn link_rejects_invalid_settings() {
        let good = Direction::new(1_000_000, Duration::from_millis(10));
        assert_eq!(good.check(), Ok(()));
        let rate = Direction { rate: Rate::BitsPerSecond(0), ..good.clone() };
        assert_eq!(rate.check(), Err(DirectionError::Rate));
        for wire in [
            Link { rate: Some(1), ..Link::default() },
            Link { queue: equic_net::Queue::Packets(1), ..Link::default() },
            Link { overhead: 28, ..Link::default() },
        ] {
            let direction = Direction { wire, ..good.clone() };
            assert_eq!(direction.check(), Err(DirectionError::SaidTwice));
        }
        for mtu in [0, 67, 65_536, usize::MAX] {
            let wire = Link { mtu: Some(mtu), ..Link::default() };
            let direction = Direction { wire, ..good.clone() };
            assert_eq!(direction.check(), Err(DirectionError::Mtu), "{mtu}");
        }
        let lossy = good.clone().loss_percent(100.1);
        assert_eq!(lossy.check(), Err(DirectionError::Wire(LinkError::Percentage)));
        for limit in [Limit::Packets(0), Limit::Bytes(1_499)] {
            let small = good.clone().queue(Queue::DropTail(limit)).check();
            assert_eq!(small, Err(DirectionError::Queue(QueueError::SmallerThanAPacket)));
        }
        // A queue must have room for at least one frame.
        let queue = Queue::DropTail(Limit::Bytes(1_517));
        let ethernet = Direction { framing: Framing::Ethernet, ..good.clone().queue(queue) };
        assert!(ethernet.check().is_err() && good.queue(queue).check().is_ok());
    }
}
