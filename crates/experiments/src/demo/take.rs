//! Records of an arm, before anything is worked out of them.

use equic_gateway::Status;
use equic_lab::flood::FloodReport;
use equic_lab::measure::{CpuTime, ProcessCpu, UdpCounters};
use equic_load::Sample;
use serde_json::Value;

/// Raw records of one arm, before anything is worked out. Times are seconds of CLOCK_MONOTONIC.
pub(super) struct Take {
    /// Time at which the legitimate clients were started.
    pub begun: f64,
    /// Time at which the attackers' parallel clients were started; none without an attack.
    pub attacked: Option<f64>,
    /// Time at which the whole flood was there; none without an attack.
    pub flooded: Option<f64>,
    /// Time at which the clients were done, and the attack was stopped.
    pub over: f64,
    /// Requests of legitimate clients.
    pub samples: Vec<Sample>,
    /// Requests of the attackers' parallel clients: the first on each connection.
    pub parallel: Vec<Sample>,
    /// Requests of the newcomers: the only one of each.
    pub newcomers: Vec<Sample>,
    /// Reports of the floods, one for each attacker.
    pub floods: Vec<FloodReport>,
    /// Counters along the way; the last at `over`.
    pub ticks: Vec<Tick>,
    /// The server's last line, printed when it ended.
    pub server: Value,
    /// The gateway at the end of the attack, and whether it was attached in the driver.
    pub gateway: Option<(Status, bool)>,
}

/// Counters at one time.
#[derive(Clone, Default)]
pub(super) struct Tick {
    /// Seconds of CLOCK_MONOTONIC.
    pub at: f64,
    /// CPU time of the server.
    pub server: ProcessCpu,
    /// CPU time of the server's CPU, whoever used it.
    pub cpu: CpuTime,
    /// UDP in the server's namespace.
    pub udp: UdpCounters,
    /// Packets the gateway has dropped.
    pub dropped: u64,
    /// Packets it has answered.
    pub answered: u64,
    /// Connections of all attackers, as the gateway counts them.
    pub attackers: Option<u64>,
}
