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
            "the gateway and the server need the program {PROGRAM}, which is neither in the folder of this program nor in PATH"
        ))
        .help("build both with `make build`, or install the Debian package equic")
    })
}
