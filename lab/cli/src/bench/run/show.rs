//! Shows the progress of a benchmark run, and a table of medians at its end.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use equic_bench::plan::{RunPlan, Turn};
use equic_bench::result::show::marked;
use equic_bench::{End, Key, Record};
use equic_report::number;
use equic_report::stats::Sample;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Result;
use crate::output;

/// Results of a cell over all rounds. A cell is one combination of client, server, workload and
/// settings.
#[derive(Serialize)]
pub(super) struct Cell<'a> {
    #[serde(flatten)]
    key: &'a Key,
    /// Number of rounds with a valid figure.
    measured: usize,
    /// Number of rounds in which the cell was run.
    rounds: usize,
    /// Median of the figures of all rounds, or `None` if there is no figure.
    median: Option<f64>,
    unit: Option<String>,
    /// Number of rounds in which the duration by the client's clock disagrees with the runner's
    /// measurement.
    clock_doubted: usize,
    /// Explanation of the first such disagreement, or `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_doubt: Option<&'a str>,
    /// Why the cell cannot be measured, or `None` if it can.
    unsupported: Option<&'a str>,
    /// Number of failures, by their cause.
    failures: BTreeMap<&'a str, usize>,
}

impl Cell<'_> {
    /// Returns whether the cell has at least one figure.
    pub(super) const fn is_measured(&self) -> bool {
        self.measured > 0
    }
}

/// Returns the results of all cells. The last attempt in each round counts. The exception is a
/// disturbed attempt that could not be repeated because the run was stopped.
pub(super) fn cells<'a>(plan: &'a RunPlan, records: &'a [Record]) -> Vec<Cell<'a>> {
    let scored = records.iter().filter(|record| record.round >= 0 && !record.is_thrown_away());
    let last: BTreeMap<u64, &Record> = scored.map(|record| (record.sequence, record)).collect();
    let cell = |key: &'a Key| {
        let own: Vec<&Record> =
            last.values().copied().filter(|record| record.key == *key).collect();
        let mut values = Vec::new();
        let mut cell = Cell {
            key,
            measured: 0,
            rounds: own.len(),
            median: None,
            unit: None,
            clock_doubted: 0,
            clock_doubt: None,
            unsupported: None,
            failures: BTreeMap::new(),
        };
        for record in own {
            match &record.end {
                // The attempt was disturbed and not repeated, so its figure does not count.
                End::Measured { .. } if record.counts == Some(false) => {}
                End::Measured { figures } => {
                    values.push(figures.value);
                    cell.unit = Some(figures.unit.clone());
                    if let Some(why) = figures.clock_doubt.as_deref() {
                        cell.clock_doubted += 1;
                        cell.clock_doubt.get_or_insert(why);
                    }
                }
                End::Unsupported { why } => cell.unsupported = Some(why),
                End::Failed { why, .. } => *cell.failures.entry(why).or_insert(0) += 1,
            }
        }
        cell.measured = values.len();
        cell.median = values.into_iter().collect::<Sample>().median();
        cell
    };
    plan.cells.keys.iter().map(cell).collect()
}

/// Progress of a run: a bar on a terminal, and otherwise a line for each attempt.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Number of turns that measure or warm up, without those for additional attempts.
    usual: u64,
    /// Maximum number of attempts at a cell in one round.
    attempts: u32,
}

impl Progress {
    pub(super) fn new(plan: &RunPlan, quiet: bool) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let length = Some((plan.len() + plan.extra_turns().count()) as u64);
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
            // The template is a constant. If it were invalid, the default style would be used.
            if let Ok(style) =
                ProgressStyle::with_template("{bar:24} {pos}/{len} {eta:>4} left  {msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress { bar, quiet, usual: plan.len() as u64, attempts: plan.options.attempts }
    }

    pub(super) fn begin(&self, turn: &Turn<'_>, attempt: u32) {
        if let Some(bar) = &self.bar {
            // The first turn after a run was resumed. Turns from before the interruption must not
            // count for the estimate of the remaining time.
            if bar.position() == 0 && turn.sequence > 0 && attempt == 1 {
                bar.set_position(turn.sequence);
                bar.reset_eta();
            }
            bar.set_message(name(turn.key));
        }
    }

    pub(super) fn ended(&self, record: &Record) -> Result {
        let came = match &record.end {
            End::Measured { figures } => {
                let noisy = match record.noise.too_much && record.round >= 0 {
                    true if record.attempt < self.attempts => ", disturbed: again",
                    true => ", disturbed, so the result does not count",
                    false => "",
                };
                let doubted = figures.clock_doubt.is_some();
                let figure = number::measured(figures.value, &figures.unit);
                format!("{}{noisy}", marked(figure, doubted))
            }
            End::Unsupported { why } => format!("not done: {why}"),
            End::Failed { why, .. } => format!("failed: {why}"),
        };
        let round = match record.round {
            -1 if record.sequence >= self.usual => "extra".to_owned(),
            -1 => "warm-up".to_owned(),
            round => (round + 1).to_string(),
        };
        let line = format!("{round:>7} {:<48} {came}", name(&record.key));
        match &self.bar {
            Some(bar) => {
                if matches!(record.end, End::Failed { .. }) {
                    bar.println(output::escaped(&line));
                }
                Ok(())
            }
            None if self.quiet => Ok(()),
            None => output::line(line),
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn name(key: &Key) -> String {
    let point: String = key.point.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let Key { workload, path, client, server, .. } = key;
    format!("{client} from {server}, {workload} ({path}){point}")
}
