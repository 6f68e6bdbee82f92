//! The result of the gateway experiment: the figures of one run, and the content of `result.json`.

use std::collections::BTreeMap;

use equic_load::{Outcome, Sample};
use equic_netns::measure::{Calls, Memory};
use equic_report::stats;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metrics::{harmonic_mean, recovery, windows};
use super::plan::{Arm, ExperimentPlan};

/// Raw records of one run, from which the result is computed. Times are seconds of CLOCK_MONOTONIC.
pub(super) struct RawRecords {
    /// Time at which the sequential clients were started.
    pub begun: f64,
    /// Time at which the parallel clients were started.
    pub attacked: f64,
    /// Time at which all clients had finished.
    pub over: f64,
    /// Requests of each sequential client.
    pub sequential: Vec<Vec<Sample>>,
    /// Requests of all parallel clients.
    pub parallel: Vec<Sample>,
    /// States of the server over time.
    pub looks: Vec<Look>,
    /// System calls of the server, by name.
    pub syscalls: BTreeMap<String, Calls>,
    /// The counters that the server itself reports.
    pub server: Value,
    pub gateway: Option<Gateway>,
    pub block: Option<Block>,
    /// Reason why the cost of blocking an attempt could not be measured, or `None` if it was.
    pub block_missing: Option<String>,
    /// CPU time of other processes, in percent of the machine.
    pub foreign_percent: f64,
}

/// State of the server at one time.
pub(super) struct Look {
    pub at: f64,
    pub cpu_s: f64,
    pub memory: Memory,
}

/// The content of `data` in `result.json` (schema equic.reproduce.gateway/1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Experiment {
    pub plan: ExperimentPlan,
    /// Cost of a decision by itself, which is measured separately from the runs.
    pub decisions: Vec<Decision>,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Cost of one decision "over the quota", without the packet processing before and after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Decision {
    /// Arm whose decision was measured.
    pub arm: Arm,
    /// How the decision was measured: `BPF_PROG_TEST_RUN` of the XDP program, or the server's
    /// admission check in a loop.
    pub method: String,
    /// Nanoseconds per decision. There is one mean for each repetition of the measurement.
    pub nanoseconds: Vec<f64>,
}

/// Figures of one run. Times are in seconds since the start of the sequential clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub arm: Arm,
    /// Number of the round. Each round runs all arms once, in random order.
    pub round: u32,
    /// Time at which the parallel clients began, in seconds.
    pub attack_s: f64,
    /// Time at which the parallel clients began their last request, in seconds.
    pub attack_end_s: f64,
    /// Time at which the first sequential client had finished, in seconds. Rates are measured until
    /// then.
    pub first_done_s: f64,
    /// Time at which the last sequential client had finished, in seconds.
    pub sequential_done_s: f64,
    /// Time at which all clients had finished, in seconds.
    pub seconds: f64,
    pub legitimate: Legitimate,
    pub attackers: Outcomes,
    /// For each window: its middle, and the answered requests per second of the sequential clients
    /// and of all clients.
    pub timeline: Vec<(f64, f64, f64)>,
    pub server: Server,
    /// System calls of the server, by name of the call.
    pub syscalls: BTreeMap<String, Calls>,
    pub gateway: Option<Gateway>,
    pub block: Option<Block>,
    /// Reason why the cost of blocking an attempt could not be measured, or `None` if it was.
    pub block_missing: Option<String>,
    /// CPU time of other processes during the run, in percent of all CPUs of the machine.
    pub foreign_percent: f64,
}

/// Numbers of requests, by result.
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
    /// Results for the whole experiment, until the first sequential client has finished.
    pub whole: Served,
    /// Results during the attack.
    pub attacked: Served,
    /// Median rate of responses before the attack, in requests per second.
    pub before_per_s: Option<f64>,
    /// Time from the start of the attack until the rate of responses has recovered, in seconds.
    /// `None` if it did not recover.
    pub recovery_s: Option<f64>,
    /// Percentiles 0 to 100 of the durations of those requests that began during the attack, in
    /// milliseconds.
    pub percentiles_ms: Vec<f64>,
}

/// Rates and durations of a client's requests in an interval. Only successful requests have a
/// duration, which is the time from the first packet of the handshake to the last byte.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Served {
    /// Harmonic mean of the rates in windows, in requests per second.
    pub harmonic_per_s: Option<f64>,
    /// Arithmetic mean of the rates in windows.
    pub mean_per_s: Option<f64>,
    pub harmonic_ms: Option<f64>,
    pub mean_ms: Option<f64>,
    pub median_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The server's CPU and memory use, and its counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Server {
    /// CPU time of the server until all clients had finished, in seconds.
    pub cpu_s: f64,
    /// CPU use between each two reads, in percent of one CPU. The first read is at the
    /// start of the attack.
    pub cpu_percent: Vec<f64>,
    /// Proportional set size in MB, at each read.
    pub pss_mb: Vec<f64>,
    /// Resident set size in MB, at each read.
    pub rss_mb: Vec<f64>,
    /// The server's counters at its end.
    pub stats: Value,
}

/// Counters of the gateway until all clients had finished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Gateway {
    /// True if the gateway was attached in the driver.
    pub native: bool,
    /// Packets that the gateway processed, both passed and dropped.
    pub packets: u64,
    /// Mean run time of the XDP program per packet, in nanoseconds (from the kernel's run-time
    /// statistics).
    pub mean_ns: Option<f64>,
    /// Packets that the gateway dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// Cost of rejecting an attempt, which is measured after the run on the same server. A source that
/// holds as many connections as its quota allows continues to send attempts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    /// Number of rejected attempts.
    pub attempts: u64,
    /// CPU time of the server per attempt, in nanoseconds.
    pub server_ns: f64,
    /// CPU time of the XDP program per attempt, in nanoseconds. `None` if the arm has no XDP
    /// program.
    pub kernel_ns: Option<f64>,
}

impl Block {
    /// Returns the CPU time of the server and the XDP program together per attempt, in nanoseconds.
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

/// Rounds to four significant digits, because more digits would be noise and take space.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * unit).round() / unit
}

impl Run {
    /// Computes the figures of a run.
    pub(super) fn new(arm: Arm, round: u32, plan: &ExperimentPlan, take: &RawRecords) -> Run {
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
            // If the interval is shorter than a window, the whole interval becomes the window.
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

fn server(take: &RawRecords) -> Server {
    let looks: Vec<_> = take.looks.iter().filter(|look| look.at >= take.attacked).collect();
    let megabytes = |bytes: u64| short(bytes as f64 / 1e6);
    let percent = |pair: &[&Look]| {
        let seconds = (pair[1].at - pair[0].at).max(1e-6);
        short((pair[1].cpu_s - pair[0].cpu_s) / seconds * 100.0)
    };
    let cpu = |look: Option<&Look>| look.map_or(0.0, |look| look.cpu_s);
    Server {
        cpu_s: cpu(take.looks.last()) - cpu(take.looks.first()),
        cpu_percent: looks.windows(2).map(percent).collect(),
        pss_mb: looks.iter().map(|look| megabytes(look.memory.pss_bytes)).collect(),
        rss_mb: looks.iter().map(|look| megabytes(look.memory.rss_bytes)).collect(),
        stats: take.server.clone(),
    }
}
