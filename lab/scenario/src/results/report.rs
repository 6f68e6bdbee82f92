//! The report about the runs of a scenario. It has tables for people, and a JSON document.

use equic_report::number::{self, MISSING};
use equic_report::table::{Cell, Column, Table, Tone};
use serde::Serialize;

use super::{Figure, RunOutcome, Summary};
use crate::model::Scenario;

/// Largest number of failed connections that a report lists.
const FAILURES: usize = 10;

/// The result as JSON, with the schema `equic.sim.run/1`.
#[derive(Serialize)]
pub struct Document<'a, R = RunOutcome> {
    /// File or name of the scenario.
    pub scenario: String,
    /// Description of the scenario.
    pub description: &'a str,
    /// Seeds of the runs.
    pub seeds: &'a [u64],
    /// Summary of all runs.
    pub summary: &'a Summary,
    /// The outcome of each run.
    pub runs: &'a [R],
}

/// A part of the report for people. The parts are printed in order.
#[derive(Debug)]
pub enum Report {
    /// Text for standard output, with its line feeds.
    Text(String),
    /// A table, for standard output.
    Table(Table),
    /// A failure, printed on standard error.
    Notice(String),
}

impl Report {
    /// Creates the report about these runs. `name` is the name of the scenario.
    pub fn of(
        name: &str,
        scenario: &Scenario,
        summary: &Summary,
        runs: &[RunOutcome],
    ) -> Vec<Report> {
        let mut report = Vec::new();
        if !scenario.description.is_empty() {
            report.push(Report::Text(format!("{name}: {}\n", scenario.description)));
        }
        report.push(Report::Table(flows(summary, runs.len())));
        report.extend(limited(summary).map(Report::Text));
        report.extend(differences(summary).map(Report::Table));
        report.extend(applications(summary).into_iter().map(Report::Table));
        if let Some(jain) = summary.jain {
            let within = jain
                .interval
                .map(|interval| format!(" ({:.3} to {:.3})", interval.low, interval.high));
            let within = within.unwrap_or_default();
            let text = format!("Jain's fairness index of goodput: {:.3}{within}\n", jain.mean);
            report.push(Report::Text(text));
        }
        report.extend(harm(summary).map(Report::Table));
        let failures = runs.iter().flat_map(|run| {
            let failed = run.flows.iter().filter_map(|flow| Some((flow, flow.failure.as_ref()?)));
            failed.map(|(flow, failure)| {
                format!("seed {}, {} {}: {failure}", run.seed, flow.name, flow.copy)
            })
        });
        report.extend(failures.take(FAILURES).map(Report::Notice));
        let seeds =
            if runs.len() == 1 { "1 seed".to_owned() } else { format!("{} seeds", runs.len()) };
        report.push(Report::Text(format!("{seeds}; means over seeds, with their intervals\n")));
        report
    }
}

fn flows(summary: &Summary, runs: usize) -> Table {
    let mut table = Table::new([
        Column::text("flow"),
        Column::number("completed"),
        Column::number("completion"),
        Column::number("95 % interval"),
        Column::number("goodput"),
        Column::number("95 % interval"),
        Column::number("lost"),
    ]);
    for flow in &summary.flows {
        let all = flow.connections * runs;
        let completed = Cell::new(format!("{} of {all}", flow.completed));
        let (completion, within) = shown(flow.completion, number::seconds);
        let (goodput, goodput_within) = shown(flow.goodput, number::bit_rate);
        table.row([
            Cell::new(flow.name.clone()),
            if flow.failed > 0 { completed.tone(Tone::Warning) } else { completed },
            Cell::new(completion).tone(Tone::Strong),
            Cell::new(within),
            Cell::new(goodput).tone(Tone::Strong),
            Cell::new(goodput_within),
            Cell::new(flow.loss.map_or(MISSING.to_owned(), |share| number::percent(share.mean))),
        ]);
    }
    table
}

/// If its window limits a flow for at least this share of its time, the report mentions the flow.
const LIMITED: f64 = 0.01;

/// Returns a text that names the flows whose goodput was limited by their window instead of by the
/// network.
fn limited(summary: &Summary) -> Option<String> {
    let mut text = String::new();
    for flow in &summary.flows {
        let Some(share) = flow.window_limited.filter(|share| share.mean >= LIMITED) else {
            continue;
        };
        text += &format!(
            "{}: the window of {} limited this flow for {} of the time; increase `window` in [flow.{}], up to 1 GiB\n",
            flow.name,
            number::bytes(flow.window),
            number::percent(share.mean),
            flow.protocol,
        );
    }
    (!text.is_empty()).then_some(text)
}

/// Returns a table of the settings in which flows differ, other than protocol and congestion
/// control.
fn differences(summary: &Summary) -> Option<Table> {
    let all: Vec<_> =
        summary.flows.iter().map(|flow| (&flow.name, flow.settings.named())).collect();
    let (_, first) = all.first()?;
    let differ: Vec<usize> = (0..first.len())
        .filter(|at| all.iter().any(|(_, settings)| settings[*at].1 != first[*at].1))
        .collect();
    if differ.is_empty() {
        return None;
    }
    let names = differ.iter().map(|at| Column::text(first[*at].0));
    let columns: Vec<Column> = std::iter::once(Column::text("flow")).chain(names).collect();
    let mut table = Table::new(columns).title("Settings in which the flows differ");
    for (name, settings) in &all {
        let cells = differ.iter().map(|at| settings[*at].1.clone());
        table.row(std::iter::once((*name).clone()).chain(cells));
    }
    Some(table)
}

/// Returns tables for the applications other than a single transfer: a table of durations, a table
/// for videos, and a table for calls.
fn applications(summary: &Summary) -> Vec<Table> {
    let all = summary.flows.iter().filter_map(|flow| Some((flow, flow.application.as_ref()?)));
    let mut latency = Table::new([
        Column::text("flow"),
        Column::text("application"),
        Column::number("done"),
        Column::number("p50"),
        Column::number("p95"),
        Column::number("p99"),
    ])
    .title("Duration of each request, stream, object, segment or message");
    let mut videos = Table::new([
        Column::text("flow"),
        Column::number("start-up"),
        Column::number("stalls"),
        Column::number("stalled"),
    ])
    .title("Playback of videos");
    let mut calls =
        Table::new([Column::text("flow"), Column::number("late"), Column::number("lost")])
            .title("Messages of calls");
    let mean = |figure: Option<Figure>, how: fn(f64) -> String| {
        figure.map_or(MISSING.to_owned(), |figure| how(figure.mean))
    };
    for (flow, application) in all {
        latency.row([
            flow.name.clone(),
            application.kind.to_owned(),
            format!("{} of {}", application.done, application.wanted),
            mean(application.p50, number::seconds),
            mean(application.p95, number::seconds),
            mean(application.p99, number::seconds),
        ]);
        if application.stalls.is_some() {
            videos.row([
                flow.name.clone(),
                mean(application.startup, number::seconds),
                mean(application.stalls, |stalls| format!("{stalls:.1}")),
                mean(application.stalled, number::seconds),
            ]);
        }
        if application.late.is_some() {
            calls.row([
                flow.name.clone(),
                mean(application.late, number::percent),
                mean(application.lost, number::percent),
            ]);
        }
    }
    [latency, videos, calls].into_iter().filter(|table| !table.is_empty()).collect()
}

/// Returns the harm to each flow, or `None` if it was not measured.
fn harm(summary: &Summary) -> Option<Table> {
    let how = |value: f64| format!("{value:.3}");
    let share =
        |value: f64| format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned();
    let harms = || summary.flows.iter().filter_map(|flow| Some((&flow.name, flow.harm?)));
    // Usually all flows have the same number of connections, and so the same equal share. The
    // header of the table then shows it.
    let (_, first) = harms().next()?;
    let equal = harms().all(|(_, harm)| harm.equal_share == first.equal_share);
    let goodput = Column::number("harm to goodput");
    let goodput = match equal {
        true => goodput.unit(format!("equal share = {}", share(first.equal_share))),
        false => goodput,
    };
    let mut columns = vec![Column::text("flow"), goodput, Column::number("95 % interval")];
    if !equal {
        columns.push(Column::number("equal share"));
    }
    columns.extend([Column::number("harm to completion"), Column::number("95 % interval")]);
    let mut table = Table::new(columns)
        .title("Harm that the other flows do to each flow (0: no harm; 1: the flow gets nothing)");
    for (name, harm) in harms() {
        let (goodput, goodput_within) = shown(harm.goodput, how);
        let (completion, completion_within) = shown(harm.completion, how);
        let mut cells = vec![name.clone(), goodput, goodput_within];
        if !equal {
            cells.push(share(harm.equal_share));
        }
        cells.extend([completion, completion_within]);
        table.row(cells);
    }
    (!table.is_empty()).then_some(table)
}

/// Formats a mean and its confidence interval for people.
fn shown(figure: Option<Figure>, how: fn(f64) -> String) -> (String, String) {
    let Some(figure) = figure else { return (MISSING.to_owned(), MISSING.to_owned()) };
    let interval = figure.interval.map(|ends| format!("{} to {}", how(ends.low), how(ends.high)));
    (how(figure.mean), interval.unwrap_or_else(|| MISSING.to_owned()))
}
