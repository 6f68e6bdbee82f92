//! The result for a person: tables for a terminal and for a README.

use std::fmt::Write as _;

use equic_report::number::MISSING;
use equic_report::schema::Report;
use equic_report::stats::Sample;
use equic_report::table::{Column, Table};

use super::data::{Caps, Plugins, TimerName, median};
use super::verdict::findings;

/// The tables, each with the start of the names of the plots that belong to it.
pub(super) fn tables(all: &Plugins) -> Vec<(&'static str, Table)> {
    let mut tables = Vec::new();
    if !all.figure3.is_empty() {
        tables.push(("figure3", requests(all)));
    }
    if !all.figure4.is_empty() {
        tables.push(("figure4", downloads(all)));
    }
    if !all.figure5.is_empty() {
        tables.push(("figure5", ack_paths(all)));
    }
    if let Some(one) = &all.figure6 {
        tables.push(("figure6", caps(one)));
    }
    if !all.table2.is_empty() {
        tables.push(("table2", sizes(all)));
    }
    tables
}

/// A median with the least and the largest value, where these differ from it.
fn shown(values: &[f64], places: usize) -> String {
    let sample: Sample = values.iter().copied().collect();
    let (Some(low), Some(median), Some(high)) = (sample.min(), sample.median(), sample.max())
    else {
        return MISSING.to_owned();
    };
    let [low, median, high] = [low, median, high].map(|value| format!("{value:.places$}"));
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

fn requests(all: &Plugins) -> Table {
    let mut columns = vec![Column::text("timer")];
    columns.extend(all.figure3.iter().map(|path| {
        let jitter = match path.jitter_ms {
            0 => String::new(),
            jitter => format!(", jitter ±{jitter} ms"),
        };
        Column::number(format!("WDT {} ms{jitter}", path.ack_delay_ms)).unit("ms")
    }));
    let mut table =
        Table::new(columns).title("Figure 3: time until the answer to a lost request is there");
    let timers: Vec<TimerName> =
        all.figure3.iter().flat_map(|path| path.arms.iter().map(|arm| arm.timer)).collect();
    let of_first = all.figure3.first().map_or(0, |path| path.arms.len());
    for timer in &timers[..of_first] {
        let cells = all.figure3.iter().map(|path| {
            let arm = path.arms.iter().find(|arm| arm.timer == *timer);
            arm.map_or(MISSING.to_owned(), |arm| shown(&arm.completion_ms, 1))
        });
        table.row(std::iter::once(timer.words().to_owned()).chain(cells));
    }
    table
}

fn downloads(all: &Plugins) -> Table {
    let columns = [
        Column::text("congestion control"),
        Column::text("router and ends"),
        Column::number("time").unit("s"),
        Column::number("packets lost"),
        Column::number("mean time in the queue").unit("ms"),
    ];
    let mut table = Table::new(columns).title("Figure 4: downloads");
    for one in &all.figure4 {
        for arm in &one.arms {
            let lost: Vec<f64> = arm.lost.iter().map(|lost| *lost as f64).collect();
            table.row([
                one.controller.clone(),
                arm.marking.words().to_owned(),
                shown(&arm.completion_s, 2),
                shown(&lost, 0),
                median(&arm.waited_ms).map_or(MISSING.to_owned(), |time| format!("{time:.0}")),
            ]);
        }
    }
    table
}

fn ack_paths(all: &Plugins) -> Table {
    let columns = [
        Column::text("acknowledgements"),
        Column::text("where"),
        Column::number("time").unit("s"),
        Column::number("sent by the client on the first path").unit("KB"),
        Column::number("on the second").unit("KB"),
    ];
    let mut table = Table::new(columns).title("Figure 5: downloads over asymmetric paths");
    for one in &all.figure5 {
        let often =
            if one.ack_frequency { "fewer, as asked for" } else { "of every second packet" };
        let arms = [("on the same path", &one.same), ("on the first, plugin ack-path", &one.first)];
        for (words, arm) in arms {
            let sent = |path: usize| {
                let sent: Vec<f64> = arm.sent.iter().map(|both| both[path] as f64 / 1e3).collect();
                shown(&sent, 0)
            };
            let time = shown(&arm.completion_s, 2);
            table.row([often.to_owned(), words.to_owned(), time, sent(0), sent(1)]);
        }
    }
    table
}

fn caps(one: &Caps) -> Table {
    let columns = [
        Column::number("pushed at").unit("s"),
        Column::number("cap").unit("MB/s"),
        Column::number("rate of the capped path").unit("MB/s"),
    ];
    let mut table = Table::new(columns).title("Figure 6: one of two paths capped by the client");
    for ((at, _), (cap, rate)) in one.caps.iter().zip(one.held()) {
        let megabytes = |bytes: f64| format!("{:.2}", bytes / 1e6);
        table.row([format!("{}", *at as f64 / 1e3), megabytes(cap as f64), megabytes(rate)]);
    }
    table
}

fn sizes(all: &Plugins) -> Table {
    let columns = [
        Column::text("use case"),
        Column::number("the paper").unit("KB"),
        Column::text("plugin here"),
        Column::number("object").unit("KB"),
        Column::number("instructions alone").unit("KB"),
        Column::number("pushed, with its manifest").unit("KB"),
        Column::number("lines of C"),
    ];
    let mut table = Table::new(columns).title("Table 2: sizes of plugins");
    let kilobytes = |bytes: usize| format!("{:.1}", bytes as f64 / 1e3);
    for one in &all.table2 {
        table.row([
            one.paper.clone(),
            format!("{:.1}", one.paper_kb),
            one.plugin.clone(),
            kilobytes(one.object),
            kilobytes(one.code),
            kilobytes(one.bundle),
            one.lines.to_string(),
        ]);
    }
    table
}

/// Everything as Markdown, for the experiment's README.
pub(super) fn markdown(report: &Report<Plugins>, plots: &[&str]) -> String {
    let all = &report.data;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Made {} by `{}`.\n", report.created.as_str(), command(report));
    let _ = writeln!(
        text,
        "Times are virtual, so that the machine has no part in them. Cells are medians of all runs, with the least and the \
         largest.{}\n",
        if all.quick { " This is the small experiment." } else { "" }
    );
    let columns = ["the paper's claim", "its figure", "here", "judgement"].map(Column::text);
    let mut beside = Table::new(columns);
    for finding in findings(all) {
        beside.row([
            finding.claim.to_owned(),
            finding.paper.to_owned(),
            finding.ours.clone(),
            finding.judgement.to_owned(),
        ]);
    }
    let _ = writeln!(text, "### The paper's figures beside these\n\n{}", beside.markdown());
    for (name, table) in tables(all) {
        let _ = writeln!(text, "{}", table.markdown());
        for plot in plots.iter().filter(|plot| plot.starts_with(name)) {
            let _ = writeln!(text, "![{plot}](results/{plot}.svg)\n");
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The command without the folder that this program is in.
fn command(report: &Report<Plugins>) -> String {
    let words = report.command.iter().skip(1).map(String::as_str);
    std::iter::once("equic").chain(words).collect::<Vec<_>>().join(" ")
}
