//! Lateness of packets: the time between their event in the simulation and the clock when it was played.

use std::time::Duration;

/// Width of a class of the distribution.
const WIDTH: Duration = Duration::from_micros(50);
/// Number of classes; the last has all that is later.
const CLASSES: usize = 2_000;

/// Distribution of the time between the moment at which a packet should have arrived at its host and that at which it
/// was handed over. It says how far the figures of a run can be trusted: the machine had no time when they were due.
#[derive(Clone, Debug)]
pub struct Lateness {
    classes: Vec<u64>,
    packets: u64,
    most: Duration,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { classes: vec![0; CLASSES], packets: 0, most: Duration::ZERO }
    }
}

impl Lateness {
    pub(super) fn add(&mut self, late: Duration) {
        let class = usize::try_from(late.as_nanos() / WIDTH.as_nanos()).unwrap_or(CLASSES);
        self.classes[class.min(CLASSES - 1)] += 1;
        self.packets += 1;
        self.most = self.most.max(late);
    }

    /// Packets that were handed over.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The latest packet.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// A time that this share of the packets, from 0 to 1, was not later than; to 50 us, and at most 100 ms. None
    /// without packets.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (share * self.packets as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let class = self.classes.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some((WIDTH * (class as u32 + 1)).min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution() {
        let mut late = Lateness::default();
        assert_eq!(late.quantile(0.5), None);
        for micros in 1..=100 {
            late.add(Duration::from_micros(10 * micros));
        }
        late.add(Duration::from_secs(1));
        assert_eq!((late.packets(), late.most()), (101, Duration::from_secs(1)));
        assert_eq!(late.quantile(0.5), Some(Duration::from_micros(550)));
        assert_eq!(late.quantile(0.0), Some(Duration::from_micros(50)));
        assert_eq!(late.quantile(1.0), Some(Duration::from_millis(100)));
    }
}
