//! `equic-lab bench`: measures QUIC implementations side by side.
//!
//! [`run`] runs every client against every server. [`list`] lists the implementations, and
//! [`doctor`] checks the machine. [`report`] and [`compare`] read the files of runs
//! (docs/notebook/bench-output.md), and [`import`] reads published data. [`endpoint`] is eQUIC's
//! own server and client for the benchmark (docs/bench-contract.md).

mod compare;
mod doctor;
mod endpoint;
mod list;
mod lists;
mod report;
mod run;

use clap::Subcommand;

use crate::failure::Result;

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure every client against every server: goodput, CPU, handshakes, memory
    Run(Box<run::Args>),
    /// List the implementations
    List(list::Args),
    /// Check this machine for properties that make measurements wrong or unstable
    Doctor(doctor::Args),
    /// Create tables, result.json, CSV files, an HTML page and plots from the samples of a run
    Report(report::Args),
    /// Compare two results: which cells are better, worse, the same or inconclusive. The exit
    /// status is 1 if a cell is worse
    Compare(compare::Args),
    /// Run as the agent on a machine of a testbed. Requests and answers are JSON lines
    #[command(hide = true)]
    Agent,
    /// Run as the measured server or client
    Endpoint(endpoint::Command),
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> Result {
    match command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Agent => {
            let input = std::io::BufReader::new(std::io::stdin());
            Ok(equic_bench::agent::serve(input, std::io::stdout().lock())?)
        }
        Command::Endpoint(command) => endpoint::run(command),
    }
}
