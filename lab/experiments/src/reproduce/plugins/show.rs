//! Shows the result to people: tables for a terminal and for a README.

use std::fmt::Write as _;

use equic_plugin_kit::trial::SchedulerArm;
use equic_report::number::MISSING;
use equic_report::schema::Report;
use equic_report::stats::Sample;
use equic_report::table::{Column, Table};

use super::costs::{ERROR_CORRECTION, MONITORING, ONE_PATH, TWO_PATHS};
use super::data::{
    AckArm, AckPaths, Caps, CostArm, Costs, Plugins, RealTime, Requests, TimerName, median,
};
use super::verdict::{change, findings};

/// Returns the tables, each with the file-name prefix of its plots.
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
    if let Some(one) = &all.costs {
        tables
            .push(("costs", arms("Table 1: cost of a lowest-latency scheduler", &one.schedulers)));
        tables.push((
            "costs",
            arms("Cost of the extensions that are plugins in PQUIC", &one.extensions),
        ));
        tables.push(("costs", loading(one)));
    }
    if let Some(one) = &all.real_time {
        tables.push(("real-time", real_time(all, one)));
    }
    tables
}

/// Returns the published figure for an arm. It is from "The Case for Protocol Plugins" for
/// schedulers, and from PQUIC's paper for other arms.
fn of_paper(name: &str) -> &'static str {
    match name {
        _ if name == SchedulerArm::Nothing.name() => "-6.1 %",
        _ if name == SchedulerArm::OnDemand.name() => "-25.1 %",
        _ if name == SchedulerArm::Filled.name() => "-25.1 %",
        MONITORING => "-6 %",
        ONE_PATH | TWO_PATHS => "-31 %",
        ERROR_CORRECTION => "-53 %",
        _ => "",
    }
}

fn arms(title: &str, arms: &[CostArm]) -> Table {
    let columns = [
        Column::text(""),
        Column::number(
            "change of the bytes carried per second of CPU time, compared with the first row",
        ),
        Column::number("change of the goodput in the paper"),
    ];
    let mut table = Table::new(columns).title(title);
    for (at, arm) in arms.iter().enumerate() {
        let ratio = arms.first().filter(|_| at > 0).and_then(|usual| arm.throughput(usual));
        let cell = ratio.map_or(MISSING.to_owned(), |ratio| change(&ratio));
        let paper = Some(of_paper(&arm.name)).filter(|figure| !figure.is_empty());
        table.row([arm.name.clone(), cell, paper.unwrap_or(MISSING).to_owned()]);
    }
    table
}

fn loading(costs: &Costs) -> Table {
    let columns = [
        Column::text("plugin"),
        Column::number("bundle").unit("B"),
        Column::number("time to start from its bundle").unit("ms"),
        Column::number("time to start if already compiled").unit("ms"),
        Column::number("time to start in PQUIC").unit("ms"),
    ];
    let mut table = Table::new(columns).title("Time to load a plugin");
    for one in &costs.loading {
        let ms = |times: &[f64]| times.iter().map(|us| us / 1e3).collect::<Vec<f64>>();
        table.row([
            one.plugin.clone(),
            one.bundle.to_string(),
            shown(&ms(&one.first_us), 3),
            shown(&ms(&one.again_us), 3),
            "6 to 13".to_owned(),
        ]);
    }
    table
}

/// Returns a table that compares each point in real time with the same point in virtual time.
fn real_time(all: &Plugins, points: &RealTime) -> Table {
    let columns = [
        Column::text("figure"),
        Column::text("point"),
        Column::number("result in virtual time"),
        Column::number("result in real time"),
    ];
    let mut table = Table::new(columns).title("Points in real time and in virtual time");
    let mut row = |figure: &str, point: String, virtual_time: Option<String>, real: String| {
        let virtual_time = virtual_time.unwrap_or(MISSING.to_owned());
        table.row([figure.to_owned(), point, virtual_time, real]);
    };
    let with_unit =
        |values: &[f64], places, unit: &str| format!("{} {unit}", shown(values, places));
    let (one, ms) = (&points.figure3, |values: &[f64]| with_unit(values, 1, "ms"));
    let alike =
        |path: &&Requests| (path.jitter_ms, path.ack_delay_ms) == (one.jitter_ms, one.ack_delay_ms);
    let path = all.figure3.iter().find(alike);
    for arm in &one.arms {
        let other = path.and_then(|path| path.arms.iter().find(|other| other.timer == arm.timer));
        let other = other.map(|other| ms(&other.completion_ms));
        row("3", arm.timer.words().to_owned(), other, ms(&arm.completion_ms));
    }
    let (one, seconds) = (&points.figure4, |values: &[f64]| with_unit(values, 2, "s"));
    let path = all.figure4.iter().find(|path| path.controller == one.controller);
    for arm in &one.arms {
        let other = path.and_then(|path| path.arm(arm.marking));
        let other = other.map(|other| seconds(&other.completion_s));
        row("4", arm.marking.words().to_owned(), other, seconds(&arm.completion_s));
    }
    let one = &points.figure5;
    let path = all.figure5.iter().find(|path| path.ack_frequency == one.ack_frequency);
    let mut download = |words: &str, of: fn(&AckPaths) -> &AckArm| {
        let other = path.map(|path| seconds(&of(path).completion_s));
        row("5", words.to_owned(), other, seconds(&of(one).completion_s));
    };
    download("acknowledgements on the same path", |paths| &paths.same);
    download("acknowledgements on the first path (plugin ack-path)", |paths| &paths.first);
    let held = all.figure6.as_ref().map(Caps::held).unwrap_or_default();
    for (at, (cap, rate)) in points.figure6.held().into_iter().enumerate() {
        let megabytes = |rate: f64| format!("{:.2} MB/s", rate / 1e6);
        let other = held.get(at).map(|(_, rate)| megabytes(*rate));
        row("6", format!("capped to {}", megabytes(cap as f64)), other, megabytes(rate));
    }
    table
}

/// Formats the median of values, and the smallest and the largest value if they differ from it.
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
        Table::new(columns).title("Figure 3: time until the answer to a lost request arrives");
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
        Column::text("queue of the router, and ECN at the ends"),
        Column::number("download time").unit("s"),
        Column::number("packets lost"),
        Column::number("mean time in the queue").unit("ms"),
    ];
    let mut table = Table::new(columns).title("Figure 4: downloads through a bottleneck");
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
        Column::text("path of the acknowledgements"),
        Column::number("time").unit("s"),
        Column::number("sent by the client on the first path").unit("KB"),
        Column::number("sent by the client on the second path").unit("KB"),
    ];
    let mut table = Table::new(columns).title("Figure 5: downloads over asymmetric paths");
    for one in &all.figure5 {
        let often = if one.ack_frequency {
            "fewer, because the server requests it"
        } else {
            "for every second packet"
        };
        let arms =
            [("path of the packet", &one.same), ("first path (plugin ack-path)", &one.first)];
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
        Column::number("time at which the client sets the cap").unit("s"),
        Column::number("cap").unit("MB/s"),
        Column::number("rate of the capped path").unit("MB/s"),
    ];
    let mut table =
        Table::new(columns).title("Figure 6: the client limits the rate of one of two paths");
    for ((at, _), (cap, rate)) in one.caps.iter().zip(one.held()) {
        let megabytes = |bytes: f64| format!("{:.2}", bytes / 1e6);
        table.row([format!("{}", *at as f64 / 1e3), megabytes(cap as f64), megabytes(rate)]);
    }
    table
}

fn sizes(all: &Plugins) -> Table {
    let columns = [
        Column::text("use case"),
        Column::number("object in the paper").unit("KB"),
        Column::text("our plugin"),
        Column::number("our object").unit("KB"),
        Column::number("instructions only").unit("KB"),
        Column::number("bundle with manifest").unit("KB"),
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

/// Returns the whole result as Markdown, for the experiment's README.
pub(super) fn markdown(report: &Report<Plugins>, plots: &[&str]) -> String {
    let all = &report.data;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Made {} by `{}`.\n", report.created.as_str(), command(report));
    let _ = writeln!(
        text,
        "Times are virtual and do not depend on the machine, except where stated. Cells are medians of all runs, \
         with the smallest and the largest value.{}\n",
        if all.quick { " This is the small version of the experiment." } else { "" }
    );
    if all.costs.is_some() {
        let _ = writeln!(
            text,
            "The cost of plugins was measured on {}, with 95 % intervals over rounds.\n",
            report.machine
        );
    }
    if let Some(RealTime { late_ms, .. }) = &all.real_time {
        let most = late_ms.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "Points in real time were measured on the same machine. In each figure, 99 % of the packets were at most {most:.2} ms late.\n"
        );
    }
    let columns =
        ["claim of the paper", "figure in the paper", "our figure", "verdict"].map(Column::text);
    let mut beside = Table::new(columns);
    for finding in findings(all) {
        beside.row([
            finding.claim.clone(),
            finding.paper.to_owned(),
            finding.ours.clone(),
            finding.judgement.to_owned(),
        ]);
    }
    let _ =
        writeln!(text, "### The results of the paper and these results\n\n{}", beside.markdown());
    for (name, table) in tables(all) {
        let _ = writeln!(text, "{}", table.markdown());
        for plot in plots.iter().filter(|plot| plot.starts_with(name)) {
            let _ = writeln!(text, "![{plot}]({plot}.svg)\n");
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Returns the command line of the report, without the folder of the program.
fn command(report: &Report<Plugins>) -> String {
    let words = report.command.iter().skip(1).map(String::as_str);
    std::iter::once("equic-lab").chain(words).collect::<Vec<_>>().join(" ")
}
