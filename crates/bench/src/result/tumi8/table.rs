//! The tables of the paper "QUIC on the Highway", with medians, intervals and modes in addition to
//! its means.

use equic_report::number::MISSING;
use equic_report::table::{Cell, Column, Table, Tone};

use super::{Import, Row};
use crate::result::show::Scale;

/// Scale that shows Mbit/s without decimals.
const WHOLE: Scale = Scale { unit: "", factor: 1.0, digits: 0 };

/// Returns a table for each question of the paper, for clients and servers of the same
/// implementation: how fast is it, and what is the effect of offloads, AES instructions and
/// buffers? Tables without data are left out.
#[must_use]
pub fn tables(import: &Import) -> Vec<Table> {
    let same = |row: &&Row| row.client == row.server;
    let of = |experiment: &'static str| {
        import.rows.iter().filter(same).filter(move |row| row.experiment == experiment)
    };
    let mut baseline: Vec<&Row> = of("baseline").filter(|row| row.variant == "goracle").collect();
    // The paper measured TCP only in the experiment with offloads.
    baseline.extend(of("offloading").filter(|row| row.variant == "default" && is_tcp(row)));
    let mut best: Vec<&Row> = of("hardware").collect();
    best.extend(of("baseline").filter(|row| row.variant != "goracle"));
    [
        ("Baseline: each implementation as client and server", by_speed(baseline)),
        (
            "Offloads of the network card",
            by_order(of("offloading"), &["default", "only-udp", "off"]),
        ),
        (
            "Ciphers: AES with AES instructions, AES without them, ChaCha20",
            by_order(of("crypto"), &["aes-ni", "aes-noni", "chacha20"]),
        ),
        ("Receive buffer, bytes", by_number(of("rcvbuf"))),
        ("Other hosts and builds", by_speed(best)),
    ]
    .into_iter()
    .filter(|(_, rows)| !rows.is_empty())
    .map(|(title, rows)| table(title, &rows, false))
    .collect()
}

/// Returns a table of every pair of every experiment.
#[must_use]
pub fn all(import: &Import) -> Table {
    table("All pairs", &import.rows.iter().collect::<Vec<_>>(), true)
}

fn is_tcp(row: &Row) -> bool {
    row.client == "TCP+TLS"
}

fn mean(row: &Row) -> f64 {
    row.goodput.map_or(0.0, |goodput| goodput.mean)
}

fn by_speed(mut rows: Vec<&Row>) -> Vec<&Row> {
    rows.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    rows
}

/// Sorts rows by implementation, and then by variant in the given order.
fn by_order<'a>(rows: impl Iterator<Item = &'a Row>, order: &[&str]) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = rows.collect();
    rows.sort_by_key(|row| {
        let place = order.iter().position(|variant| *variant == row.variant);
        (is_tcp(row), row.client.clone(), place.unwrap_or(order.len()), row.variant.clone())
    });
    rows
}

fn by_number<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = rows.collect();
    rows.sort_by_key(|row| (row.client.clone(), row.variant.parse::<u64>().unwrap_or(u64::MAX)));
    rows
}

fn table(title: &str, rows: &[&Row], pairs: bool) -> Table {
    let unit = "Mbit/s";
    let mut columns = Vec::new();
    if pairs {
        columns.extend([Column::text("experiment"), Column::text("client")]);
    }
    columns.extend([
        Column::text(if pairs { "server" } else { "implementation" }),
        Column::text("variant"),
        Column::number("mean").unit(unit),
        Column::number("sd").unit(unit),
        Column::number("median").unit(unit),
        Column::number("95 % interval").unit(unit),
        Column::number("MAD").unit(unit),
        Column::number("min to max").unit(unit),
        Column::number("n"),
        Column::text("notes"),
    ]);
    let mut table = Table::new(columns).title(title);
    for row in rows {
        let mut cells = Vec::new();
        if pairs {
            cells.extend([Cell::new(&row.experiment), Cell::new(&row.client)]);
        }
        cells.extend([Cell::new(&row.server), Cell::new(&row.variant)]);
        match row.goodput {
            Some(goodput) => cells.extend([
                Cell::new(format!("{:.0}", goodput.mean)).tone(Tone::Strong),
                Cell::new(format!("{:.0}", goodput.deviation)),
                Cell::new(format!("{:.0}", goodput.median)),
                Cell::new(WHOLE.interval(&goodput)),
                Cell::new(format!("{:.0}", goodput.mad)),
                Cell::new(format!("{:.0} to {:.0}", goodput.min, goodput.max)),
            ]),
            None => cells.extend(std::iter::repeat_with(|| Cell::new(MISSING)).take(6)),
        }
        let n = row.goodput.map_or(0, |goodput| goodput.n);
        cells.push(Cell::new(n.to_string()));
        cells.push(notes(row, n));
        table.row(cells);
    }
    table
}

fn notes(row: &Row, n: usize) -> Cell {
    let mut notes = Vec::new();
    if row.asked > n {
        notes.push(format!("{} of {} failed", row.asked - n, row.asked));
    }
    if let Some(modes) = row.modes {
        notes.push(format!(
            "two modes: {:.0} ({}x), {:.0} ({}x)",
            modes.low, modes.low_count, modes.high, modes.high_count
        ));
    }
    let tone = if row.asked > n { Tone::Bad } else { Tone::Warning };
    Cell::new(notes.join("; ")).tone(tone)
}
