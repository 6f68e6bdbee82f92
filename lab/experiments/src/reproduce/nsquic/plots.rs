//! The figures.

use std::path::Path;

use equic_report::plot::{Axis, Bar, BarPlot, LinePlot, PlotError, Series, Svg};
use equic_report::stats::Interval;

use super::data::{Mean, Measured, NsQuic, Row};
use super::part::Part;
use super::show::arms;
use crate::failure::Result;

/// Plots of completion times along an axis of a grid: the prefix of their file names, and the axis
/// with its title and unit.
struct Along {
    part: Part,
    name: &'static str,
    axis: &'static str,
    title: &'static str,
    unit: &'static str,
}

/// The plots of completion times along an axis of a large grid. The other axes have the values 1
/// MB, 10 Mb/s, 50 ms and no loss.
const ALONG: [Along; 8] = {
    const fn along(
        part: Part,
        name: &'static str,
        axis: &'static str,
        title: &'static str,
        unit: &'static str,
    ) -> Along {
        Along { part, name, axis, title, unit }
    }
    [
        along(Part::Simple, "simple-size", "flow.size", "size", "B"),
        along(Part::Simple, "simple-rate", "network.link.rate", "rate", "bit/s"),
        along(Part::Simple, "simple-delay", "network.link.delay", "delay, one way", "s"),
        along(Part::Simple, "simple-loss", "network.link.loss", "packets lost, percent", ""),
        along(Part::Dumbbell, "dumbbell-size", "flow.size", "size", "B"),
        along(Part::Dumbbell, "dumbbell-rate", "network.link.rate", "rate", "bit/s"),
        along(Part::Dumbbell, "dumbbell-delay", "network.link.delay", "delay, one way", "s"),
        along(Part::Dumbbell, "dumbbell-loss", "network.link.loss", "packets lost, percent", ""),
    ]
};

/// The point of the grid that all these plots share.
const BASE: [(&str, &str); 4] = [
    ("flow.size", "1 MB"),
    ("network.link.rate", "10 Mb/s"),
    ("network.link.delay", "50 ms"),
    ("network.link.loss", "0 %"),
];

/// Returns the part that the plot with this name belongs to.
pub(super) fn part(plot: &str) -> Option<Part> {
    let along = ALONG.iter().find(|along| along.name == plot).map(|along| along.part);
    along.or_else(|| Part::ALL.into_iter().find(|part| plot.starts_with(part.name())))
}

/// Draws all plots into a folder, as SVG and PNG. Returns the names of the plots.
pub(super) fn write(all: &NsQuic, out: &Path) -> Result<Vec<&'static str>> {
    let mut plots: Vec<(&'static str, Result<Svg, PlotError>)> = Vec::new();
    for along in &ALONG {
        if let Some(measured) = all.part(along.part) {
            plots.push((along.name, completion(measured, along)));
        }
    }
    if let Some(measured) = all.part(Part::Errors) {
        plots.push(("errors", errors(measured)));
    }
    if let Some(measured) = all.part(Part::Nodes) {
        plots.push(("nodes", nodes(measured)));
        plots.push(("nodes-jain", nodes_jain(measured)));
    }
    if let Some(measured) = all.part(Part::Within) {
        plots.push(("within", within(measured)));
    }
    if let Some(measured) = all.part(Part::Fairness) {
        plots.push(("fairness", shares(measured)));
    }
    if let Some(measured) = all.part(Part::Imc17) {
        plots.push(("imc17", imc17(measured)));
    }
    if let Some(measured) = all.part(Part::ZeroRtt) {
        plots.push(("zero-rtt", zero_rtt(measured)));
    }
    super::super::draw(plots, out)
}

fn seconds() -> Axis {
    Axis::new("time to completion", "s")
}

/// Converts a value such as `10 Mb/s` to a number in base units. Percentages are unchanged.
fn number(value: &str) -> Option<f64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let factor = match unit {
        "" | "%" | "s" | "B" => 1.0,
        "ms" => 1e-3,
        "KB" => 1e3,
        "MB" | "Mb/s" => 1e6,
        "Gb/s" => 1e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn lines<'a>(
    measured: &'a Measured,
    axis: &'a str,
    fixed: &'a [(&'a str, &'a str)],
    value: impl Fn(&Row) -> Option<f64> + Copy + 'a,
) -> impl Iterator<Item = Series> + 'a {
    arms(measured).into_iter().map(move |arm| {
        let points = measured.values(axis).iter().filter_map(move |label| {
            let mut point = vec![(axis, label.as_str())];
            point.extend(fixed);
            Some((number(label)?, value(measured.row(arm, &point)?)?))
        });
        Series::new(arm, points)
    })
}

fn completion(measured: &Measured, along: &Along) -> Result<Svg, PlotError> {
    let fixed: Vec<(&str, &str)> =
        BASE.into_iter().filter(|(axis, _)| *axis != along.axis).collect();
    let words: Vec<&str> = fixed.iter().map(|(_, value)| *value).collect();
    let title = format!("{}: completion by {}", measured.part.title(), along.title);
    let x = Axis::new(along.title, along.unit).log();
    let mut plot = LinePlot::new(title, x, seconds().log()).subtitle(words.join(", "));
    let mean = |row: &Row| Some(row.completion()?.mean);
    for series in lines(measured, along.axis, &fixed, mean) {
        plot = plot.series(series);
    }
    plot.draw()
}

fn nodes(measured: &Measured) -> Result<Svg, PlotError> {
    let x = Axis::new("nodes", "").log();
    let mut plot = LinePlot::new("Completion by the number of nodes", x, seconds().log())
        .subtitle("dumbbell, 10 Mb/s, 50 ms; all send 1 MB with one protocol at the same time");
    for series in lines(measured, "nodes", &[], |row| Some(row.completion()?.mean)) {
        plot = plot.series(series);
    }
    plot.draw()
}

fn nodes_jain(measured: &Measured) -> Result<Svg, PlotError> {
    let x = Axis::new("nodes", "").log();
    let mut plot =
        LinePlot::new("Fairness by the number of nodes", x, Axis::new("Jain's index", ""))
            .subtitle("dumbbell, 10 Mb/s, 50 ms; all send 1 MB with one protocol at the same time");
    for series in lines(measured, "nodes", &[], |row| Some(row.jain?.mean)) {
        plot = plot.series(series);
    }
    plot.draw()
}

fn bar(mean: Option<Mean>) -> Bar {
    mean.map_or_else(Bar::missing, |Mean { mean, low, high }| {
        Bar::new(mean).interval(Interval { low, high })
    })
}

/// Draws bars of all arms, grouped by the values of an axis.
fn bars(
    plot: (&str, &str, Axis),
    measured: &Measured,
    axis: &str,
    fixed: &[(&str, &str)],
    value: impl Fn(&Row) -> Option<Mean>,
) -> Result<Svg, PlotError> {
    let (title, subtitle, y) = plot;
    let mut plot = BarPlot::new(title, y, arms(measured)).subtitle(subtitle);
    for label in measured.values(axis) {
        let mut point = vec![(axis, label.as_str())];
        point.extend(fixed);
        let of = |arm: &str| bar(measured.row(arm, &point).and_then(&value));
        plot = plot.group(label.clone(), arms(measured).into_iter().map(of));
    }
    plot.draw()
}

fn errors(measured: &Measured) -> Result<Svg, PlotError> {
    let fixed = [("flow.size", "1 MB")];
    let plot = ("1 MB over a link that loses packets", "10 Mb/s, 50 ms; 95 % intervals", seconds());
    bars(plot, measured, "network.link.loss", &fixed, Row::completion)
}

fn within(measured: &Measured) -> Result<Svg, PlotError> {
    let fixed = [("network.link.loss", "0 %")];
    let y = Axis::new("Jain's index", "").range(0.0, 1.0);
    let plot = ("Fairness of two equal connections", "dumbbell, 10 Mb/s, 50 ms", y);
    bars(plot, measured, "flow.size", &fixed, |row| row.jain)
}

fn shares(measured: &Measured) -> Result<Svg, PlotError> {
    let fixed = [("network.link.rate", "10 Mb/s"), ("network.link.loss", "0 %")];
    let y = Axis::new("goodput of QUIC / of TCP", "");
    let plot = ("QUIC next to TCP", "dumbbell, 10 Mb/s, 50 ms; the thesis: 3.6 at 100 KB", y);
    bars(plot, measured, "flow.size", &fixed, |row| row.share)
}

fn imc17(measured: &Measured) -> Result<Svg, PlotError> {
    let y = Axis::new("goodput of QUIC / of TCP", "");
    let words = "5 Mb/s, round trip of 36 ms, a minute; measured in 2017 with 30 KB: 1.67";
    let plot = ("QUIC next to TCP by the queue of the link", words, y);
    bars(plot, measured, "network.link.queue", &[], |row| row.share)
}

fn zero_rtt(measured: &Measured) -> Result<Svg, PlotError> {
    let fixed = [("flow.size", "10 KB"), ("network.link.loss", "0 %")];
    let plot = ("10 KB by delay: the cost of handshakes", "10 Mb/s", seconds());
    bars(plot, measured, "network.link.delay", &fixed, Row::completion)
}
