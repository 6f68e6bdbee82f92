//! An agent that sends short flows, which begin at random times like those of web traffic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{TrafficError, check_datagram, exponential};
use crate::agent::{Agent, Datagram, Transmit};
use crate::packet::{Address, FlowId};
use crate::time::Time;

/// Distribution of the sizes of flows, in bytes of payload.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeDistribution {
    /// All flows have this size, in bytes.
    Constant(u64),
    /// Exponential distribution with this mean. The smallest size is one byte.
    Exponential {
        /// Mean size in bytes.
        mean: u64,
    },
    /// Truncated Pareto distribution: many small flows, and few large ones.
    Pareto {
        /// Shape of the distribution. With a smaller value, large flows have more weight. 1.2 is
        /// usual for web traffic.
        shape: f64,
        /// Smallest size in bytes.
        least: u64,
        /// Largest size in bytes.
        most: u64,
    },
    /// The possible sizes in increasing order, each with the share of flows that have at most this
    /// size. The last share is 1. Only the sizes in the table occur.
    Table(Vec<(u64, f64)>),
}

impl SizeDistribution {
    fn check(&self) -> Result<(), TrafficError> {
        let possible = match self {
            SizeDistribution::Constant(size) | SizeDistribution::Exponential { mean: size } => {
                *size > 0
            }
            SizeDistribution::Pareto { shape, least, most } => {
                *shape > 0.0 && shape.is_finite() && 0 < *least && least <= most
            }
            SizeDistribution::Table(table) => {
                let grows =
                    table.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
                let first = table.first().is_some_and(|first| first.0 > 0 && first.1 > 0.0);
                grows && first && table.last().is_some_and(|last| last.1 == 1.0)
            }
        };
        possible.then_some(()).ok_or(TrafficError::Sizes)
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            SizeDistribution::Constant(size) => *size,
            SizeDistribution::Exponential { mean } => {
                ((*mean as f64 * exponential(rng)) as u64).max(1)
            }
            SizeDistribution::Pareto { shape, least, most } => {
                // Inverse distribution function of the Pareto distribution between two bounds.
                let (low, high) = (*least as f64, *most as f64);
                let cut = 1.0 - libm::pow(low / high, *shape);
                let part = 1.0 - rng.random::<f64>() * cut;
                ((low / libm::pow(part, 1.0 / *shape)) as u64).clamp(*least, *most)
            }
            SizeDistribution::Table(table) => {
                let share = rng.random::<f64>();
                let index = table.partition_point(|entry| entry.1 <= share);
                table[index.min(table.len() - 1)].0
            }
        }
    }
}

/// Flows that begin at random times. Each flow sends at a fixed rate until it is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortFlowsConfig {
    /// Average number of flows that begin per second (a Poisson process).
    pub per_second: f64,
    /// Sizes of flows.
    pub sizes: SizeDistribution,
    /// Payload rate of each flow, in bits per second. The flows do not react to other traffic.
    pub rate: u64,
    /// Payload of each datagram in bytes. The last datagram of a flow may be smaller.
    pub datagram: u32,
    /// Largest number of flows at a time. A new flow that would exceed it is skipped.
    pub most: usize,
    /// Time from which on flows may begin.
    pub start: Time,
    /// Time until which flows may begin. `None`: until the end of the run.
    pub stop: Option<Time>,
}

/// An agent that sends as a [`ShortFlowsConfig`] describes. Each flow has its own label, so that
/// queues can distinguish the flows.
#[derive(Debug)]
pub struct ShortFlows {
    config: ShortFlowsConfig,
    destination: Address,
    flow: FlowId,
    rng: Xoshiro256PlusPlus,
    /// Start time of the next flow, or `None` if no more flows begin.
    begins: Option<Time>,
    /// Flows in progress: the time of the next datagram, the label, and the number of remaining
    /// bytes.
    under_way: BinaryHeap<Reverse<(Time, u32, u64)>>,
    begun: u32,
    refused: u64,
}

impl ShortFlows {
    /// Creates an agent that sends to `destination`. The packets of all its short flows are counted
    /// in the statistics of `flow`.
    ///
    /// # Errors
    /// Fails if the agent would send nothing, or would send without limit at one instant.
    pub fn new(
        config: ShortFlowsConfig,
        destination: Address,
        flow: FlowId,
        seed: [u8; 32],
    ) -> Result<ShortFlows, TrafficError> {
        check_datagram(config.datagram)?;
        config.sizes.check()?;
        let gap = (u64::from(config.datagram) * 8_000_000_000).checked_div(config.rate);
        let often = config.per_second > 0.0 && config.per_second <= 1e9;
        if gap.is_none_or(|gap| gap == 0) || !often {
            return Err(TrafficError::Rate);
        }
        let rng = Xoshiro256PlusPlus::from_seed(seed);
        let start = config.start;
        let under_way = BinaryHeap::new();
        let mut flows = ShortFlows {
            config,
            destination,
            flow,
            rng,
            begins: None,
            under_way,
            begun: 0,
            refused: 0,
        };
        flows.begins = flows.next_after(start);
        Ok(flows)
    }

    /// Returns the number of flows that have begun.
    pub fn begun(&self) -> u32 {
        self.begun
    }

    /// Returns the number of flows that did not begin because too many were in progress.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn next_after(&mut self, at: Time) -> Option<Time> {
        let gap = exponential(&mut self.rng) * 1e9 / self.config.per_second;
        let next = at + Duration::from_nanos(gap as u64);
        self.config.stop.is_none_or(|stop| next < stop).then_some(next)
    }

    fn begin(&mut self, now: Time) {
        while let Some(at) = self.begins.filter(|at| *at <= now) {
            // A size is drawn even if the flow does not begin, so that the sizes of later flows do
            // not change.
            let size = self.config.sizes.draw(&mut self.rng);
            if self.under_way.len() < self.config.most {
                self.begun += 1;
                self.under_way.push(Reverse((at, self.begun, size)));
            } else {
                self.refused += 1;
            }
            self.begins = self.next_after(at);
        }
    }
}

impl Agent for ShortFlows {
    fn on_datagram(&mut self, _: Time, _: Datagram<'_>) {}

    fn on_timer(&mut self, now: Time) {
        self.begin(now);
    }

    fn poll_transmit(&mut self, now: Time, _: &mut [u8]) -> Option<Transmit> {
        let Reverse((at, label, left)) = *self.under_way.peek()?;
        if at > now {
            return None;
        }
        self.under_way.pop();
        let size = left.min(self.config.datagram.into());
        if left > size {
            let gap = Duration::from_nanos(size * 8_000_000_000 / self.config.rate);
            self.under_way.push(Reverse((at + gap, label, left - size)));
        }
        let mut transmit = Transmit::udp(self.destination, self.flow, 0);
        transmit.padding = size as u32;
        transmit.label = label;
        Some(transmit)
    }

    fn next_timer(&mut self) -> Option<Time> {
        let next = self.under_way.peek().map(|Reverse((at, ..))| *at);
        match (next, self.begins) {
            (Some(next), Some(begins)) => Some(next.min(begins)),
            (next, begins) => next.or(begins),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::NodeId;

    fn config(sizes: SizeDistribution) -> ShortFlowsConfig {
        ShortFlowsConfig {
            per_second: 50.0,
            sizes,
            rate: 10_000_000,
            datagram: 1_000,
            most: 1_000,
            start: Time::START,
            stop: Some(Time::from_secs(100)),
        }
    }

    fn agent(config: ShortFlowsConfig) -> Result<ShortFlows, TrafficError> {
        ShortFlows::new(config, Address { node: NodeId(1), port: 1 }, FlowId(0), [3; 32])
    }

    /// Runs the agent to its end. Returns the number of bytes and the start time of each flow, in
    /// the order of the labels.
    fn play(mut agent: ShortFlows) -> (ShortFlows, Vec<(u64, Time)>) {
        let mut flows: Vec<(u64, Time)> = Vec::new();
        while let Some(now) = agent.next_timer() {
            agent.on_timer(now);
            while let Some(transmit) = agent.poll_transmit(now, &mut []) {
                if transmit.label as usize > flows.len() {
                    flows.push((0, now));
                }
                flows[transmit.label as usize - 1].0 += u64::from(transmit.padding);
            }
        }
        (agent, flows)
    }

    #[test]
    fn short_flows_arrive_as_a_poisson_process_and_complete() {
        let (agent, flows) = play(agent(config(SizeDistribution::Constant(10_500))).unwrap());
        assert_eq!(agent.begun() as usize, flows.len());
        // The expected number is 5,000. The limits are four standard deviations away.
        assert!((4_717..5_283).contains(&flows.len()), "{}", flows.len());
        assert!(flows.iter().all(|(bytes, _)| *bytes == 10_500));
        // The intervals of a Poisson process have a standard deviation that equals their mean.
        let gaps: Vec<f64> =
            flows.windows(2).map(|pair| pair[1].1.since(pair[0].1).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let spread = variance.sqrt() / mean;
        assert!((0.94..1.06).contains(&spread), "{spread}");
    }

    #[test]
    fn short_flows_have_the_configured_sizes() {
        let sizes = |sizes: SizeDistribution| {
            let mut rng = Xoshiro256PlusPlus::from_seed([9; 32]);
            let mut sizes: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut rng)).collect();
            sizes.sort_unstable();
            sizes
        };
        let exponential = sizes(SizeDistribution::Exponential { mean: 20_000 });
        let mean = exponential.iter().sum::<u64>() / 100_000;
        assert!((19_600..20_400).contains(&mean), "{mean}");

        let pareto = sizes(SizeDistribution::Pareto { shape: 1.2, least: 1_000, most: 1_000_000 });
        assert!(pareto[0] >= 1_000 && pareto[99_999] <= 1_000_000);
        // Without the truncation, the median would be `least * 2^(1 / shape)`.
        let median = pareto[50_000] as f64;
        assert!((1_740.0..1_820.0).contains(&median), "{median}");
        assert!(pareto[99_990] > 500_000);

        let table = sizes(SizeDistribution::Table(vec![(100, 0.5), (2_000, 0.9), (50_000, 1.0)]));
        let share = |size| table.iter().filter(|one| **one == size).count();
        assert!((49_000..51_000).contains(&share(100)) && (39_000..41_000).contains(&share(2_000)));
        assert_eq!(share(100) + share(2_000) + share(50_000), 100_000);
    }

    #[test]
    fn short_flows_in_progress_are_limited() {
        // Each flow takes a second, and 50 flows begin per second.
        let mut config = config(SizeDistribution::Constant(1_250_000));
        config.most = 10;
        let (agent, flows) = play(agent(config).unwrap());
        assert!((900..1_010).contains(&flows.len()), "{}", flows.len());
        assert!(agent.refused() > 3_500);
    }

    #[test]
    fn short_flows_reject_invalid_settings() {
        use SizeDistribution::{Constant, Exponential, Pareto, Table};
        for sizes in [
            Constant(0),
            Exponential { mean: 0 },
            Pareto { shape: 0.0, least: 1, most: 2 },
            Pareto { shape: f64::NAN, least: 1, most: 2 },
            Pareto { shape: 1.0, least: 0, most: 2 },
            Pareto { shape: 1.0, least: 3, most: 2 },
            Table(vec![]),
            Table(vec![(0, 1.0)]),
            Table(vec![(1, 0.5)]),
            Table(vec![(2, 0.5), (1, 1.0)]),
            Table(vec![(1, 0.5), (2, 0.4), (3, 1.0)]),
        ] {
            assert_eq!(agent(config(sizes)).err(), Some(TrafficError::Sizes));
        }
        let good = config(Constant(1));
        for wrong in [
            ShortFlowsConfig { per_second: 0.0, ..good.clone() },
            ShortFlowsConfig { per_second: f64::INFINITY, ..good.clone() },
            ShortFlowsConfig { rate: 0, ..good.clone() },
        ] {
            assert_eq!(agent(wrong).err(), Some(TrafficError::Rate));
        }
    }
}
