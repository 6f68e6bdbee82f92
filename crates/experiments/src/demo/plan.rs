//! Plan of the demo: how long each arm is, how strong the attacks are, and who takes part.

use equic_harness::allowed_cpus;
use serde::Serialize;

use super::args::Args;
use super::arms::Arm;
use crate::failure::Done;

/// Legitimate clients: one source address each.
pub(super) const CLIENTS: usize = 4;
/// Attackers: one source address each.
pub(super) const ATTACKERS: usize = 2;
/// Connections each legitimate client has at a time.
const SLOTS: usize = 2;
/// Traffic in all arms together, in seconds, unless the user says otherwise.
const SECONDS: f64 = 75.0;
/// The same for a look, or a test.
const QUICK_SECONDS: f64 = 12.0;
/// The part of it that goes to the attack by forged sources, and the calm before it.
const FORGED: f64 = 1.0 / 3.0;
/// The part of the rest that goes to the arm without an attack; the others share what is left.
const ALONE: f64 = 0.16;
/// The part of the time for forged sources that each of the four arms has, until the last newcomer has come. What
/// is left is for those who wait for an answer in vain.
const TURN: f64 = 0.19;
/// Newcomers a second.
const NEWCOMERS_PER_S: f64 = 30.0;
/// However short an arm is, so many newcomers come in it.
const FEWEST_NEWCOMERS: u32 = 10;
/// Most addresses that newcomers come from; after these the first comes again. A client of a lab has a /24.
const MOST_ADDRESSES: u32 = 240;

/// Everything that was chosen; part of the result.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DemoPlan {
    /// Length of the arm without an attack, seconds.
    pub alone_s: f64,
    /// Length of each arm with one, seconds; longer where attackers take long to begin.
    pub attacked_s: f64,
    /// From the beginning of an arm to the parallel clients, seconds.
    pub lead_s: f64,
    /// From there to the flood, seconds; longer where the parallel clients take long to begin.
    pub flood_after_s: f64,
    /// In an arm with newcomers: from its beginning to the flood, or, without an attack, to the first of them, seconds.
    pub newcomers_lead_s: f64,
    /// Time in which they come, seconds.
    pub newcomers_s: f64,
    /// Newcomers in each of these arms: one connection with one request each.
    pub newcomers: u32,
    /// Newcomers a second, whatever becomes of those before.
    pub newcomers_per_s: f64,
    /// Addresses that they come from.
    pub newcomers_addresses: u32,
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
    /// Prefix that forged sources are out of; none of the lab's addresses is in it.
    pub forged: &'static str,
    /// Against forged sources: the gateway asks for proof of addresses while more connections are opened without it.
    pub retry_above: &'static str,
    /// Its answers, in all.
    pub answers_per_service: &'static str,
    /// Limit: connections of a source at a time.
    pub max_connections: u32,
    /// Limit: new connections of a source.
    pub new_per_source: &'static str,
    /// The CPU the server runs on.
    pub server_cpu: usize,
    /// The CPU of everything else.
    pub other_cpu: usize,
}

impl DemoPlan {
    pub(super) fn new(args: &Args) -> Done<DemoPlan> {
        let total = match (args.seconds, args.quick) {
            (Some(seconds), _) => f64::from(seconds),
            (None, true) => QUICK_SECONDS,
            (None, false) => SECONDS,
        };
        let quotas_s = total * (1.0 - FORGED);
        let attacked_s = quotas_s * (1.0 - ALONE) / 3.0;
        let lead_s = (attacked_s * 0.15).min(2.0);
        // Time for the parallel clients to get what they can.
        let flood_after_s = (attacked_s * 0.25).min(1.0);
        let turn_s = total * FORGED * TURN;
        let newcomers_lead_s = (turn_s * 0.16).min(2.0);
        let newcomers_s = turn_s - newcomers_lead_s;
        // The cast saturates.
        let newcomers = ((newcomers_s * NEWCOMERS_PER_S).round() as u32).max(FEWEST_NEWCOMERS);
        let cpus = allowed_cpus()?;
        let server_cpu = cpus.first().copied().unwrap_or(0);
        Ok(DemoPlan {
            alone_s: quotas_s * ALONE,
            attacked_s,
            lead_s,
            flood_after_s,
            newcomers_lead_s,
            newcomers_s,
            newcomers,
            newcomers_per_s: NEWCOMERS_PER_S,
            newcomers_addresses: newcomers.min(MOST_ADDRESSES),
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
            forged: "10.128.0.0/9",
            retry_above: "500/s",
            // The default.
            answers_per_service: "1000000/s",
            max_connections: 32,
            new_per_source: "100/s burst 40",
            server_cpu,
            other_cpu: cpus.get(1).copied().unwrap_or(server_cpu),
        })
    }

    /// Time within which a request is answered or has failed, in seconds.
    fn timeout_s(&self) -> f64 {
        f64::from(self.timeout_ms) / 1000.0
    }

    /// Length of an arm, in seconds.
    pub(super) fn seconds(&self, arm: Arm) -> f64 {
        match (arm.forged(), arm.attacked()) {
            (false, false) => self.alone_s,
            (false, true) => self.attacked_s,
            (true, false) => self.newcomers_lead_s + self.newcomers_s,
            // The last newcomer may have to wait.
            (true, true) => self.newcomers_lead_s + self.newcomers_s + self.timeout_s(),
        }
    }

    /// Length of the attack at its full height, in seconds, where no newcomers come.
    pub(super) fn window(&self) -> f64 {
        self.attacked_s - self.lead_s - self.flood_after_s
    }

    /// Length of all arms together, in seconds.
    pub(super) fn total(&self) -> f64 {
        Arm::all().map(|arm| self.seconds(arm)).sum()
    }
}
