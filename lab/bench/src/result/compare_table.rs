//! Formats a comparison for a terminal.

use equic_report::number::{MISSING, change};
use equic_report::table::{Cell, Column, Table, Tone};

use super::compare::{Compared, Comparison, ComparisonVerdict};
use super::show::{self, Scale};
use super::summary::Place;

/// Returns a table for each combination of workload, protocol, path and settings.
#[must_use]
pub fn comparison(comparison: &Comparison) -> Vec<Table> {
    let same = comparison.rule.same;
    comparison.cells.chunk_by(|a, b| place(a) == place(b)).map(|cells| table(cells, same)).collect()
}

fn place(cell: &Compared) -> Place<'_> {
    Place {
        workload: &cell.key.workload,
        protocol: &cell.key.protocol,
        path: &cell.key.path,
        point: &cell.key.point,
    }
}

fn table(cells: &[Compared], same: f64) -> Table {
    let largest = |cell: &Compared| cell.old.unwrap_or(0.0).max(cell.new.unwrap_or(0.0));
    let unit = cells.iter().find(|cell| !cell.unit.is_empty()).map_or("", |cell| &*cell.unit);
    let scale = Scale::for_value(unit, cells.iter().map(largest).fold(0.0, f64::max));
    let mut table = Table::new([
        Column::text("client"),
        Column::text("server"),
        Column::number("old").unit(scale.unit),
        Column::number("new").unit(scale.unit),
        Column::number(change_title(cells)),
        Column::number("95 % interval"),
        Column::number("p"),
        Column::number("n"),
        Column::number("CPU"),
        Column::text("verdict"),
    ])
    .title(cells.first().map(|cell| show::place(&place(cell))).unwrap_or_default());
    for cell in cells {
        let median = |value: Option<f64>, doubted: bool| {
            value.map_or_else(|| MISSING.into(), |one| show::marked(scale.show(one), doubted))
        };
        let percent = |ratio: f64| change(1.0, ratio);
        let (effect, interval) = match cell.ratio {
            Some(ratio) => (
                percent(ratio.value),
                ratio.interval.map_or_else(
                    || MISSING.to_owned(),
                    |ends| format!("{} to {}", percent(ends.low), percent(ends.high)),
                ),
            ),
            None => (MISSING.to_owned(), String::new()),
        };
        table.row([
            Cell::new(&cell.key.client),
            Cell::new(&cell.key.server),
            Cell::new(median(cell.old, cell.old_clock_doubted)),
            Cell::new(median(cell.new, cell.new_clock_doubted)),
            Cell::new(effect).tone(Tone::Strong),
            Cell::new(interval),
            Cell::new(cell.p.map_or_else(|| MISSING.to_owned(), probability)),
            Cell::new(format!("{}/{}", cell.old_count, cell.new_count)),
            Cell::new(cell.cpu.map_or_else(|| MISSING.to_owned(), percent)),
            verdict(cell, same),
        ]);
    }
    table
}

fn probability(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// Returns the title of the column with the changes. A change is not the ratio of the two medians
/// that are shown before it, and may even have the opposite sign.
fn change_title(cells: &[Compared]) -> &'static str {
    let mut changed = cells.iter().filter(|cell| cell.ratio.is_some()).map(|cell| cell.paired);
    match (changed.clone().any(|paired| paired), changed.all(|paired| paired)) {
        (true, true) => "change (median of the rounds' quotients)",
        (true, false) => "change (median of the rounds' quotients, of all quotients if unpaired)",
        (false, _) => "change (median of all quotients)",
    }
}

fn verdict(cell: &Compared, same: f64) -> Cell {
    let (text, tone) = match cell.verdict {
        ComparisonVerdict::Worse => ("worse".to_owned(), Tone::Bad),
        ComparisonVerdict::Better => ("better".to_owned(), Tone::Good),
        ComparisonVerdict::Same => {
            let bound = percent_text(same);
            (format!("no difference larger than {bound}"), Tone::Good)
        }
        ComparisonVerdict::Inconclusive => ("inconclusive".to_owned(), Tone::Faint),
        ComparisonVerdict::TooFewRounds => (too_few(cell), Tone::Warning),
        ComparisonVerdict::Incomparable => ("cannot be compared".to_owned(), Tone::Warning),
    };
    let doubted = cell.old_clock_doubted || cell.new_clock_doubted;
    let compared = cell.verdict != ComparisonVerdict::Incomparable;
    let text = show::marked(text, doubted && compared);
    let tone = if doubted && tone == Tone::Good { Tone::Warning } else { tone };
    let text = if cell.why.is_empty() { text } else { format!("{text}: {}", cell.why) };
    Cell::new(text).tone(tone)
}

fn too_few(cell: &Compared) -> String {
    let each = if cell.paired { "" } else { " each" };
    match cell.rounds_needed {
        Some(rounds) => format!("too few rounds: a verdict needs {rounds}{each}"),
        None => "too few rounds for the chosen --p".to_owned(),
    }
}

/// Formats a share, from 0 to 1, as a percentage without insignificant digits.
fn percent_text(part: f64) -> String {
    format!("{} %", (part * 1e6).round() / 1e4)
}
