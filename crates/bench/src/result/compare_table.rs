//! A comparison on a terminal.

use equic_report::number::{MISSING, change};
use equic_report::table::{Cell, Column, Table, Tone};

use super::compare::{Compared, Comparison, ComparisonVerdict};
use super::show::{self, Scale};
use super::summary::Place;

/// A table for each place.
#[must_use]
pub fn comparison(comparison: &Comparison) -> Vec<Table> {
    comparison.cells.chunk_by(|a, b| place(a) == place(b)).map(table).collect()
}

fn place(cell: &Compared) -> Place<'_> {
    Place {
        workload: &cell.key.workload,
        protocol: &cell.key.protocol,
        path: &cell.key.path,
        point: &cell.key.point,
    }
}

fn table(cells: &[Compared]) -> Table {
    let largest = |cell: &Compared| cell.old.unwrap_or(0.0).max(cell.new.unwrap_or(0.0));
    let unit = cells.iter().find(|cell| !cell.unit.is_empty()).map_or("", |cell| &*cell.unit);
    let scale = Scale::for_value(unit, cells.iter().map(largest).fold(0.0, f64::max));
    let mut table = Table::new([
        Column::text("client"),
        Column::text("server"),
        Column::number("old").unit(scale.unit),
        Column::number("new").unit(scale.unit),
        Column::number("change"),
        Column::number("95 % interval"),
        Column::number("p"),
        Column::number("n"),
        Column::number("CPU"),
        Column::text("verdict"),
    ])
    .title(cells.first().map(|cell| show::place(&place(cell))).unwrap_or_default());
    for cell in cells {
        let median =
            |value: Option<f64>| value.map_or_else(|| MISSING.into(), |one| scale.show(one));
        let percent = |ratio: f64| change(1.0, ratio);
        let (effect, interval) = match cell.ratio {
            Some(ratio) => (
                percent(ratio.value),
                format!("{} to {}", percent(ratio.interval.low), percent(ratio.interval.high)),
            ),
            None => (MISSING.to_owned(), String::new()),
        };
        table.row([
            Cell::new(&cell.key.client),
            Cell::new(&cell.key.server),
            Cell::new(median(cell.old)),
            Cell::new(median(cell.new)),
            Cell::new(effect).tone(Tone::Strong),
            Cell::new(interval),
            Cell::new(cell.p.map_or_else(|| MISSING.to_owned(), probability)),
            Cell::new(format!("{}/{}", cell.old_count, cell.new_count)),
            Cell::new(cell.cpu.map_or_else(|| MISSING.to_owned(), percent)),
            verdict(cell),
        ]);
    }
    table
}

fn probability(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

fn verdict(cell: &Compared) -> Cell {
    let (text, tone) = match cell.verdict {
        ComparisonVerdict::Worse => ("worse", Tone::Bad),
        ComparisonVerdict::Better => ("better", Tone::Good),
        ComparisonVerdict::Inconclusive => ("inconclusive", Tone::Faint),
        ComparisonVerdict::Incomparable => ("cannot be compared", Tone::Warning),
    };
    let text = if cell.why.is_empty() { text.to_owned() } else { format!("{text}: {}", cell.why) };
    Cell::new(text).tone(tone)
}
