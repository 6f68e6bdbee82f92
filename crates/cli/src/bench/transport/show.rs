//! The result as tables, and how far the measurement is.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use equic_bench::summary::{Estimate, Row};
use equic_bench::transport::Cell as BenchCell;
use equic_bench::workload::Figure;
use equic_bench::{Effective, Outcome, Workload};
use equic_report::number;
use equic_report::table::{Cell, Column, Style, Table, Tone};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Done;
use crate::output;

/// One table for each path and workload.
pub(super) fn tables(rows: &[Row], markdown: bool) -> Done {
    for group in rows.chunk_by(|a, b| (a.route, a.workload) == (b.route, b.workload)) {
        let Some(first) = group.first() else { continue };
        let mut table = Table::new(columns(first.figure)).title(title(first));
        for row in group {
            table.row(cells(row));
        }
        print(&table, markdown)?;
    }
    Ok(())
}

fn print(table: &Table, markdown: bool) -> Done {
    let text = if markdown { table.markdown() } else { table.render(Style::stdout()) };
    output::text(format_args!("\n{text}"))
}

fn title(row: &Row) -> String {
    let what = match row.workload {
        Workload::Download => "Download, one stream",
        Workload::Streams => "Download, 100 streams",
        Workload::Upload => "Upload, one stream",
        Workload::Handshakes => "Full handshakes, each with an exchange of 8 bytes",
        Workload::Resumed => "Resumed handshakes, each with an exchange of 8 bytes",
        Workload::Requests => "HTTP/3 requests with bodies of 1 KB",
        Workload::Idle => "Idle connections",
        Workload::Connections | Workload::Ttfb | Workload::Transfer => row.workload.name(),
    };
    format!("{what} ({})", row.route.name())
}

/// Format of a figure: the title and unit of the value, its factor and digits; unit, factor and
/// digits of CPU time.
struct Form {
    value: (&'static str, &'static str, f64, usize),
    cpu: (&'static str, f64, usize),
}

const fn form(figure: Figure) -> Form {
    match figure {
        Figure::BitsPerSecond => {
            Form { value: ("goodput", "Gbit/s", 1e-9, 2), cpu: ("s/GB", 1.0, 2) }
        }
        Figure::PerSecond => Form { value: ("rate", "1/s", 1.0, 0), cpu: ("\u{b5}s", 1e6, 0) },
        Figure::BytesPerConnection => {
            Form { value: ("server memory", "kB each", 1e-3, 1), cpu: ("\u{b5}s", 1e6, 0) }
        }
        Figure::Seconds => Form { value: ("time", "ms", 1e3, 3), cpu: ("\u{b5}s", 1e6, 0) },
    }
}

fn columns(figure: Figure) -> Vec<Column> {
    let Form { value: (title, unit, ..), cpu: (cpu, ..) } = form(figure);
    vec![
        Column::text("implementation"),
        Column::number(title).unit(unit),
        Column::number("95 % interval").unit(unit),
        Column::number("of ours").unit("times"),
        Column::number("95 % interval").unit("times"),
        Column::number("CPU server").unit(cpu),
        Column::number("client").unit(cpu),
        Column::number("both").unit(cpu),
        Column::number("of ours").unit("times"),
        Column::number("95 % interval").unit("times"),
        Column::number("server RSS").unit("MB"),
        Column::number("runs"),
    ]
}

fn cells(row: &Row) -> Vec<Cell> {
    let Form { value: (_, _, scale, digits), cpu: (_, cpu_scale, cpu_digits) } = form(row.figure);
    let value = shown(row.value, scale, digits);
    let ratio = shown(row.value_ratio, 1.0, 2);
    let cpu = |estimate| shown(estimate, cpu_scale, cpu_digits).0;
    let cpu_ratio = shown(row.cpu_ratio, 1.0, 2);
    let rss = row.server_peak_rss.map(|bytes| bytes / 1e6);
    let runs = if row.unsupported {
        Cell::new("does not").tone(Tone::Faint)
    } else if row.measured < row.rounds {
        Cell::new(format!("{} of {}", row.measured, row.rounds)).tone(Tone::Bad)
    } else {
        Cell::new(row.rounds.to_string())
    };
    vec![
        Cell::new(&row.implementation),
        Cell::new(value.0).tone(Tone::Strong),
        value.1.into(),
        ratio.0.into(),
        ratio.1.into(),
        cpu(row.server_cpu).into(),
        cpu(row.client_cpu).into(),
        cpu(row.cpu).into(),
        cpu_ratio.0.into(),
        cpu_ratio.1.into(),
        Cell::new(rss.map_or_else(|| number::MISSING.to_owned(), |rss| format!("{rss:.1}"))),
        runs,
    ]
}

/// The median and the interval.
fn shown(estimate: Option<Estimate>, scale: f64, digits: usize) -> (String, String) {
    let Some(Estimate { median, interval }) = estimate else {
        return (number::MISSING.to_owned(), String::new());
    };
    let text = |value: f64| format!("{:.digits$}", scale * value);
    (text(median), format!("{} to {}", text(interval.low), text(interval.high)))
}

/// Prints the settings that were in force at each client.
pub(super) fn effective(all: &BTreeMap<String, Effective>, markdown: bool) -> Done {
    if all.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::text("version"),
        Column::text("io"),
        Column::number("buffers").unit("MiB"),
        Column::number("windows").unit("MiB"),
        Column::text("congestion"),
        Column::text("cipher suite"),
        Column::number("payload").unit("bytes"),
        Column::text("GSO"),
        Column::text("GRO"),
    ])
    .title("In force at the client (buffers receive/send as the kernel counts them)");
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    for one in all.values() {
        table.row([
            Cell::new(&one.implementation),
            Cell::new(&one.io),
            Cell::new(format!(
                "{:.1}/{:.1}",
                mebibytes(one.receive_buffer),
                mebibytes(one.send_buffer)
            )),
            Cell::new(format!(
                "{:.0}/{:.0}",
                mebibytes(one.stream_window),
                mebibytes(one.connection_window)
            )),
            Cell::new(&one.congestion),
            Cell::new(one.cipher.as_deref().unwrap_or("not told")),
            Cell::new(one.max_payload.to_string()),
            Cell::new(yes(one.gso)),
            Cell::new(yes(one.gro)),
        ]);
    }
    print(&table, markdown)
}

/// Prints the failures.
pub(super) fn failures(rows: &[Row]) -> Done {
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.failures.is_empty()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    output::line("\nFailed:")?;
    for row in failed {
        for (why, count) in &row.failures {
            let (name, what) = (&row.implementation, row.workload.name());
            output::line(format_args!("  {name} {what} ({}), {count} x: {why}", row.route.name()))?;
        }
    }
    Ok(())
}

/// A bar on a terminal, a line for each cell elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    pub(super) fn new(count: usize, quiet: bool) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
            // It is a constant, and the default looks fine too.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {eta:>4}  {msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress { bar, quiet }
    }

    pub(super) fn begin(&self, cell: &BenchCell) {
        if let Some(bar) = &self.bar {
            bar.set_message(name(cell));
        }
    }

    pub(super) fn done(&self, cell: &BenchCell, outcome: &Outcome) -> Done {
        let came = match outcome {
            Outcome::Measured(sample) => {
                let (title, unit, scale, digits) = form(cell.workload.figure()).value;
                format!("{title} {:.digits$} {unit}", scale * sample.value)
            }
            Outcome::Unsupported { .. } => "does not do that".to_owned(),
            Outcome::Failed { why } => format!("failed: {why}"),
        };
        let line = format!("{:>2} {:<36} {came}", cell.round + 1, name(cell));
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                if matches!(outcome, Outcome::Failed { .. }) {
                    bar.println(output::escaped(&line));
                }
                Ok(())
            }
            None if self.quiet => Ok(()),
            None => output::line(format_args!("{line}")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn name(cell: &BenchCell) -> String {
    format!("{} {} {}", cell.implementation, cell.workload.name(), cell.route.name())
}
