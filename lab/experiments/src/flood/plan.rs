//! Plan of the comparison: the arms, their length, the flood's strength, and the command lines of
//! the child processes.

use equic_harness::allowed_cpus;
use equic_netns::nftables::Rules;
use equic_netns::plan::IFNAME;
use equic_netns::{Lab, Namespace};
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::arms::Arms;
use crate::failure::{Failure, Result};

/// Port of the server.
pub(super) const PORT: u16 = 443;
/// Index of the legitimate client among the hosts of the lab. `ATTACKER` and `BYSTANDER` are the
/// other hosts.
pub(super) const CLIENT: usize = 0;
pub(super) const ATTACKER: usize = 1;
pub(super) const BYSTANDER: usize = 2;
pub(super) const HOSTS: usize = 3;
/// Number of addresses that the attacker sends from.
const SOURCES: u8 = 4;
/// A prefix that is on every deny list, so that the lists are not empty. No host has an address in
/// it.
const DENIED: &str = "198.51.100.0/24";
/// Receive buffer of the server's socket in all arms. It has room for the initial burst of a rate
/// limit.
pub(super) const RECEIVE_BUFFER: &str = "4MB";
/// Number of different Initial packets that a flood sends.
pub(super) const POOL: usize = 4_096;
/// Extra time in seconds for which the flood is started. It is stopped explicitly before.
pub(super) const SPARE: f64 = 60.0;

/// An arm: a protection of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arm {
    /// Baseline: the flood is sent to another host. The other arms are compared with this one.
    Elsewhere,
    /// The gateway, attached in the driver.
    Gateway,
    /// nftables rules at the ingress hook.
    Nftables,
    /// Quotas that the server enforces itself.
    UserSpace,
    /// No protection.
    Nothing,
}

impl Arms for Arm {
    const ALL: &'static [Arm] =
        &[Arm::Elsewhere, Arm::Gateway, Arm::Nftables, Arm::UserSpace, Arm::Nothing];
    const BASELINE: Arm = Arm::Elsewhere;

    fn title(self) -> &'static str {
        match self {
            Arm::Elsewhere => "no protection, flood to another host (baseline)",
            Arm::Gateway => "eQUIC gateway",
            Arm::Nftables => "nftables",
            Arm::UserSpace => "quotas in the server",
            Arm::Nothing => "nothing",
        }
    }
}

/// Parameters of the comparison. They are part of the result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FloodPlan {
    /// Number of rounds. Each round measures everything once.
    pub rounds: usize,
    /// Length of one measurement in seconds.
    pub seconds: f64,
    /// Rates of the flood to measure, in Initial packets per second. Null means as fast as the
    /// attacker's CPU can send.
    pub flood_pps: Vec<Option<u64>>,
    /// Number of connections of the legitimate client. Each has one request at a time.
    pub connections: usize,
    /// Size of each response in bytes.
    pub bytes_per_request: u32,
    /// Time after which a request without a response counts as failed, in milliseconds.
    pub timeout_ms: u32,
    /// Number of source addresses of the flood.
    pub flood_sources: u8,
    /// Limit of simultaneous connections per source. nftables does not have this limit, because it
    /// does not know connections.
    pub max_connections: u32,
    /// Limit of new connections per source. In nftables, it limits Initial packets per source.
    pub new_per_source: String,
    /// Burst of Initial packets per source that nftables allows. A connection needs two or three.
    pub initials_burst: u32,
    /// CPU of the server and its legitimate client.
    pub server_cpu: usize,
    /// CPU of the flood, and of the soft interrupts that it causes.
    pub flood_cpu: usize,
    /// Seed of the random order of the measurements.
    pub seed: u64,
}

impl FloodPlan {
    /// Creates the plan. The first CPU is that of the server, and the second that of the flood.
    pub(super) fn new(args: &Args, [server_cpu, flood_cpu]: [usize; 2]) -> FloodPlan {
        let (rounds, seconds) = if args.quick { (2, 1.5) } else { (7, 3.0) };
        let rates = if args.quick { vec![None] } else { vec![Some(50_000), Some(200_000), None] };
        FloodPlan {
            rounds: args.rounds.map_or(rounds, usize::from),
            seconds: args.seconds.map_or(seconds, f64::from),
            flood_pps: args.rates(rates),
            connections: 8,
            bytes_per_request: 10_000,
            timeout_ms: 2_000,
            flood_sources: SOURCES,
            max_connections: 32,
            new_per_source: "1/s burst 16".to_owned(),
            initials_burst: 48,
            server_cpu,
            flood_cpu,
            seed: args.seed,
        }
    }

    /// Returns the arguments of `equic serve` for an arm. `gateway` is the name of the gateway that
    /// the server joins.
    pub(super) fn server(&self, arm: Arm, lab: &Lab, gateway: &str) -> Vec<String> {
        let listen = format!("{}:{PORT}", lab.server().ipv4);
        let mut args = words(&["serve", "--json", "--threads", "1", "--listen", &listen]);
        // The server's own Retry is off, because the arms compare protections in front of the
        // server.
        args.extend(words(&["--retry", "never"]));
        args.extend(words(&["--receive-buffer", RECEIVE_BUFFER]));
        match arm {
            Arm::Elsewhere | Arm::Nftables | Arm::Nothing => {}
            // Ignoring packets costs the server least, and the gateway also ignores them.
            Arm::UserSpace => args.extend(words(&[
                "--user-limit",
                &format!("max_connections={}", self.max_connections),
                "--user-limit",
                &format!("new_per_source={}", self.new_per_source),
                "--user-limit",
                "at_limit=ignore",
            ])),
            Arm::Gateway => args.extend(words(&["--gateway", gateway])),
        }
        args
    }

    /// Returns the arguments of `equic gateway run` for a gateway with this name.
    pub(super) fn gateway(&self, name: &str) -> Vec<String> {
        let mut args = words(&["gateway", "run", "--json", "--mode", "native", "--name", name]);
        args.extend(words(&["--interface", IFNAME, "--port", &PORT.to_string()]));
        args.extend(words(&["--max-connections", &self.max_connections.to_string()]));
        args.extend(words(&["--new-per-source", &self.new_per_source]));
        args
    }

    /// Returns the prefix that is put on the gateway's deny list.
    pub(super) fn denied() -> Result<equic_gateway::IpNet> {
        equic_gateway::parse_prefix(DENIED).map_err(|error| Failure::because(DENIED, error))
    }

    /// Returns the nftables rules that are closest to the gateway's limits.
    pub(super) fn rules(&self) -> Result<Rules> {
        let deny = DENIED.parse().map_err(|error| Failure::because(DENIED, error))?;
        let (port, burst) = (PORT, self.initials_burst);
        Ok(Rules { port, initials_per_second: 1, burst, in_all: None, deny: vec![deny] })
    }

    /// Returns the arguments of `equic-lab net load well` for connections that stay open and repeat
    /// their request after each response.
    pub(super) fn client(&self, server: &Namespace, pin: &str) -> Vec<String> {
        let url = format!("https://{}:{PORT}/bytes/{}", server.ipv4, self.bytes_per_request);
        let mut args = words(&["net", "load", "well", &url, "--pin", pin, "--json"]);
        args.extend(words(&["--threads", "1", "--clients", &self.connections.to_string()]));
        args.extend(words(&["--requests", &u32::MAX.to_string()]));
        args.extend(words(&["--timeout", &format!("{}ms", self.timeout_ms)]));
        args.extend(words(&["--duration", &milliseconds(self.seconds)]));
        args
    }

    /// Returns the arguments of `equic-lab net flood initial` for a flood towards a host.
    pub(super) fn flood(
        &self,
        from: &Namespace,
        to: &Namespace,
        pps: Option<u64>,
        seed: u64,
    ) -> Vec<String> {
        let target = format!("{}:{PORT}", to.ipv4);
        let mut args = words(&["net", "flood", "initial", "--json", "--target", &target]);
        let [a, b, c, _] = from.ipv4.octets();
        for last in 1..=self.flood_sources {
            args.extend(words(&["--from", &format!("{a}.{b}.{c}.{last}")]));
        }
        if let Some(pps) = pps {
            args.extend(words(&["--pps", &pps.to_string()]));
        }
        args.extend(words(&["--pool", &POOL.to_string(), "--seed", &seed.to_string()]));
        args.extend(words(&["--duration", &milliseconds(self.seconds + SPARE)]));
        args
    }
}

/// Returns a CPU for the server and its clients, and one for the flood.
pub(super) fn two_cpus() -> Result<[usize; 2]> {
    let cpus = allowed_cpus()?;
    let [server, flood, ..] = cpus[..] else {
        return Err(Failure::new(
            "the benchmark needs two CPUs, one for the flood and one for the server, but this process can use only one",
        )
        .help("run it on a machine where `nproc` prints 2 or more"));
    };
    Ok([server, flood])
}

/// Converts string slices to the owned arguments of a command.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Formats a duration as a command-line value in milliseconds.
pub(super) fn milliseconds(seconds: f64) -> String {
    format!("{}ms", (seconds * 1000.0).round() as u64)
}
