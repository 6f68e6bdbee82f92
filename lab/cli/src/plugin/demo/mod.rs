//! `equic-lab plugin-demo`: a server pushes plugins to a client that has never seen them. First it
//! uses paths on which the plugins help. Then it pushes hostile plugins.
//!
//! The trials and attacks are those of `equic-plugin-kit`. They run on connections in virtual time,
//! with the same plugin exchange as `equic serve --push` and `equic get --accept-plugins`.
//! `show.rs` creates tables and plots of the results.

mod show;

pub(super) use show::value;

use std::path::PathBuf;

use equic_plugin_kit::hostile::{ATTACKS, Outcome};
use equic_plugin_kit::trial::{Compared, TRIALS};
use equic_report::table::Style;
use serde::Serialize;

use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the result.
const SCHEMA: &str = "equic.plugin.demo/1";

/// Number of bytes that a server sends to a client while a hostile plugin is present.
const BYTES: u64 = 5_000_000;

/// Divisor of the amount of work with `--quick`.
const QUICK: u64 = 5;

/// Pushes the source tree's plugins from a server to a client that has never seen them, on
/// connections in virtual time that each plugin is meant to improve, and compares them with the
/// same connections without plugins. Then pushes hostile plugins. The same seed gives the same
/// results. Needs clang but not root.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory for the results: plugins.json and plots
    #[arg(long, value_name = "DIR", default_value = "out/demo-plugins")]
    out: PathBuf,
    /// Make a short run, to check that everything works
    #[arg(long)]
    quick: bool,
    /// Seed of the random losses and delays of the paths
    #[arg(long, value_name = "N", default_value = "17")]
    seed: u64,
    /// Print the result as JSON (schema equic.plugin.demo/1)
    #[arg(long)]
    json: bool,
}

/// The field `data` of schema equic.plugin.demo/1.
#[derive(Serialize)]
struct Data {
    seed: u64,
    quick: bool,
    trials: Vec<Trial>,
    attacks: Vec<Attack>,
    /// True if every plugin helped, every attack failed, and all data was intact.
    passed: bool,
}

/// Effect of a plugin on the connection that it is meant to improve. For every measure, less is
/// better.
#[derive(Serialize)]
struct Trial {
    plugin: &'static str,
    scenario: &'static str,
    measure: &'static str,
    unit: &'static str,
    /// Size of the bundle that the client fetched, in bytes.
    bundle_bytes: usize,
    without: f64,
    with: f64,
    /// True if the received data was the data sent, by its SHA-256, both with the plugin and
    /// without it.
    intact: bool,
    /// Time of each transfer without the plugin, in milliseconds.
    times_without_ms: Vec<f64>,
    /// Time of each transfer with the plugin, in milliseconds.
    times_with_ms: Vec<f64>,
}

/// Result of a hostile plugin.
#[derive(Serialize)]
struct Attack {
    name: &'static str,
    tries: &'static str,
    /// Fate of the plugin: `refused`, `taken off` (detached) or `contained`.
    fate: &'static str,
    /// Required fate of the plugin, with the same words as `fate`.
    expected: &'static str,
    /// Reason in words. Empty if the plugin runs.
    why: String,
    /// Time of the transfer, in seconds of virtual time.
    seconds: f64,
    intact: bool,
}

impl Trial {
    fn of(compared: Compared) -> Trial {
        let Compared { trial, bundle, without, with } = compared;
        Trial {
            plugin: trial.plugin,
            scenario: trial.scenario,
            measure: trial.measure,
            unit: trial.unit,
            bundle_bytes: bundle,
            without: without.value,
            with: with.value,
            intact: without.intact && with.intact,
            times_without_ms: without.times,
            times_with_ms: with.times,
        }
    }
}

impl Attack {
    fn of(outcome: Outcome) -> Attack {
        Attack {
            name: outcome.attack.name,
            tries: outcome.attack.tries,
            fate: outcome.fate.words(),
            expected: outcome.attack.expected.words(),
            why: outcome.why,
            seconds: outcome.took.as_secs_f64(),
            intact: outcome.intact,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result {
    let envelope = Envelope::now()?;
    let part = if args.quick { QUICK } else { 1 };
    let mut trials = Vec::new();
    for trial in TRIALS.iter().filter(|trial| trial.pushed) {
        let compared = trial.run(args.seed, part);
        let compared = compared.map_err(|error| Failure::because(trial.plugin, error))?;
        trials.push(Trial::of(compared));
    }
    let mut attacks = Vec::new();
    for attack in ATTACKS {
        let outcome = attack.run(args.seed, BYTES / part);
        attacks.push(Attack::of(outcome.map_err(|error| Failure::because(attack.name, error))?));
    }
    let helped = trials.iter().all(|one| one.intact && one.with < one.without);
    let nothing = attacks.iter().all(|one| one.intact && one.fate == one.expected);
    let data =
        Data { seed: args.seed, quick: args.quick, trials, attacks, passed: helped && nothing };
    let report = envelope.report(SCHEMA, data)?;
    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", args.out.display()), error)
    })?;
    report.write(args.out.join("plugins.json"))?;
    show::write_plots(&report.data, &args.out)?;
    if args.json {
        output::document(&report.to_json()?)?;
    } else {
        tell(&report.data, args)?;
    }
    match report.data.passed {
        true => Ok(()),
        false => Err(Failure::new("not all results are as expected: see the table")),
    }
}

fn tell(data: &Data, args: &Args) -> Result {
    let width = Style::stdout().width;
    output::table(&show::trials(&data.trials))?;
    for one in &data.trials {
        let line = format!("* {}: {}", one.plugin, one.scenario);
        output::line(output::wrapped(&line, width, "  "))?;
    }
    output::line("")?;
    output::table(&show::attacks(&data.attacks))?;
    let whole =
        data.trials.iter().all(|one| one.intact) && data.attacks.iter().all(|one| one.intact);
    let hashes = if whole { "all correct" } else { "some were WRONG: see the tables" };
    output::line(format_args!("SHA-256 of the received data: {hashes}"))?;
    output::line(format_args!(
        "Written: {0}/plugins.json, plugins.svg, tail-loss-probe.svg",
        args.out.display()
    ))
}
