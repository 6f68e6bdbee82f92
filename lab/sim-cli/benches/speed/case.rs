//! The simulations that the benchmark measures, and the simulators that run them.

use std::path::Path;
use std::process::Command;

use equic_scenario::Scenario;
use equic_scenario::play::{Part, play};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

use super::{Result, Run};

/// The simulator that runs a measurement, and the protocol that it simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    Quic,
    Tcp,
    Ns3,
}

impl Stack {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Stack::Quic => "QUIC",
            Stack::Tcp => "TCP",
            Stack::Ns3 => "ns-3 TCP",
        }
    }

    pub(crate) fn find(name: &str) -> Result<Stack, String> {
        let all = [Stack::Quic, Stack::Tcp, Stack::Ns3];
        all.into_iter()
            .find(|one| one.name() == name)
            .ok_or_else(|| format!("unknown stack {name}"))
    }
}

/// The kind of a measured simulation. It determines the table in which the result is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A transfer that has its own row in the results.
    Transfer,
    /// Many flows at the same time.
    Flows,
    /// A point of the grid of simulations in the nsQUIC thesis.
    Grid,
}

/// A simulation to be measured. All simulations use CUBIC.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub name: String,
    pub kind: Kind,
    /// Number of host pairs of a dumbbell, each with one flow. With 1, the network is two nodes and
    /// a link.
    pub flows: u64,
    /// Number of bytes of each flow. `None`: flows send until the time limit.
    pub size: Option<u64>,
    pub rate_mbit: u64,
    pub delay_ms: u64,
    pub loss_percent: f64,
    /// Virtual time in seconds at which the simulation ends at the latest.
    pub limit: u64,
    /// Largest number of runs with ns-3. 0: ns-3 does not simulate this case.
    pub ns3_runs: u64,
}

impl Case {
    fn transfer(name: &str, mbytes: u64, rate_mbit: u64, delay_ms: u64, loss: f64) -> Case {
        Case {
            name: name.to_owned(),
            kind: Kind::Transfer,
            flows: 1,
            size: Some(mbytes * 1_000_000),
            rate_mbit,
            delay_ms,
            loss_percent: loss,
            limit: 10_000,
            ns3_runs: u64::MAX,
        }
    }

    fn flows(flows: u64, rate_mbit: u64, limit: u64) -> Case {
        Case {
            name: format!("{flows} flows, {rate_mbit} Mb/s, {limit} s"),
            kind: Kind::Flows,
            flows,
            size: None,
            limit,
            ns3_runs: 0,
            ..Case::transfer("", 0, rate_mbit, 20, 0.0)
        }
    }

    pub(crate) fn stacks(&self) -> Vec<Stack> {
        let ns3 = (self.ns3_runs > 0).then_some(Stack::Ns3);
        [Stack::Quic, Stack::Tcp].into_iter().chain(ns3).collect()
    }

    /// Returns the case as a scenario for `equic-lab sim run`.
    fn scenario(&self, stack: Stack) -> String {
        let Case { flows, rate_mbit, delay_ms, loss_percent, limit, .. } = self;
        let topology = match flows {
            1 => "topology = \"simple\"".to_owned(),
            pairs => format!("topology = \"dumbbell\"\npairs = {pairs}"),
        };
        let size = self.size.map_or(String::new(), |size| format!("size = \"{size} B\"\n"));
        let protocol = if stack == Stack::Quic { "quic" } else { "tcp" };
        // A flow without end fills its flow-control window. With many flows, the window must not be
        // larger than they need.
        let window = match self.kind {
            Kind::Flows => format!("{protocol} = {{ window = \"64 KiB\" }}\n"),
            Kind::Transfer | Kind::Grid => String::new(),
        };
        // Only data is lost, not acknowledgments, as in the ns-3 scenario.
        format!(
            "seeds = 1\nlimit = \"{limit} s\"\n[network]\n{topology}\nlink = {{ rate = \"{rate_mbit} Mb/s\", \
             delay = \"{delay_ms} ms\", queue = \"1000 packets\", framing = \"ppp\", loss = \"{loss_percent} %\", \
             back = {{ loss = \"0 %\" }} }}\n[[flow]]\ncount = {flows}\n{size}protocol = \"{protocol}\"\n{window}"
        )
    }

    /// Simulates the case in this process.
    pub(crate) fn play(&self, stack: Stack, seed: u64) -> Result<Run> {
        let scenario = Scenario::parse(&self.scenario(stack))?;
        let (before, begun) = (memory("VmRSS"), cpu());
        let outcome = play(&scenario, seed, Part::All)?;
        if self.size.is_some() && outcome.flows.iter().any(|flow| flow.completion.is_none()) {
            return Err("a flow did not complete".into());
        }
        let memory =
            memory("VmHWM").zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok(Run { cpu: cpu() - begun, events: outcome.events, memory })
    }
}

/// Returns the CPU time that this process has used, in seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the value of a line of /proc/self/status, in bytes.
fn memory(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The line of JSON that ns3_tcp.py prints for a run.
#[derive(Deserialize)]
struct Line {
    bytes: u64,
    cpu: f64,
    #[serde(default)]
    events: u64,
}

/// Runs the case with TcpCubic of ns-3, with this seed.
pub(crate) fn ns3(python: &Path, case: &Case, seed: u64) -> Result<Run> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/oracle/ns3_tcp.py");
    let size = case.size.unwrap_or_default();
    let loss = (case.loss_percent / 100.0).to_string();
    let rate = case.rate_mbit * 1_000_000;
    let numbers = [seed, size, rate, case.delay_ms, 1000].map(|number| number.to_string());
    let mut command = Command::new(python);
    command.args([script, "--one", "TcpCubic", &loss]).args(numbers);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let Some(line) = line.filter(|_| output.status.success()) else {
        return Err(format!("ns-3: {}", String::from_utf8_lossy(&output.stderr)).into());
    };
    let line: Line = serde_json::from_str(line)?;
    if line.bytes < size {
        return Err(format!("ns-3 did not complete {}", case.name).into());
    }
    Ok(Run { cpu: line.cpu, events: line.events, memory: None })
}

/// Returns all cases, or only a few small ones if `quick` is set.
pub(crate) fn cases(quick: bool) -> Vec<Case> {
    if quick {
        return vec![
            Case::transfer("1 MB, 10 Mb/s, 1 % loss", 1, 10, 50, 1.0),
            Case::flows(10, 10, 2),
            Case::flows(100, 100, 1),
            Case { kind: Kind::Grid, ..Case::transfer("1 MB, 5 Mb/s, 10 ms, 0 %", 1, 5, 10, 0.0) },
        ];
    }
    let large = Case::transfer("210 MB, 1 Gb/s", 210, 1_000, 10, 0.0);
    let mut cases = vec![
        Case::transfer("10 MB, 10 Mb/s, 1 % loss", 10, 10, 50, 1.0),
        // ns-3 takes minutes for this case.
        Case { ns3_runs: 2, ..large },
        Case::flows(100, 100, 60),
        // This case has as many events per flow as the next one, so that the two can be compared.
        Case::flows(100, 100, 5),
        Case::flows(10_000, 10_000, 5),
    ];
    for rate in [5, 10, 50, 100, 1_000] {
        for delay in [10, 50] {
            for loss in [0.0, 1.0] {
                let name = format!("1 MB, {rate} Mb/s, {delay} ms, {loss} %");
                let case = Case::transfer(&name, 1, rate, delay, loss);
                cases.push(Case { kind: Kind::Grid, ..case });
            }
        }
    }
    cases
}
