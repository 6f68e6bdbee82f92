//! Plan of the comparison under forged sources: the arms, their length, the flood's strength, and
//! the command lines of the child processes.

use equic_netns::nftables::Rules;
use equic_netns::plan::IFNAME;
use equic_netns::{Lab, Namespace};
use serde::{Deserialize, Serialize};

use super::super::args::Args;
use super::super::arms::Arms;
use super::super::plan::{CLIENT, POOL, PORT, RECEIVE_BUFFER, SPARE, milliseconds, words};

/// Prefixes of the forged addresses. They are equally large, have more than 10^7 addresses in
/// total, and contain no address of the lab.
const FORGED: [&str; 3] = ["10.0.0.0/10", "10.128.0.0/10", "10.192.0.0/10"];
/// Separator of prefixes in a list.
const AND: &str = ", ";
/// Number of newcomers that start per second. Each has its own address.
const NEWCOMERS: f64 = 30.0;
/// Maximum number of addresses of newcomers. With more newcomers, addresses are reused, because a
/// client of a lab has only a /24.
const MOST_ADDRESSES: usize = 240;

/// An arm: a protection of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Arm {
    /// Baseline: the flood is sent to another host. The other arms are compared with this one.
    Elsewhere,
    /// No protection.
    Nothing,
    /// nftables with a limit of Initial packets per source.
    Nftables,
    /// nftables with a limit of Initial packets per source, and a total limit.
    NftablesInAll,
    /// The server answers every Initial packet that has no token with a Retry.
    ServerRetry,
    /// A server on quinn answers every Initial packet that has no token with quinn's Retry.
    QuinnRetry,
    /// The gateway, attached in the driver, with a limit of new connections per source and one for
    /// the service.
    Gateway,
    /// The gateway in generic mode with the same limits. Its XDP program answers every Initial
    /// packet without a token with a Retry.
    GatewayRetry,
}

impl Arms for Arm {
    const ALL: &'static [Arm] = &[
        Arm::Elsewhere,
        Arm::Nothing,
        Arm::Nftables,
        Arm::NftablesInAll,
        Arm::ServerRetry,
        Arm::QuinnRetry,
        Arm::Gateway,
        Arm::GatewayRetry,
    ];
    const BASELINE: Arm = Arm::Elsewhere;

    fn title(self) -> &'static str {
        match self {
            Arm::Elsewhere => "no protection, flood to another host (baseline)",
            Arm::Nothing => "nothing",
            Arm::Nftables => "nftables, limit per source",
            Arm::NftablesInAll => "nftables, limits per source and in total",
            Arm::ServerRetry => "Retry of the server",
            Arm::QuinnRetry => "Retry of a server based on quinn",
            Arm::Gateway => "eQUIC gateway, new_per_service",
            Arm::GatewayRetry => "eQUIC gateway, Retry",
        }
    }
}

/// Parameters of the comparison. They are part of the result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct ForgedPlan {
    /// Number of rounds. Each round measures everything once.
    pub rounds: usize,
    /// Time in which newcomers start, in seconds.
    pub seconds: f64,
    /// Rates of the flood to measure, in Initial packets per second. Null means as fast as the
    /// attacker's CPU can send.
    pub flood_pps: Vec<Option<u64>>,
    /// Prefixes of the forged sources, separated by commas.
    pub forged: String,
    /// Number of newcomers that start per second. Each makes one connection with one request.
    pub newcomers_per_s: f64,
    /// Number of connections from before the flood. Each has one request at a time.
    pub established: usize,
    /// Size of each response in bytes.
    pub bytes_per_request: u32,
    /// Time after which a newcomer without a response counts as failed, in milliseconds. It
    /// includes the handshake.
    pub timeout_ms: u32,
    /// Limit of new connections per source in the gateway, or of Initial packets per source in
    /// nftables.
    pub new_per_source: String,
    /// Limit of new connections in total, in the gateway.
    pub new_per_service: String,
    /// Limit of Retry packets in total, in the gateway. It is off, so that it never decides which
    /// clients are served.
    pub answers_per_service: String,
    /// Burst of Initial packets per source that nftables allows. A connection needs two or three
    /// Initial packets. `initials_in_all` is nftables' total rate and the burst of that rate.
    pub initials_burst: u32,
    pub initials_in_all: (u32, u32),
    /// CPU of the server and its legitimate clients.
    pub server_cpu: usize,
    /// CPU of the flood, and of the soft interrupts that it causes.
    pub flood_cpu: usize,
    /// Seed of the random order of the measurements.
    pub seed: u64,
}

impl ForgedPlan {
    /// Creates the plan. The first CPU is that of the server, and the second that of the flood.
    pub(super) fn new(args: &Args, [server_cpu, flood_cpu]: [usize; 2], lab: &Lab) -> ForgedPlan {
        let (rounds, seconds) = if args.quick { (2, 1.5) } else { (7, 4.0) };
        let rates =
            if args.quick { vec![Some(20_000)] } else { vec![Some(2_000), Some(20_000), None] };
        ForgedPlan {
            rounds: args.rounds.map_or(rounds, usize::from),
            seconds: args.seconds.map_or(seconds, f64::from),
            flood_pps: args.rates(rates),
            forged: if args.victims {
                let [a, b, c, _] = lab.client(CLIENT).ipv4.octets();
                format!("{a}.{b}.{c}.0/24")
            } else {
                FORGED.join(AND)
            },
            newcomers_per_s: NEWCOMERS,
            established: 4,
            bytes_per_request: 10_000,
            timeout_ms: 2_000,
            new_per_source: "1/s burst 16".to_owned(),
            new_per_service: "500/s burst 500".to_owned(),
            answers_per_service: "off".to_owned(),
            initials_burst: 48,
            initials_in_all: (1_500, 1_500),
            server_cpu,
            flood_cpu,
            seed: args.seed,
        }
    }

    /// Returns the arguments of the arm's server: `equic serve`, or a server on quinn. An arm's
    /// gateway has the name of the lab.
    pub(super) fn server(&self, arm: Arm, lab: &Lab) -> Vec<String> {
        let listen = format!("{}:{PORT}", lab.server().ipv4);
        if arm == Arm::QuinnRetry {
            let buffer = ["--receive-buffer", RECEIVE_BUFFER];
            return words(&[&["quinn-server", "--listen", &listen], &buffer[..]].concat());
        }
        let mut args = words(&["serve", "--json", "--threads", "1", "--listen", &listen]);
        args.extend(words(&["--receive-buffer", RECEIVE_BUFFER]));
        args.extend(match arm {
            Arm::ServerRetry => words(&["--retry"]),
            // The server's own Retry is off, because the arms compare protections in front of the
            // server.
            Arm::Gateway | Arm::GatewayRetry => words(&["--retry", "never", "--gateway", lab.id()]),
            Arm::Elsewhere
            | Arm::Nothing
            | Arm::Nftables
            | Arm::NftablesInAll
            | Arm::QuinnRetry => words(&["--retry", "never"]),
        });
        args
    }

    /// Returns the arguments of `equic gateway run` for a gateway with the name of the lab, with or
    /// without Retry.
    pub(super) fn gateway(&self, lab: &Lab, retry: bool) -> Vec<String> {
        let port = PORT.to_string();
        // On veth, packets that an XDP program in the driver sends back are lost unless the peer
        // interface has a program, too.
        let mode = if retry { "generic" } else { "native" };
        let mut args = words(&["gateway", "run", "--json", "--mode", mode, "--name", lab.id()]);
        args.extend(words(&["--interface", IFNAME, "--port", &port]));
        args.extend(words(&["--new-per-source", &self.new_per_source]));
        args.extend(words(&["--new-per-service", &self.new_per_service]));
        if retry {
            args.extend(words(&["-o", "retry=always"]));
            let answers = format!("answers_per_service={}", self.answers_per_service);
            args.extend(words(&["-o", &answers]));
        }
        args
    }

    /// Returns the nftables rules that are closest to the gateway's limits.
    pub(super) fn rules(&self, in_all: bool) -> Rules {
        Rules {
            port: PORT,
            initials_per_second: 1,
            burst: self.initials_burst,
            in_all: in_all.then_some(self.initials_in_all),
            deny: Vec::new(),
        }
    }

    /// Returns the arguments of `equic-lab net load well` for connections that stay open and repeat
    /// their request after each response.
    pub(super) fn established(&self, server: &Namespace, pin: &str) -> Vec<String> {
        let (clients, requests) = (self.established.to_string(), u32::MAX.to_string());
        let mut args = self.load(server, pin);
        args.extend(words(&["--clients", &clients, "--requests", &requests]));
        args.extend(words(&["--duration", &milliseconds(self.seconds + SPARE)]));
        args
    }

    /// Returns the arguments of `equic-lab net load well` for newcomers. They start at a steady
    /// rate, whether or not earlier ones have succeeded. Each uses the next address of its host.
    pub(super) fn newcomers(&self, host: &Namespace, server: &Namespace, pin: &str) -> Vec<String> {
        // There are enough addresses for all newcomers that can start, even if the last one waits
        // until its timeout.
        let most = self.newcomers_per_s * (self.seconds + f64::from(self.timeout_ms) / 1000.0);
        // The cast saturates.
        let addresses = (most.ceil() as usize).clamp(1, MOST_ADDRESSES);
        let mut args = self.load(server, pin);
        args.extend(words(&["--clients", &addresses.to_string(), "--requests", "1"]));
        args.extend(words(&["--rate", &self.newcomers_per_s.to_string(), "--retry-pause", "0s"]));
        args.extend(words(&["--duration", &milliseconds(self.seconds)]));
        let [a, b, c, _] = host.ipv4.octets();
        // The addresses begin with .2, because .1 is the host's own address.
        for last in (2..=u8::MAX).take(addresses) {
            args.extend(words(&["--from", &format!("{a}.{b}.{c}.{last}")]));
        }
        args
    }

    fn load(&self, server: &Namespace, pin: &str) -> Vec<String> {
        let url = format!("https://{}:{PORT}/bytes/{}", server.ipv4, self.bytes_per_request);
        let mut args = words(&["net", "load", "well", &url, "--pin", pin, "--json"]);
        args.extend(words(&["--threads", "1", "--samples", "/dev/stdout"]));
        args.extend(words(&["--timeout", &format!("{}ms", self.timeout_ms)]));
        args
    }

    /// Returns the arguments of `equic-lab net flood initial` for a flood towards a host.
    pub(super) fn flood(&self, to: &Namespace, pps: Option<u64>, seed: u64) -> Vec<String> {
        let target = format!("{}:{PORT}", to.ipv4);
        let mut args = words(&["net", "flood", "initial", "--json", "--target", &target]);
        for prefix in self.forged.split(AND) {
            args.extend(words(&["--spoof", prefix]));
        }
        if let Some(pps) = pps {
            args.extend(words(&["--pps", &pps.to_string()]));
        }
        args.extend(words(&["--pool", &POOL.to_string(), "--seed", &seed.to_string()]));
        args.extend(words(&["--duration", &milliseconds(self.seconds + SPARE)]));
        args
    }
}

#[cfg(test)]
mod tests {
    use equic_gateway::IpNet;

    use super::FORGED;

    #[test]
    fn forged_addresses_are_ten_million_outside_the_lab() {
        let prefixes = FORGED.map(|prefix| prefix.parse::<IpNet>().unwrap());
        let lab = IpNet::V4(equic_netns::plan::ipv4_range());
        for (at, prefix) in prefixes.iter().enumerate() {
            assert_eq!(
                prefix.prefix_len(),
                prefixes[0].prefix_len(),
                "all are drawn equally often"
            );
            for other in prefixes[..at].iter().chain([&lab]) {
                assert!(!prefix.contains(other) && !other.contains(prefix), "{prefix} {other}");
            }
        }
        let addresses: u64 = prefixes.iter().map(|prefix| 1 << (32 - prefix.prefix_len())).sum();
        assert!(addresses >= 10_000_000, "{addresses}");
    }
}
