//! Tables that compare implementations with eQUIC, if each was measured with itself.
//! docs/notebook/bench-transport.md shows such tables.

use equic_report::number::MISSING;
use equic_report::table::{Cell, Column, Table, Tone};

use super::show::{self, MEBIBYTES, MEGABYTES, Scale};
use super::summary::{Estimate, Row, Summary};

/// Unit and factor with which ratios are shown.
const TIMES: Scale = Scale { unit: "times", factor: 1.0, digits: 2 };

/// Returns true if these rows get this table. The rows share workload, protocol, path and settings.
/// The table needs eQUIC and at least one other implementation, each measured only with itself. If
/// TCP was measured, implementations are compared with TCP instead.
pub(super) fn shows(rows: &[Row]) -> bool {
    let others = rows.iter().filter(|row| row.key.client != crate::registry::OURS);
    others.count() > 0 && rows.iter().all(|row| row.beside.is_some() && row.to_tcp.is_none())
}

/// Returns the table of rows that share workload, protocol, path and settings.
pub(super) fn table(rows: &[Row], notes: impl Fn(&Row, Scale) -> Cell) -> Table {
    let scale = Scale::of(rows);
    let cpu = Scale::cpu_of(rows);
    let place = rows.first().map(|row| show::place(&row.place())).unwrap_or_default();
    let less = show::less_is_better(rows);
    let reference = crate::registry::OURS;
    let mut table = Table::new([
        Column::text("implementation"),
        Column::number("median").unit(show::better(scale.unit, less)),
        Column::number("95 % interval").unit(scale.unit),
        Column::number(format!("to {reference}")).unit(show::better(TIMES.unit, less)),
        Column::number("95 % interval").unit(TIMES.unit),
        Column::number("CPU server").unit(show::better(cpu.unit, true)),
        Column::number("CPU client").unit(show::better(cpu.unit, true)),
        Column::number("CPU both").unit(show::better(cpu.unit, true)),
        Column::number(format!("CPU to {reference}")).unit(show::better(TIMES.unit, true)),
        Column::number("95 % interval").unit(TIMES.unit),
        Column::number("server RSS").unit(show::better(MEGABYTES.unit, true)),
        Column::number("n"),
        Column::text("notes"),
    ])
    .title(format!("{place}: each with itself ({})", show::ARROWS));
    let reference = rows.iter().find(|row| row.key.client == reference);
    let reference_is_doubted = reference.is_some_and(Row::clock_is_doubted);
    for row in rows {
        let beside = row.beside.as_ref();
        let [mut value, spread] = both(row.value, scale);
        value = show::marked(value, row.clock_is_doubted());
        if let Some(disturbed) = &row.disturbed {
            value = format!("{} (disturbed)", scale.show(disturbed.median));
        }
        let ratio = beside.and_then(|one| one.value);
        let depends = ratio.is_some() && (row.clock_is_doubted() || reference_is_doubted);
        let [ratio, ratio_spread] = both(ratio, TIMES);
        let ratio = show::marked(ratio, depends);
        let [cpu_ratio, cpu_spread] = both(beside.and_then(|one| one.cpu_ratio), TIMES);
        let median = |estimate: Option<Estimate>| both(estimate, cpu)[0].clone();
        let rss = row.medians.server_peak_rss;
        table.row([
            Cell::new(&row.key.server),
            Cell::new(value).tone(Tone::Strong),
            spread.into(),
            ratio.into(),
            ratio_spread.into(),
            median(row.server_cpu).into(),
            median(row.client_cpu).into(),
            median(beside.and_then(|one| one.cpu)).into(),
            cpu_ratio.into(),
            cpu_spread.into(),
            Cell::new(rss.map_or_else(|| MISSING.to_owned(), |rss| MEGABYTES.show(rss))),
            Cell::new(row.measured.to_string()),
            notes(row, scale),
        ]);
    }
    table
}

/// Formats an estimate as two texts: the median and the interval.
fn both(estimate: Option<Estimate>, scale: Scale) -> [String; 2] {
    estimate.map_or_else(
        || [MISSING.to_owned(), String::new()],
        |one| [scale.show(one.median), scale.interval(&one)],
    )
}

/// Returns a table with a row for each implementation in these tables: the settings in force at its
/// client, and the UDP payload size that its sender used. Returns `None` if there is no such
/// implementation.
pub(super) fn effective(summary: &Summary) -> Option<Table> {
    let swept = |row: &Row| !row.key.point.is_empty();
    let is_sweep = summary.tables().filter(|rows| shows(rows)).flatten().any(swept);
    let point = is_sweep.then(|| Column::text("point"));
    let mut table = Table::new(point.into_iter().chain([
        Column::text("version"),
        Column::text("io"),
        Column::number("buffers").unit(MEBIBYTES.unit),
        Column::number("windows").unit(MEBIBYTES.unit),
        Column::text("congestion"),
        Column::text("cipher suite"),
        Column::number("payload sent").unit("bytes"),
        Column::text("GSO"),
        Column::text("GRO"),
    ]))
    .title(
        "Settings in force at the client (buffers: receive/send, as the kernel counts them; payload: the largest that the sender used)",
    );
    let mebibytes = |bytes: u64| MEBIBYTES.show(bytes as f64);
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let mut known = Vec::new();
    for row in summary.tables().filter(|rows| shows(rows)).flatten() {
        let Some(one) = &row.client_effective else { continue };
        let identity = (&row.key.client, &row.key.point);
        if known.contains(&identity) {
            continue;
        }
        known.push(identity);
        let (receive, send) = (mebibytes(one.receive_buffer), mebibytes(one.send_buffer));
        let (stream, connection) = (mebibytes(one.stream_window), mebibytes(one.connection_window));
        let point = is_sweep.then(|| Cell::new(show::point(&row.key.point)));
        table.row(point.into_iter().chain([
            Cell::new(&one.implementation),
            Cell::new(&one.io),
            Cell::new(format!("{receive}/{send}")),
            Cell::new(format!("{stream}/{connection}")),
            Cell::new(&one.congestion),
            Cell::new(one.cipher.as_deref().unwrap_or("not told")),
            Cell::new(
                row.sent_payload().map_or_else(|| "not told".to_owned(), |one| one.to_string()),
            ),
            Cell::new(yes(one.gso)),
            Cell::new(yes(one.gro)),
        ]));
    }
    (!table.is_empty()).then_some(table)
}
