//! The figures.

use std::path::Path;

use equic_report::plot::{Axis, EcdfPlot, LinePlot, PlotError, Series, Svg};

use super::data::{AckPaths, Caps, Downloads, Plugins, Requests};
use crate::failure::Result;

/// Draws all figures into a folder, as SVG. Returns the names of the figures.
pub(super) fn write(all: &Plugins, out: &Path) -> Result<Vec<&'static str>> {
    // Names of the plots for each path. `DOWNLOADS` has those for each congestion control
    // algorithm.
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
    for (name, one) in ["figure5-all-acks", "figure5-fewer-acks"].into_iter().zip(&all.figure5) {
        plots.push((name, ack_paths(one)));
    }
    if let Some(one) = &all.figure6 {
        plots.push(("figure6", caps(one)));
    }
    let mut written = Vec::new();
    for (name, plot) in plots {
        plot?.write_svg(out.join(format!("{name}.svg")))?;
        written.push(name);
    }
    Ok(written)
}

fn ack_paths(one: &AckPaths) -> Result<Svg, PlotError> {
    let way = |rates: [u64; 2]| rates.map(|rate| format!("{}", rate as f64 / 1e6)).join(" and ");
    let words = format!(
        "{} bytes over two paths, {} Mb/s to the client, {} Mb/s to the server; {}",
        one.bytes,
        way(one.down),
        way(one.up),
        if one.ack_frequency {
            "the server requests fewer acknowledgements"
        } else {
            "the client acknowledges every second packet"
        }
    );
    let sample = |times: &[f64]| times.iter().copied().collect();
    EcdfPlot::new("A download over asymmetric paths", Axis::new("time", "s"))
        .subtitle(words)
        .sample("acknowledgements on the same path", sample(&one.same.completion_s))
        .sample(
            "acknowledgements only on the first path (plugin ack-path)",
            sample(&one.first.completion_s),
        )
        .draw()
}

fn caps(one: &Caps) -> Result<Svg, PlotError> {
    let caps: Vec<String> = (one.caps.iter())
        .map(|(at, cap)| format!("{} MB/s from {} s on", *cap as f64 / 1e6, *at as f64 / 1e3))
        .collect();
    let line = |label: &str, path: usize| {
        let points = one
            .rates
            .iter()
            .enumerate()
            .map(|(at, both)| ((at as f64 + 0.5) * one.interval_ms as f64 / 1e3, both[path]));
        Series::new(label, points)
    };
    LinePlot::new(
        "Two paths, one of them with a rate limit",
        Axis::new("time", "s"),
        Axis::new("rate", "B/s"),
    )
    .subtitle(format!("caps that the client pushes to the server: {}", caps.join(", ")))
    .series(line("path without a cap", 0))
    .series(line("capped path", 1))
    .draw()
}

fn requests(one: &Requests) -> Result<Svg, PlotError> {
    let axis = Axis::new("time until the answer arrives", "s").range(0.0, 0.1);
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
        "{} bytes at {} Mb/s; the queue has room for 5 bandwidth-delay products, and marks packets above 2",
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
