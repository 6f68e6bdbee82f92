//! `equic bench`: QUIC implementations measured side by side.
//!
//! [`transport`] runs them against each other; [`endpoint`] is ours as one of them
//! (docs/bench-contract.md). [`report`] and [`compare`] read what runs leave (docs/bench-results.md).

mod compare;
mod endpoint;
mod import;
mod report;
mod transport;

use clap::Subcommand;

use crate::failure::Done;

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Measure QUIC stacks side by side: goodput, CPU, handshakes, memory
    Transport(Box<transport::Args>),
    /// Make tables, result.json, CSV and a page of a run's samples
    Report(report::Args),
    /// Compare two results: better, worse or inconclusive; exit code 1 when something is worse
    Compare(compare::Args),
    /// Compute the figures of "QUIC on the Highway" again from its raw data
    ImportTumi8(import::Args),
    /// Be the server or the client that is measured
    Endpoint(endpoint::Command),
}

/// Carries one out.
pub fn run(command: Command) -> Done {
    match command {
        Command::Transport(args) => transport::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::ImportTumi8(args) => import::run(&args),
        Command::Endpoint(command) => endpoint::run(command),
    }
}
