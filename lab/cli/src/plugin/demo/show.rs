//! Tables and plots of the results of `equic-lab plugin-demo`.

use std::path::Path;

use equic_report::number;
use equic_report::plot::{Axis, BarPlot, EcdfPlot, PlotError};
use equic_report::stats::Sample;
use equic_report::table::{Cell, Column, Table, Tone};

use super::{Attack, Data, Trial};

/// Formats a value with its unit. An empty unit means that the value is a count.
pub(in crate::plugin) fn value(value: f64, unit: &str) -> String {
    match unit {
        "" => number::count(value.max(0.0) as u64),
        "ms" => number::seconds(value / 1e3),
        "s" => number::seconds(value),
        unit => number::measured(value, unit),
    }
}

fn hash(intact: bool) -> Cell {
    if intact { Cell::new("right") } else { Cell::new("WRONG").tone(Tone::Bad) }
}

/// Returns the table of the effects of all plugins.
pub(super) fn trials(trials: &[Trial]) -> Table {
    let mut table = Table::new([
        Column::text("pushed plugin"),
        Column::number("bundle"),
        Column::text("measure"),
        Column::number("without"),
        Column::number("with"),
        Column::number("change"),
        Column::text("SHA-256"),
    ]);
    for one in trials {
        let tone = if one.with < one.without { Tone::Good } else { Tone::Bad };
        table.row([
            Cell::new(one.plugin),
            number::bytes(one.bundle_bytes as u64).into(),
            one.measure.into(),
            value(one.without, one.unit).into(),
            value(one.with, one.unit).into(),
            Cell::new(number::change(one.without, one.with)).tone(tone),
            hash(one.intact),
        ]);
    }
    table
}

/// Returns the table of the hostile plugins: what each tried, and the result.
pub(super) fn attacks(attacks: &[Attack]) -> Table {
    let mut table = Table::new([
        Column::text("hostile plugin"),
        Column::text("tries"),
        Column::text("fate"),
        Column::text("reason"),
        Column::text("SHA-256"),
    ]);
    for one in attacks {
        let tone = if one.fate == one.expected { Tone::Good } else { Tone::Bad };
        table.row([
            Cell::new(one.name),
            one.tries.into(),
            Cell::new(one.fate).tone(tone),
            one.why.as_str().into(),
            hash(one.intact),
        ]);
    }
    table
}

/// Writes the plots: the effect of each plugin in percent of the value without it, and the times of
/// short requests with and without tail loss probes.
pub(super) fn write_plots(data: &Data, out: &Path) -> Result<(), PlotError> {
    let axis = Axis::new("share of the value without the plugin", "%");
    let mut bars = BarPlot::new(
        "Effect of pushed plugins, each on the path for which it is made",
        axis,
        ["without", "with the plugin"],
    )
    .subtitle("measured in virtual time; less is better".to_owned());
    for one in &data.trials {
        let share = 100.0 * one.with / one.without;
        bars = bars.group(format!("{}: {}", one.plugin, one.measure), [100.0, share]);
    }
    bars.draw()?.write_svg(out.join("plugins.svg"))?;
    let Some(probes) = data.trials.iter().find(|one| one.plugin == "tail-loss-probe") else {
        return Ok(());
    };
    let sample = |times: &[f64]| times.iter().copied().collect::<Sample>();
    EcdfPlot::new(
        "Duration of short requests, if one in ten packets is lost",
        Axis::new("time", "ms").log(),
    )
    .sample("without", sample(&probes.times_without_ms))
    .sample("with a tail loss probe, pushed by the server", sample(&probes.times_with_ms))
    .draw()?
    .write_svg(out.join("tail-loss-probe.svg"))
}
