//! Description of one direction of a network link: its rate, delay, queue and faults.

use std::time::Duration;

use crate::Loss;

/// One direction of a link. The default link delivers every packet immediately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Propagation delay: time from sending the last bit of a packet until the packet arrives.
    pub delay: Duration,
    /// Maximum random extra delay of a packet. The extra delay is uniformly distributed between
    /// zero and this value. Packets can overtake each other.
    pub jitter: Duration,
    /// Rate in bits per second, or `None` for no limit.
    pub rate: Option<u64>,
    /// Number of bytes that each packet occupies on the link in addition to its length, such as 28
    /// for IPv4 and UDP headers.
    pub overhead: usize,
    /// Limit on the packets that wait to be sent at a limited rate. A packet that finds the queue
    /// full is dropped (drop-tail).
    pub queue: Queue,
    /// Maximum size of a packet in bytes, without [`Link::overhead`]. Larger packets are dropped.
    /// `None` means no limit.
    pub mtu: Option<usize>,
    /// A smaller MTU that applies from some time on, or `None`.
    pub black_hole: Option<BlackHole>,
    /// Probability that a packet is lost.
    pub drop: Chance,
    /// Numbers of packets that are lost in addition to those that [`Link::drop`] selects. Number 1
    /// is the first packet in this direction.
    pub drop_list: Vec<u64>,
    /// Loss in addition to [`Link::drop`]: in bursts, or depending on the size of a packet.
    pub loss: Loss,
    /// Probability that one byte of a packet is changed.
    pub corrupt: Chance,
    /// Probability that a packet arrives twice. The copy has its own jitter.
    pub duplicate: Chance,
    /// Probability that a packet is delayed by [`Link::reorder_by`], so that later packets overtake
    /// it.
    pub reorder: Chance,
    /// Extra delay of the packets that [`Link::reorder`] selects.
    pub reorder_by: Duration,
    /// Periods in which no packet arrives.
    pub stall: Stall,
}

/// Probability that an event happens to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chance {
    /// Percentage of the packets to which the event happens, from 0 to 100.
    pub percent: f64,
    /// Maximum number of consecutive packets that the event can affect. 0 means no limit. A limit
    /// guarantees that a handshake can complete.
    pub burst: u32,
}

impl Chance {
    /// Returns a chance of this percentage. It is independent for each packet, without a limit on
    /// consecutive packets.
    pub const fn percent(percent: f64) -> Chance {
        Chance { percent, burst: 0 }
    }
}

/// Limit on the packets that wait to be sent at a limited rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// No limit.
    #[default]
    Unlimited,
    /// Maximum number of packets, including the one that is being sent.
    Packets(usize),
    /// Maximum number of bytes including [`Link::overhead`]. The packet that is being sent counts,
    /// too.
    Bytes(usize),
    /// Maximum waiting time. A packet that would wait longer is dropped.
    Time(Duration),
}

/// A smaller MTU from some time on: larger packets are silently dropped, as after a change of
/// route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// Time since the start at which the smaller MTU begins to apply.
    pub from: Duration,
    /// The smaller MTU, in bytes.
    pub mtu: usize,
}

/// Periods in which no packet arrives, such as handovers of a radio link. Packets in transit arrive
/// at the end of the period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Percentage of packets at which a period without arrivals begins, from 0 to 100.
    pub percent: f64,
    /// Shortest duration.
    pub least: Duration,
    /// Longest duration.
    pub most: Duration,
}

/// The reason that a link is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// A [`Chance`] is below 0, above 100, or not a number.
    Percentage,
    /// A probability of [`Link::loss`] is below 0, above 1, or not a number.
    Probability,
    /// The rate is zero, so no packet would ever arrive.
    Rate,
    /// [`Stall::least`] is above [`Stall::most`].
    Stall,
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkError::Percentage => "a percentage must be from 0 to 100",
            LinkError::Probability => "a probability must be from 0 to 1",
            LinkError::Rate => {
                "the rate must not be 0 bits per second, because nothing would arrive"
            }
            LinkError::Stall => "the minimum duration of a stall is above the maximum duration",
        })
    }
}

impl std::error::Error for LinkError {}

impl Link {
    /// Checks that the link is valid.
    ///
    /// # Errors
    /// Returns the reason that the link is invalid.
    pub fn check(&self) -> Result<(), LinkError> {
        let chances =
            [self.drop, self.corrupt, self.duplicate, self.reorder].map(|one| one.percent);
        if !chances.iter().chain([&self.stall.percent]).all(|one| (0.0..=100.0).contains(one)) {
            return Err(LinkError::Percentage);
        }
        if !self.loss.is_possible() {
            return Err(LinkError::Probability);
        }
        if self.rate == Some(0) {
            return Err(LinkError::Rate);
        }
        if self.stall.least > self.stall.most {
            return Err(LinkError::Stall);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rejects_invalid_settings() {
        assert_eq!(Link::default().check(), Ok(()));
        for percent in [-1.0, 100.5, f64::NAN] {
            for link in [
                Link { drop: Chance::percent(percent), ..Link::default() },
                Link { corrupt: Chance::percent(percent), ..Link::default() },
                Link { duplicate: Chance::percent(percent), ..Link::default() },
                Link { reorder: Chance::percent(percent), ..Link::default() },
                Link { stall: Stall { percent, ..Stall::default() }, ..Link::default() },
            ] {
                assert_eq!(link.check(), Err(LinkError::Percentage));
            }
        }
        let loss = Loss::BitErrors(2.0);
        assert_eq!(Link { loss, ..Link::default() }.check(), Err(LinkError::Probability));
        assert_eq!(Link { rate: Some(0), ..Link::default() }.check(), Err(LinkError::Rate));
        let stall = Stall { percent: 1.0, least: Duration::from_secs(1), most: Duration::ZERO };
        assert_eq!(Link { stall, ..Link::default() }.check(), Err(LinkError::Stall));
    }
}
