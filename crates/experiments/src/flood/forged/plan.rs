//! Plan of the comparison under forged sources: the arms, their length and the flood's strength, and the
//! command lines of the parts.

use equic_lab::nftables::Rules;
use equic_lab::plan::IFNAME;
use equic_lab::{Lab, Namespace};
use serde::{Deserialize, Serialize};

use super::super::args::Args;
use super::super::arms::Arms;
use super::super::plan::{CLIENT, POOL, PORT, RECEIVE_BUFFER, SPARE, milliseconds, words};

/// Prefixes that the forged addresses are from, each with as many: more than 10^7 in all, and none of the lab's.
const FORGED: [&str; 3] = ["10.0.0.0/10", "10.128.0.0/10", "10.192.0.0/10"];
/// Between prefixes.
const AND: &str = ", ";
/// Newcomers a second, each from an address of its own.
const NEWCOMERS: f64 = 30.0;
/// Most addresses that newcomers come from; after these the first comes again. A client of a lab has a /24.
const MOST_ADDRESSES: usize = 240;

/// Protection of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Arm {
    /// The flood goes to somebody else: what the others are compared with.
    Elsewhere,
    /// No protection.
    Nothing,
    /// nftables: a rate of Initials for each source.
    Nftables,
    /// nftables: that, and a rate of Initials from everybody together.
    NftablesInAll,
    /// The server answers every Initial without a token with a Retry.
    ServerRetry,
    /// The server is one on quinn, and answers every Initial without a token with quinn's Retry.
    QuinnRetry,
    /// eQUIC, attached in the driver: a rate of new connections for each source, and one for the service.
    Gateway,
    /// The same in generic mode, and the program answers every Initial without a token with a Retry.
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
            Arm::Elsewhere => "flood elsewhere (baseline)",
            Arm::Nothing => "nothing",
            Arm::Nftables => "nftables, by source",
            Arm::NftablesInAll => "nftables, by source and in all",
            Arm::ServerRetry => "Retry of the server",
            Arm::QuinnRetry => "Retry of a server on quinn",
            Arm::Gateway => "eQUIC gateway, new_per_service",
            Arm::GatewayRetry => "eQUIC gateway, Retry",
        }
    }
}

/// Choices for the comparison; part of the result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct ForgedPlan {
    /// Number of rounds, in each of which everything is measured once.
    pub rounds: usize,
    /// Time in which newcomers come, seconds.
    pub seconds: f64,
    /// Initials a second; null is all that the attacker's CPU can send.
    pub flood_pps: Vec<Option<u64>>,
    /// Prefixes of the forged sources, with commas between them.
    pub forged: String,
    /// Newcomers a second: one connection with one request each.
    pub newcomers_per_s: f64,
    /// Connections that are there before the flood, each with one request at a time.
    pub established: usize,
    /// Bytes that either asks for.
    pub bytes_per_request: u32,
    /// A request without an answer for so long has failed, its handshake included; milliseconds.
    pub timeout_ms: u32,
    /// Limit of the gateway: new connections of a source; in nftables its Initials.
    pub new_per_source: String,
    /// Limit of the gateway: new connections in all.
    pub new_per_service: String,
    /// Limit of the gateway: Retry packets in all; off, so that it never decides who is served.
    pub answers_per_service: String,
    /// Limits of nftables: Initials of a source at once; in all, a second and at once. A connection takes
    /// two to three Initials.
    pub initials_burst: u32,
    pub initials_in_all: (u32, u32),
    /// The CPU of the server and its legitimate clients.
    pub server_cpu: usize,
    /// The CPU of the flood, and of the soft interrupts it makes.
    pub flood_cpu: usize,
    /// Seed of the order of the measurements and of the intervals.
    pub seed: u64,
}

impl ForgedPlan {
    /// `cpus`: for the server, and for the flood.
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

    /// `equic serve`, for an arm, or a server on quinn; a gateway is called like the lab.
    pub(super) fn server(&self, arm: Arm, lab: &Lab) -> Vec<String> {
        let listen = format!("{}:{PORT}", lab.server().ipv4);
        if arm == Arm::QuinnRetry {
            let buffer = ["--receive-buffer", RECEIVE_BUFFER];
            return words(&[&["lab", "quinn", "--listen", &listen], &buffer[..]].concat());
        }
        let mut args = words(&["serve", "--json", "--threads", "1", "--listen", &listen]);
        args.extend(words(&["--receive-buffer", RECEIVE_BUFFER]));
        args.extend(match arm {
            Arm::ServerRetry => words(&["--retry"]),
            // Protections in front of the server are compared, so the server's own Retry is off.
            Arm::Gateway | Arm::GatewayRetry => {
                words(&["--retry-threshold", "off", "--gateway", lab.id()])
            }
            Arm::Elsewhere
            | Arm::Nothing
            | Arm::Nftables
            | Arm::NftablesInAll
            | Arm::QuinnRetry => words(&["--retry-threshold", "off"]),
        });
        args
    }

    /// `equic gateway run`, called like the lab; with Retry or without.
    pub(super) fn gateway(&self, lab: &Lab, retry: bool) -> Vec<String> {
        let port = PORT.to_string();
        // On veth, what a program in the driver sends back is lost unless the other end has one, too.
        let mode = if retry { "generic" } else { "native" };
        let mut args = words(&["gateway", "run", "--json", "--mode", mode, "--name", lab.id()]);
        args.extend(words(&["--interface", IFNAME, "--port", &port]));
        args.extend(words(&["--new-per-source", &self.new_per_source]));
        args.extend(words(&["--new-per-service", &self.new_per_service]));
        if retry {
            args.extend(words(&["--retry", "always"]));
            args.extend(words(&["--answers-per-service", &self.answers_per_service]));
        }
        args
    }

    /// The nearest in nftables.
    pub(super) fn rules(&self, in_all: bool) -> Rules {
        Rules {
            port: PORT,
            initials_per_second: 1,
            burst: self.initials_burst,
            in_all: in_all.then_some(self.initials_in_all),
            deny: Vec::new(),
        }
    }

    /// `equic lab load well`: connections that are kept, and ask again when they have their answers.
    pub(super) fn established(&self, server: &Namespace, pin: &str) -> Vec<String> {
        let (clients, requests) = (self.established.to_string(), u32::MAX.to_string());
        let mut args = self.load(server, pin);
        args.extend(words(&["--clients", &clients, "--requests", &requests]));
        args.extend(words(&["--duration", &milliseconds(self.seconds + SPARE)]));
        args
    }

    /// `equic lab load well`: newcomers at a steady pace, whatever becomes of those before, each from the
    /// next address of its host.
    pub(super) fn newcomers(&self, host: &Namespace, server: &Namespace, pin: &str) -> Vec<String> {
        // An address for each newcomer that comes before the last of them has its answer, or has failed.
        let most = self.newcomers_per_s * (self.seconds + f64::from(self.timeout_ms) / 1000.0);
        // The cast saturates.
        let addresses = (most.ceil() as usize).clamp(1, MOST_ADDRESSES);
        let mut args = self.load(server, pin);
        args.extend(words(&["--clients", &addresses.to_string(), "--requests", "1"]));
        args.extend(words(&["--rate", &self.newcomers_per_s.to_string(), "--retry-pause", "0s"]));
        args.extend(words(&["--duration", &milliseconds(self.seconds)]));
        let [a, b, c, _] = host.ipv4.octets();
        // From .2 on: .1 is the host's own.
        for last in (2..=u8::MAX).take(addresses) {
            args.extend(words(&["--from", &format!("{a}.{b}.{c}.{last}")]));
        }
        args
    }

    fn load(&self, server: &Namespace, pin: &str) -> Vec<String> {
        let url = format!("https://{}:{PORT}/bytes/{}", server.ipv4, self.bytes_per_request);
        let mut args = words(&["lab", "load", "well", &url, "--pin", pin, "--json"]);
        args.extend(words(&["--threads", "1", "--samples", "/dev/stdout"]));
        args.extend(words(&["--timeout", &format!("{}ms", self.timeout_ms)]));
        args
    }

    /// `equic lab flood initial` at a host.
    pub(super) fn flood(&self, to: &Namespace, pps: Option<u64>, seed: u64) -> Vec<String> {
        let target = format!("{}:{PORT}", to.ipv4);
        let mut args = words(&["lab", "flood", "initial", "--json", "--target", &target]);
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
    fn forged_addresses_are_ten_million_and_none_of_the_lab() {
        let prefixes = FORGED.map(|prefix| prefix.parse::<IpNet>().unwrap());
        let lab = IpNet::V4(equic_lab::plan::ipv4_range());
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
