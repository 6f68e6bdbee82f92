//! The result: what one run came to in figures, and the whole as it is written to `result.json`.

use std::collections::BTreeMap;

use equic_lab::measure::Calls;
use equic_load::{Outcome, Sample};
use equic_report::stats;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arm::Take;
use super::metrics::{harmonic_mean, recovery, windows};
use super::plan::{Arm, ExperimentPlan};

/// `data` of schema equic.reproduce.gateway/1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Experiment {
    pub plan: ExperimentPlan,
    /// Cost of a decision alone, measured beside the runs.
    pub decisions: Vec<Decision>,
    /// Runs, in the order in which they were played.
    pub runs: Vec<Run>,
}

/// Cost of one decision "over the quota", without anything around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Decision {
    /// Arm that decides so.
    pub arm: Arm,
    /// `BPF_PROG_TEST_RUN` of the XDP program, or the server's admission called in a loop.
    pub method: String,
    /// Nanoseconds of a decision; one mean of many for each repetition.
    pub nanoseconds: Vec<f64>,
}

/// One run. Times count from when the sequential clients were started, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub arm: Arm,
    /// All arms are played once a round, in random order.
    pub round: u32,
    /// Time at which the parallel clients began, seconds.
    pub attack_s: f64,
    /// Time at which the parallel clients began their last request, seconds.
    pub attack_end_s: f64,
    /// Time at which the first sequential client had made its requests, seconds: rates count until then.
    pub first_done_s: f64,
    /// Time at which the last sequential client had made its requests, seconds.
    pub sequential_done_s: f64,
    /// Time at which all clients had made their requests, seconds.
    pub seconds: f64,
    pub legitimate: Legitimate,
    pub attackers: Outcomes,
    /// Middle of a window, requests a second answered to sequential clients, and to all.
    pub timeline: Vec<(f64, f64, f64)>,
    pub server: Server,
    /// System calls of the server, by name.
    pub syscalls: BTreeMap<String, Calls>,
    pub gateway: Option<Gateway>,
    pub block: Option<Block>,
    /// Reason that the cost of a block could not be measured; none if it was.
    pub block_missing: Option<String>,
    /// CPU time of other processes meanwhile, per cent of all of the machine's CPUs.
    pub foreign_percent: f64,
}

/// Numbers of requests by their results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcomes {
    pub requests: u64,
    pub ok: u64,
    pub refused: u64,
    pub timeouts: u64,
    pub errors: u64,
}

/// Results of the sequential clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Legitimate {
    pub outcomes: Outcomes,
    /// Over the whole experiment, until the first of them is done.
    pub whole: Served,
    /// While the attack lasts.
    pub attacked: Served,
    /// Median rate before the attack, requests a second.
    pub before_per_s: Option<f64>,
    /// Seconds from the attack's beginning until the rate is back; none: it was not, until the end.
    pub recovery_s: Option<f64>,
    /// Percentiles 0 to 100 of the duration of requests begun while the attack lasted, milliseconds.
    pub percentiles_ms: Vec<f64>,
}

/// Rates and durations over a stretch of time. Durations are of requests that went well, from the
/// first packet of the handshake to the last byte.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Served {
    /// Harmonic mean of the rates in windows.
    pub harmonic_per_s: Option<f64>,
    /// Arithmetic mean of the same.
    pub mean_per_s: Option<f64>,
    pub harmonic_ms: Option<f64>,
    pub mean_ms: Option<f64>,
    pub median_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The server's use of CPU and memory, and its counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Server {
    /// CPU time until all clients were done, seconds.
    pub cpu_s: f64,
    /// Per cent of one CPU, in each interval between two looks since the attack began.
    pub cpu_percent: Vec<f64>,
    /// Proportional set size at each of these looks, MB.
    pub pss_mb: Vec<f64>,
    /// Resident set size at each of these looks, MB.
    pub rss_mb: Vec<f64>,
    /// Its counters at its end.
    pub stats: Value,
}

/// Counts of the gateway until all clients were done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Gateway {
    /// Attached in the driver.
    pub native: bool,
    /// Packets it saw, passed and dropped alike.
    pub packets: u64,
    /// Mean time of the program over all of these, nanoseconds (the kernel's run-time statistics).
    pub mean_ns: Option<f64>,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// Cost of turning away an attempt, measured after the run on the same server: a source that holds
/// its quota goes on trying.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    /// Attempts that were turned away.
    pub attempts: u64,
    /// CPU time of the server for each attempt, nanoseconds.
    pub server_ns: f64,
    /// CPU time of the XDP program for each attempt, nanoseconds; none: the arm has none.
    pub kernel_ns: Option<f64>,
}

impl Block {
    /// CPU time of server and XDP program for each attempt, nanoseconds.
    pub(super) fn nanoseconds(&self) -> f64 {
        self.server_ns + self.kernel_ns.unwrap_or(0.0)
    }
}

impl Outcomes {
    pub(super) fn of(samples: &[Sample]) -> Outcomes {
        let mut sum = Outcomes { requests: samples.len() as u64, ..Outcomes::default() };
        for sample in samples {
            match sample.outcome {
                Outcome::Ok => sum.ok += 1,
                Outcome::Refused => sum.refused += 1,
                Outcome::Timeout => sum.timeouts += 1,
                Outcome::Error { .. } => sum.errors += 1,
            }
        }
        sum
    }

    pub(super) fn failed(&self) -> u64 {
        self.requests - self.ok
    }
}

fn begun(sample: &Sample) -> f64 {
    sample.start_ms / 1000.0
}

fn ended(sample: &Sample) -> f64 {
    (sample.start_ms + sample.duration_ms) / 1000.0
}

fn well(sample: &&Sample) -> bool {
    sample.outcome == Outcome::Ok
}

/// Four significant digits: more is noise, and takes room.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * unit).round() / unit
}

impl Run {
    /// Works out the figures of a run.
    pub(super) fn new(arm: Arm, round: u32, plan: &ExperimentPlan, take: &Take) -> Run {
        let since = |time: f64| time - take.begun;
        let latest = |times: &mut dyn Iterator<Item = f64>| times.fold(take.begun, f64::max);
        let all = || take.sequential.iter().flatten();
        let first_done = take
            .sequential
            .iter()
            .map(|samples| latest(&mut samples.iter().map(ended)))
            .fold(f64::INFINITY, f64::min);
        let first_done = if first_done.is_finite() { first_done } else { take.over };
        let attack_end = latest(&mut take.parallel.iter().map(begun)).max(take.attacked);
        let width = plan.window_s;
        let completions: Vec<f64> = all().filter(well).map(|sample| since(ended(sample))).collect();
        let attackers: Vec<f64> =
            take.parallel.iter().filter(well).map(|sample| since(ended(sample))).collect();
        let until = since(first_done);
        let rates = windows(&completions, 0.0, until, width);
        let recovered = recovery(&rates, width, since(take.attacked));
        let (attack, attack_end) = (since(take.attacked), since(attack_end));
        let samples: Vec<Sample> = all().cloned().collect();
        let served = |from: f64, to: f64| {
            let during = samples.iter().filter(|s| (from..to).contains(&since(begun(s))));
            // Where less than a window is left, that is the window.
            let width = plan.mean_window_s().min(to - from);
            let rates = windows(&completions, from, to, width);
            served(during, &rates.into_iter().map(|window| window.1).collect::<Vec<f64>>())
        };
        let during: stats::Sample = samples
            .iter()
            .filter(well)
            .filter(|sample| (attack..attack_end).contains(&since(begun(sample))))
            .map(|sample| sample.duration_ms)
            .collect();
        let end = since(take.over);
        let whole = windows(&completions, 0.0, end, width);
        let both = windows(&[completions.clone(), attackers].concat(), 0.0, end, width);
        Run {
            arm,
            round,
            attack_s: attack,
            attack_end_s: attack_end,
            first_done_s: until,
            sequential_done_s: since(latest(&mut all().map(ended))),
            seconds: end,
            legitimate: Legitimate {
                outcomes: Outcomes::of(&samples),
                whole: served(0.0, until),
                attacked: served(attack, attack_end.min(until)),
                before_per_s: recovered.map(|recovery| recovery.before),
                recovery_s: recovered.and_then(|recovery| recovery.seconds),
                percentiles_ms: (0..=100)
                    .filter_map(|p| during.percentile(f64::from(p)).map(short))
                    .collect(),
            },
            attackers: Outcomes::of(&take.parallel),
            timeline: whole
                .iter()
                .zip(&both)
                .map(|(own, all)| (short(own.0), short(own.1), short(all.1)))
                .collect(),
            server: server(take),
            syscalls: take.syscalls.clone(),
            gateway: take.gateway.clone(),
            block: take.block,
            block_missing: take.block_missing.clone(),
            foreign_percent: take.foreign_percent,
        }
    }
}

fn served<'a>(samples: impl Iterator<Item = &'a Sample>, rates: &[f64]) -> Served {
    let durations = samples.filter(well).map(|sample| sample.duration_ms);
    let durations: stats::Sample = durations.collect();
    Served {
        harmonic_per_s: harmonic_mean(rates),
        mean_per_s: stats::Sample::from(rates).mean(),
        harmonic_ms: durations.harmonic_mean(),
        mean_ms: durations.mean(),
        median_ms: durations.median(),
        p99_ms: durations.nearest_rank(99.0),
    }
}

fn server(take: &Take) -> Server {
    let looks: Vec<_> = take.looks.iter().filter(|look| look.at >= take.attacked).collect();
    let megabytes = |bytes: u64| short(bytes as f64 / 1e6);
    let percent = |pair: &[&super::arm::Look]| {
        let seconds = (pair[1].at - pair[0].at).max(1e-6);
        short((pair[1].cpu_s - pair[0].cpu_s) / seconds * 100.0)
    };
    let cpu = |look: Option<&super::arm::Look>| look.map_or(0.0, |look| look.cpu_s);
    Server {
        cpu_s: cpu(take.looks.last()) - cpu(take.looks.first()),
        cpu_percent: looks.windows(2).map(percent).collect(),
        pss_mb: looks.iter().map(|look| megabytes(look.memory.pss_bytes)).collect(),
        rss_mb: looks.iter().map(|look| megabytes(look.memory.rss_bytes)).collect(),
        stats: take.server.clone(),
    }
}
