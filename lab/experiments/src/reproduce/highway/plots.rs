//! The figures.

use std::path::Path;

use equic_bench::result::Row;
use equic_bench::result::show::marked;
use equic_report::number;
use equic_report::plot::{Axis, Bar, BarPlot, LinePlot, PlotError, Series, Svg};

use super::data::{Highway, Measured};
use super::part::Part;
use super::verdict::TCP;
use crate::failure::Result;

/// Draws all plots into a folder, as SVG and PNG. Returns the names of the plots.
pub(super) fn write(highway: &Highway, out: &Path) -> Result<Vec<&'static str>> {
    let mut plots: Vec<(&'static str, Result<Svg, PlotError>)> = Vec::new();
    for measured in &highway.parts {
        let plot = match measured.part {
            Part::Buffers => buffers(highway, measured),
            Part::Offload | Part::Gso | Part::Aes => switched(highway, measured),
        };
        plots.push((measured.part.name(), plot));
        if measured.part == Part::Offload {
            plots.push(("spread", spread(highway, measured)));
        }
    }
    super::super::draw(plots, out)
}

fn subtitle(highway: &Highway) -> String {
    let settings = &highway.settings;
    format!(
        "{} on one stream, each implementation as client and server, over veth; medians of {} rounds",
        number::bytes(settings.bytes),
        settings.runs
    )
}

fn goodput() -> Axis {
    Axis::new("goodput", "bit/s")
}

fn buffers(highway: &Highway, measured: &Measured) -> Result<Svg, PlotError> {
    let x = Axis::new("requested SO_RCVBUF (106 kB is the default of Linux)", "B").log();
    let mut plot =
        LinePlot::new("Goodput by receive buffer", x, goodput()).subtitle(subtitle(highway));
    for name in measured.names() {
        let point = |value: &&str| {
            let median = measured.row(name, value)?.value?.median;
            Some((value.parse().ok()?, median))
        };
        let values = measured.values();
        let doubted = values.iter().any(|value| is_doubted(measured, name, value));
        let points = values.iter().filter_map(point);
        plot = plot.series(Series::new(marked(name.to_owned(), doubted), points));
    }
    plot.draw()
}

/// Returns true if the figure depends on a client's clock that does not agree with the runner's
/// observations.
fn is_doubted(measured: &Measured, name: &str, value: &str) -> bool {
    measured.row(name, value).is_some_and(Row::clock_is_doubted)
}

fn bar(row: Option<&Row>) -> Bar {
    row.and_then(|row| row.value).map_or_else(Bar::missing, |value| {
        let bar = Bar::new(value.median);
        match value.interval {
            Some(interval) => bar.interval(interval),
            None => bar,
        }
    })
}

fn switched(highway: &Highway, measured: &Measured) -> Result<Svg, PlotError> {
    let values = measured.values();
    let mut plot = BarPlot::new(measured.part.title(), goodput(), values.iter().copied())
        .subtitle(format!("{}, 95 % intervals", subtitle(highway)));
    for name in measured.names() {
        let doubted = values.iter().any(|value| is_doubted(measured, name, value));
        let bars = values.iter().map(|value| bar(measured.row(name, value)));
        plot = plot.group(marked(name.to_owned(), doubted), bars);
    }
    plot.draw()
}

/// Draws a bar for each implementation, measured with offloads on. The fastest is first. Those with
/// a doubted clock follow, and TCP is last.
fn spread(highway: &Highway, measured: &Measured) -> Result<Svg, PlotError> {
    let median = |name: &str| Some(measured.row(name, "on")?.value?.median);
    let mut names = measured.names();
    names.sort_by(|a, b| {
        // An implementation whose figure depends on a doubted clock is not ranked among the others.
        let key = |name: &str| (name != TCP, !is_doubted(measured, name, "on"));
        let value = |name: &str| median(name).unwrap_or(0.0);
        key(b).cmp(&key(a)).then(value(b).total_cmp(&value(a)))
    });
    let mut plot =
        BarPlot::new("Goodput of each implementation as client and server", goodput(), ["goodput"])
            .subtitle(format!("{}, 95 % intervals", subtitle(highway)));
    for name in names {
        let doubted = is_doubted(measured, name, "on");
        plot = plot.group(marked(name.to_owned(), doubted), [bar(measured.row(name, "on"))]);
    }
    plot.draw()
}
