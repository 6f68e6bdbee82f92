//! `equic-lab sim`: hands over to `equic-sim`.
//!
//! Simulations are connections without protection, and this command has no code for those
//! (docs/decisions/0029-equic-sim.md). The command line is known here all the same: help, man pages, completions and
//! wrong usage need no other program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use equic_experiments::simulator::{missing, program};

use crate::failure::{Done, Failure};

/// Replaces this process by `equic-sim`, with the arguments behind `sim`.
pub(crate) fn run() -> Done {
    let program = program();
    let arguments: Vec<OsString> =
        std::env::args_os().skip(1).skip_while(|argument| argument != "sim").skip(1).collect();
    // It only returns when it fails; a name without a slash is looked for on PATH.
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(missing());
    }
    Err(Failure::because(format_args!("cannot start {}", program.display()), error))
}
