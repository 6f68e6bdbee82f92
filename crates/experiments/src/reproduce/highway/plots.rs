//! The figures.

use std::path::Path;

use equic_bench::result::Row;
use equic_report::number;
use equic_report::plot::{Axis, Bar, BarPlot, LinePlot, PlotError, Series, Svg};

use super::data::{Highway, Measured};
use super::part::Part;
use super::verdict::TCP;
use crate::failure::Done;

/// Draws all of them into a folder, as SVG and PNG; gives their names.
pub(super) fn write(highway: &Highway, out: &Path) -> Done<Vec<&'static str>> {
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
        "{} on one stream, each implementation with itself, veth; medians of {} rounds",
        number::bytes(settings.bytes),
        settings.runs
    )
}

fn goodput() -> Axis {
    Axis::new("goodput", "bit/s")
}

fn buffers(highway: &Highway, measured: &Measured) -> Result<Svg, PlotError> {
    let x = Axis::new("SO_RCVBUF asked for (106 kB: what Linux gives unasked)", "B").log();
    let mut plot =
        LinePlot::new("Goodput by receive buffer", x, goodput()).subtitle(subtitle(highway));
    for name in measured.names() {
        let point = |value: &&str| {
            let median = measured.row(name, value)?.value?.median;
            Some((value.parse().ok()?, median))
        };
        plot = plot.series(Series::new(name, measured.values().iter().filter_map(point)));
    }
    plot.draw()
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
        plot = plot.group(name, values.iter().map(|value| bar(measured.row(name, value))));
    }
    plot.draw()
}

/// Bars of all implementations with offloads on, the fastest first and TCP at the end.
fn spread(highway: &Highway, measured: &Measured) -> Result<Svg, PlotError> {
    let median = |name: &str| Some(measured.row(name, "on")?.value?.median);
    let mut names = measured.names();
    names.sort_by(|a, b| {
        let key = |name: &str| (name != TCP, median(name).unwrap_or(0.0));
        let (a, b) = (key(a), key(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    let mut plot = BarPlot::new("Implementations with themselves", goodput(), ["goodput"])
        .subtitle(format!("{}, 95 % intervals", subtitle(highway)));
    for name in names {
        plot = plot.group(name, [bar(measured.row(name, "on"))]);
    }
    plot.draw()
}
