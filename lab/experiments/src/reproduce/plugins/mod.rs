//! The experiments of "The Case for Protocol Plugins" (De Coninck and Bonaventure, 2019), repeated
//! in virtual time with plugins of this project. They compare today's QUIC with that of the paper.
//!
//! * `part`: the figures and tables that are repeated. `run`: runs them, in virtual time. `costs` and
//!   `live`: measurements of CPU time and in real time. `data`: the stored data.
//! * `verdict`: verdicts on the paper's claims. `show`: tables and Markdown. `plots`: the figures.

mod costs;
mod data;
mod live;
mod part;
mod plots;
mod run;
mod show;
mod verdict;

use std::path::PathBuf;

use equic_harness::until_interrupted;
use equic_netns::Lab;
use equic_report::plot::check_fonts;
use equic_report::schema::Report;
use equic_report::table::Style;

use super::OutputOptions;
use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;
use data::Plugins;
use part::Part;

/// Name of the schema of the result.
const SCHEMA: &str = "equic.reproduce.plugins/1";

/// Repeats experiments of "The Case for Protocol Plugins" in virtual time: a server pushes plugins
/// to a client. Needs clang
#[derive(clap::Args)]
pub struct Args {
    /// Folder for result.json and the plots
    #[arg(long, value_name = "DIR", default_value = "out/reproduce-plugins")]
    out: PathBuf,
    /// Make a small version of the experiment, with few runs of short downloads
    #[arg(long)]
    quick: bool,
    /// Run only these parts of the experiment
    #[arg(long = "part", value_name = "PART", value_delimiter = ',', value_enum)]
    parts: Vec<Part>,
    /// Also measure one point of each of the figures 3 to 6 in real time, over network namespaces
    /// (part real-time). Needs root
    #[arg(long)]
    real_time: bool,
    /// With --part: take the results of all other parts from this stored result, which must have
    /// the same size
    #[arg(long, value_name = "RESULT.json", requires = "parts")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
    /// Run nothing, but draw and print a stored result
    #[arg(long, value_name = "RESULT.json", conflicts_with_all = ["quick", "parts", "keep", "real_time"])]
    plot_only: Option<PathBuf>,
}

impl Args {
    /// Returns true if a part must run. If the user selects no parts, all parts run except the one
    /// in real time.
    fn has(&self, part: Part) -> bool {
        match part {
            Part::RealTime => self.real_time || self.parts.contains(&part),
            _ => self.parts.is_empty() || self.parts.contains(&part),
        }
    }
}

/// Runs the experiments.
pub(super) fn run(args: &Args) -> Result {
    check_fonts()?;
    super::make_folder(&args.out)?;
    if let Some(stored) = &args.plot_only {
        return tell(args, &super::read(stored, SCHEMA)?);
    }
    let envelope = Envelope::now()?;
    let stored = args.keep.as_ref().map(|file| super::read::<Plugins>(file, SCHEMA)).transpose()?;
    let (mut data, kept) = match stored {
        Some(stored) => (stored.data, Some(stored.machine)),
        None => (Plugins { quick: args.quick, ..Plugins::default() }, None),
    };
    if data.quick != args.quick {
        let why = "the result for --keep was made with another size of the experiment";
        return Err(Failure::new(why)
            .help("use --quick if, and only if, that result was made with --quick"));
    }
    let parts: Vec<Part> = Part::ALL.into_iter().filter(|part| args.has(*part)).collect();
    if parts.contains(&Part::RealTime) {
        // If namespaces cannot be created, fails now instead of after all other parts.
        Lab::builder("plugins").build()?.close()?;
    }
    until_interrupted(|| parts.iter().try_for_each(|part| run::carry_out(*part, &mut data)))?;
    let mut report = envelope.report(SCHEMA, data)?;
    // Only these parts depend on the machine. If they are kept, so is their machine.
    let timed = parts.iter().any(|part| matches!(part, Part::Costs | Part::RealTime));
    if let Some(machine) = kept.filter(|_| !timed) {
        report.machine = machine;
    }
    report.write_compact(args.out.join("result.json"))?;
    tell(args, &report)
}

fn tell(args: &Args, report: &Report<Plugins>) -> Result {
    let plots = plots::write(&report.data, &args.out)?;
    let markdown = show::markdown(report, &plots);
    if args.output.tell(report, markdown)? {
        return Ok(());
    }
    let width = Style::stdout().width;
    for (_, table) in show::tables(&report.data) {
        output::table(&table)?;
        output::line("")?;
    }
    for finding in verdict::findings(&report.data) {
        output::line(output::wrapped(&format!("* {}", finding.sentence()), width, "  "))?;
    }
    let (out, plots) = (args.out.display(), plots.join(", "));
    let files = if plots.is_empty() { String::new() } else { format!(", {plots}") };
    output::line(output::wrapped(&format!("In {out}: result.json{files}"), width, "  "))
}
