//! Plan of the gateway experiment: the arms, their sizes and times, and the command lines of the
//! child processes.
//!
//! The paper's experiment took more than two minutes, because its machine answered some tens of
//! requests per second. On a faster machine, the sequential clients would finish before the attack
//! begins. All times are therefore multiplied by one factor ([`ExperimentPlan::scale`]), so that
//! clients and attack overlap as in the paper's figure 3. If the experiment would then take only a
//! few seconds, every client makes more requests ([`ExperimentPlan::pace`]). A search before the
//! runs (`search`) decides the strength of the attack, and the width of the windows in which rates
//! are averaged.

use equic_harness::allowed_cpus;
use equic_netns::plan::IFNAME;
use equic_netns::{Lab, Namespace};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::failure::Result;

/// Loss of throughput, as a share, that the attack must cause in the arm without a quota.
pub(super) const LOSS: f64 = 0.5;
/// Number of sequential clients, which make one request after the other. Each has its own source
/// address.
pub(super) const SEQUENTIAL: usize = 4;
/// Number of parallel clients, which make many requests at the same time. These are the attackers.
pub(super) const PARALLEL: usize = 4;
/// Port of the server.
pub(super) const PORT: u16 = 443;
/// The paper's quota: the number of simultaneous connections per source.
pub(super) const QUOTA: u32 = 5;

/// Number of requests of each client in the paper.
const REQUESTS: u32 = 1000;
/// Number of requests of each client with `--quick`.
const QUICK_REQUESTS: u32 = 200;
/// Minimum time in seconds that the sequential clients need without an attack. In this time, there
/// must be many windows with many requests each, and the scaled timeouts must be long enough.
const BUSY: f64 = 30.0;
/// Minimum time in seconds that the sequential clients need without an attack, with `--quick`.
const QUICK_BUSY: f64 = 3.5;
/// Size of a response body in the paper, in bytes.
const BYTES: u64 = 256 * 1024;
/// Start of the attack in the paper, in seconds. The constants below are also times of the paper.
const START: f64 = 30.0;
/// Time in seconds in which the attackers begin all their requests. In the paper's figure 3,
/// throughput has recovered at 22 on an axis with 5 s per unit.
const ATTACK: f64 = 80.0;
/// Time in seconds that the sequential clients need without an attack. It is about 30 on the axis
/// of figure 3.
const CALM: f64 = 150.0;
/// Length of one unit on the axis of figure 3, in seconds.
const WINDOW: f64 = 5.0;
/// The idle timeout of lsquic, in seconds.
const IDLE: f64 = 30.0;
/// Maximum number of requests that an attacker has in progress. Each has its own socket.
const MOST_SLOTS: f64 = 3000.0;
/// Minimum of all scaled timeouts, in seconds. A handshake that loses a packet needs this time.
const SHORTEST_TIMEOUT: f64 = 2.0;

/// Arms of the experiment: the same server under the same load, with one kind of quota or without a
/// quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arm {
    /// No quota.
    None,
    /// A quota in the server that is checked when the handshake is complete, as in the paper's
    /// server.
    UserLate,
    /// A quota in the server that is checked as early as possible, when the first packet arrives.
    UserEarly,
    /// A quota in the kernel, as published: when a source has reached the limit, all its packets
    /// are dropped.
    KernelStrict,
    /// A quota in the kernel: when a source has reached the limit, only packets that would open
    /// another connection are dropped.
    KernelNew,
}

impl Arm {
    /// All arms, in the order of the tables.
    pub(super) const ALL: [Arm; 5] =
        [Arm::None, Arm::UserLate, Arm::UserEarly, Arm::KernelStrict, Arm::KernelNew];

    /// Returns the heading of the arm's column, on two lines.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Arm::None => "no\nquota",
            Arm::UserLate => "user space,\nas published",
            Arm::UserEarly => "user space,\nearly",
            Arm::KernelStrict => "kernel,\nas published",
            Arm::KernelNew => "kernel,\nnew only",
        }
    }

    /// Returns the arm's name in legends of plots and in sentences.
    pub(super) fn title(self) -> &'static str {
        match self {
            Arm::None => "no quota",
            Arm::UserLate => "user space, as published",
            Arm::UserEarly => "user space, early",
            Arm::KernelStrict => "kernel, as published (strict)",
            Arm::KernelNew => "kernel, new",
        }
    }

    /// Returns the policy of the arm's gateway, or `None` if the arm has no gateway.
    pub(super) fn policy(self) -> Option<&'static str> {
        match self {
            Arm::None | Arm::UserLate | Arm::UserEarly => None,
            Arm::KernelStrict => Some("strict"),
            Arm::KernelNew => Some("new"),
        }
    }
}

/// Parameters of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ExperimentPlan {
    pub runs_per_arm: u32,
    /// Seed of the order of the arms and of the floods.
    pub seed: u64,
    pub sequential_clients: usize,
    pub parallel_clients: usize,
    /// Number of requests of a sequential client. For a parallel client, see
    /// [`ExperimentPlan::requests_per_attacker`].
    pub requests_per_client: u32,
    /// Number of requests of a parallel client, as a multiple of that of a sequential client. It is
    /// 1 in the paper.
    #[serde(default = "one")]
    pub attack: u32,
    /// Steps of the search for the strength of the attack. `None` in results from before the search
    /// existed.
    #[serde(default)]
    pub search: Vec<Step>,
    /// Minimum time in seconds that the sequential clients need without an attack. If they would
    /// need less, they make more requests. `None` if the user gave the number of requests.
    pub busy_s: Option<f64>,
    pub bytes_per_request: u64,
    pub quota: u32,
    /// Measured time in seconds that the sequential clients need without an attack.
    pub calm_s: f64,
    /// Factor by which all times of the paper are multiplied.
    pub scale: f64,
    /// Time at which the parallel clients start, in seconds.
    pub start_s: f64,
    /// Time in seconds in which the parallel clients begin all their requests.
    pub attack_s: f64,
    /// Number of requests that each parallel client begins per second.
    pub rate_per_parallel_client: f64,
    /// Maximum number of requests that each parallel client has in progress.
    pub slots_per_parallel_client: usize,
    /// Width in seconds of the windows in which rates are shown, as in figure 3, and in which
    /// recovery is detected.
    pub window_s: f64,
    /// Width in seconds of the windows for mean rates. `None` in results from before the search
    /// existed, which used `window_s`.
    #[serde(default)]
    pub mean_window_s: Option<f64>,
    /// Idle timeout of the server's connections, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Time after which a client's request counts as failed, in milliseconds.
    pub timeout_ms: u64,
    /// Duration in seconds of the measurement after each run: the cost of blocking an attempt.
    pub block_s: f64,
    /// Rate of attempts in that measurement, in packets per second.
    pub block_pps: u64,
    /// CPU of the server.
    pub server_cpu: usize,
    /// CPU of all other processes.
    pub other_cpu: usize,
}

impl ExperimentPlan {
    /// Creates a plan with the paper's times. The times for this machine follow from a measurement
    /// ([`ExperimentPlan::pace`]).
    pub(super) fn new(args: &Args, seed: u64) -> Result<ExperimentPlan> {
        let cpus = allowed_cpus()?;
        let server_cpu = cpus.first().copied().unwrap_or(0);
        let (runs, requests, busy) =
            if args.quick { (2, QUICK_REQUESTS, QUICK_BUSY) } else { (10, REQUESTS, BUSY) };
        let plan = ExperimentPlan {
            runs_per_arm: args.runs.unwrap_or(runs),
            seed,
            sequential_clients: SEQUENTIAL,
            parallel_clients: PARALLEL,
            requests_per_client: args.requests.unwrap_or(requests),
            attack: 1,
            search: Vec::new(),
            busy_s: args.requests.is_none().then_some(busy),
            bytes_per_request: BYTES,
            quota: QUOTA,
            calm_s: 0.0,
            scale: 0.0,
            start_s: 0.0,
            attack_s: 0.0,
            rate_per_parallel_client: 0.0,
            slots_per_parallel_client: 0,
            window_s: 0.0,
            mean_window_s: None,
            idle_timeout_ms: 0,
            timeout_ms: 0,
            block_s: if args.quick { 0.5 } else { 1.0 },
            block_pps: 20_000,
            server_cpu,
            other_cpu: cpus.get(1).copied().unwrap_or(server_cpu),
        };
        Ok(plan.pace(CALM))
    }

    /// Returns the plan with the number of requests and the times for this machine, on which the
    /// sequential clients need `calm_s` without an attack.
    pub(super) fn pace(mut self, mut calm_s: f64) -> ExperimentPlan {
        if let Some(busy_s) = self.busy_s.filter(|busy_s| calm_s < *busy_s) {
            let requests = f64::from(self.requests_per_client) * busy_s / calm_s;
            // The number is rounded up to a multiple of 50, so that it is easy to read.
            let requests = (requests / 50.0).ceil() * 50.0;
            calm_s *= requests / f64::from(self.requests_per_client);
            // The cast saturates if the number is too large.
            self.requests_per_client = requests as u32;
        }
        let scale = (calm_s / CALM).min(1.0);
        let attack_s = ATTACK * scale;
        let timeout_s = (IDLE * scale).max(SHORTEST_TIMEOUT);
        let attack = self.attack;
        let paced = ExperimentPlan {
            calm_s,
            scale,
            start_s: START * scale,
            attack_s,
            window_s: WINDOW * scale,
            idle_timeout_ms: (timeout_s * 1000.0) as u64,
            timeout_ms: (timeout_s * 1000.0) as u64,
            ..self
        };
        paced.attacked(attack)
    }

    /// Returns the plan with an attack in which a parallel client makes `attack` times the requests
    /// of a sequential client, in the same time.
    pub(super) fn attacked(self, attack: u32) -> ExperimentPlan {
        let requests = self.requests_per_client.saturating_mul(attack);
        let rate = f64::from(requests) / self.attack_s;
        // This is the number of requests in progress if no request is answered, plus a fifth.
        let slots = rate * self.timeout_ms as f64 / 1000.0 * 1.2;
        let slots = slots.ceil().clamp(8.0, MOST_SLOTS) as usize;
        ExperimentPlan {
            attack,
            rate_per_parallel_client: rate,
            slots_per_parallel_client: slots.min(requests as usize),
            ..self
        }
    }

    /// Returns the number of requests of a parallel client.
    pub(super) fn requests_per_attacker(&self) -> u32 {
        self.requests_per_client.saturating_mul(self.attack)
    }

    /// Returns the width of the windows for mean rates, in seconds.
    pub(super) fn mean_window_s(&self) -> f64 {
        self.mean_window_s.unwrap_or(self.window_s)
    }

    /// Returns the number of requests that each client makes when the pace is measured.
    pub(super) fn probe_requests(&self) -> u32 {
        (self.requests_per_client / 5).clamp(10, 200)
    }

    /// Returns the expected length of a run in seconds.
    pub(super) fn run_s(&self) -> f64 {
        1.3 * self.calm_s + self.timeout_ms as f64 / 1000.0 + self.block_s + 2.5
    }

    /// Returns the arguments of `equic serve` for an arm. The gateway that the server joins has the
    /// name of the lab.
    pub(super) fn server(&self, arm: Arm, lab: &Lab) -> Vec<String> {
        let listen = format!("{}:{PORT}", lab.server().ipv4);
        let idle = format!("{}ms", self.idle_timeout_ms);
        let mut args = words(&[
            "serve",
            "--json",
            "--threads",
            "1",
            "--listen",
            &listen,
            "--idle-timeout",
            &idle,
            // Retry is off, because the paper's server does not use it.
            "--retry",
            "never",
        ]);
        let quota = format!("max_connections={}", self.quota);
        let user = |response| words(&["--user-limit", &quota, "--user-limit", response]);
        args.extend(match arm {
            Arm::None => Vec::new(),
            Arm::UserLate => user("at_limit=close"),
            // Ignoring packets costs the server least, and the gateway also ignores them.
            Arm::UserEarly => user("at_limit=ignore"),
            Arm::KernelStrict | Arm::KernelNew => words(&["--gateway", lab.id()]),
        });
        args
    }

    /// Returns the arguments of `equic gateway run` for a gateway with the name of the lab.
    pub(super) fn gateway(&self, policy: &str, lab: &Lab) -> Vec<String> {
        let (port, quota) = (PORT.to_string(), self.quota.to_string());
        words(&[
            "gateway",
            "run",
            "--json",
            "--interface",
            IFNAME,
            "--port",
            &port,
            "--name",
            lab.id(),
            "-o",
            &format!("policy={policy}"),
            "--max-connections",
            &quota,
        ])
    }

    /// Returns the arguments of `equic-lab net load well` for a sequential client that makes this
    /// number of requests.
    pub(super) fn sequential(&self, server: &Namespace, pin: &str, requests: u32) -> Vec<String> {
        let mut args = words(&["net", "load", "well", &self.url(server), "--pin", pin]);
        args.extend(self.measured(requests));
        args
    }

    /// Returns the arguments of `equic-lab net load parallel` for a client that begins requests at
    /// a fixed rate, whether or not earlier ones succeed.
    pub(super) fn parallel(&self, server: &Namespace, pin: &str) -> Vec<String> {
        let mut args = words(&["net", "load", "parallel", &self.url(server), "--pin", pin]);
        let (slots, rate) = (self.slots_per_parallel_client, self.rate_per_parallel_client);
        let (slots, rate) = (slots.to_string(), rate.to_string());
        args.extend(words(&["--connections", &slots, "--rate", &rate, "--hold", "0s"]));
        args.extend(self.measured(self.requests_per_attacker()));
        args
    }

    fn measured(&self, requests: u32) -> Vec<String> {
        let (count, timeout) = (requests.to_string(), format!("{}ms", self.timeout_ms));
        words(&[
            "--count",
            &count,
            "--timeout",
            &timeout,
            "--threads",
            "1",
            "--samples",
            "/dev/stdout",
            "--json",
        ])
    }

    /// Returns the arguments of `equic-lab net flood initial`, to measure the cost of blocking an
    /// attempt.
    pub(super) fn flood(&self, server: &Namespace) -> Vec<String> {
        let target = format!("{}:{PORT}", server.ipv4);
        let (pps, seed) = (self.block_pps.to_string(), (self.seed % 1_000_000).to_string());
        let duration = format!("{}ms", (self.block_s * 1000.0).round() as u64);
        words(&[
            "net",
            "flood",
            "initial",
            "--json",
            "--target",
            &target,
            "--pps",
            &pps,
            "--pool",
            "2000",
            "--seed",
            &seed,
            "--duration",
            &duration,
        ])
    }

    fn url(&self, server: &Namespace) -> String {
        format!("https://{}:{PORT}/bytes/{}", server.ipv4, self.bytes_per_request)
    }
}

fn one() -> u32 {
    1
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Figures of one trial, which is a run of the arm without a quota.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    /// Answered requests per second of the sequential clients before the attack: the median of
    /// windows. `attacked_per_s` is the mean rate under attack.
    pub before_per_s: f64,
    pub attacked_per_s: f64,
    /// Longest time in which no sequential client got a response, in seconds.
    pub silence_s: f64,
}

/// An attack that the search tried, with its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Number of requests of an attacker, as a multiple of that of a sequential client.
    pub attack: u32,
    pub trials: Vec<Trial>,
}

impl Trial {
    /// Returns the share of the throughput that was lost under attack. It is negative if the
    /// throughput rose.
    pub(super) fn loss(&self) -> f64 {
        if self.before_per_s > 0.0 { 1.0 - self.attacked_per_s / self.before_per_s } else { 0.0 }
    }
}

impl Step {
    /// Returns the smallest loss in any trial of this attack.
    pub(super) fn loss(&self) -> f64 {
        self.trials.iter().map(Trial::loss).fold(f64::INFINITY, f64::min)
    }

    /// Returns true if enough throughput was lost in every trial.
    pub(super) fn enough(&self) -> bool {
        !self.trials.is_empty() && self.loss() >= LOSS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a plan in which the user gives the number of requests.
    fn given() -> ExperimentPlan {
        ExperimentPlan::new(&Args { requests: Some(200), ..Args::default() }, 1).unwrap()
    }

    #[test]
    fn plan_times_are_those_of_the_paper_or_scaled() {
        let slow = given().pace(400.0);
        assert_eq!((slow.scale, slow.start_s, slow.window_s), (1.0, 30.0, 5.0));
        assert_eq!((slow.idle_timeout_ms, slow.attack_s), (30_000, 80.0));
        let fast = given().pace(15.0);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(fast.start_s, 3.0) && near(fast.window_s, 0.5) && near(fast.attack_s, 8.0));
        // Some sequential clients must still be active when the attack begins and when it ends.
        assert!(fast.start_s + fast.attack_s < fast.calm_s);
        assert!(near(fast.rate_per_parallel_client * fast.attack_s, 200.0));
        // The scaled timeout would be below the minimum, so the minimum is used.
        assert_eq!(given().pace(1.0).idle_timeout_ms, 2000);
    }

    #[test]
    fn plan_has_more_requests_on_fast_machines() {
        let plan = ExperimentPlan::new(&Args::default(), 1).unwrap();
        let slow = plan.clone().pace(40.0);
        assert_eq!((slow.requests_per_client, slow.calm_s), (1000, 40.0));
        let fast = plan.pace(12.0);
        assert_eq!((fast.requests_per_client, fast.calm_s), (2500, 30.0));
        assert!((fast.scale - 0.2).abs() < 1e-9);
    }

    #[test]
    fn plan_of_a_stronger_attack_takes_as_long() {
        let paced = given().pace(30.0);
        let (rate, attack_s) = (paced.rate_per_parallel_client, paced.attack_s);
        let strong = paced.attacked(8);
        assert!((strong.rate_per_parallel_client - 8.0 * rate).abs() < 1e-9);
        assert_eq!((strong.attack_s, strong.requests_per_attacker()), (attack_s, 1600));
        assert_eq!(strong.requests_per_client, 200);
        // There are enough slots for all requests that can be in progress during a timeout of 6 s.
        assert_eq!(strong.slots_per_parallel_client, 720);
        assert_eq!(strong.attacked(1_000).slots_per_parallel_client, 3000);
    }
}
