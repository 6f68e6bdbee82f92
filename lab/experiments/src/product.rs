//! Finds the program `equic`, which provides the gateway and the server of an experiment.

use std::path::PathBuf;

use crate::failure::{Failure, Result};

/// Name of the product's program.
const PROGRAM: &str = "equic";

/// Returns the path of `equic`: in the folder of this program, or else in a folder of `PATH`.
///
/// # Errors
/// Fails if `equic` is in none of these folders.
pub fn program() -> Result<PathBuf> {
    equic_console::program::find(PROGRAM).ok_or_else(|| {
        Failure::new(format!(
            "the experiment needs the program {PROGRAM} as gateway and server, but it is neither in the folder of this program nor in PATH"
        ))
        .help("build all programs with `make build`, or install the Debian package equic")
    })
}
