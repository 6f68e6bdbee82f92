//! `equic-lab sim run`: runs one scenario with all its seeds.

use std::io::IsTerminal as _;
use std::path::Path;

use equic_scenario::Scenario;
use equic_scenario::command::Run;
use equic_scenario::play::{Part, play_all};
use equic_scenario::results::{Document, Report, RunOutcome, Summary};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Result;
use crate::{list, memory, output, series};

pub(crate) fn run(args: &Run) -> Result {
    // The command line requires the scenario, unless it has --schema.
    let Some(file) = &args.scenario else {
        return output::text(format_args!("{:#}\n", equic_scenario::schema()));
    };
    let mut scenario = load(file)?;
    if let Some(seeds) = args.seeds {
        scenario.seeds = (1..=seeds).collect();
    }
    let threads = memory::threads([&scenario], threads(args.threads).min(scenario.seeds.len()))?;
    series::prepare(args, &scenario)?;
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
    if args.out.is_some() || args.plot.is_some() || args.qlog_dir.is_some() {
        series::write(args, &scenario)?;
    }
    if args.json {
        let result = Document {
            scenario: file.display().to_string(),
            description: &scenario.description,
            seeds: &scenario.seeds,
            summary: &summary,
            runs: &runs,
        };
        return output::json("equic.sim.run/1", result);
    }
    print(file, &scenario, &summary, &runs)
}

/// Loads a scenario from a file, or the built-in scenario of this name if it is not a path.
fn load(path: &Path) -> Result<Scenario> {
    let text = path.to_string_lossy();
    let is_name = !text.contains(['/', '.']) && !path.exists();
    if is_name { Ok(list::find(&text)?.scenario()) } else { Ok(Scenario::load(path)?) }
}

/// Returns the number of threads: the number that the user wants, or one per CPU.
pub(crate) fn threads(wanted: Option<u16>) -> usize {
    match wanted {
        Some(wanted) => wanted.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Returns a progress bar. It is hidden if standard error is not a terminal.
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

fn print(path: &Path, scenario: &Scenario, summary: &Summary, runs: &[RunOutcome]) -> Result {
    let name = path.display().to_string();
    Report::of(&name, scenario, summary, runs).into_iter().try_for_each(|part| match part {
        Report::Text(text) => output::text(text),
        Report::Table(table) => output::table(&table),
        Report::Notice(notice) => {
            output::notice(notice);
            Ok(())
        }
    })
}
