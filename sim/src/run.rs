//! `equic sim run`: one scenario with all its seeds.

use std::io::IsTerminal as _;
use std::path::Path;

use equic_report::number::{self, MISSING};
use equic_report::table::{Cell, Column, Table, Tone};
use equic_scenario::Scenario;
use equic_scenario::command::Run;
use equic_scenario::play::{Figure, Part, RunOutcome, Summary, play_all};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Done;
use crate::{list, output, series};

/// The result as JSON.
#[derive(Serialize)]
struct Result<'a> {
    scenario: String,
    description: &'a str,
    seeds: &'a [u64],
    summary: &'a Summary,
    runs: &'a [RunOutcome],
}

pub(crate) fn run(args: &Run) -> Done {
    let mut scenario = load(&args.scenario)?;
    if let Some(seeds) = args.seeds {
        scenario.seeds = (1..=seeds).collect();
    }
    series::prepare(args)?;
    let threads = threads(args.threads);
    let parts = if args.harm { 1 + scenario.flows.len() } else { 1 };
    let all = (parts * scenario.seeds.len()) as u64;
    let progress = bar(all, "{bar:40} {pos}/{len} runs, {eta} left");
    let play = |part| play_all(&scenario, part, threads, &|_| progress.inc(1));
    let runs = play(Part::All)?;
    let mut summary = Summary::new(&scenario, &runs);
    if args.harm {
        for flow in 0..scenario.flows.len() {
            summary.harm(flow, &runs, &play(Part::Flow(flow))?);
        }
    }
    progress.finish_and_clear();
    if args.out.is_some() || args.qlog_dir.is_some() {
        series::write(args, &scenario)?;
    }
    if args.json {
        let result = Result {
            scenario: args.scenario.display().to_string(),
            description: &scenario.description,
            seeds: &scenario.seeds,
            summary: &summary,
            runs: &runs,
        };
        return output::json("equic.sim.run/1", result);
    }
    print(&args.scenario, &scenario, &summary, &runs)
}

/// Loads a file, or else the scenario of this name.
fn load(path: &Path) -> Done<Scenario> {
    let text = path.to_string_lossy();
    let is_name = !text.contains(['/', '.']) && !path.exists();
    if is_name { Ok(list::find(&text)?.scenario()) } else { Ok(Scenario::load(path)?) }
}

/// Number of threads: as many as wanted, or as there are CPUs.
pub(crate) fn threads(wanted: Option<u16>) -> usize {
    match wanted {
        Some(wanted) => wanted.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// A bar on a terminal, nothing in a pipe.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn print(path: &Path, scenario: &Scenario, summary: &Summary, runs: &[RunOutcome]) -> Done {
    if !scenario.description.is_empty() {
        output::text(format_args!("{}: {}\n", path.display(), scenario.description))?;
    }
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
        let all = flow.connections * runs.len();
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
    output::table(&table)?;
    print_applications(summary)?;
    if let Some(jain) = summary.jain {
        let within =
            jain.interval.map(|interval| format!(" ({:.3} to {:.3})", interval.low, interval.high));
        let within = within.unwrap_or_default();
        output::text(format_args!("Jain's fairness index of goodput: {:.3}{within}\n", jain.mean))?;
    }
    print_harm(summary)?;
    let failures = runs.iter().flat_map(|run| {
        let failed = run.flows.iter().filter_map(|flow| Some((flow, flow.failure.as_ref()?)));
        failed.map(|(flow, failure)| {
            format!("seed {}, {} {}: {failure}", run.seed, flow.name, flow.copy)
        })
    });
    for failure in failures.take(10) {
        output::notice(failure);
    }
    let seeds = if runs.len() == 1 { "1 seed".to_owned() } else { format!("{} seeds", runs.len()) };
    output::text(format_args!("{seeds}; means and their intervals over seeds\n"))
}

/// What flows carried that is not one transfer: a table of how long it took, and one each for videos and calls.
fn print_applications(summary: &Summary) -> Done {
    let all = || summary.flows.iter().filter_map(|flow| Some((flow, flow.application.as_ref()?)));
    let mut latency = Table::new([
        Column::text("flow"),
        Column::text("application"),
        Column::number("done"),
        Column::number("p50"),
        Column::number("p95"),
        Column::number("p99"),
    ])
    .title("Time of each request, stream, object, segment or message");
    let mut videos = Table::new([
        Column::text("flow"),
        Column::number("start-up"),
        Column::number("stalls"),
        Column::number("stalled"),
    ])
    .title("Playing of videos");
    let mut calls =
        Table::new([Column::text("flow"), Column::number("late"), Column::number("lost")])
            .title("Messages of calls");
    let mean = |figure: Option<Figure>, how: fn(f64) -> String| {
        figure.map_or(MISSING.to_owned(), |figure| how(figure.mean))
    };
    for (flow, application) in all() {
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
    for table in [latency, videos, calls] {
        if !table.is_empty() {
            output::table(&table)?;
        }
    }
    Ok(())
}

fn print_harm(summary: &Summary) -> Done {
    let harms = summary.flows.iter().filter_map(|flow| Some((&flow.name, flow.harm.as_ref()?)));
    let mut table = Table::new([
        Column::text("flow"),
        Column::number("harm to goodput"),
        Column::number("95 % interval"),
        Column::number("harm to completion"),
        Column::number("95 % interval"),
    ])
    .title("Harm by the others: 0 none, 1 all");
    for (name, harm) in harms {
        let how = |value: f64| format!("{value:.3}");
        let (goodput, goodput_within) = shown(harm.goodput, how);
        let (completion, completion_within) = shown(harm.completion, how);
        table.row([name.clone(), goodput, goodput_within, completion, completion_within]);
    }
    if table.is_empty() { Ok(()) } else { output::table(&table) }
}

/// The mean and its interval, for people.
fn shown(figure: Option<Figure>, how: fn(f64) -> String) -> (String, String) {
    let Some(figure) = figure else { return (MISSING.to_owned(), MISSING.to_owned()) };
    let interval = figure.interval.map(|ends| format!("{} to {}", how(ends.low), how(ends.high)));
    (how(figure.mean), interval.unwrap_or_else(|| MISSING.to_owned()))
}
