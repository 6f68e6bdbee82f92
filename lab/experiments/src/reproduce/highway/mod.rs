//! The experiment of the paper "QUIC on the Highway": the effect of buffers, offloads and AES
//! instructions on QUIC and TCP, and the differences between implementations.
//!
//! * `part`: the parts of the experiment. `run`: runs a part, which is an `equic-lab bench run` that
//!   users can also run. `data`: the stored data.
//! * `change`: effect of a setting, round by round. `paper`: the paper's figures. `verdict`: which
//!   findings are confirmed. `show`: tables and Markdown. `plots`: plots.

mod change;
mod data;
mod paper;
mod part;
mod plots;
mod run;
mod show;
mod verdict;

use std::path::{Path, PathBuf};

use equic_bench::doctor::copies;
use equic_report::plot::check_fonts;
use equic_report::schema::Report;
use equic_report::table::Style;

use super::OutputOptions;
use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;
use data::{Highway, Settings};
use part::Part;

/// Name of the schema of the result.
const SCHEMA: &str = "equic.reproduce.highway/1";
/// Name of the file with the parameters, in the folder of the runs.
const SETTINGS: &str = "settings.json";

/// Repeats the experiment of "QUIC on the Highway", and compares the results. It takes about half
/// an hour. `make bench-deps` builds the implementations
#[derive(clap::Args)]
pub struct Args {
    /// Folder for result.json and the plots
    #[arg(long, value_name = "DIR", default_value = "out/reproduce-highway")]
    out: PathBuf,
    /// Folder for the runs of `equic-lab bench` with their logs [default: DIR/runs]
    #[arg(long, value_name = "DIR")]
    raw: Option<PathBuf>,
    /// Resume interrupted runs
    #[arg(long)]
    resume: bool,
    /// Number of rounds of each part [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: Option<u32>,
    /// Number of bytes of each transfer [default: 500M]
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    bytes: Option<u64>,
    /// Measure only these implementations
    #[arg(long = "impl", value_name = "NAME", value_delimiter = ',')]
    implementations: Vec<String>,
    /// Seed for the random order of the cells
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Make a small version of the experiment: 3 rounds with transfers of 200 MB, in about seven
    /// minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputOptions,
    /// Measure nothing, but draw and print a stored result
    #[arg(long, value_name = "RESULT.json",
        conflicts_with_all = ["raw", "resume", "runs", "bytes", "implementations", "quick", "more"])]
    plot_only: Option<PathBuf>,
    /// Additional options for each `equic-lab bench run`, such as --max-foreign 20
    #[arg(last = true, value_name = "ARGUMENTS")]
    more: Vec<String>,
}

fn amount(text: &str) -> Result<u64, String> {
    let bytes = equic_bench::sweep::bytes(text).filter(|bytes| *bytes >= 1000);
    bytes.ok_or_else(|| "write a number of bytes such as 1000000, 100M or 2GiB".to_owned())
}

/// Runs the experiment.
pub(super) fn run(args: &Args) -> Result {
    check_fonts()?;
    if let Some(stored) = &args.plot_only {
        super::make_folder(&args.out)?;
        return tell(args, &super::read(stored, SCHEMA)?);
    }
    if !nix::unistd::geteuid().is_root() {
        let what = "the experiment needs root to create network namespaces";
        return Err(Failure::new(what).help("run `sudo equic-lab reproduce highway`"));
    }
    if let Some((name, known)) = part::unknown(&args.implementations) {
        let what = format!("unknown implementation {name:?}; known ones: {}", known.join(", "));
        return Err(Failure::new(what));
    }
    super::make_folder(&args.out)?;
    let raw = args.raw.clone().unwrap_or_else(|| args.out.join("runs"));
    super::make_folder(&raw)?;
    let settings = settings(args, &raw)?;
    let envelope = Envelope::now()?;
    let (stop, quiet) = (super::until_signal()?, args.output.is_document());
    let mut parts = Vec::new();
    for part in Part::ALL {
        if let Some(done) = run::carry_out(part, &settings, &raw, quiet, &stop)? {
            parts.push(done);
        }
    }
    let report = envelope.report(SCHEMA, Highway { settings, parts })?;
    report.write_compact(args.out.join("result.json"))?;
    tell(args, &report)
}

/// Returns the parameters of the experiment. If an earlier run is resumed, these are the stored
/// ones.
fn settings(args: &Args, raw: &Path) -> Result<Settings> {
    let file = raw.join(SETTINGS);
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot {what} {}", file.display()), why)
    };
    if args.resume {
        let text = std::fs::read_to_string(&file).map_err(|error| {
            failed("read", &error).help("there are no interrupted runs to resume: omit --resume")
        })?;
        return serde_json::from_str(&text).map_err(|error| failed("read", &error));
    }
    if file.exists() {
        let what = format!("{} already contains runs of an experiment", raw.display());
        return Err(Failure::new(what)
            .help("continue these runs with --resume, or choose another folder with --raw"));
    }
    let (runs, bytes) = if args.quick { (3, 200_000_000) } else { (10, 500_000_000) };
    let tunables = std::env::var(copies::TUNABLES);
    let settings = Settings {
        runs: args.runs.unwrap_or(runs),
        bytes: args.bytes.unwrap_or(bytes),
        seed: args.seed,
        implementations: args.implementations.clone(),
        more: args.more.clone(),
        // By default, `rep movsb` is turned off. Otherwise a slow copy routine in the C library
        // would dominate the TCP measurements.
        tunables: tunables.unwrap_or_else(|_| copies::WITHOUT_REP_MOVSB.to_owned()),
    };
    let text = serde_json::to_string_pretty(&settings)?;
    std::fs::write(&file, text + "\n").map_err(|error| failed("write", &error))?;
    Ok(settings)
}

fn tell(args: &Args, report: &Report<Highway>) -> Result {
    let plots = plots::write(&report.data, &args.out)?;
    let markdown = show::markdown(report);
    if args.output.tell(report, markdown)? {
        return Ok(());
    }
    let width = Style::stdout().width;
    output::line(format_args!("\n{}", report.machine))?;
    for table in show::tables(&report.data) {
        output::table(&table)?;
        output::line("")?;
    }
    for line in verdict::verdicts(&report.data) {
        output::line(output::wrapped(&format!("* {line}"), width, "  "))?;
    }
    let (out, plots) = (args.out.display(), plots.join(", "));
    output::line(output::wrapped(&format!("In {out}: result.json, {plots}"), width, "  "))
}
