//! Latency under load: a table for each place where small exchanges ran beside a bulk download.

use equic_report::table::{Cell, Column, Table, Tone};

use super::show::{self, Scale};
use super::summary::{Estimate, Row, Summary, UnderLoad};

/// Factor of a ratio.
const TIMES: Scale = Scale { unit: "times", factor: 1.0, digits: 2 };

/// A column, and the cell of a row in it.
pub(super) struct Shown {
    pub head: &'static str,
    /// Whether less is better; `None` for intervals.
    pub less: Option<bool>,
    pub scale: Scale,
    pub read: fn(Estimate, &UnderLoad, Scale) -> String,
}

/// The columns behind client and server.
pub(super) fn columns(rows: &[Row]) -> Vec<Shown> {
    let largest = |read: fn(&UnderLoad) -> f64| {
        rows.iter().filter_map(|row| row.latency.as_ref()).map(read).fold(0.0, f64::max)
    };
    let unloaded = Scale::for_value("s", largest(|one| one.unloaded_p99.median));
    let loaded = Scale::of(rows);
    let bulk = Scale::for_value("bit/s", largest(|one| one.bulk.median));
    let shown = |head, less, scale, read| Shown { head, less, scale, read };
    let (less, more) = (Some(true), Some(false));
    vec![
        shown("alone, median", less, unloaded, |_, one, scale| {
            scale.show(one.unloaded_median.median)
        }),
        shown("99 %", less, unloaded, |_, one, scale| scale.show(one.unloaded_p99.median)),
        shown("beside, median", less, loaded, |_, one, scale| scale.show(one.loaded_median.median)),
        shown("99 %", less, loaded, |p99, _, scale| scale.show(p99.median)),
        shown("beside to alone, 99 %", less, TIMES, |_, one, scale| {
            scale.show(one.p99_ratio.median)
        }),
        shown("95 % interval", None, TIMES, |_, one, scale| scale.interval(&one.p99_ratio)),
        shown("bulk", more, bulk, |_, one, scale| scale.show(one.bulk.median)),
        shown("95 % interval", None, bulk, |_, one, scale| scale.interval(&one.bulk)),
    ]
}

impl Shown {
    /// The unit of the header, and which figures are better.
    pub(super) fn unit(&self) -> String {
        match self.less {
            Some(less) => show::better(self.scale.unit, less),
            None => self.scale.unit.to_owned(),
        }
    }
}

/// The title of a place's table.
pub(super) fn title(rows: &[Row]) -> String {
    let place = rows.first().map(|row| show::place(&row.place())).unwrap_or_default();
    format!("{place}: alone, and beside it")
}

/// Rows that have such times.
pub(super) fn measured(rows: &[Row]) -> impl Iterator<Item = (&Row, Estimate, &UnderLoad)> {
    rows.iter().filter_map(|row| Some((row, row.value?, row.latency.as_ref()?)))
}

/// The tables of a summary.
pub(super) fn tables(summary: &Summary) -> Vec<Table> {
    summary.tables().filter_map(table).collect()
}

fn table(rows: &[Row]) -> Option<Table> {
    let shown = columns(rows);
    let mut columns = vec![Column::text("client"), Column::text("server")];
    columns.extend(shown.iter().map(|one| Column::number(one.head).unit(one.unit())));
    let mut table = Table::new(columns).title(title(rows));
    for (row, p99, one) in measured(rows) {
        let mut cells = vec![Cell::new(&row.key.client), Cell::new(&row.key.server)];
        cells.extend(shown.iter().map(|column| {
            let tone = if column.scale == TIMES { Tone::Strong } else { Tone::Normal };
            Cell::new((column.read)(p99, one, column.scale)).tone(tone)
        }));
        table.row(cells);
    }
    (!table.is_empty()).then_some(table)
}
