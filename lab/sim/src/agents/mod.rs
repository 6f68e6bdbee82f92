//! Agents that produce background traffic, which shares the network with the traffic under study.

mod on_off;
mod short_flows;
mod sink;

use rand::Rng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

pub use on_off::{OnOff, OnOffConfig, Period};
pub use short_flows::{ShortFlows, ShortFlowsConfig, SizeDistribution};
pub use sink::Sink;

/// Error in the configuration of background traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrafficError {
    /// The rate is zero or not a number.
    Rate,
    /// The datagram size is zero, or larger than the payload of an IP packet.
    Datagram,
    /// The length of the "on" period is zero.
    Period,
    /// The flow sizes are invalid. A size must be at least one byte, the smallest size must not
    /// exceed the largest, and the shape must be above zero. In a table, the sizes must increase,
    /// and the shares must increase from above 0 to 1.
    Sizes,
}

impl std::fmt::Display for TrafficError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TrafficError::Rate => "the rate of traffic must be above zero",
            TrafficError::Datagram => "a datagram must have 1 to 65487 bytes of payload",
            TrafficError::Period => "the \"on\" period must be above zero",
            TrafficError::Sizes => {
                "flow sizes must be at least one byte and in increasing order, and their cumulative shares must increase to 1"
            }
        })
    }
}

impl std::error::Error for TrafficError {}

/// Largest payload of a UDP datagram in bytes. It fits into an IPv6 packet of 65,535 bytes.
const MAX_DATAGRAM: u32 = 65_487;

fn check_datagram(bytes: u32) -> Result<(), TrafficError> {
    (1..=MAX_DATAGRAM).contains(&bytes).then_some(()).ok_or(TrafficError::Datagram)
}

/// Draws a number from an exponential distribution with mean 1.
fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    // `1 - u` is above zero. `libm::log` gives the same result on every machine.
    -libm::log(1.0 - rng.random::<f64>())
}
