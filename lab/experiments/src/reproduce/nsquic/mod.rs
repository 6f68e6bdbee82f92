//! The experiments of the nsQUIC thesis: its grid in virtual time, with the QUIC and TCP of this
//! project, and with those that ns-3 had at the time of the thesis.
//!
//! * `part`: the grids of the experiment. Each is an `equic-lab sim sweep` that users can also run.
//!   `scale`: how much of each grid runs. `run`: runs a grid.
//! * `data`: the stored data. `claims`: the thesis' findings with verdicts. `verdict`: the rules
//!   for verdicts. `show`: tables and Markdown. `plots`: plots.

mod claims;
mod data;
mod part;
mod plots;
mod run;
mod scale;
mod show;
mod verdict;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use equic_report::plot::check_fonts;
use equic_report::schema::Report;
use equic_report::table::Style;

use super::OutputOptions;
use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;
use data::NsQuic;
use part::Part;
use scale::{Scale, Size};

/// Name of the schema of the result.
const SCHEMA: &str = "equic.reproduce.nsquic/1";

/// Repeats the experiments of the nsQUIC thesis in virtual time, and compares the results. All of
/// them take a night on two CPUs. After an interruption, the same command continues where it
/// stopped
#[derive(clap::Args)]
pub struct Args {
    /// Folder for result.json and the plots
    #[arg(long, value_name = "DIR", default_value = "out/reproduce-nsquic")]
    out: PathBuf,
    /// Folder for the sweeps, which contain all runs [default: DIR/sweeps]
    #[arg(long, value_name = "DIR")]
    raw: Option<PathBuf>,
    /// Make a small version of the experiment, with 3 seeds and few values
    #[arg(long, conflicts_with = "medium")]
    quick: bool,
    /// Make a medium version, with some of the values of the large grids and fewer seeds
    #[arg(long)]
    medium: bool,
    /// Number of seeds for each cell
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: Option<u64>,
    /// Number of seeds for each cell of the two grids of 210 MB, which take nine tenths of the time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    large_seeds: Option<u64>,
    /// Run only these parts of the experiment
    #[arg(long = "part", value_name = "PART", value_delimiter = ',', value_enum)]
    parts: Vec<Part>,
    /// With --part: take the results of all other parts from this stored result, which must have
    /// the same size and number of seeds
    #[arg(long, value_name = "RESULT.json", requires = "parts")]
    keep: Option<PathBuf>,
    /// Number of runs in parallel [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Store the result compressed, as result.json.gz
    #[arg(long, conflicts_with = "plot_only")]
    gzip: bool,
    #[command(flatten)]
    output: OutputOptions,
    /// Run nothing, but draw and print a stored result
    #[arg(long, value_name = "RESULT.json",
        conflicts_with_all = ["raw", "quick", "medium", "seeds", "large_seeds", "parts", "keep", "threads"])]
    plot_only: Option<PathBuf>,
}

/// Runs the experiment.
pub(super) fn run(args: &Args) -> Result {
    check_fonts()?;
    super::make_folder(&args.out)?;
    if let Some(stored) = &args.plot_only {
        return tell(args, &super::read(stored, SCHEMA)?);
    }
    let raw = args.raw.clone().unwrap_or_else(|| args.out.join("sweeps"));
    super::make_folder(&raw)?;
    let envelope = Envelope::now()?;
    let size = match (args.quick, args.medium) {
        (true, _) => Size::Quick,
        (_, true) => Size::Medium,
        _ => Size::Full,
    };
    let parts = if args.parts.is_empty() { Part::ALL.to_vec() } else { args.parts.clone() };
    let scale = Scale { size, seeds: args.seeds, large_seeds: args.large_seeds, parts };
    // The stored result is read first. If it does not fit, the user learns this before hours of
    // runs.
    let kept = match &args.keep {
        Some(stored) => Some(super::read::<NsQuic>(stored, SCHEMA)?.data.fitting(&scale)?),
        None => None,
    };
    let stop = super::until_signal()?;
    let mut parts = Vec::new();
    for part in Part::ALL {
        // The signal may have arrived when no sweep was running that could receive it.
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new("interrupted").help("repeat the same command to continue"));
        }
        parts.extend(run::carry_out(part, &scale, &raw, args.threads, &stop)?);
    }
    let mut data = NsQuic { scale, parts };
    if let Some(kept) = kept {
        data.keep(kept);
    }
    let report = envelope.report(SCHEMA, data)?;
    if args.gzip {
        super::write_compressed(&report, &args.out)?;
    } else {
        report.write_compact(args.out.join("result.json"))?;
    }
    tell(args, &report)
}

fn tell(args: &Args, report: &Report<NsQuic>) -> Result {
    let plots = plots::write(&report.data, &args.out)?;
    let markdown = show::markdown(report, &plots);
    if args.output.tell(report, markdown)? {
        return Ok(());
    }
    let width = Style::stdout().width;
    for table in show::tables(&report.data) {
        output::table(&table)?;
        output::line("")?;
    }
    for finding in claims::findings(&report.data) {
        output::line(output::wrapped(&format!("* {}", finding.sentence()), width, "  "))?;
    }
    let (out, plots) = (args.out.display(), plots.join(", "));
    let file = if args.gzip { "result.json.gz" } else { "result.json" };
    output::line(output::wrapped(&format!("In {out}: {file}, {plots}"), width, "  "))
}
