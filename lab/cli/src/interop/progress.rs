//! Progress of the run: on a terminal, a bar with the names of running cells; otherwise, a line for
//! each cell that has ended.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use equic_interop::{CaseResult, Outcome};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::CellChoice;
use crate::failure::Result;
use crate::output;

/// Shows the progress of a run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    count: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Vec<String>,
    done: usize,
}

impl Progress {
    pub(super) fn new(count: usize, json: bool) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
            // The template is a constant. If it were invalid, the default style would be used.
            if let Ok(style) = ProgressStyle::with_template("{bar:16} {pos}/{len}  {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { bar, lines: !json, count, state: Mutex::default() }
    }

    /// Shows that a cell starts.
    pub(super) fn begin(&self, job: &CellChoice<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running.push(name(job));
        self.message(&state);
    }

    /// Shows that a cell has ended. A cell that could not be started is only counted.
    pub(super) fn done(&self, job: &CellChoice<'_>, outcome: &Outcome) -> Result {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name(job);
        if let Some(at) = state.running.iter().position(|running| *running == name) {
            state.running.swap_remove(at);
        }
        state.done += 1;
        self.message(&state);
        let verdict = match outcome.verdict {
            CaseResult::Succeeded => "succeeded",
            CaseResult::Unsupported => "unsupported",
            CaseResult::Failed => "failed",
        };
        let why = if outcome.verdict == CaseResult::Failed { &*outcome.why } else { "" };
        let number = format!("{}/{}", state.done, self.count);
        let line = format!("{number:>9} {name:<44} {verdict:<11} {:5.1} s  {why}", outcome.seconds);
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                if outcome.verdict == CaseResult::Failed {
                    bar.println(output::escaped(line.trim_end()));
                }
                Ok(())
            }
            None if self.lines && outcome.logs.is_some() => output::line(line.trim_end()),
            None => Ok(()),
        }
    }

    fn message(&self, state: &State) {
        if let Some(bar) = &self.bar {
            bar.set_message(state.running.join(", "));
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

fn name(job: &CellChoice<'_>) -> String {
    format!("{} → {} {}", job.client.name, job.server.name, job.case.name())
}
