//! Defines the command line of `equic-lab sim`. The program `equic` uses it for help, man pages and
//! completions, and the program `equic-sim` runs the commands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Prints help or a version to standard output if that was requested, and returns `None`. Otherwise
/// returns the error message for standard error.
pub fn usage(error: &clap::Error) -> Option<String> {
    if !error.use_stderr() {
        // An error of printing is ignored: if the reader has closed the pipe, it has read enough.
        let _ = error.print();
        return None;
    }
    let text = error.render().to_string();
    Some(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
}

/// Commands of `equic-lab sim`.
#[derive(Subcommand)]
pub enum Command {
    /// Run a scenario in virtual time
    Run(Box<Run>),
    /// Run every cell of a grid of scenarios, on all CPUs
    Sweep(Box<Sweep>),
    /// Join the results of the parts of a sweep
    Merge(Merge),
    /// Compare the results of two sweeps
    Compare(Compare),
    /// List the built-in scenarios
    List(List),
}

/// Run a scenario in virtual time with each of its seeds, and summarise the results
#[derive(Args)]
#[command(after_help = "Examples:
  equic-lab sim run lossy
  equic-lab sim run my.toml --seeds 30 --json
  equic-lab sim run fairness --seeds 1 --out series --qlog-dir qlog")]
pub struct Run {
    /// Scenario file, or name of a scenario from `equic-lab sim list`
    #[arg(value_name = "SCENARIO", required_unless_present = "schema")]
    pub scenario: Option<PathBuf>,
    /// Run this number of seeds instead of the seeds that the scenario names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// Number of seeds in parallel [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Measure the harm that flows do to each other: also run each flow without the others, with
    /// the same seeds
    #[arg(long)]
    pub harm: bool,
    /// Write time series and plots of the first seed into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw one plot of the first seed into this file, whose extension selects SVG or PNG
    #[arg(long, value_name = "FILE", value_parser = plot_file)]
    pub plot: Option<PathBuf>,
    /// Quantity that --plot draws over time
    #[arg(long, value_name = "VALUE", value_enum, default_value_t = Plotted::Goodput, requires = "plot")]
    pub plot_of: Plotted,
    /// Port to show in plots of queues. A link means both of its ports. May be given several times
    /// [default: the 8 busiest ports]
    #[arg(long, value_name = "PORT")]
    pub plot_port: Vec<String>,
    /// Write qlog files of the QUIC connections of the first seed into this directory
    #[arg(long, value_name = "DIR")]
    pub qlog_dir: Option<PathBuf>,
    /// Print the result as JSON (schema equic.sim.run/1)
    #[arg(long)]
    pub json: bool,
    /// Print the JSON Schema of scenario files, for editors, and run nothing
    #[arg(long, exclusive = true)]
    pub schema: bool,
}

/// Values over time that can be plotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plotted {
    /// Goodput of each connection
    Goodput,
    /// Congestion window of each connection
    Window,
    /// Slow start threshold of each connection
    Threshold,
    /// Bytes in flight of each connection
    InFlight,
    /// Smoothed round-trip time of each connection
    Rtt,
    /// Pacing rate of each connection
    Pacing,
    /// Packets in the queue of each port
    Queue,
    /// Share of each protocol in the goodput
    Shares,
}

fn plot_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("the name of the file must end with .svg or .png".to_owned()),
    }
}

/// List the built-in scenarios, or print one
#[derive(Args)]
pub struct List {
    /// Print the text of this scenario, as a template for your own file
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print the list as JSON (schema equic.sim.list/1)
    #[arg(long, conflicts_with = "name")]
    pub json: bool,
}

/// Run every cell of a grid with each of its seeds, on all CPUs
#[derive(Args)]
#[command(after_help = "Examples:
  equic-lab sim sweep grid.toml --out results
  equic-lab sim sweep grid.toml --out part3 --shard 3/8

Repeat the command to continue an interrupted sweep.")]
pub struct Sweep {
    /// Scenario file with a table `[grid]`
    #[arg(value_name = "GRID", required_unless_present = "schema")]
    pub grid: Option<PathBuf>,
    /// Directory for the results
    #[arg(long, value_name = "DIR", required_unless_present = "schema")]
    pub out: Option<PathBuf>,
    /// Run only one part of the runs: part I of N, counted from 1
    #[arg(long, value_name = "I/N", value_parser = shard, default_value = "1/1")]
    pub shard: Shard,
    /// Number of runs in parallel [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Only check the grid and print the number of its runs
    #[arg(long)]
    pub dry_run: bool,
    /// Print the JSON Schema of grids, for editors, and run nothing
    #[arg(long, exclusive = true)]
    pub schema: bool,
}

/// One of the parts into which the runs of a grid are divided, for `--shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 1.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
}

/// Largest number of parts.
const MAX_SHARDS: usize = 100_000;

fn shard(text: &str) -> Result<Shard, String> {
    let parts = text.split_once('/').and_then(|(index, count)| {
        Some(Shard { index: index.parse().ok()?, count: count.parse().ok()? })
    });
    parts
        .filter(|shard| 0 < shard.index && shard.index <= shard.count && shard.count <= MAX_SHARDS)
        .ok_or_else(|| format!("not a part such as 3/8 (part 3 of 8, at most {MAX_SHARDS} parts)"))
}

/// Join the results of the parts of a sweep. The result is identical to that of one sweep of all
/// runs
#[derive(Args)]
pub struct Merge {
    /// Directory for the joined result
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Directories of all parts of the sweep
    #[arg(value_name = "PART", required = true)]
    pub parts: Vec<PathBuf>,
}

/// Compare the results of two sweeps, cell by cell. A flow is better or worse only if the
/// difference is significant (p < 0.05; signed ranks of runs with the same seed) and at least 1 %.
/// The keys in which the scenarios differ are listed, too. Flows cannot be compared if they
/// transfer different data, or if they do not complete and have a different `limit`. Exit status: 0
/// nothing is worse; 1 something is worse; 3 nothing is worse, but some flows have too few seeds
/// for that verdict; 4 no flow can be compared
#[derive(Args)]
pub struct Compare {
    /// Directory with the results of the old sweep
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// Directory with the results of the new sweep
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Maximum p-value of a significant difference
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub p: f64,
    /// Minimum size of a difference that counts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub effect: f64,
    /// Correct the p-values for the number of compared cells (Holm)
    #[arg(long)]
    pub corrected: bool,
    /// Exit with 0 if at least one flow could be compared, even if a flow is worse
    #[arg(long)]
    pub no_fail: bool,
    /// Print the comparison as JSON (schema equic.sim.compare/1)
    #[arg(long)]
    pub json: bool,
}
