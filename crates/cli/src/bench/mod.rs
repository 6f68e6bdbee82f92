//! `equic bench`: QUIC implementations measured side by side.
//!
//! [`run`] runs every client against every server, [`transport`] each with itself; [`list`] shows which
//! there are, [`doctor`] looks at the machine; [`endpoint`] is ours as one of them
//! (docs/bench-contract.md).

mod doctor;
mod endpoint;
mod list;
mod run;
mod transport;

use clap::Subcommand;

use crate::failure::Done;

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Measure every client against every server: goodput, CPU, handshakes, memory
    Run(Box<run::Args>),
    /// Show which implementations there are
    List(list::Args),
    /// Look for what makes figures of this machine wrong or restless
    Doctor(doctor::Args),
    /// Measure QUIC stacks side by side, each with itself: goodput, CPU, handshakes, memory
    Transport(Box<transport::Args>),
    /// Be a machine of a testbed: requests and answers, JSON lines
    #[command(hide = true)]
    Agent,
    /// Be the server or the client that is measured
    #[command(subcommand)]
    Endpoint(endpoint::Command),
}

/// Carries one out.
pub fn run(command: Command) -> Done {
    match command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Transport(args) => transport::run(&args),
        Command::Agent => {
            let input = std::io::BufReader::new(std::io::stdin());
            Ok(equic_bench::agent::serve(input, std::io::stdout().lock())?)
        }
        Command::Endpoint(command) => endpoint::run(command),
    }
}
