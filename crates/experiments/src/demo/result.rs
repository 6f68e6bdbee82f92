//! The result: what one arm came to in figures, and the whole as it is written to `demo.json`.

use equic_gateway::{Reason, Status};
use equic_lab::flood::FloodReport;
use equic_load::{Outcome, Sample};
use equic_report::stats;
use serde::Serialize;
use serde_json::Value;

use super::arms::Arm;
use super::drops::{Dropped, drops};
use super::newcomers::Newcomers;
use super::plan::DemoPlan;
use super::take::{Take, Tick};

/// `data` of schema equic.demo/1.
#[derive(Serialize)]
pub(super) struct Demo {
    /// Choices for the demo.
    pub plan: DemoPlan,
    /// The arms of the attack that quotas stop, in the order they were played.
    pub arms: Vec<ArmResult>,
    /// The attack by forged sources, which was played after it.
    pub forged: Forged,
    /// Notes that a reader of the figures needs.
    pub notes: Vec<String>,
    /// Conclusion of `arms` in one sentence.
    pub conclusion: String,
}

/// The attack by forged sources.
#[derive(Serialize)]
pub(super) struct Forged {
    /// The arms, in the order they were played.
    pub arms: Vec<ArmResult>,
    /// Conclusion of what newcomers had of them.
    pub conclusion: String,
}

/// One arm. Times count from its beginning, when the legitimate clients were started.
#[derive(Serialize)]
pub(super) struct ArmResult {
    pub arm: Arm,
    pub title: &'static str,
    /// Beginning of the arm on the plot's axis, seconds.
    pub start_s: f64,
    /// Length of the arm, seconds.
    pub seconds: f64,
    /// Time at which the attack began: with parallel clients, where there are any; none without an attack.
    pub attack_s: Option<f64>,
    /// Time at which the whole flood was there; none without an attack.
    pub flood_s: Option<f64>,
    /// The time the figures of `legitimate` and `server` are of: the attack at its full height. With newcomers: from the
    /// first of them to the end of the last.
    pub window_s: [f64; 2],
    pub legitimate: Legitimate,
    /// Results of the newcomers; none in arms without any.
    pub newcomers: Option<Newcomers>,
    /// Retry packets by which clients were asked for proof of their addresses, of the whole arm.
    pub retries: Retries,
    pub server: Server,
    pub attack: Option<Attack>,
    /// Packets and attempts that did not get to be a connection, and the reasons; of the whole arm.
    pub drops: Vec<Dropped>,
    /// State and counters of the gateway at the end of the attack.
    pub gateway: Option<Status>,
    /// True if the gateway was attached in the driver; none without a gateway.
    pub gateway_native: Option<bool>,
    /// Counters along the way.
    pub series: Vec<Interval>,
    /// Times at which requests of legitimate clients went well, for the plot.
    #[serde(skip)]
    pub completions: Vec<f64>,
}

/// Results of the legitimate clients.
#[derive(Serialize, Default)]
pub(super) struct Legitimate {
    /// Requests that ended well in the window, a second.
    pub requests_per_s: f64,
    /// Requests that began in the window: the sum of the next four.
    pub requests: u64,
    pub ok: u64,
    pub refused: u64,
    pub timeouts: u64,
    pub errors: u64,
    /// Duration of those that went well, the handshake of the first on a connection included.
    pub median_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl Legitimate {
    pub(super) fn failures(&self) -> u64 {
        self.refused + self.timeouts + self.errors
    }
}

/// Retry packets, by who sent them.
#[derive(Serialize)]
pub(super) struct Retries {
    pub server: u64,
    pub gateway: u64,
    /// Connections that were let in by the gateway because they brought the token of its Retry packet.
    pub gateway_proved: u64,
}

/// The server's use of CPU and its counts.
#[derive(Serialize)]
pub(super) struct Server {
    /// CPU time in the window, per cent of one CPU.
    pub cpu_percent: f64,
    /// Use of the server's CPU by everybody in the window, per cent; if it is more than
    /// `cpu_percent` and soft interrupts together, others were there.
    pub cpu_busy_percent: f64,
    /// Of that, soft interrupts.
    pub cpu_softirq_percent: f64,
    /// Its counters at its end, of the whole arm.
    pub stats: Value,
}

/// Results of the attackers.
#[derive(Serialize)]
pub(super) struct Attack {
    /// Connections of the parallel clients on which the server answered a request.
    pub accepted: u64,
    /// Their attempts that failed.
    pub failed: u64,
    /// Initials the floods sent.
    pub flood_sent: u64,
    /// The same a second.
    pub flood_pps: f64,
    /// Report of each flood.
    pub floods: Vec<FloodReport>,
    /// The most connections all attackers had at a time, as the gateway counts them.
    pub peak_connections: Option<u64>,
}

/// Counts between two readings of the counters.
#[derive(Serialize)]
pub(super) struct Interval {
    pub from_s: f64,
    pub to_s: f64,
    /// Requests of legitimate clients that ended well.
    pub ok: u64,
    /// Those that did not.
    pub failed: u64,
    /// Median duration of those that did.
    pub median_ms: Option<f64>,
    /// Connections of the parallel clients the server answered on.
    pub attackers_accepted: u64,
    /// Connections of all attackers at the end, as the gateway counts them.
    pub attackers_connections: Option<u64>,
    /// The server, per cent of one CPU.
    pub server_cpu_percent: f64,
    /// Datagrams delivered to the server's socket.
    pub datagrams: u64,
    /// Datagrams that found its buffer full.
    pub socket_full: u64,
    /// Packets the gateway dropped.
    pub gateway_dropped: u64,
    /// Packets it answered.
    pub gateway_answered: u64,
}

fn ended(sample: &Sample) -> f64 {
    (sample.start_ms + sample.duration_ms) / 1000.0
}

fn went_well(sample: &Sample) -> bool {
    sample.outcome == Outcome::Ok
}

impl ArmResult {
    /// Number of packets and attempts stopped at a place, for whatever reason.
    pub(super) fn dropped(&self, place: &str) -> u64 {
        self.drops.iter().filter(|row| row.place == place).map(|row| row.count).sum()
    }

    /// Works out the figures; `start` is where the arm begins on the plot's axis.
    pub(super) fn new(arm: Arm, plan: &DemoPlan, take: Take, start: f64) -> ArmResult {
        let came = take.newcomers.iter().map(|sample| sample.start_ms / 1000.0);
        let came = came.min_by(f64::total_cmp);
        let from = came.or(take.flooded).or(take.attacked).unwrap_or(take.begun + plan.lead_s);
        // A flood that never began leaves the window where it was to begin.
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

fn retries(take: &Take) -> Retries {
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

fn server(take: &Take, from: f64) -> Server {
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

fn attack(take: &Take) -> Attack {
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

fn interval(take: &Take, before: &Tick, after: &Tick) -> Interval {
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
