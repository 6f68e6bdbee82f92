//! Shows the progress of the experiment: a bar with the remaining time on a terminal, otherwise one
//! line per run.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use equic_report::number;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::data::Run;
use super::plan::{Arm, ExperimentPlan, Step};
use crate::failure::Result;
use crate::output;

/// Number of steps by which the bar advances in a run.
const STEPS: f64 = 100.0;

/// Shows the progress of the experiment.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// True if a line is printed for each run, instead of a bar.
    lines: bool,
    runs: u32,
    done: Cell<u32>,
    /// Expected length of a run in seconds.
    expected: Cell<f64>,
    begun: Cell<Instant>,
}

impl Progress {
    pub(super) fn new(plan: &ExperimentPlan, json: bool) -> Progress {
        let runs = plan.runs_per_arm * Arm::ALL.len() as u32;
        // The bar is drawn on standard error, so that standard output can be redirected.
        let bar = std::io::stderr().is_terminal().then(|| {
            let steps = f64::from(runs) * STEPS;
            let bar =
                ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
            // The template is a constant that is valid. If it were not, the default style would be
            // used.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
                bar.set_style(style);
            }
            bar.set_message("measuring the speed of this machine");
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress {
            lines: !json,
            bar,
            runs,
            done: Cell::new(0),
            expected: Cell::new(plan.run_s()),
            begun: Cell::new(Instant::now()),
        }
    }

    /// Begins a trial of the search with an attack that is `attack` times as strong as the paper's.
    pub(super) fn trial(&self, attack: u32) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("trying an attack {attack} times as strong as the paper's"));
        }
    }

    /// Shows the result of a trial of the search.
    pub(super) fn tried(&self, step: &Step) -> Result {
        self.tell(format!(
            "a server without a quota lost {1} of its throughput under an attack {0} times as strong as the paper's",
            step.attack,
            number::percent(step.loss()),
        ))
    }

    /// Begins the runs, each of which is expected to take `run_s` seconds.
    pub(super) fn begin(&self, run_s: f64) {
        self.expected.set(run_s);
        self.begun.set(Instant::now());
    }

    /// Shows that a run begins.
    pub(super) fn run(&self, arm: Arm) {
        let Some(bar) = &self.bar else { return };
        let done = f64::from(self.done.get());
        if done > 0.0 {
            self.expected.set(self.begun.get().elapsed().as_secs_f64() / done);
        }
        let left = (f64::from(self.runs) - done) * self.expected.get();
        bar.set_message(format!(
            "run {}/{}: {}; about {} left",
            self.done.get() + 1,
            self.runs,
            arm.title(),
            number::seconds(left.round())
        ));
    }

    /// Updates the bar `seconds` after the start of the run.
    pub(super) fn within_run(&self, seconds: f64) {
        let Some(bar) = &self.bar else { return };
        let part = (seconds / self.expected.get()).min(0.99);
        bar.set_position(((f64::from(self.done.get()) + part) * STEPS) as u64);
    }

    /// Shows that a run has ended, with its result.
    pub(super) fn done(&self, run: &Run) -> Result {
        self.done.set(self.done.get() + 1);
        let rate = run.legitimate.attacked.mean_per_s;
        let line = format!(
            "{:>2}/{} {}: {} for sequential clients under attack; other programs used {} of the machine",
            self.done.get(),
            self.runs,
            run.arm.title(),
            rate.map_or_else(|| number::MISSING.to_owned(), number::rate),
            number::percent(run.foreign_percent / 100.0),
        );
        self.tell(line)
    }

    fn tell(&self, line: String) -> Result {
        match &self.bar {
            Some(bar) => bar.println(output::escaped(&line)),
            None if self.lines => output::line(line)?,
            None => {}
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
