//! Finds the program `equic-sim`, which runs simulations (docs/decisions/0029-equic-sim.md).

use std::path::PathBuf;

use crate::failure::Failure;

/// Name of the simulator's program.
const PROGRAM: &str = "equic-sim";

/// Returns the path of the simulator: in the folder of this program, or else found through PATH.
pub fn program() -> PathBuf {
    beside().unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// Returns the error for a command that needs the simulator when it cannot be found.
pub fn missing() -> Failure {
    Failure::new(format!(
        "simulations need the program {PROGRAM}, which is neither in the folder of this program nor in PATH"
    ))
    .help("build both with `make build`, or install both with `make install` or a package")
}

/// Returns `equic-sim` in the folder of the running program, if it exists.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(PROGRAM)).filter(|path| path.is_file())
}
