//! `equic-lab plugin-demo`: a server pushes plugins to a client that has never seen them, over paths on which they help; then
//! plugins that mean harm.
//!
//! The trials and attacks are those of `equic-plugin-kit`: connections in virtual time, with the exchange that
//! `equic serve --push` and `equic get --accept-plugins` use. `show.rs` makes tables and plots of the results.

mod show;

pub(super) use show::value;

use std::path::PathBuf;

use equic_plugin_kit::hostile::{ATTACKS, Outcome};
use equic_plugin_kit::trial::{Compared, TRIALS};
use equic_report::table::Style;
use serde::Serialize;

use crate::envelope::Envelope;
use crate::failure::{Done, Failure};
use crate::output;

/// Schema of the result.
const SCHEMA: &str = "equic.plugin.demo/1";

/// Bytes that a client is sent beside a plugin that means harm.
const BYTES: u64 = 5_000_000;

/// Part of the work that `--quick` does.
const QUICK: u64 = 5;

/// Pushes the tree's plugins from a server to a client that has never seen them, on connections in virtual time where each
/// is meant to help, and compares with the same connections without them; then plugins that mean harm. The same
/// seed gives the same figures. It needs clang, no root.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for plugins.json and the plots
    #[arg(long, value_name = "DIR", default_value = "out/demo-plugins")]
    out: PathBuf,
    /// Make a short run, to check that everything works
    #[arg(long)]
    quick: bool,
    /// Seed of the losses and the jitter of the paths
    #[arg(long, value_name = "N", default_value = "17")]
    seed: u64,
    /// Print the result as JSON (schema equic.plugin.demo/1)
    #[arg(long)]
    json: bool,
}

/// `data` of schema equic.plugin.demo/1.
#[derive(Serialize)]
struct Data {
    seed: u64,
    quick: bool,
    trials: Vec<Trial>,
    attacks: Vec<Attack>,
    /// Whether each plugin helped, each attack came to nothing, and all data was whole.
    passed: bool,
}

/// A plugin where it is meant to help. Less is better, of each measure.
#[derive(Serialize)]
struct Trial {
    plugin: &'static str,
    scenario: &'static str,
    measure: &'static str,
    unit: &'static str,
    /// Bytes that the client fetched.
    bundle_bytes: usize,
    without: f64,
    with: f64,
    /// Whether the SHA-256 of all that was read was that of what was sent, with the plugin and without it.
    intact: bool,
    /// Time of each transfer without the plugin, in milliseconds.
    times_without_ms: Vec<f64>,
    /// The same with it.
    times_with_ms: Vec<f64>,
}

/// A plugin that means harm.
#[derive(Serialize)]
struct Attack {
    name: &'static str,
    tries: &'static str,
    /// `refused`, `taken off` or `contained`.
    fate: &'static str,
    /// Fate that it must have.
    expected: &'static str,
    /// Reason in words; empty: the plugin runs.
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

pub(crate) fn run(args: &Args) -> Done {
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
        false => Err(Failure::new("not everything is as it must be: see the table")),
    }
}

fn tell(data: &Data, args: &Args) -> Done {
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
    let hashes = if whole { "right each time" } else { "WRONG: see the tables" };
    output::line(format_args!("SHA-256 of what was received: {hashes}"))?;
    output::line(format_args!(
        "Written: {0}/plugins.json, plugins.svg, tail-loss-probe.svg",
        args.out.display()
    ))
}
