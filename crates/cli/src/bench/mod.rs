//! `equic bench`: QUIC implementations measured side by side.
//!
//! [`transport`] runs them against each other; [`endpoint`] is ours as one of them
//! (docs/bench-contract.md).

mod endpoint;
mod transport;

use clap::Subcommand;

use crate::failure::Done;

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Measure QUIC stacks side by side: goodput, CPU, handshakes, memory
    Transport(Box<transport::Args>),
    /// Be the server or the client that is measured
    Endpoint(endpoint::Command),
}

/// Carries one out.
pub fn run(command: Command) -> Done {
    match command {
        Command::Transport(args) => transport::run(&args),
        Command::Endpoint(command) => endpoint::run(command),
    }
}
