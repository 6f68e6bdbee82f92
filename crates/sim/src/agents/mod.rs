//! Other traffic: what shares a network with those who are studied.

mod on_off;
mod short_flows;
mod sink;

use rand::Rng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

pub use on_off::{OnOff, OnOffConfig, Period};
pub use short_flows::{ShortFlows, ShortFlowsConfig, SizeDistribution};
pub use sink::Sink;

/// Error in the description of a source of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrafficError {
    /// A rate of zero, or one that is not a number.
    Rate,
    /// Datagrams without a byte, or with more than fit into an IP packet.
    Datagram,
    /// The time for which it is on is zero.
    Period,
    /// Sizes of flows: from one byte up, the least no more than the most, a shape above zero, shares that
    /// grow from above 0 to 1 with sizes that grow.
    Sizes,
}

impl std::fmt::Display for TrafficError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TrafficError::Rate => "traffic has a rate above zero",
            TrafficError::Datagram => "a datagram has from 1 to 65487 bytes of payload",
            TrafficError::Period => "traffic that is on for no time sends nothing",
            TrafficError::Sizes => {
                "sizes of flows are from one byte up and in order, shares of them grow to 1"
            }
        })
    }
}

impl std::error::Error for TrafficError {}

/// The most payload of a UDP datagram in an IPv6 packet of 65,535 bytes.
const MAX_DATAGRAM: u32 = 65_487;

fn check_datagram(bytes: u32) -> Result<(), TrafficError> {
    (1..=MAX_DATAGRAM).contains(&bytes).then_some(()).ok_or(TrafficError::Datagram)
}

/// A number from an exponential distribution of mean 1.
fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    // 1 - u is above zero, and the logarithm is the same on every machine.
    -libm::log(1.0 - rng.random::<f64>())
}
