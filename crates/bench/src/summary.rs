//! From measurements to figures: medians with intervals, and ratios to ours within each round.

use std::collections::BTreeMap;

use equic_report::stats::{Interval, RESAMPLES, Sample as Numbers};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use crate::Workload;
use crate::registry::OURS;
use crate::transport::{Outcome, Route, Run, Sample};
use crate::workload::Figure;

/// A median, and where it lies with 95 % confidence (bootstrap).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The interval.
    pub interval: Interval,
}

/// An implementation with a workload on a path, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Path between client and server.
    pub route: Route,
    /// Workload that was measured.
    pub workload: Workload,
    /// Unit of `value`.
    pub figure: Figure,
    /// Name of the implementation.
    pub implementation: String,
    /// Rounds that gave a sample.
    pub measured: usize,
    /// Rounds that were run.
    pub rounds: usize,
    /// It says that it does not do that.
    pub unsupported: bool,
    /// Number of failures, by their description.
    pub failures: BTreeMap<String, usize>,
    /// The workload's figure.
    pub value: Option<Estimate>,
    /// CPU seconds for each unit (10^9 bytes, or a completion): server, client, and both.
    pub server_cpu: Option<Estimate>,
    /// See `server_cpu`.
    pub client_cpu: Option<Estimate>,
    /// See `server_cpu`.
    pub cpu: Option<Estimate>,
    /// Median of the most memory that the server had, in bytes.
    pub server_peak_rss: Option<f64>,
    /// Median of the handshake of single connections, in seconds.
    pub handshake_seconds: Option<f64>,
    /// `value` as a multiple of ours in the same round; none for ours.
    pub value_ratio: Option<Estimate>,
    /// `cpu` as a multiple of ours in the same round.
    pub cpu_ratio: Option<Estimate>,
}

/// One row for each path, workload and implementation that occurs, in that order.
pub fn rows(runs: &[Run], names: &[String], seed: u64) -> Vec<Row> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut rows = Vec::new();
    for route in [Route::Loopback, Route::Veth] {
        for workload in Workload::TRANSPORT {
            for name in names {
                rows.extend(row(runs, route, workload, name, &mut rng));
            }
        }
    }
    rows
}

fn row(
    runs: &[Run],
    route: Route,
    workload: Workload,
    name: &str,
    rng: &mut SmallRng,
) -> Option<Row> {
    let of = |name: &str| -> Vec<&Run> {
        let same = |run: &&Run| {
            let cell = &run.cell;
            cell.route == route && cell.workload == workload && cell.implementation == name
        };
        runs.iter().filter(same).collect()
    };
    let own = of(name);
    if own.is_empty() {
        return None;
    }
    let samples: Vec<(usize, &Sample)> = own.iter().filter_map(|run| sample(run)).collect();
    let mut failures = BTreeMap::new();
    for run in &own {
        if let Outcome::Failed { why } = &run.outcome {
            *failures.entry(why.clone()).or_insert(0) += 1;
        }
    }
    let ours: BTreeMap<usize, &Sample> = of(OURS).into_iter().filter_map(sample).collect();
    let mut estimate = |read: &dyn Fn(&Sample) -> f64| {
        estimated(samples.iter().map(|(_, sample)| read(sample)), rng)
    };
    let value = estimate(&|sample| sample.value);
    let server_cpu = estimate(&|sample| sample.server_cpu);
    let client_cpu = estimate(&|sample| sample.client_cpu);
    let cpu = estimate(&both);
    let mut ratio = |read: &dyn Fn(&Sample) -> f64| {
        if name == OURS {
            return None;
        }
        let ratios = samples
            .iter()
            .filter_map(|(round, sample)| Some(read(sample) / read(ours.get(round)?)));
        estimated(ratios, rng)
    };
    let value_ratio = ratio(&|sample| sample.value);
    let cpu_ratio = ratio(&both);
    let median = |read: &dyn Fn(&Sample) -> Option<f64>| {
        samples.iter().filter_map(|(_, sample)| read(sample)).collect::<Numbers>().median()
    };
    Some(Row {
        route,
        workload,
        figure: workload.figure(),
        implementation: name.to_owned(),
        measured: samples.len(),
        rounds: own.len(),
        unsupported: own.iter().any(|run| matches!(run.outcome, Outcome::Unsupported { .. })),
        failures,
        value,
        server_cpu,
        client_cpu,
        cpu,
        server_peak_rss: median(&|sample| Some(sample.server_peak_rss as f64)),
        handshake_seconds: median(&|sample| sample.answer.handshake_seconds),
        value_ratio,
        cpu_ratio,
    })
}

fn sample(run: &Run) -> Option<(usize, &Sample)> {
    match &run.outcome {
        Outcome::Measured(sample) => Some((run.cell.round, sample)),
        Outcome::Unsupported { .. } | Outcome::Failed { .. } => None,
    }
}

fn both(sample: &Sample) -> f64 {
    sample.server_cpu + sample.client_cpu
}

fn estimated(values: impl Iterator<Item = f64>, rng: &mut SmallRng) -> Option<Estimate> {
    let numbers: Numbers = values.collect();
    let interval = numbers.bootstrap_95(rng, RESAMPLES, Numbers::median)?;
    Some(Estimate { median: numbers.median()?, interval })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::transport::Cell;

    fn run(round: usize, name: &str, value: Option<f64>) -> Run {
        let cell = Cell {
            round,
            route: Route::Loopback,
            workload: Workload::Download,
            implementation: name.to_owned(),
        };
        let outcome = match value {
            Some(value) => Outcome::Measured(Box::new(Sample {
                value,
                server_cpu: 1.0 / value,
                client_cpu: 2.0 / value,
                server_peak_rss: 10,
                client_peak_rss: 10,
                server_idle_memory: 5,
                server_held_memory: None,
                answer: Answer::default(),
            })),
            None => Outcome::Failed { why: "stalled".to_owned() },
        };
        Run { cell, outcome }
    }

    #[test]
    fn rounds_are_compared_with_themselves_and_failures_are_no_numbers() {
        let names = [OURS.to_owned(), "other".to_owned()];
        // A machine that gets slower: medians alone would say 0.5 x 2000 / 1000.
        let mut runs = Vec::new();
        for (round, speed) in [4000.0, 2000.0, 1000.0].into_iter().enumerate() {
            runs.push(run(round, OURS, Some(speed)));
            runs.push(run(round, "other", (round < 2).then_some(speed / 2.0)));
        }
        let rows = rows(&runs, &names, 1);
        let [ours, other] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((ours.measured, ours.rounds, ours.value_ratio), (3, 3, None));
        assert_eq!(ours.value.unwrap().median, 2000.0);
        assert_eq!((other.measured, other.rounds), (2, 3));
        assert_eq!(other.failures, BTreeMap::from([("stalled".to_owned(), 1)]));
        assert_eq!(other.value_ratio.unwrap().median, 0.5);
        assert_eq!(other.cpu_ratio.unwrap().median, 2.0);
        assert_eq!(other.value.unwrap().median, 1500.0);
    }

    #[test]
    fn nothing_measured_is_nothing() {
        let runs = [run(0, "other", None), run(1, "other", None)];
        let rows = rows(&runs, &["other".to_owned(), "absent".to_owned()], 1);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.value, row.cpu, row.measured), (None, None, 0));
        let json = serde_json::to_string(&runs[0]).unwrap();
        assert!(json.contains(r#""outcome":"failed","why":"stalled""#), "{json}");
        assert_eq!(serde_json::from_str::<Run>(&json).unwrap(), runs[0]);
    }
}
