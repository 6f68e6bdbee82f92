//! `equic-sim` is the program that `equic-lab sim` runs. Users can also start it directly.
//! `equic_scenario::command` defines its command line.
//!
//! * `run.rs`, `list.rs`: the commands `run` and `list`;
//! * `sweep/`: the commands `sweep`, `merge` and `compare`;
//! * `series.rs`: the files of one run;
//! * `memory.rs`: rejects scenarios that do not fit into memory;
//! * `output.rs`: the only module that prints;
//! * `failure.rs`: exit codes (0 done, 1 failed, 2 wrong usage, 3 undecided, 4 incomparable).

#![forbid(unsafe_code)]

mod cgroup;
mod failure;
mod list;
mod memory;
mod output;
mod run;
mod series;
mod sweep;

use std::process::ExitCode;

use clap::Parser;
use equic_scenario::command::Command;

/// Simulate networks: QUIC connections in virtual time
#[derive(Parser)]
#[command(name = "equic-sim", bin_name = "equic-lab sim", version, max_term_width = 80)]
struct EquicSim {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let done = match EquicSim::try_parse() {
        Ok(EquicSim { command: Command::Run(args) }) => run::run(&args),
        Ok(EquicSim { command: Command::Sweep(args) }) => sweep::sweep(&args),
        Ok(EquicSim { command: Command::Merge(args) }) => sweep::merge(&args),
        Ok(EquicSim { command: Command::Compare(args) }) => sweep::compare(&args),
        Ok(EquicSim { command: Command::List(args) }) => list::run(&args),
        Err(error) => return usage(&error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints a usage error, or the help or version that the user requested. Returns the exit code.
fn usage(error: &clap::Error) -> ExitCode {
    let Some(wrong) = equic_scenario::command::usage(error) else { return ExitCode::SUCCESS };
    output::notice(wrong);
    ExitCode::from(2)
}
