//! The result of the demo: the figures of one arm, and the content of `demo.json`.

use equic_gateway::{Reason, Status};
use equic_load::{Outcome, Sample};
use equic_netns::flood::FloodReport;
use equic_report::stats;
use serde::Serialize;
use serde_json::Value;

use super::arms::Arm;
use super::drops::{Dropped, drops};
use super::newcomers::Newcomers;
use super::plan::DemoPlan;
use super::raw_records::{RawRecords, Tick};

/// The content of `data` in `demo.json` (schema equic.demo/1).
#[derive(Serialize)]
pub(super) struct Demo {
    /// Parameters of the demo.
    pub plan: DemoPlan,
    /// The arms of the attack from real addresses, in the order in which they ran.
    pub arms: Vec<ArmResult>,
    /// Results of the attack from forged sources, whose arms ran after the others.
    pub forged: Forged,
    /// Notes that a reader needs to interpret the figures.
    pub notes: Vec<String>,
    /// Conclusion of `arms`, in one sentence.
    pub conclusion: String,
}

/// Results of the attack from forged sources.
#[derive(Serialize)]
pub(super) struct Forged {
    /// The arms with forged sources, in the order in which they ran.
    pub arms: Vec<ArmResult>,
    /// Conclusion about the newcomers, in a few sentences.
    pub conclusion: String,
}

/// Result of one arm. Times count from the start of the arm, when the legitimate clients were
/// started.
#[derive(Serialize)]
pub(super) struct ArmResult {
    pub arm: Arm,
    pub title: &'static str,
    /// Start of the arm on the plot's axis, in seconds.
    pub start_s: f64,
    /// Length of the arm in seconds.
    pub seconds: f64,
    /// Time at which the attack began: that of the parallel clients, if the arm has any, otherwise
    /// that of the flood. `None` without an attack.
    pub attack_s: Option<f64>,
    /// Time at which the whole flood had begun. `None` without an attack.
    pub flood_s: Option<f64>,
    /// Time covered by the figures in `legitimate` and `server`: that of the full attack. In an arm
    /// with newcomers, from the start of the first one to the end of the last one.
    pub window_s: [f64; 2],
    pub legitimate: Legitimate,
    /// Results of the newcomers, or `None` in arms without newcomers.
    pub newcomers: Option<Newcomers>,
    /// Retry packets sent to clients, in the whole arm.
    pub retries: Retries,
    pub server: Server,
    pub attack: Option<Attack>,
    /// Rejected packets and connection attempts with their reasons, in the whole arm.
    pub drops: Vec<Dropped>,
    /// State and counters of the gateway at the end of the attack.
    pub gateway: Option<Status>,
    /// True if the gateway was attached in the driver. `None` without a gateway.
    pub gateway_native: Option<bool>,
    /// Counters over time.
    pub series: Vec<Interval>,
    /// Times of successful requests of legitimate clients, for the plot.
    #[serde(skip)]
    pub completions: Vec<f64>,
}

/// Results of the legitimate clients in an arm.
#[derive(Serialize, Default)]
pub(super) struct Legitimate {
    /// Successful requests of legitimate clients per second, in the window.
    pub requests_per_s: f64,
    /// Requests that began in the window. Each is also counted in one of the next four fields.
    pub requests: u64,
    pub ok: u64,
    pub refused: u64,
    pub timeouts: u64,
    pub errors: u64,
    /// Median duration of the successful requests, in milliseconds. The first request on a
    /// connection includes the handshake.
    pub median_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl Legitimate {
    pub(super) fn failures(&self) -> u64 {
        self.refused + self.timeouts + self.errors
    }
}

/// Number of Retry packets, by sender.
#[derive(Serialize)]
pub(super) struct Retries {
    pub server: u64,
    pub gateway: u64,
    /// Connections that the gateway admitted because the client returned the token of a Retry
    /// packet.
    pub gateway_proved: u64,
}

/// The server's CPU use and counters in an arm.
#[derive(Serialize)]
pub(super) struct Server {
    /// CPU time of the server in the window, in percent of one CPU.
    pub cpu_percent: f64,
    /// Use of the server's CPU by all processes in the window, in percent. If it exceeds
    /// `cpu_percent` plus soft interrupts, other processes used the CPU.
    pub cpu_busy_percent: f64,
    /// The part of `cpu_busy_percent` that was used in soft interrupts.
    pub cpu_softirq_percent: f64,
    /// The server's counters at its end, for the whole arm.
    pub stats: Value,
}

/// Results of the attackers in an arm.
#[derive(Serialize)]
pub(super) struct Attack {
    /// Connections of the parallel clients on which the server answered a request.
    pub accepted: u64,
    /// Failed connection attempts of the parallel clients.
    pub failed: u64,
    /// Number of Initial packets that the floods sent.
    pub flood_sent: u64,
    /// Initial packets per second that the floods sent.
    pub flood_pps: f64,
    /// Report of each flood.
    pub floods: Vec<FloodReport>,
    /// Largest number of simultaneous connections of all attackers, as counted by the gateway.
    pub peak_connections: Option<u64>,
}

/// Counts in the interval between two reads of the counters.
#[derive(Serialize)]
pub(super) struct Interval {
    pub from_s: f64,
    pub to_s: f64,
    /// Successful requests of legitimate clients.
    pub ok: u64,
    /// Failed requests of legitimate clients.
    pub failed: u64,
    /// Median duration of the successful requests, in milliseconds.
    pub median_ms: Option<f64>,
    /// Connections of the parallel clients on which the server answered.
    pub attackers_accepted: u64,
    /// Connections of all attackers at the end of the interval, as counted by the gateway.
    pub attackers_connections: Option<u64>,
    /// CPU use of the server, in percent of one CPU.
    pub server_cpu_percent: f64,
    /// Datagrams delivered to the server's socket.
    pub datagrams: u64,
    /// Datagrams that were dropped because the buffer of the server's socket was full.
    pub socket_full: u64,
    /// Packets that the gateway dropped.
    pub gateway_dropped: u64,
    /// Packets that the gateway answered.
    pub gateway_answered: u64,
}

fn ended(sample: &Sample) -> f64 {
    (sample.start_ms + sample.duration_ms) / 1000.0
}

fn went_well(sample: &Sample) -> bool {
    sample.outcome == Outcome::Ok
}

impl ArmResult {
    /// Returns the number of packets and connection attempts that were stopped at this place, for
    /// any reason.
    pub(super) fn dropped(&self, place: &str) -> u64 {
        self.drops.iter().filter(|row| row.place == place).map(|row| row.count).sum()
    }

    /// Computes the figures of an arm. `start` is the arm's start on the plot's axis, in seconds.
    pub(super) fn new(arm: Arm, plan: &DemoPlan, take: RawRecords, start: f64) -> ArmResult {
        let came = take.newcomers.iter().map(|sample| sample.start_ms / 1000.0);
        let came = came.min_by(f64::total_cmp);
        let from = came.or(take.flooded).or(take.attacked).unwrap_or(take.begun + plan.lead_s);
        // If the flood never began, the window starts at its planned time.
        let from = from.min(take.over - 0.1).max(take.begun);
        let since = |time: f64| time - take.begun;
        let drops = drops(&take);
        let series =
            take.ticks.windows(2).map(|pair| interval(&take, &pair[0], &pair[1])).collect();
        ArmResult {
            arm,
            title: arm.title(),
            start_s: start,
            seconds: since(take.over),
            attack_s: take.attacked.or(take.flooded).map(since),
            flood_s: take.flooded.map(since),
            window_s: [since(from), since(take.over)],
            legitimate: legitimate(&take.samples, from, take.over),
            newcomers: arm.forged().then(|| Newcomers::new(&take.newcomers, take.begun)),
            retries: retries(&take),
            server: server(&take, from),
            attack: arm.attacked().then(|| attack(&take)),
            drops,
            gateway_native: take.gateway.as_ref().map(|(_, native)| *native),
            series,
            completions: take
                .samples
                .iter()
                .filter(|sample| went_well(sample))
                .map(|sample| since(ended(sample)))
                .collect(),
            gateway: take.gateway.map(|(status, _)| status),
        }
    }
}

fn legitimate(samples: &[Sample], from: f64, to: f64) -> Legitimate {
    let within = |time: f64| time >= from && time < to;
    let completed = samples.iter().filter(|s| went_well(s) && within(ended(s))).count();
    let mut sum = Legitimate {
        requests_per_s: completed as f64 / (to - from).max(0.001),
        ..Legitimate::default()
    };
    let begun = || samples.iter().filter(|sample| within(sample.start_ms / 1000.0));
    for sample in begun() {
        sum.requests += 1;
        match sample.outcome {
            Outcome::Ok => sum.ok += 1,
            Outcome::Refused => sum.refused += 1,
            Outcome::Timeout => sum.timeouts += 1,
            Outcome::Error { .. } => sum.errors += 1,
        }
    }
    let durations = begun().filter(|sample| went_well(sample)).map(|sample| sample.duration_ms);
    let durations: stats::Sample = durations.collect();
    sum.median_ms = durations.median();
    sum.p99_ms = durations.nearest_rank(99.0);
    sum.max_ms = durations.max();
    sum
}

fn retries(take: &RawRecords) -> Retries {
    let gateway = |reason: Reason| {
        let services = take.gateway.iter().flat_map(|(status, _)| &status.services);
        let rows = services.flat_map(|service| &service.verdicts);
        rows.filter(|row| row.reason == reason).map(|row| row.packets).sum()
    };
    Retries {
        server: take.server["stats"]["retried"].as_u64().unwrap_or(0),
        gateway: gateway(Reason::RetrySent),
        gateway_proved: gateway(Reason::Proved),
    }
}

fn server(take: &RawRecords, from: f64) -> Server {
    let nearest = |time: f64| {
        let distance = |tick: &&Tick| (tick.at - time).abs();
        take.ticks.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    };
    let (first, last) = match (nearest(from), take.ticks.last()) {
        (Some(first), Some(last)) => (first.clone(), last.clone()),
        _ => Default::default(),
    };
    let percent = |seconds: f64| 100.0 * seconds / (last.at - first.at).max(0.001);
    Server {
        cpu_percent: percent(last.server.seconds() - first.server.seconds()),
        cpu_busy_percent: percent(last.cpu.busy_seconds - first.cpu.busy_seconds),
        cpu_softirq_percent: percent(last.cpu.softirq_seconds - first.cpu.softirq_seconds),
        stats: take.server["stats"].clone(),
    }
}

fn attack(take: &RawRecords) -> Attack {
    let accepted = take.parallel.iter().filter(|sample| went_well(sample)).count() as u64;
    Attack {
        accepted,
        failed: take.parallel.len() as u64 - accepted,
        flood_sent: take.floods.iter().map(|flood| flood.sent).sum(),
        flood_pps: take.floods.iter().map(|flood| flood.pps).sum(),
        floods: take.floods.clone(),
        peak_connections: take.ticks.iter().filter_map(|tick| tick.attackers).max(),
    }
}

fn interval(take: &RawRecords, before: &Tick, after: &Tick) -> Interval {
    let within = |sample: &&Sample| (before.at..after.at).contains(&ended(sample));
    let (ok, failed): (Vec<&Sample>, Vec<&Sample>) =
        take.samples.iter().filter(within).partition(|sample| went_well(sample));
    let durations: stats::Sample = ok.iter().map(|sample| sample.duration_ms).collect();
    let accepted = take.parallel.iter().filter(within).filter(|sample| went_well(sample)).count();
    let cpu = after.server.seconds() - before.server.seconds();
    Interval {
        from_s: before.at - take.begun,
        to_s: after.at - take.begun,
        ok: ok.len() as u64,
        failed: failed.len() as u64,
        median_ms: durations.median(),
        attackers_accepted: accepted as u64,
        attackers_connections: after.attackers,
        server_cpu_percent: 100.0 * cpu / (after.at - before.at).max(0.001),
        datagrams: after.udp.in_datagrams.saturating_sub(before.udp.in_datagrams),
        socket_full: after.udp.rcvbuf_errors.saturating_sub(before.udp.rcvbuf_errors),
        gateway_dropped: after.dropped.saturating_sub(before.dropped),
        gateway_answered: after.answered.saturating_sub(before.answered),
    }
}
