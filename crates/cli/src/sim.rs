//! `equic sim`: hands over to `equic-sim`.
//!
//! Simulations are connections without protection, and this command has no code for those
//! (docs/decisions/0029-equic-sim.md). The command line is known here all the same: help, man pages, completions and
//! wrong usage need no other program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::{Done, Failure};

/// Name of the simulator's program.
const PROGRAM: &str = "equic-sim";

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

/// The simulator's program: beside this one, or else wherever PATH has it.
pub(crate) fn program() -> PathBuf {
    beside().unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// Failure of a command that needs the simulator's program, where there is none.
pub(crate) fn missing() -> Failure {
    Failure::new(format!(
        "simulations need the program {PROGRAM}, which is neither beside this one nor on PATH"
    ))
    .mend("`make build` builds both; packages and `make install` have both")
}

/// `equic-sim` in the folder of the program that runs.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(PROGRAM)).filter(|path| path.is_file())
}
