//! Shows the result to people: tables for a terminal and for a README.

use std::fmt::Write as _;

use equic_bench::Failure;
use equic_bench::result::Row;
use equic_bench::result::show::{Scale, marked};
use equic_report::number::{self, MISSING};
use equic_report::schema::Report;
use equic_report::table::{Column, Table};

use super::data::{Highway, Measured};
use super::paper::{SPREAD, claims};
use super::part::Part;
use super::verdict::{BUFFERS, changes, verdicts};

/// Scale of the goodput figures in all tables.
const SCALE: Scale = Scale { unit: "Gbit/s", factor: 1e-9, digits: 2 };

/// Returns a table for each part, and one that compares with the paper's figures.
pub(super) fn tables(highway: &Highway) -> Vec<Table> {
    let mut tables: Vec<Table> = highway.parts.iter().map(table).collect();
    tables.push(spread());
    tables
}

fn table(measured: &Measured) -> Table {
    let part = measured.part;
    let mut columns = vec![Column::text("")];
    columns.extend(measured.values().iter().map(|value| Column::number(heading(part, value))));
    let compared = compared(part);
    columns.push(Column::number(match part {
        Part::Buffers => "change with 16 times the buffer",
        _ => "change from on to off",
    }));
    if part == Part::Buffers {
        columns.push(Column::number("datagrams dropped with the smallest buffer"));
    }
    if part == Part::Aes {
        columns.push(Column::text("cipher with AES instructions; cipher without them"));
    }
    let mut table =
        Table::new(columns).title(format!("{}: goodput in {}", part.title(), SCALE.unit));
    let changes = changes(measured, compared);
    for name in measured.names() {
        let rows: Vec<Option<&Row>> =
            measured.values().iter().map(|value| measured.row(name, value)).collect();
        let mut cells = vec![name.to_owned()];
        cells.extend(rows.iter().map(|row| row.map_or_else(|| MISSING.to_owned(), cell)));
        let change = changes.iter().find(|(of, _)| *of == name);
        cells.push(change.map_or_else(|| MISSING.to_owned(), |(_, change)| change.words()));
        if part == Part::Buffers {
            cells.push(drops(rows.first().copied().flatten()));
        }
        if part == Part::Aes {
            cells.push(ciphers(&rows));
        }
        table.row(cells);
    }
    for claim in claims(part) {
        let mut cells = vec![format!("{} (paper)", claim.name)];
        for (index, value) in measured.values().iter().enumerate() {
            let mbits = match index {
                0 => Some(claim.from),
                _ if *value == claim.value => Some(claim.to),
                _ => None,
            };
            cells.push(
                mbits.map_or_else(|| MISSING.to_owned(), |mbits| format!("{:.2}", mbits / 1000.0)),
            );
        }
        cells.push(number::change(claim.from, claim.to));
        if matches!(part, Part::Buffers | Part::Aes) {
            cells.push(MISSING.to_owned());
        }
        table.row(cells);
    }
    table
}

/// Returns the two values of a part's setting that the second-to-last column compares.
const fn compared(part: Part) -> [&'static str; 2] {
    match part {
        Part::Buffers => BUFFERS,
        _ => ["on", "off"],
    }
}

fn heading(part: Part, value: &str) -> String {
    match (part, value.parse::<u64>()) {
        (Part::Buffers, Ok(bytes)) => number::bytes(bytes),
        _ => value.to_owned(),
    }
}

/// Returns the number of failed rounds. A round in which other load disturbed every attempt does
/// not count, because it says nothing about the implementation.
fn failed(row: &Row) -> usize {
    row.failed() - disturbed(row)
}

fn disturbed(row: &Row) -> usize {
    let noisy = row.faults.iter().filter(|fault| fault.failure == Failure::Noisy);
    noisy.map(|fault| fault.rounds.len()).sum()
}

/// Formats the median of a row, or the reason for a missing median.
fn cell(row: &Row) -> String {
    let failed = failed(row);
    match (row.value, &row.unsupported) {
        (Some(value), _) if failed > 0 => {
            let median = marked(SCALE.show(value.median), row.clock_is_doubted());
            format!("{median} ({failed} failed)")
        }
        (Some(value), _) => marked(SCALE.show(value.median), row.clock_is_doubted()),
        (None, Some(_)) => "unsupported".to_owned(),
        (None, None) => "failed".to_owned(),
    }
}

/// Formats how many datagrams per transfer were dropped because the client's receive buffer was
/// full.
fn drops(row: Option<&Row>) -> String {
    let drops = row.and_then(|row| row.medians.client_udp_drops);
    drops.map_or_else(|| MISSING.to_owned(), |drops| number::count(drops.round() as u64))
}

fn ciphers(rows: &[Option<&Row>]) -> String {
    let cipher = |row: &Option<&Row>| {
        let cipher = row.and_then(|row| row.client_effective.as_ref()?.cipher.clone());
        let short = cipher.map(|name| name.trim_start_matches("TLS_").replace("_SHA256", ""));
        short.unwrap_or_else(|| MISSING.to_owned())
    };
    let mut names: Vec<String> = rows.iter().map(cipher).collect();
    names.dedup();
    names.join(", ")
}

fn spread() -> Table {
    let columns = [Column::text("implementation as client and server"), Column::number("Gbit/s")];
    let mut table = Table::new(columns).title("Goodput in the paper, over 10G links");
    for (name, mbits) in SPREAD {
        table.row([name.to_owned(), format!("{:.2}", mbits / 1000.0)]);
    }
    table
}

/// Returns notes that a reader needs to interpret the figures.
fn notes(highway: &Highway) -> Vec<String> {
    let settings = &highway.settings;
    let rows = || highway.parts.iter().flat_map(|part| &part.rows);
    let disturbed: usize = rows().map(|row| row.noisy + disturbed(row)).sum();
    let again: usize = rows().map(|row| row.attempts.saturating_sub(row.rounds)).sum();
    let failed: usize = rows().map(failed).sum();
    let rounds: usize = rows().map(|row| row.rounds).sum();
    let mut notes = vec![
        format!(
            "Each part has {} rounds after a warm-up round. Each round measures all cells of the part once, in random order. Each implementation is both client and server, and transfers {} on one stream between two network namespaces (veth and a bridge). Server and client have one CPU each.",
            settings.runs,
            number::bytes(settings.bytes)
        ),
        format!(
            "Cells are medians. Changes are medians of the quotients of each round, with 95 % intervals (order statistics). \
             Of {rounds} transfers, {failed} failed and {disturbed} have no result because all three attempts \
             were disturbed: other programs or the hypervisor used CPU time. {again} attempts were repeated \
             for that reason."
        ),
        format!("All measured programs ran with `GLIBC_TUNABLES={}`.", settings.tunables),
    ];
    for row in rows() {
        for fault in row.faults.iter().filter(|fault| fault.failure != Failure::Noisy) {
            notes.push(format!("{}: {}", row.key.client, fault.why));
        }
    }
    notes
}

/// Returns the whole result as Markdown, for the experiment's README.
pub(super) fn markdown(report: &Report<Highway>) -> String {
    let highway = &report.data;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Made {} on {}.\n", report.created.as_str(), report.machine);
    for note in notes(highway) {
        let _ = writeln!(text, "* {note}");
    }
    let _ = writeln!(text, "\n### What held\n");
    for sentence in verdicts(highway) {
        let _ = writeln!(text, "* {sentence}");
    }
    for measured in &highway.parts {
        let part = measured.part;
        let _ = writeln!(text, "\n### {}\n\n    {}\n", part.title(), measured.command);
        let _ = writeln!(text, "![{}]({}.svg)\n", part.title(), part.name());
        let _ = write!(text, "{}", table(measured).markdown());
    }
    let _ = writeln!(text, "\n### The spread\n\n![spread](spread.svg)\n");
    let _ = write!(text, "{}", spread().markdown());
    text
}
