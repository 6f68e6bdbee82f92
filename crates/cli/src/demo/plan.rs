//! Plan of the demo: the arms, their length and the attack's strength, and the command lines of its parts.

use equic_lab::plan::IFNAME;
use equic_lab::{Lab, Namespace};
use serde::Serialize;

use super::Args;
use crate::failure::Done;
use crate::part::allowed_cpus;

/// Legitimate clients: one source address each.
pub(super) const CLIENTS: usize = 4;
/// Attackers: one source address each.
pub(super) const ATTACKERS: usize = 2;
/// Port that the server listens at.
const PORT: u16 = 443;
/// Connections each legitimate client has at a time.
const SLOTS: usize = 2;
/// Traffic in all arms together, in seconds, unless the user says otherwise.
const SECONDS: f64 = 50.0;
/// The same for a look, or a test.
const QUICK_SECONDS: f64 = 8.0;
/// The part of it that goes to the arm without an attack; the others share the rest.
const ALONE: f64 = 0.16;

/// One part of the experiment, with a server of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arm {
    /// Legitimate clients, and nobody else.
    Alone,
    /// The attack on a server that takes everybody.
    Unprotected,
    /// The attack on a server that enforces limits itself.
    UserSpace,
    /// The attack on a server that feeds a gateway with the same limits.
    Gateway,
}

impl Arm {
    /// In the order they are played.
    pub(super) const ALL: [Arm; 4] = [Arm::Alone, Arm::Unprotected, Arm::UserSpace, Arm::Gateway];

    /// Above its column of the table, in two lines.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Arm::Alone => "no\nattack",
            Arm::Unprotected => "no\nprotection",
            Arm::UserSpace => "quotas in\nthe server",
            Arm::Gateway => "eQUIC\ngateway",
        }
    }

    /// For the plot, and to speak of it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Arm::Alone => "legitimate clients alone",
            Arm::Unprotected => "attack, no protection",
            Arm::UserSpace => "attack, quotas in the server",
            Arm::Gateway => "attack, eQUIC gateway",
        }
    }

    /// Whether the attackers take part in this arm.
    pub(super) fn attacked(self) -> bool {
        self != Arm::Alone
    }
}

/// Everything that was chosen; part of the result.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Plan {
    /// Length of the arm without an attack, seconds.
    pub alone_s: f64,
    /// Length of each arm with one, seconds; longer where attackers take long to begin.
    pub attacked_s: f64,
    /// From the beginning of an arm to the parallel clients, seconds.
    pub lead_s: f64,
    /// From there to the flood, seconds; longer where the parallel clients take long to begin.
    pub flood_after_s: f64,
    /// Legitimate clients, one source address each.
    pub clients: usize,
    /// Connections a legitimate client has at a time.
    pub connections_per_client: usize,
    /// Requests it makes on each.
    pub requests_per_connection: u32,
    /// Bytes it asks for.
    pub bytes_per_request: u32,
    /// Its pause between connections, milliseconds.
    pub think_ms: u32,
    /// A request without an answer for so long has failed, milliseconds.
    pub timeout_ms: u32,
    /// Attackers, one source address each.
    pub attackers: usize,
    /// Connections each attacker tries to hold.
    pub connections_per_attacker: u16,
    /// Initials a second, of all attackers together.
    pub flood_pps: u64,
    /// Different Initials each attacker has.
    pub flood_pool: usize,
    /// Limit: connections of a source at a time.
    pub max_connections: u32,
    /// Limit: new connections of a source.
    pub new_per_source: &'static str,
    /// The CPU the server runs on.
    pub server_cpu: usize,
    /// The CPU of everything else.
    pub other_cpu: usize,
}

impl Plan {
    pub(super) fn new(args: &Args) -> Done<Plan> {
        let total = match (args.seconds, args.quick) {
            (Some(seconds), _) => f64::from(seconds),
            (None, true) => QUICK_SECONDS,
            (None, false) => SECONDS,
        };
        let attacked_s = total * (1.0 - ALONE) / 3.0;
        let lead_s = (attacked_s * 0.15).min(2.0);
        // Time for the parallel clients to get what they can.
        let flood_after_s = (attacked_s * 0.25).min(1.0);
        let cpus = allowed_cpus()?;
        let server_cpu = cpus.first().copied().unwrap_or(0);
        Ok(Plan {
            alone_s: total * ALONE,
            attacked_s,
            lead_s,
            flood_after_s,
            clients: CLIENTS,
            connections_per_client: SLOTS,
            requests_per_connection: 8,
            bytes_per_request: 10_000,
            think_ms: 40,
            timeout_ms: 2000,
            attackers: ATTACKERS,
            connections_per_attacker: args.connections,
            flood_pps: args.flood,
            // Making one takes some microseconds, and a short demo has no time for many.
            flood_pool: if args.quick { 4_000 } else { 20_000 },
            max_connections: 32,
            new_per_source: "100/s burst 40",
            server_cpu,
            other_cpu: cpus.get(1).copied().unwrap_or(server_cpu),
        })
    }

    /// Length of an arm, in seconds.
    pub(super) fn seconds(&self, arm: Arm) -> f64 {
        if arm.attacked() { self.attacked_s } else { self.alone_s }
    }

    /// Length of the attack at its full height, in seconds.
    pub(super) fn window(&self) -> f64 {
        self.attacked_s - self.lead_s - self.flood_after_s
    }

    /// Length of all arms together, in seconds.
    pub(super) fn total(&self) -> f64 {
        Arm::ALL.iter().map(|arm| self.seconds(*arm)).sum()
    }

    /// `equic serve`, for an arm; `gateway` is the name of the one to feed.
    pub(super) fn server(&self, arm: Arm, lab: &Lab, gateway: &str) -> Vec<String> {
        let listen = format!("{}:{PORT}", lab.server().ipv4);
        let mut args = words(&["serve", "--json", "--threads", "1", "--listen", &listen]);
        // As measured so far: what stands before the server is compared, not what it does itself.
        args.extend(words(&["--retry-threshold", "off"]));
        match arm {
            Arm::Alone | Arm::Unprotected => {}
            // Ignoring is the least a server can do, and what the gateway does.
            Arm::UserSpace => args.extend(words(&[
                "--user-quota",
                &self.max_connections.to_string(),
                "--user-rate",
                self.new_per_source,
                "--user-at-limit",
                "ignore",
            ])),
            Arm::Gateway => args.extend(words(&["--gateway", gateway])),
        }
        args
    }

    /// `equic gateway run`, called `name`.
    pub(super) fn gateway(&self, name: &str) -> Vec<String> {
        words(&[
            "gateway",
            "run",
            "--json",
            "--interface",
            IFNAME,
            "--port",
            &PORT.to_string(),
            "--name",
            name,
            "--max-connections",
            &self.max_connections.to_string(),
            "--new-per-source",
            self.new_per_source,
        ])
    }

    /// `equic lab load well`, for `seconds`.
    pub(super) fn client(&self, server: &Namespace, pin: &str, seconds: f64) -> Vec<String> {
        let mut args = words(&["lab", "load", "well", &self.url(server), "--pin", pin]);
        args.extend(words(&[
            "--clients",
            &self.connections_per_client.to_string(),
            "--requests",
            &self.requests_per_connection.to_string(),
            "--think",
            &format!("{}ms", self.think_ms),
            "--timeout",
            &format!("{}ms", self.timeout_ms),
            "--duration",
            &milliseconds(seconds),
        ]));
        args.extend(words(&SAMPLED));
        args
    }

    /// `equic lab load parallel`: the paper's attackers.
    pub(super) fn parallel(&self, server: &Namespace, pin: &str, seconds: f64) -> Vec<String> {
        let mut args = words(&["lab", "load", "parallel", &self.url(server), "--pin", pin]);
        args.extend(words(&[
            "--connections",
            &self.connections_per_attacker.to_string(),
            "--duration",
            &milliseconds(seconds),
        ]));
        args.extend(words(&SAMPLED));
        args
    }

    /// `equic lab flood initial`, of one attacker.
    pub(super) fn flood(&self, server: &Namespace, attacker: usize, seconds: f64) -> Vec<String> {
        let target = format!("{}:{PORT}", server.ipv4);
        let pps = (self.flood_pps / self.attackers as u64).max(1);
        words(&[
            "lab",
            "flood",
            "initial",
            "--json",
            "--target",
            &target,
            "--pps",
            &pps.to_string(),
            "--pool",
            &self.flood_pool.to_string(),
            "--seed",
            &(attacker + 1).to_string(),
            "--duration",
            &milliseconds(seconds),
        ])
    }

    fn url(&self, server: &Namespace) -> String {
        format!("https://{}:{PORT}/bytes/{}", server.ipv4, self.bytes_per_request)
    }
}

/// Every request as a line on standard output, and the summary behind them.
const SAMPLED: [&str; 5] = ["--threads", "1", "--samples", "/dev/stdout", "--json"];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn milliseconds(seconds: f64) -> String {
    format!("{}ms", (seconds * 1000.0).round() as u64)
}
