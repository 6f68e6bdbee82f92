//! The description of one direction of a link.

use std::time::Duration;

use crate::Loss;

/// One direction of a link. The default lets everything through at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Propagation delay: how long each packet is under way once its last bit was sent.
    pub delay: Duration,
    /// Each packet is later by a time between zero and this, drawn evenly, so that packets overtake one
    /// another.
    pub jitter: Duration,
    /// Bits per second; none: no limit.
    pub rate: Option<u64>,
    /// Bytes that each packet takes up on the link besides those that the port is told of, such as 28
    /// of IPv4 and UDP headers.
    pub overhead: usize,
    /// Limit of the packets that wait for a limited rate; one that finds the queue full is dropped (drop-tail).
    pub queue: Queue,
    /// Packets larger than this, in bytes without [`Link::overhead`], are dropped; none: no limit.
    pub mtu: Option<usize>,
    /// A smaller MTU from some moment on.
    pub black_hole: Option<BlackHole>,
    /// Packets that are lost.
    pub drop: Chance,
    /// These are lost, too: 1 is the first packet of this direction.
    pub drop_list: Vec<u64>,
    /// And these: in bursts, or by their size.
    pub loss: Loss,
    /// Packets that arrive with one byte changed.
    pub corrupt: Chance,
    /// Packets that arrive twice; the copy has a jitter of its own.
    pub duplicate: Chance,
    /// Packets that arrive later by [`Link::reorder_by`], behind those sent after them.
    pub reorder: Chance,
    /// Extra delay of the packets that [`Link::reorder`] picks.
    pub reorder_by: Duration,
    /// Times in which nothing arrives.
    pub stall: Stall,
}

/// Frequency with which something happens to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chance {
    /// Percentage of packets, from 0 to 100.
    pub percent: f64,
    /// At most so many packets in a row; 0: no limit. With a limit a handshake cannot be stopped for
    /// good.
    pub burst: u32,
}

impl Chance {
    /// So many of a hundred packets, independently of each other.
    pub const fn percent(percent: f64) -> Chance {
        Chance { percent, burst: 0 }
    }
}

/// The limit of what waits for a limited rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// None: packets wait for as long as it takes.
    #[default]
    Unlimited,
    /// So many packets, the one that is being sent among them.
    Packets(usize),
    /// So many bytes with [`Link::overhead`], those of the packet that is being sent among them.
    Bytes(usize),
    /// Packets that would wait for longer than this are dropped.
    Time(Duration),
}

/// From a moment on larger packets vanish without a word: what a change of route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// Since the start.
    pub from: Duration,
    /// The MTU from then on, in bytes.
    pub mtu: usize,
}

/// Times in which nothing arrives, as of a radio link that is handed over: what is under way arrives
/// at their end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Percentage of packets with which such a time begins.
    pub percent: f64,
    /// The shortest.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
}

/// Reason for which there can be no such link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// A [`Chance`] below 0, above 100, or not a number.
    Percentage,
    /// A probability of [`Link::loss`] below 0, above 1, or not a number.
    Probability,
    /// A rate of zero: nothing would ever arrive.
    Rate,
    /// [`Stall::least`] is above [`Stall::most`].
    Stall,
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkError::Percentage => "a percentage goes from 0 to 100",
            LinkError::Probability => "a probability goes from 0 to 1",
            LinkError::Rate => "at 0 bits per second nothing arrives",
            LinkError::Stall => "the shortest stall is longer than the longest",
        })
    }
}

impl std::error::Error for LinkError {}

impl Link {
    /// Checks whether there can be such a link.
    ///
    /// # Errors
    /// Reason for which there can be no such link.
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
    fn what_cannot_be_is_refused() {
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
