//! Lateness of packets: how much later than scheduled by the simulation a packet is delivered in
//! real time.

use std::time::Duration;

/// Width of a bin of the histogram.
const WIDTH: Duration = Duration::from_micros(50);
/// Number of bins. The last one counts all larger values.
const CLASSES: usize = 2_000;

/// Distribution of the time between a packet's scheduled arrival at its host and its real delivery.
/// It shows how reliable the results of a run are: a busy machine delivers late.
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

    /// Returns the number of delivered packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the largest lateness of a packet.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Returns the lateness that a share of the packets (`share`, from 0 to 1) did not exceed. The
    /// resolution is 50 us, and the maximum 100 ms. Returns `None` if no packet was delivered.
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
    fn lateness_has_quantiles() {
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
