//! Tables of latency under load, one for each combination of workload, protocol, path and settings
//! with small exchanges during a bulk download.

use equic_report::table::{Cell, Column, Table, Tone};

use super::show::{self, Scale};
use super::summary::{Estimate, Row, Summary, UnderLoad};

/// Unit and factor with which ratios are shown.
const TIMES: Scale = Scale { unit: "times", factor: 1.0, digits: 2 };

/// A column of the table, and the format of its cells.
pub(super) struct Shown {
    pub head: &'static str,
    /// True if smaller figures in the column are better. `None` for intervals.
    pub less: Option<bool>,
    pub scale: Scale,
    pub read: fn(Estimate, &UnderLoad, Scale) -> String,
}

/// Returns the columns that follow those of client and server.
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
        shown("without, median", less, unloaded, |_, one, scale| {
            scale.show(one.unloaded_median.median)
        }),
        shown("99 %", less, unloaded, |_, one, scale| scale.show(one.unloaded_p99.median)),
        shown("during, median", less, loaded, |_, one, scale| scale.show(one.loaded_median.median)),
        shown("99 %", less, loaded, |p99, _, scale| scale.show(p99.median)),
        shown("ratio during to without, 99 %", less, TIMES, |_, one, scale| {
            scale.show(one.p99_ratio.median)
        }),
        shown("95 % interval", None, TIMES, |_, one, scale| scale.interval(&one.p99_ratio)),
        shown("bulk", more, bulk, |_, one, scale| scale.show(one.bulk.median)),
        shown("95 % interval", None, bulk, |_, one, scale| scale.interval(&one.bulk)),
    ]
}

impl Shown {
    /// Returns the text of this column for a row. All of these figures depend on the client's
    /// clock.
    pub(super) fn show(&self, row: &Row, p99: Estimate, latency: &UnderLoad) -> String {
        let is_figure = self.less.is_some();
        let text = (self.read)(p99, latency, self.scale);
        show::marked(text, is_figure && row.clock_is_doubted())
    }

    /// Returns the unit for the column's header, with an arrow that shows which figures are better.
    pub(super) fn unit(&self) -> String {
        match self.less {
            Some(less) => show::better(self.scale.unit, less),
            None => self.scale.unit.to_owned(),
        }
    }
}

/// Returns the title of the table of these rows.
pub(super) fn title(rows: &[Row]) -> String {
    let place = rows.first().map(|row| show::place(&row.place())).unwrap_or_default();
    format!("{place}: latency without and during the download")
}

/// Returns the rows with latency under load.
pub(super) fn measured(rows: &[Row]) -> impl Iterator<Item = (&Row, Estimate, &UnderLoad)> {
    rows.iter().filter_map(|row| Some((row, row.value?, row.latency.as_ref()?)))
}

/// Returns the tables of latency under load for a summary.
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
            Cell::new(column.show(row, p99, one)).tone(tone)
        }));
        table.row(cells);
    }
    (!table.is_empty()).then_some(table)
}
