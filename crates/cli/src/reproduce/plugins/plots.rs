//! The figures.

use std::path::Path;

use equic_report::plot::{Axis, EcdfPlot, PlotError, Svg};

use super::data::{Downloads, Plugins, Requests};
use crate::failure::Done;

/// Draws all of them into a folder, as SVG and PNG; gives their names.
pub(super) fn write(all: &Plugins, out: &Path) -> Done<Vec<&'static str>> {
    // A name for each path and each congestion control that there is.
    const REQUESTS: [&str; 4] =
        ["figure3-wdt10", "figure3-wdt25", "figure3-jitter-wdt10", "figure3-jitter-wdt25"];
    const DOWNLOADS: [&str; 2] = ["figure4-newreno", "figure4-cubic"];
    let mut plots: Vec<(&'static str, Result<Svg, PlotError>)> = Vec::new();
    for (name, one) in REQUESTS.into_iter().zip(&all.figure3) {
        plots.push((name, requests(one)));
    }
    for (name, one) in DOWNLOADS.into_iter().zip(&all.figure4) {
        plots.push((name, downloads(one)));
    }
    super::super::draw(plots, out)
}

fn requests(one: &Requests) -> Result<Svg, PlotError> {
    let axis = Axis::new("time until the answer is there", "s").range(0.0, 0.1);
    let words = format!(
        "round trip {} ms, jitter {} ms each way, acknowledgements at most {} ms late",
        one.rtt_ms, one.jitter_ms, one.ack_delay_ms
    );
    let mut plot = EcdfPlot::new("A request whose packet is lost", axis).subtitle(words);
    for arm in &one.arms {
        let sample = arm.completion_ms.iter().map(|value| value / 1e3).collect();
        plot = plot.sample(arm.timer.words(), sample);
    }
    plot.draw()
}

fn downloads(one: &Downloads) -> Result<Svg, PlotError> {
    let words = format!(
        "{} bytes at {} Mb/s, a queue of 5 bandwidth-delay products, marks from 2 on",
        one.bytes,
        one.rate / 1_000_000
    );
    let title = format!("A download with {}", one.controller);
    let mut plot = EcdfPlot::new(title, Axis::new("time", "s")).subtitle(words);
    for arm in &one.arms {
        plot = plot.sample(arm.marking.words(), arm.completion_s.iter().copied().collect());
    }
    plot.draw()
}
