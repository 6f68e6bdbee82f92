//! The raw records of an arm, from which its result is computed.

use equic_gateway::Status;
use equic_load::Sample;
use equic_netns::flood::FloodReport;
use equic_netns::measure::{CpuTime, ProcessCpu, UdpCounters};
use serde_json::Value;

/// Raw records of one arm, from which the result is computed. Times are seconds of CLOCK_MONOTONIC.
pub(super) struct RawRecords {
    /// Time at which the legitimate clients were started.
    pub begun: f64,
    /// Time at which the attackers' parallel clients were started, or `None` without an attack.
    pub attacked: Option<f64>,
    /// Time at which the whole flood had begun, or `None` without an attack.
    pub flooded: Option<f64>,
    /// Time at which the legitimate clients had finished. The attack was then stopped.
    pub over: f64,
    /// Requests that legitimate clients made.
    pub samples: Vec<Sample>,
    /// The first request on each connection of the attackers' parallel clients.
    pub parallel: Vec<Sample>,
    /// The only request of each newcomer.
    pub newcomers: Vec<Sample>,
    /// Reports of the floods, one per attacker.
    pub floods: Vec<FloodReport>,
    /// Counters over time. The last ones were read at `over`.
    pub ticks: Vec<Tick>,
    /// The last line of the server's output, with its counters.
    pub server: Value,
    /// State of the gateway at the end of the attack, and whether it was attached in the driver.
    pub gateway: Option<(Status, bool)>,
}

/// Counters at one time.
#[derive(Clone, Default)]
pub(super) struct Tick {
    /// Time at which the counters were read, in seconds of CLOCK_MONOTONIC.
    pub at: f64,
    /// CPU time of the server's process.
    pub server: ProcessCpu,
    /// CPU time that all processes used on the server's CPU.
    pub cpu: CpuTime,
    /// UDP counters of the server's namespace.
    pub udp: UdpCounters,
    /// Packets that the gateway has dropped.
    pub dropped: u64,
    /// Packets that the gateway has answered.
    pub answered: u64,
    /// Connections of all attackers, as counted by the gateway.
    pub attackers: Option<u64>,
}
