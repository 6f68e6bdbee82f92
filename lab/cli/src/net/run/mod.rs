//! `equic-lab net run`: runs a scenario of the simulator in real time.
//!
//! `refuse` rejects scenarios that are impossible in real time. `play` does one run. `transfer`,
//! `quic` and `tcp` are the endpoints of connections, and `plugins` loads the plugins of QUIC
//! flows.

mod play;
mod plugins;
mod quic;
mod refuse;
mod tcp;
mod transfer;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_harness::until_interrupted;
use equic_report::number;
use equic_scenario::results::{Document, Report, RunOutcome, Summary};
use equic_scenario::{BuiltIn, Place, Scenario, ScenarioError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::output;
use play::Played;

/// Number of steps of the progress bar for each run.
const STEPS: u64 = 1_000;
/// If packets are at least this late, the results show the speed of the machine instead of the
/// network.
const LATE: Duration = Duration::from_millis(1);

/// Run a scenario in real time: programs in network namespaces exchange data over the simulated
/// network, at the pace of the real clock. QUIC connections use this command's own endpoints, TCP
/// connections the kernel. Needs root
#[derive(clap::Args)]
#[command(after_help = "Examples:
  equic-lab sim run lossy --seeds 3
  sudo equic-lab net run lossy --seeds 3    # the same in real time

Each seed takes as long as its transfers do.")]
pub(crate) struct Args {
    /// Scenario file, or name of a scenario from `equic-lab sim list`
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Run this number of seeds instead of the seeds that the scenario names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: Option<u64>,
    /// Print the result as JSON (schema equic.sim.run/1, like `equic-lab sim run`)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result {
    let (text, mut scenario) = load(&args.scenario)?;
    if let Some(seeds) = args.seeds {
        scenario.seeds = (1..=seeds).collect();
    }
    let place = Place::of(&scenario).map_err(Failure::new)?;
    let complaints = refuse::complaints(&scenario, &place)?;
    if !complaints.is_empty() {
        return Err(ScenarioError::about(&text, complaints).in_file(&args.scenario).into());
    }
    until_interrupted(|| {
        let runs = play_all(&scenario, &place)?;
        report(args, &scenario, &runs)
    })
}

/// Reads a scenario file. If there is no such file, reads the built-in scenario with this name.
/// Returns the text and the parsed scenario.
fn load(path: &Path) -> Result<(String, Scenario)> {
    let name = path.to_string_lossy();
    let text = if !name.contains(['/', '.']) && !path.exists() {
        built_in(&name)?.text.to_owned()
    } else {
        std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: path.to_owned(), source })?
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let scenario = Scenario::parse_in(&text, folder).map_err(|error| error.in_file(path))?;
    Ok((text, scenario))
}

fn built_in(name: &str) -> Result<BuiltIn> {
    BuiltIn::find(name).ok_or_else(|| {
        let near = BuiltIn::near(name);
        let hint = match near.first() {
            Some(near) => format!("did you mean {near}?"),
            None => "`equic-lab sim list` lists all scenarios".to_owned(),
        };
        Failure::usage(format!("there is no scenario called {name}, and no such file; {hint}"))
    })
}

fn play_all(scenario: &Scenario, place: &Place) -> Result<Vec<Played>> {
    let bar = bar(STEPS * scenario.seeds.len() as u64);
    let mut runs = Vec::new();
    for (index, seed) in scenario.seeds.iter().enumerate() {
        bar.set_message(format!("run {} of {}", index + 1, scenario.seeds.len()));
        let before = STEPS * index as u64;
        let shown = |share: f64| bar.set_position(before + (share * STEPS as f64) as u64);
        runs.push(play::play(scenario, place, *seed, &shown)?);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// Returns a progress bar, which is hidden if the output is not a terminal.
fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    // The template is a constant. If it were invalid, the default style would be used.
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn report(args: &Args, scenario: &Scenario, runs: &[Played]) -> Result {
    let outcomes: Vec<RunOutcome> = runs.iter().map(|run| run.outcome.clone()).collect();
    let summary = Summary::new(scenario, &outcomes);
    let name = args.scenario.display().to_string();
    if args.json {
        let runs: Vec<Value> = runs.iter().map(as_json).collect();
        let document = Document {
            scenario: name,
            description: &scenario.description,
            seeds: &scenario.seeds,
            summary: &summary,
            runs: &runs,
        };
        return output::json("equic.sim.run/1", document);
    }
    for part in Report::of(&name, scenario, &summary, &outcomes) {
        match part {
            Report::Text(text) => output::text(text)?,
            Report::Table(table) => output::table(&table)?,
            Report::Notice(notice) => output::notice(notice),
        }
    }
    let most = runs.iter().map(|run| run.late.most()).max().unwrap_or_default();
    let usual = runs.iter().filter_map(|run| run.late.quantile(0.99)).max().unwrap_or_default();
    let seconds = |time: Duration| number::seconds(time.as_secs_f64());
    output::line(format_args!(
        "in real time; packets arrived at most {} late by the clock, 99 % of each run at most {}",
        seconds(most),
        seconds(usual)
    ))?;
    if usual > LATE {
        output::notice(
            "packets were late, because this machine was too busy or is too slow for these rates. The delays of the machine affected the results",
        );
    }
    Ok(())
}

/// Formats a run as JSON. Values that the kernel does not report are null. The lateness of packets
/// is added.
fn as_json(run: &Played) -> Value {
    let mut value = serde_json::to_value(&run.outcome).unwrap_or_default();
    for (index, flow) in run.untold.iter().enumerate() {
        for key in flow {
            value["flows"][index][*key] = Value::Null;
        }
    }
    let seconds = |share| run.late.quantile(share).map(|late| late.as_secs_f64());
    value["real_time"] = json!({
        "packets": run.late.packets(),
        "late_median": seconds(0.5),
        "late_p99": seconds(0.99),
        "late_most": run.late.most().as_secs_f64(),
    });
    value
}
