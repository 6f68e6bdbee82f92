//! Plan of the demo: lengths of the arms, strengths of the attacks, and numbers of clients.

use equic_harness::allowed_cpus;
use serde::Serialize;

use super::args::Args;
use super::arms::Arm;
use crate::failure::Result;

/// Number of legitimate clients. Each has its own source address.
pub(super) const CLIENTS: usize = 4;
/// Number of attackers. Each has its own source address.
pub(super) const ATTACKERS: usize = 2;
/// Number of simultaneous connections of each legitimate client.
const SLOTS: usize = 2;
/// Default duration of the traffic in all arms, in seconds.
const SECONDS: f64 = 75.0;
/// Default duration of the traffic for a quick run or a test, in seconds.
const QUICK_SECONDS: f64 = 12.0;
/// Share of this duration for the arms with newcomers.
const FORGED: f64 = 1.0 / 3.0;
/// Share of the other arms' time for the arm without an attack. The arms with an attack divide the
/// rest equally.
const ALONE: f64 = 0.16;
/// Time in which newcomers start in each of the four arms with newcomers, as a share of these arms'
/// total time. The remaining time is needed because the last newcomers may wait for their timeout.
const TURN: f64 = 0.19;
/// Number of newcomers that start per second.
const NEWCOMERS_PER_S: f64 = 30.0;
/// Minimum number of newcomers in an arm, even a short one.
const FEWEST_NEWCOMERS: u32 = 10;
/// Maximum number of addresses of newcomers. With more newcomers, addresses are reused, because a
/// client of a lab has only a /24.
const MOST_ADDRESSES: u32 = 240;

/// All parameters of the demo. They are part of the result.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DemoPlan {
    /// Length of the arm without an attack, in seconds.
    pub alone_s: f64,
    /// Length of each arm with an attack, in seconds. The arm gets longer if attackers take long to
    /// begin.
    pub attacked_s: f64,
    /// Time from the start of an arm to the start of the attackers' parallel clients, in seconds.
    pub lead_s: f64,
    /// Time from the start of the parallel clients to the start of the flood, in seconds. It gets
    /// longer if the parallel clients take long to begin.
    pub flood_after_s: f64,
    /// In an arm with newcomers: time in seconds from the arm's start to the flood. Without an
    /// attack, it is the time to the first newcomer.
    pub newcomers_lead_s: f64,
    /// Time in which newcomers start, in seconds. It is the same in each arm that has any.
    pub newcomers_s: f64,
    /// Number of newcomers in each arm that has any. Each makes one connection with one request.
    pub newcomers: u32,
    /// Number of newcomers that start per second, whether or not earlier ones have succeeded.
    pub newcomers_per_s: f64,
    /// Number of addresses of the newcomers.
    pub newcomers_addresses: u32,
    /// Number of legitimate clients. Each has its own source address.
    pub clients: usize,
    /// Number of simultaneous connections of a legitimate client.
    pub connections_per_client: usize,
    /// Number of requests on each connection of a legitimate client.
    pub requests_per_connection: u32,
    /// Size of the response to each request, in bytes.
    pub bytes_per_request: u32,
    /// Pause of a legitimate client between two connections, in milliseconds.
    pub think_ms: u32,
    /// Time after which a request without a response counts as failed, in milliseconds.
    pub timeout_ms: u32,
    /// Number of attackers. Each has its own source address.
    pub attackers: usize,
    /// Number of connections that each attacker tries to hold.
    pub connections_per_attacker: u16,
    /// Rate of the flood in Initial packets per second, for all attackers together.
    pub flood_pps: u64,
    /// Number of different Initial packets that each attacker sends.
    pub flood_pool: usize,
    /// Prefix of the forged source addresses. It contains no address of the lab.
    pub forged: &'static str,
    /// Setting against forged sources: the gateway asks for address validation while the rate of
    /// new connections without validation exceeds this.
    pub retry_above: &'static str,
    /// Limit of the answers that the gateway sends per second for the service.
    pub answers_per_service: &'static str,
    /// Limit of simultaneous connections per source.
    pub max_connections: u32,
    /// Limit of the rate of new connections per source.
    pub new_per_source: &'static str,
    /// CPU of the server.
    pub server_cpu: usize,
    /// CPU of all other processes.
    pub other_cpu: usize,
}

impl DemoPlan {
    pub(super) fn new(args: &Args) -> Result<DemoPlan> {
        let total = match (args.seconds, args.quick) {
            (Some(seconds), _) => f64::from(seconds),
            (None, true) => QUICK_SECONDS,
            (None, false) => SECONDS,
        };
        let quotas_s = total * (1.0 - FORGED);
        let attacked_s = quotas_s * (1.0 - ALONE) / 3.0;
        let lead_s = (attacked_s * 0.15).min(2.0);
        // In this time, the parallel clients can open as many connections as they are allowed to.
        let flood_after_s = (attacked_s * 0.25).min(1.0);
        let turn_s = total * FORGED * TURN;
        let newcomers_lead_s = (turn_s * 0.16).min(2.0);
        let newcomers_s = turn_s - newcomers_lead_s;
        // The cast saturates, so a very long demo is no problem.
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
            // Creating a packet takes some microseconds, and a short demo has little time.
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

    /// Returns the time after which a request counts as failed, in seconds.
    fn timeout_s(&self) -> f64 {
        f64::from(self.timeout_ms) / 1000.0
    }

    /// Returns the length of an arm in seconds.
    pub(super) fn seconds(&self, arm: Arm) -> f64 {
        match (arm.forged(), arm.attacked()) {
            (false, false) => self.alone_s,
            (false, true) => self.attacked_s,
            (true, false) => self.newcomers_lead_s + self.newcomers_s,
            // The last newcomer may have to wait until its timeout.
            (true, true) => self.newcomers_lead_s + self.newcomers_s + self.timeout_s(),
        }
    }

    /// Returns the time in which the whole attack is active in an arm without newcomers, in
    /// seconds.
    pub(super) fn window(&self) -> f64 {
        self.attacked_s - self.lead_s - self.flood_after_s
    }

    /// Returns the total length of all arms in seconds.
    pub(super) fn total(&self) -> f64 {
        Arm::all().map(|arm| self.seconds(arm)).sum()
    }
}
