//! An agent that sends UDP traffic in alternating periods of sending and silence.

use std::time::Duration;

use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{TrafficError, check_datagram, exponential};
use crate::agent::{Agent, Datagram, Transmit};
use crate::packet::{Address, Ecn, FlowId};
use crate::time::{Time, nanos};

/// The length of an "on" or "off" period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Every period has this length.
    Constant(Duration),
    /// The length is drawn from an exponential distribution with this mean.
    Exponential(Duration),
}

impl Period {
    fn mean(self) -> Duration {
        match self {
            Period::Constant(mean) | Period::Exponential(mean) => mean,
        }
    }

    fn draw(self, rng: &mut Xoshiro256PlusPlus) -> Duration {
        match self {
            Period::Constant(length) => length,
            Period::Exponential(mean) => {
                Duration::from_nanos((nanos(mean) as f64 * exponential(rng)) as u64)
            }
        }
    }
}

/// UDP traffic that sends at a constant rate in "on" periods, and nothing in "off" periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOffConfig {
    /// Payload rate in an "on" period, in bits per second.
    pub rate: u64,
    /// Payload of each datagram, in bytes.
    pub datagram: u32,
    /// Length of each "on" period.
    pub on: Period,
    /// Length of each "off" period. With zero, the traffic never pauses.
    pub off: Period,
    /// Time at which the traffic begins.
    pub start: Time,
    /// Time at which the traffic stops. `None`: at the end of the run.
    pub stop: Option<Time>,
    /// ECN field of the packets.
    pub ecn: Ecn,
}

impl OnOffConfig {
    /// Returns traffic without pauses from the start to the end of the run, in datagrams of 1,200
    /// bytes. `rate` is in bits per second of payload.
    pub fn steady(rate: u64) -> OnOffConfig {
        OnOffConfig {
            rate,
            datagram: 1_200,
            on: Period::Constant(Duration::from_secs(1)),
            off: Period::Constant(Duration::ZERO),
            start: Time::START,
            stop: None,
            ecn: Ecn::NotEct,
        }
    }
}

/// An agent that sends as an [`OnOffConfig`] describes.
#[derive(Debug)]
pub struct OnOff {
    config: OnOffConfig,
    destination: Address,
    flow: FlowId,
    rng: Xoshiro256PlusPlus,
    /// Time between two datagrams, in nanoseconds.
    gap: u64,
    /// Time of the next datagram.
    next: Time,
    /// End of the current "on" period.
    off_at: Time,
}

impl OnOff {
    /// Creates an agent that sends to `destination`. Its packets are counted in the statistics of
    /// `flow`.
    ///
    /// # Errors
    /// Fails if the agent would send nothing, or would send without limit at one instant.
    pub fn new(
        config: OnOffConfig,
        destination: Address,
        flow: FlowId,
        seed: [u8; 32],
    ) -> Result<OnOff, TrafficError> {
        check_datagram(config.datagram)?;
        if config.on.mean().is_zero() {
            return Err(TrafficError::Period);
        }
        let gap = (u64::from(config.datagram) * 8_000_000_000).checked_div(config.rate);
        let gap = gap.filter(|gap| *gap > 0).ok_or(TrafficError::Rate)?;
        let mut rng = Xoshiro256PlusPlus::from_seed(seed);
        let off_at = config.start + config.on.draw(&mut rng);
        Ok(OnOff { config, destination, flow, rng, gap, next: config.start, off_at })
    }

    fn has_ended(&self) -> bool {
        self.config.stop.is_some_and(|stop| self.next >= stop)
    }
}

impl Agent for OnOff {
    fn on_datagram(&mut self, _: Time, _: Datagram<'_>) {}

    fn on_timer(&mut self, _: Time) {}

    fn poll_transmit(&mut self, now: Time, _: &mut [u8]) -> Option<Transmit> {
        if now < self.next || self.has_ended() {
            return None;
        }
        self.next += Duration::from_nanos(self.gap);
        while self.next >= self.off_at && !self.has_ended() {
            // If the end of the period cuts off a datagram, the cut-off part is not carried over to
            // the next period.
            let off = self.config.off.draw(&mut self.rng);
            if !self.config.off.mean().is_zero() {
                self.next = self.off_at + off;
            }
            self.off_at = self.off_at + off + self.config.on.draw(&mut self.rng);
        }
        let mut transmit = Transmit::udp(self.destination, self.flow, 0);
        transmit.padding = self.config.datagram;
        transmit.ecn = self.config.ecn;
        Some(transmit)
    }

    fn next_timer(&mut self) -> Option<Time> {
        (!self.has_ended()).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::NodeId;

    fn agent(config: OnOffConfig) -> OnOff {
        let to = Address { node: NodeId(1), port: 1 };
        OnOff::new(config, to, FlowId(0), [7; 32]).expect("it can be")
    }

    /// Returns the times of the datagrams that the agent sends before `end`.
    fn moments(mut agent: OnOff, end: Time) -> Vec<Time> {
        let mut moments = Vec::new();
        while let Some(next) = agent.next_timer().filter(|next| *next < end) {
            while agent.poll_transmit(next, &mut []).is_some() {
                moments.push(next);
            }
        }
        moments
    }

    #[test]
    fn on_off_sends_at_its_rate_while_it_is_on() {
        // 1,200 bytes per millisecond, so one datagram per millisecond.
        let steady = OnOffConfig::steady(9_600_000);
        let sent = moments(agent(steady), Time::from_secs(3));
        assert_eq!(sent.len(), 3_000);
        assert_eq!(sent[1_234], Time::from_millis(1_234));
        let on = Period::Constant(Duration::from_millis(10));
        let off = Period::Constant(Duration::from_millis(90));
        let (start, stop) = (Time::from_millis(5), Some(Time::from_millis(505)));
        let config = OnOffConfig { on, off, start, stop, ..steady };
        let sent = moments(agent(config), Time::from_secs(3));
        assert_eq!(sent.len(), 50);
        assert!(sent.iter().all(|at| (at.as_nanos() / 1_000_000 + 95) % 100 < 10));
    }

    #[test]
    fn on_off_random_periods_have_their_mean() {
        let on = Period::Exponential(Duration::from_millis(100));
        let off = Period::Exponential(Duration::from_millis(300));
        let config = OnOffConfig { on, off, ..OnOffConfig::steady(9_600_000) };
        let sent = moments(agent(config), Time::from_secs(400)).len();
        // The agent sends during a quarter of the time. On average, the last datagram of a period
        // extends half a datagram beyond its end.
        assert!((95_000..107_000).contains(&sent), "{sent}");
    }

    #[test]
    fn on_off_rejects_invalid_settings() {
        let to = Address { node: NodeId(1), port: 1 };
        let good = OnOffConfig::steady(1_000);
        for (config, error) in [
            (OnOffConfig { rate: 0, ..good }, TrafficError::Rate),
            (OnOffConfig { rate: u64::MAX, ..good }, TrafficError::Rate),
            (OnOffConfig { datagram: 0, ..good }, TrafficError::Datagram),
            (OnOffConfig { datagram: 65_488, ..good }, TrafficError::Datagram),
            (OnOffConfig { on: Period::Constant(Duration::ZERO), ..good }, TrafficError::Period),
        ] {
            assert_eq!(OnOff::new(config, to, FlowId(0), [0; 32]).err(), Some(error));
        }
    }
}
