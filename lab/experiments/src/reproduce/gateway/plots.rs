//! Draws the figures of the gateway's paper with our numbers.

use std::path::Path;

use equic_report::plot::{
    Axis, Bar, BarPlot, EcdfPlot, LinePlot, Phase, PlotError, Series, Shade, Svg,
};
use equic_report::stats::{Interval, Sample};

use super::compare::{Estimate, Metric};
use super::data::{Experiment, Run};
use super::plan::Arm;
use crate::failure::Result;

/// Draws all figures into a folder, as SVG and PNG. Returns the names of the figures.
pub(super) fn write(experiment: &Experiment, out: &Path) -> Result<Vec<&'static str>> {
    let plots: [(&'static str, Result<Svg, PlotError>); 9] = [
        ("figure3-throughput", throughput(experiment, false)),
        ("figure3-all-clients", throughput(experiment, true)),
        ("figure4-throughput", mean_throughput(experiment)),
        ("figure4-block", block(experiment)),
        ("figure4-decision", decision(experiment)),
        ("figure5-duration", duration(experiment)),
        ("durations", durations(experiment)),
        ("figure6-cpu", cpu(experiment)),
        ("figure6-memory", memory(experiment)),
    ];
    super::super::draw(plots, out)
}

fn subtitle(experiment: &Experiment) -> String {
    let plan = &experiment.plan;
    let runs = if plan.runs_per_arm == 1 { "run" } else { "runs" };
    format!(
        "{} sequential clients; {} attacking parallel clients; quota of {} connections; {} {runs} per arm",
        plan.sequential_clients, plan.parallel_clients, plan.quota, plan.runs_per_arm
    )
}

/// Returns the median over the runs of an arm for each window that at least half of the runs have.
/// The last window ends when the last sequential client has finished, or, with `everybody`, when
/// all clients have.
fn median_timeline(runs: &[&Run], everybody: bool) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let end = |run: &Run| if everybody { run.seconds } else { run.sequential_done_s };
    for index in 0.. {
        let window =
            |run: &&Run| run.timeline.get(index).filter(|window| window.0 <= end(run)).copied();
        let windows: Vec<(f64, f64, f64)> = runs.iter().filter_map(window).collect();
        if windows.is_empty() || windows.len() * 2 < runs.len() {
            break;
        }
        let rate = |window: &(f64, f64, f64)| if everybody { window.2 } else { window.1 };
        let rates: Sample = windows.iter().map(rate).collect();
        points.push((windows[0].0, rates.median().unwrap_or(f64::NAN)));
    }
    points
}

/// Draws figure 3. The paper counts the connections of all clients, as this function does with
/// `everybody`.
fn throughput(experiment: &Experiment, everybody: bool) -> Result<Svg, PlotError> {
    let plan = &experiment.plan;
    let title = if everybody {
        "Requests answered to all clients, including the attackers"
    } else {
        "Requests answered to sequential clients"
    };
    let line = |arm| (arm, median_timeline(&experiment.of(arm), everybody));
    let series: Vec<(Arm, Vec<(f64, f64)>)> = Arm::ALL.into_iter().map(line).collect();
    let ends = series.iter().filter_map(|(_, points)| points.last());
    let end = ends.map(|point| point.0 + plan.window_s / 2.0).fold(0.0, f64::max);
    let attack_end = (plan.start_s + plan.attack_s).min(end);
    let mut plot = LinePlot::new(title, Axis::new("time", "s"), Axis::new("requests", "/s"))
        .subtitle(format!(
            "{}; windows of {}, medians",
            subtitle(experiment),
            equic_report::number::seconds(plan.window_s)
        ))
        .phase(Phase::new("before", 0.0, plan.start_s))
        .phase(
            Phase::new("parallel clients begin requests", plan.start_s, attack_end)
                .shade(Shade::Alarm),
        );
    if attack_end < end {
        plot = plot.phase(Phase::new("after", attack_end, end));
    }
    for (arm, points) in series {
        plot = plot.series(Series::new(arm.title(), points));
    }
    plot.draw()
}

fn bar(estimate: Option<Estimate>, factor: f64) -> Bar {
    estimate.map_or_else(Bar::missing, |found| {
        let bar = Bar::new(found.median * factor);
        match found.interval {
            Some(Interval { low, high }) => {
                bar.interval(Interval { low: low * factor, high: high * factor })
            }
            None => bar,
        }
    })
}

/// Draws a bar for each arm. All figures show all arms, so that an arm has the same colour
/// everywhere.
fn bars(
    experiment: &Experiment,
    (title, axis): (&str, Axis),
    groups: &[(&str, Metric)],
    factor: f64,
) -> Result<Svg, PlotError> {
    let mut plot = BarPlot::new(title, axis, Arm::ALL.map(Arm::title))
        .subtitle(format!("{}; medians, 95 % intervals", subtitle(experiment)));
    for (group, metric) in groups {
        plot = plot.group(*group, Arm::ALL.map(|arm| bar(experiment.figure(arm, *metric), factor)));
    }
    plot.draw()
}

/// Draws the left half of figure 4.
fn mean_throughput(experiment: &Experiment) -> Result<Svg, PlotError> {
    let groups: [(&str, Metric); 3] = [
        ("whole experiment, harmonic mean (as the paper)", |r| r.legitimate.whole.harmonic_per_s),
        ("whole experiment, mean", |r| r.legitimate.whole.mean_per_s),
        ("under attack, harmonic mean", |r| r.legitimate.attacked.harmonic_per_s),
    ];
    let head = ("Requests answered to sequential clients", Axis::new("requests", "/s"));
    bars(experiment, head, &groups, 1.0)
}

/// Draws the right half of figure 4, with the total cost of blocking an attempt.
fn block(experiment: &Experiment) -> Result<Svg, PlotError> {
    let groups: [(&str, Metric); 3] = [
        ("total", |r| Some(r.block?.nanoseconds())),
        ("server process", |r| Some(r.block?.server_ns)),
        ("XDP program", |r| r.block?.kernel_ns),
    ];
    let head = ("CPU time to reject one connection attempt", Axis::new("CPU time", "s"));
    bars(experiment, head, &groups, 1e-9)
}

/// Draws the right half of figure 4, with the cost of only the decision.
fn decision(experiment: &Experiment) -> Result<Svg, PlotError> {
    let bars = Arm::ALL.map(|arm| bar(experiment.decision(arm), 1e-9));
    BarPlot::new(
        "CPU time of only the decision to reject an attempt",
        Axis::new("CPU time", "s"),
        Arm::ALL.map(Arm::title),
    )
    .subtitle(
        "for a source over its quota; user space: loop over the admission function; kernel: BPF_PROG_TEST_RUN",
    )
    .group("", bars)
    .draw()
}

/// Figure 5.
fn duration(experiment: &Experiment) -> Result<Svg, PlotError> {
    let groups: [(&str, Metric); 3] = [
        ("whole experiment, harmonic mean (as the paper)", |r| r.legitimate.whole.harmonic_ms),
        ("under attack, harmonic mean", |r| r.legitimate.attacked.harmonic_ms),
        ("under attack, median", |r| r.legitimate.attacked.median_ms),
    ];
    let head = ("Duration of sequential clients' requests", Axis::new("duration", "s"));
    bars(experiment, head, &groups, 1e-3)
}

fn distribution(
    experiment: &Experiment,
    (title, axis): (&str, Axis),
    note: &str,
    values: impl Fn(&Run) -> Vec<f64>,
) -> Result<Svg, PlotError> {
    let mut plot = EcdfPlot::new(title, axis)
        .subtitle(format!("{}; {note}", subtitle(experiment)))
        .without_counts();
    for arm in Arm::ALL {
        let all = experiment.of(arm).into_iter().flat_map(&values);
        plot = plot.sample(arm.title(), all.collect());
    }
    plot.draw()
}

fn durations(experiment: &Experiment) -> Result<Svg, PlotError> {
    let head =
        ("Duration of sequential clients' requests under attack", Axis::new("duration", "s").log());
    distribution(experiment, head, "percentiles of all runs", |run| {
        run.legitimate.percentiles_ms.iter().map(|ms| ms / 1000.0).collect()
    })
}

/// Draws the left half of figure 6.
fn cpu(experiment: &Experiment) -> Result<Svg, PlotError> {
    let head = ("CPU of the server since the attack began", Axis::new("share of one CPU", "%"));
    distribution(experiment, head, "intervals of 100 ms", |run| run.server.cpu_percent.clone())
}

/// Draws the right half of figure 6.
fn memory(experiment: &Experiment) -> Result<Svg, PlotError> {
    let head =
        ("Memory of the server since the attack began", Axis::new("proportional set size", "B"));
    distribution(experiment, head, "samples every 100 ms", |run| {
        run.server.pss_mb.iter().map(|megabytes| megabytes * 1e6).collect()
    })
}
