//! `equic-lab sim`: starts `equic-sim`.
//!
//! Simulations use connections without encryption, and this command contains no code for those
//! (docs/decisions/0029-equic-sim.md). It still parses the arguments itself, so help, man pages,
//! completions and usage errors work without `equic-sim`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use equic_experiments::simulator::{missing, program};

use crate::failure::{Failure, Result};

/// Replaces this process by `equic-sim`, with the arguments after `sim`.
pub(crate) fn run() -> Result {
    let program = program();
    let arguments: Vec<OsString> =
        std::env::args_os().skip(1).skip_while(|argument| argument != "sim").skip(1).collect();
    // This call only returns if it fails. A name without a slash is searched on PATH.
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(missing());
    }
    Err(Failure::because(format_args!("cannot start {}", program.display()), error))
}
