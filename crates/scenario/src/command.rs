//! The command line of `equic sim`: `equic` shows it in help, man pages and completions, `equic-sim` carries it out.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `equic sim` does.
#[derive(Subcommand)]
pub enum Command {
    /// Play a scenario in virtual time
    Run(Box<Run>),
    /// List the scenarios that come with the simulator
    List(List),
}

/// Play a scenario in virtual time, with each of its seeds, and sum up
#[derive(Args)]
#[command(after_help = "Examples:
  equic sim run lossy
  equic sim run my.toml --seeds 30 --json
  equic sim run fairness --seeds 1 --out series --qlog-dir qlog")]
pub struct Run {
    /// A file, or the name of a scenario that `equic sim list` has
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Run so many seeds, in place of those of the scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// Run so many seeds at a time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Measure harm: each flow alone, too, with the same seeds
    #[arg(long)]
    pub harm: bool,
    /// Write time series and plots of the first seed into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write qlog of QUIC connections of the first seed into this directory
    #[arg(long, value_name = "DIR")]
    pub qlog_dir: Option<PathBuf>,
    /// Print the result as JSON (schema equic.sim.run/1)
    #[arg(long)]
    pub json: bool,
}

/// List the scenarios that come with the simulator, or print one
#[derive(Args)]
pub struct List {
    /// Print this one as a file, to begin with
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print the list as JSON (schema equic.sim.list/1)
    #[arg(long, conflicts_with = "name")]
    pub json: bool,
}
