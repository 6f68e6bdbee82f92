//! Shows the progress of the demo: a bar on a terminal, otherwise one line per arm.

use std::io::IsTerminal as _;
use std::time::Duration;

use equic_load::{Outcome, Sample};
use equic_report::number;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::arms::Arm;
use super::conclusion::exact;
use super::plan::DemoPlan;
use super::raw_records::RawRecords;
use super::result::ArmResult;
use crate::failure::Result;
use crate::output;

/// The rate next to the bar covers this many seconds.
const RECENT: f64 = 1.0;
/// Steps by which the bar advances per second of traffic.
const STEPS: f64 = 10.0;

/// Shows the progress of the demo.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// True if a line is printed for each arm, instead of a bar.
    lines: bool,
    arm: Arm,
    /// Seconds of traffic in the arms that are completed.
    before: f64,
}

impl Progress {
    pub(super) fn new(plan: &DemoPlan, json: bool) -> Progress {
        // The bar is drawn on standard error, so that standard output can be redirected.
        let bar = std::io::stderr().is_terminal().then(|| {
            let steps = (plan.total() * STEPS) as u64;
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            // The template is a constant that is valid. If it were not, the default style would be
            // used.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { lines: !json, bar, arm: Arm::Alone, before: 0.0 }
    }

    /// Shows that an arm begins.
    pub(super) fn begin(&mut self, arm: Arm) {
        self.arm = arm;
        if let Some(bar) = &self.bar {
            bar.set_message(arm.title());
        }
    }

    /// Updates the bar, `time` seconds after the start of the arm. `now` is the same time on the
    /// samples' clock.
    pub(super) fn show(&self, take: &RawRecords, now: f64, time: f64) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(((self.before + time) * STEPS) as u64);
        // The samples are only roughly ordered by their end, so the search goes back twice as far
        // as needed.
        let samples = take.samples.iter().rev();
        let recent = samples.take_while(|sample| ended(sample) > now - 2.0 * RECENT);
        let ok = recent
            .filter(|sample| ended(sample) > now - RECENT && sample.outcome == Outcome::Ok)
            .count() as f64;
        let mut message = format!("{}: {}", self.arm.title(), requests(ok / RECENT));
        if !take.newcomers.is_empty() {
            let got_in = take.newcomers.iter().filter(|sample| sample.outcome == Outcome::Ok);
            message += ", ";
            message += &newcomers(got_in.count() as u64, take.newcomers.len() as u64);
        }
        bar.set_message(message);
    }

    /// Shows that an arm has ended, with its result.
    pub(super) fn done(&mut self, result: &ArmResult, seconds: f64) -> Result {
        self.before += seconds;
        let number = Arm::all().position(|arm| arm == result.arm).unwrap_or(0) + 1;
        let got = format!("legitimate clients got {}", requests(result.legitimate.requests_per_s));
        let got = match &result.newcomers {
            None => got,
            Some(sum) => format!("{}; {got}", newcomers(sum.got_in, sum.tried)),
        };
        let line = format!("{number}/{} {}: {got}", Arm::all().len(), result.title);
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

fn ended(sample: &Sample) -> f64 {
    (sample.start_ms + sample.duration_ms) / 1000.0
}

fn requests(per_second: f64) -> String {
    format!("{} requests/s", exact(per_second))
}

fn newcomers(got_in: u64, tried: u64) -> String {
    format!("{} of {} newcomers got in", number::count(got_in), number::count(tried))
}
