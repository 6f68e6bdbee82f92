//! `equic reproduce`: the experiments of the papers, done again.
//!
//! * `gateway`: quotas in user space and in the kernel, under attack. `highway`: buffers, offloads and AES
//!   instructions, for QUIC and for TCP.
//! * `readme`: puts results into an experiment's README.

mod gateway;
mod highway;
mod readme;

use std::path::Path;

use crate::failure::{Done, Failure};

/// The papers.
#[derive(clap::Subcommand)]
pub enum Command {
    /// The gateway's: quotas in user space and in the kernel, under attack
    Gateway(gateway::Args),
    /// "QUIC on the Highway": what buffers, offloads and AES instructions do for QUIC and for TCP
    Highway(highway::Args),
}

/// Carries one out.
pub fn run(command: &Command) -> Done {
    match command {
        Command::Gateway(args) => gateway::run(args),
        Command::Highway(args) => highway::run(args),
    }
}

fn make_folder(folder: &Path) -> Done {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", folder.display()), error)
    })
}
