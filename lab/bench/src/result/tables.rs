//! Formats the result of a run for a terminal.

use equic_report::number::MISSING;
use equic_report::table::{Cell, Column, Table, Tone};

use super::beside;
use super::show::{self, Scale};
use super::summary::{Estimate, Row, Summary};

/// Returns two tables for each combination of workload, protocol, path and settings: a matrix of
/// clients and servers, and a list of the pairs with all their figures. The division of CPU time
/// and the failures follow.
#[must_use]
pub fn tables(summary: &Summary) -> Vec<Table> {
    let mut tables = matrices(summary);
    tables.extend(lists(summary));
    tables.extend(super::latency::tables(summary));
    tables.extend(beside::effective(summary));
    tables.extend(super::parts::tables(summary));
    tables.extend(super::shares::tables(summary));
    tables.extend(failures(summary));
    tables
}

/// Returns a matrix of medians for each combination of workload, protocol, path and settings that
/// has pairs of different implementations. It has a row for each client and a column for each
/// server.
#[must_use]
pub fn matrices(summary: &Summary) -> Vec<Table> {
    let mixed = |rows: &&[Row]| rows.iter().any(|row| row.key.client != row.key.server);
    summary.tables().filter(mixed).map(matrix).collect()
}

/// Returns a list of the pairs for each combination of workload, protocol, path and settings. If
/// each implementation was measured only with itself, the list compares them with eQUIC.
#[must_use]
pub fn lists(summary: &Summary) -> Vec<Table> {
    let table = |rows| if beside::shows(rows) { beside::table(rows, notes) } else { list(rows) };
    summary.tables().map(table).collect()
}

fn title(rows: &[Row], what: &str) -> String {
    rows.first().map(|row| format!("{}: {what}", show::place(&row.place()))).unwrap_or_default()
}

fn matrix(rows: &[Row]) -> Table {
    let scale = Scale::of(rows);
    let (clients, servers) = ends(rows);
    let mut columns = vec![Column::text("client \\ server")];
    columns.extend(servers.iter().map(|server| Column::number(*server)));
    let unit = if scale.unit.is_empty() { "no figures" } else { scale.unit };
    let unit = show::axis(unit, show::less_is_better(rows));
    let mut table = Table::new(columns).title(title(rows, &format!("medians, {unit}")));
    for client in clients {
        let mut cells = vec![Cell::new(client)];
        cells.extend(servers.iter().map(|server| {
            let pair =
                rows.iter().find(|row| row.key.client == client && row.key.server == *server);
            // A pair without a row shares no protocol.
            pair.map_or_else(|| Cell::new("").tone(Tone::Faint), |row| short(row, scale))
        }));
        table.row(cells);
    }
    table
}

/// Returns the clients and servers of a table, in the table's order.
pub(super) fn ends(rows: &[Row]) -> (Vec<&str>, Vec<&str>) {
    let (mut clients, mut servers): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in rows {
        for (names, name) in [(&mut clients, &row.key.client), (&mut servers, &row.key.server)] {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    // The rows are ordered by client. Their servers may be out of order if pairs are missing.
    servers.sort_by_key(|name| (*name != crate::registry::OURS, *name));
    (clients, servers)
}

fn short(row: &Row, scale: Scale) -> Cell {
    if let Some(disturbed) = &row.disturbed {
        let text = format!("{} (disturbed)", scale.show(disturbed.median));
        return Cell::new(text).tone(Tone::Warning);
    }
    match (row.value, show::trouble(row)) {
        (Some(value), trouble) => {
            let doubted = row.clock_is_doubted();
            let text = show::marked(scale.show(value.median), doubted);
            match trouble {
                Some(_) => {
                    Cell::new(format!("{text} ({}/{})", row.measured, row.rounds)).tone(Tone::Bad)
                }
                None if doubted => Cell::new(text).tone(Tone::Warning),
                None => Cell::new(text).tone(Tone::Strong),
            }
        }
        (None, Some(trouble)) => Cell::new(trouble).tone(Tone::Bad),
        (None, None) => Cell::new("unsupported").tone(Tone::Faint),
    }
}

fn list(rows: &[Row]) -> Table {
    let scale = Scale::of(rows);
    let cpu = Scale::cpu_of(rows);
    let with_tcp = show::reference(rows).is_some();
    let mut columns = vec![
        Column::text("client"),
        Column::text("server"),
        Column::number("median").unit(show::better(scale.unit, show::less_is_better(rows))),
        Column::number("95 % interval").unit(scale.unit),
        Column::number("MAD").unit(scale.unit),
        Column::number("min to max").unit(scale.unit),
        Column::number("n"),
        Column::number("CPU client").unit(show::better(cpu.unit, true)),
        Column::number("CPU server").unit(show::better(cpu.unit, true)),
    ];
    if let Some(tcp) = show::reference(rows) {
        let unit = show::better("times", show::less_is_better(rows));
        columns.push(Column::number(format!("to {tcp}")).unit(unit));
    }
    columns.push(Column::text("notes"));
    let mut table = Table::new(columns).title(title(rows, &format!("pairs ({})", show::ARROWS)));
    for row in rows {
        let mut cells = vec![Cell::new(&row.key.client), Cell::new(&row.key.server)];
        match row.value {
            Some(value) => cells.extend(figures(&value, scale)),
            None if row.disturbed.is_some() => {
                cells.push(short(row, scale));
                cells.extend(std::iter::repeat_with(|| Cell::new(MISSING)).take(3));
            }
            None => cells.extend(std::iter::repeat_with(|| Cell::new(MISSING)).take(4)),
        }
        cells.push(Cell::new(row.measured.to_string()));
        let median = |estimate: Option<Estimate>, scale: Scale| {
            Cell::new(estimate.map_or_else(|| MISSING.to_owned(), |one| scale.show(one.median)))
        };
        cells.push(median(row.client_cpu, cpu));
        cells.push(median(row.server_cpu, cpu));
        if with_tcp {
            cells.push(median(row.to_tcp, Scale { unit: "", factor: 1.0, digits: 2 }));
        }
        cells.push(notes(row, scale));
        table.row(cells);
    }
    table
}

fn figures(value: &Estimate, scale: Scale) -> [Cell; 4] {
    [
        Cell::new(scale.show(value.median)).tone(Tone::Strong),
        Cell::new(scale.interval(value)),
        Cell::new(scale.show(value.mad)),
        Cell::new(scale.range(value.min, value.max)),
    ]
}

/// Returns the notes on a row, most important first.
fn notes(row: &Row, scale: Scale) -> Cell {
    let mut notes: Vec<String> = show::disturbed(row).into_iter().collect();
    let mut tone = Tone::Warning;
    if let Some(trouble) = show::trouble(row) {
        notes.push(trouble);
        tone = Tone::Bad;
    }
    if let Some(why) = &row.unsupported {
        notes.push(format!("unsupported: {why}"));
    }
    if let Some(modes) = row.modes {
        let (low, high) = (scale.show(modes.low), scale.show(modes.high));
        notes.push(format!(
            "two modes: {low} ({}x), {high} ({}x)",
            modes.low_count, modes.high_count
        ));
    }
    if row.noisy > 0 {
        notes.push(format!("{} noisy", row.noisy));
    }
    notes.extend(show::marks(row));
    notes.extend(show::remembered(row));
    let drops = [row.medians.client_udp_drops, row.medians.server_udp_drops];
    let drops: f64 = drops.into_iter().flatten().sum();
    if drops > 0.0 {
        notes.push(format!("drops {}", show::count(drops)));
    }
    Cell::new(notes.join("; ")).tone(if notes.is_empty() { Tone::Normal } else { tone })
}

/// Returns a table of failures and their reasons, or `None` if nothing failed.
#[must_use]
pub fn failures(summary: &Summary) -> Option<Table> {
    let mut table = Table::new([
        Column::text("what"),
        Column::text("client"),
        Column::text("server"),
        Column::number("times"),
        Column::text("failure"),
        Column::text("why"),
    ])
    .title("Failed");
    for row in summary.failing() {
        for fault in &row.faults {
            table.row([
                Cell::new(show::place(&row.place())),
                Cell::new(&row.key.client),
                Cell::new(&row.key.server),
                Cell::new(format!("{}/{}", fault.rounds.len(), row.rounds)),
                Cell::new(show::failure(fault.failure)).tone(Tone::Bad),
                Cell::new(&fault.why),
            ]);
        }
    }
    (!table.is_empty()).then_some(table)
}
