//! Finds the program `equic-sim`, which runs simulations (docs/decisions/0029-equic-sim.md).

use std::path::PathBuf;

use crate::failure::{Failure, Result};

/// Name of the simulator's program.
const PROGRAM: &str = "equic-sim";

/// Returns the path of the simulator: in the folder of this program, or else in a folder of `PATH`.
///
/// # Errors
/// Fails if the simulator is in none of these folders.
pub fn program() -> Result<PathBuf> {
    equic_console::program::find(PROGRAM).ok_or_else(|| {
        Failure::new(format!(
            "the experiment needs the program {PROGRAM} for simulations, but it is neither in the folder of this program nor in PATH"
        ))
        .help("build all programs with `make build`, or install the Debian package equic-lab")
    })
}
