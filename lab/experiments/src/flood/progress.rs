//! Shows the progress of the measurements.

use std::io::IsTerminal as _;
use std::time::Duration;

use equic_report::number;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Formats the rate of a flood.
pub(super) fn rate(pps: Option<u64>) -> String {
    pps.map_or_else(|| "maximum rate".to_owned(), |pps| number::si(pps as f64, "packets/s"))
}

/// A progress bar on a terminal, otherwise nothing.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Creates a progress bar for this number of measurements.
    pub(super) fn new(cells: usize) -> Progress {
        Progress(std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
            // The template is a constant that is valid. If it were not, the default style would be
            // used.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {eta:>4}  {msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    pub(super) fn begin(&self, arm: &str, pps: Option<u64>) {
        if let Some(bar) = &self.0 {
            bar.set_message(format!("{arm}, flood {}", rate(pps)));
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
