//! Formats the result as a table.

use equic_report::number;
use equic_report::stats::Interval;
use equic_report::table::{Cell, Column, Table, Tone};

use super::arms::Arms;
use super::plan::Arm;
use super::progress::rate;
use super::result::{AIM_P99, AIM_THROUGHPUT, Row};
use super::rows::Ratio;

pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        Column::text("flood"),
        Column::text("protected by"),
        Column::number("sent").unit("packets/s"),
        Column::number("requests").unit("1/s"),
        Column::number("of baseline").unit("%"),
        Column::number("95 % interval").unit("%"),
        Column::number("p99").unit("ms"),
        Column::number("of baseline").unit("times"),
        Column::number("95 % interval").unit("times"),
        Column::number("failed").unit("%"),
        Column::number("server CPU").unit("%"),
    ])
    .title("Legitimate HTTP/3 requests under a flood of Initials");
    for row in rows {
        let throughput = ratio(row.figures.throughput, 100.0, 1);
        let p99 = ratio(row.figures.p99, 1.0, 2);
        let aimed = row.arm == Arm::Gateway;
        let judged = |text: String, met: Option<bool>| match met.filter(|_| aimed) {
            Some(true) => Cell::new(text).tone(Tone::Good),
            Some(false) => Cell::new(text).tone(Tone::Warning),
            None => Cell::new(text),
        };
        let failed = 100.0 * row.figures.failures as f64 / row.figures.requests.max(1) as f64;
        table.row([
            flood(row.arm, row.flood_pps).into(),
            Cell::new(row.arm.title()),
            figure(row.sent_pps, 0).into(),
            figure(row.figures.requests_per_s, 0).into(),
            judged(throughput.0, row.figures.throughput.map(|r| r.median >= AIM_THROUGHPUT)),
            throughput.1.into(),
            figure(row.figures.p99_ms, 1).into(),
            judged(p99.0, row.figures.p99.map(|r| r.median <= AIM_P99)),
            p99.1.into(),
            Cell::new(format!("{failed:.1}")),
            figure(row.figures.server_cpu_percent, 0).into(),
        ]);
    }
    table
}

/// Formats the target for the gateway.
pub(super) fn aim() -> String {
    format!(
        "target for the gateway: at least {:.0} % of the baseline's requests, and at most {AIM_P99} times the baseline's p99",
        100.0 * AIM_THROUGHPUT
    )
}

/// Returns the text of the first column: the rate of the flood. Only the row of the first arm at
/// this rate shows it.
pub(super) fn flood<A: Arms>(arm: A, pps: Option<u64>) -> String {
    if arm == A::BASELINE { rate(pps) } else { String::new() }
}

/// Formats a number with this many decimals.
pub(super) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| number::MISSING.to_owned(), |value| format!("{value:.digits$}"))
}

/// Formats a ratio and its interval, each multiplied by `scale` (100 for percent). If there is no
/// interval, shows a dash.
pub(super) fn ratio(ratio: Option<Ratio>, scale: f64, digits: usize) -> (String, String) {
    let Some(Ratio { median, interval }) = ratio else { return Default::default() };
    let text = |value: f64| format!("{:.digits$}", scale * value);
    let range = |ends: Interval| format!("{} to {}", text(ends.low), text(ends.high));
    (text(median), interval.map_or_else(|| number::MISSING.to_owned(), range))
}
