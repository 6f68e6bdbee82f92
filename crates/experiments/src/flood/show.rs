//! The result as a table, and how far the measurement is.

use std::io::IsTerminal as _;
use std::time::Duration;

use equic_report::number;
use equic_report::table::{Cell, Column, Table, Tone};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::Arm;
use super::result::{AIM_P99, AIM_THROUGHPUT, Row};
use super::rounds::Arms;
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

/// The aim, in words.
pub(super) fn aim() -> String {
    format!(
        "aim for the gateway: at least {:.0} % of the baseline's requests, p99 at most {AIM_P99} times",
        100.0 * AIM_THROUGHPUT
    )
}

/// The first column: a rate stands in the row of its first arm alone.
pub(super) fn flood<A: Arms>(arm: A, pps: Option<u64>) -> String {
    if arm == A::BASELINE { rate(pps) } else { String::new() }
}

/// Words for the rate of a flood.
fn rate(pps: Option<u64>) -> String {
    pps.map_or_else(|| "all it can".to_owned(), |pps| number::si(pps as f64, "packets/s"))
}

/// A figure with so many digits behind the point.
pub(super) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| number::MISSING.to_owned(), |value| format!("{value:.digits$}"))
}

/// A ratio and its interval, each multiplied by `scale`: 100 for per cent.
pub(super) fn ratio(ratio: Option<Ratio>, scale: f64, digits: usize) -> (String, String) {
    let Some(Ratio { median, interval }) = ratio else { return Default::default() };
    let text = |value: f64| format!("{:.digits$}", scale * value);
    (text(median), format!("{} to {}", text(interval.low), text(interval.high)))
}

/// A bar on a terminal, nothing elsewhere.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar for so many measurements.
    pub(super) fn new(cells: usize) -> Progress {
        Progress(std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
            // The template is a constant; if it is wrong, the default style does, too.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {eta:>4}  {msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    pub(super) fn begin(&self, arm: &str, pps: Option<u64>) {
        if let Some(bar) = &self.0 {
            bar.set_message(format!("{arm}, flood {}", rate(pps)));
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
