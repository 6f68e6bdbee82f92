//! Divides the CPU time of the measured attempts by kind of work. The proportions come from the
//! samples of an additional attempt.

use equic_report::table::{Cell, Column, Table};

use super::profile::Split;
use super::profiles::Profiled;
use super::show::{self, Scale};
use super::summary::{Row, Summary};

/// Names of the four parts of CPU time, in order.
pub const PARTS: [&str; 4] = ["crypto", "packet I/O", "protocol", "other"];

/// CPU time of a sampled server or client, divided into parts.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The pair.
    pub row: &'a Row,
    /// Which program was sampled: `client` or `server`.
    pub end: &'static str,
    /// CPU time of the server or client, in the unit of [`Row::server_cpu`].
    pub total: f64,
    /// CPU time of each of [`PARTS`], in the unit of `total`.
    pub parts: [f64; 4],
    /// Number of samples that the division is computed from.
    pub samples: u64,
}

/// Returns the division for server and client of each row that was profiled and has figures.
pub fn parts<'a>(rows: &[&'a Row], profiles: &[Profiled]) -> Vec<Parts<'a>> {
    let mut all = Vec::new();
    for row in rows {
        let Some(profile) = profiles.iter().find(|profile| profile.key == row.key) else {
            continue;
        };
        let ends = [
            ("client", row.client_cpu, profile.client_split),
            ("server", row.server_cpu, profile.server_split),
        ];
        for (end, cpu, split) in ends {
            if let (Some(cpu), 1..) = (cpu, split.total()) {
                let total = cpu.median;
                let parts = shares(split).map(|share| total * share);
                all.push(Parts { row, end, total, parts, samples: split.total() });
            }
        }
    }
    all
}

/// Returns the share of each of [`PARTS`], or zeros if there are no samples.
pub fn shares(split: Split) -> [f64; 4] {
    let total = split.total().max(1) as f64;
    [split.crypto, split.packet_io, split.protocol, split.other].map(|count| count as f64 / total)
}

/// Returns a table for each combination of workload, protocol, path and settings that has a
/// profile.
#[must_use]
pub fn tables(summary: &Summary) -> Vec<Table> {
    let place = |rows: &[Row]| {
        let rows: Vec<&Row> = rows.iter().collect();
        let first = rows.first()?;
        let cpu = Scale::cpu(first.cpu_unit());
        let parts = parts(&rows, &summary.profiles);
        if parts.is_empty() {
            return None;
        }
        let mut columns =
            vec![Column::text("client"), Column::text("server"), Column::text("CPU time of the")];
        columns.push(Column::number("all").unit(cpu.unit));
        columns.extend(PARTS.map(|part| Column::number(part).unit(cpu.unit)));
        columns.push(Column::number("samples"));
        let title = format!("{}: division of CPU time", show::place(&first.place()));
        let mut table = Table::new(columns).title(title);
        for one in parts {
            let key = &one.row.key;
            let mut cells =
                vec![Cell::new(&key.client), Cell::new(&key.server), Cell::new(one.end)];
            cells.push(Cell::new(cpu.show(one.total)));
            cells.extend(one.parts.map(|part| Cell::new(cpu.show(part))));
            cells.push(Cell::new(one.samples.to_string()));
            table.row(cells);
        }
        Some(table)
    };
    summary.tables().filter_map(place).collect()
}
