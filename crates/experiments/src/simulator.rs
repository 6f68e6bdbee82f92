//! The program `equic-sim`, in which simulations are (docs/decisions/0029-equic-sim.md): where it is.

use std::path::PathBuf;

use crate::failure::Failure;

/// Name of the simulator's program.
const PROGRAM: &str = "equic-sim";

/// The simulator's program: beside this one, or else wherever PATH has it.
pub fn program() -> PathBuf {
    beside().unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// Failure of a command that needs the simulator's program, where there is none.
pub fn missing() -> Failure {
    Failure::new(format!(
        "simulations need the program {PROGRAM}, which is neither in this program's folder nor on PATH"
    ))
    .mend("`make build` builds both; packages and `make install` have both")
}

/// `equic-sim` in the folder of the program that runs.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(PROGRAM)).filter(|path| path.is_file())
}
