//! `equic-lab sim`: starts the separate program `equic-sim`.
//!
//! Simulations use connections without encryption. This command contains no code for such
//! connections (docs/decisions/0029-equic-sim.md). It parses the arguments itself, so that help,
//! man pages, completions and usage errors work even without `equic-sim`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use equic_experiments::simulator::program;

use crate::failure::{Failure, Result};

/// Replaces this process by `equic-sim`, and passes on the arguments after `sim`.
pub(crate) fn run() -> Result {
    let program = program()?;
    let arguments: Vec<OsString> =
        std::env::args_os().skip(1).skip_while(|argument| argument != "sim").skip(1).collect();
    // exec returns only if it fails.
    let error = Command::new(&program).args(arguments).exec();
    Err(Failure::because(format_args!("cannot start {}", program.display()), error))
}
