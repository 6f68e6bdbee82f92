//! Options for the list of implementations, and for the directory with their builds.

use std::path::{Path, PathBuf};

use equic_bench::builtin;

use crate::failure::{Failure, Result};

/// Which implementations are known.
#[derive(clap::Args)]
pub(super) struct Lists {
    /// File with the list of implementations. In addition, `--impl` accepts names of the built-in
    /// list, such as equic or tcp [default: lab/peers/bench.json in the current directory if
    /// it exists, otherwise the built-in list]
    #[arg(long, value_name = "FILE")]
    implementations_file: Option<PathBuf>,
    /// Directory with the built implementations [default: target/servers in the current directory,
    /// or in the source tree of this program]
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
}

impl Lists {
    /// Returns the file with the list of implementations, or `None` for the built-in list.
    pub(super) fn file(&self) -> Result<Option<PathBuf>> {
        let given = self.implementations_file.clone().or_else(builtin::list_here);
        Ok(given.map(std::path::absolute).transpose()?)
    }

    /// Returns the directory with the builds of the implementations.
    pub(super) fn built(&self, equic: &Path) -> Result<PathBuf> {
        match &self.built {
            Some(built) => Ok(std::path::absolute(built)?),
            None => Ok(builtin::built(equic)),
        }
    }
}

/// Returns the path of this program.
pub(super) fn program() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|error| Failure::because("cannot find the path of this program", error))
}
