//! Which list of implementations, and where they were built.

use std::path::{Path, PathBuf};

use equic_bench::builtin;

use crate::failure::{Done, Failure};

/// Which implementations there are.
#[derive(clap::Args)]
pub(super) struct Lists {
    /// The list of implementations; `--impl` also takes names of the list in the program, such as equic or
    /// tcp [default: bench/implementations.json in this folder, or else the list in the program]
    #[arg(long, value_name = "FILE")]
    implementations_file: Option<PathBuf>,
    /// Where they were built [default: target/servers of this folder or of the program's source tree]
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
}

impl Lists {
    /// Returns the file of the list, or `None` for the list in the program.
    pub(super) fn file(&self) -> Done<Option<PathBuf>> {
        let given = self.implementations_file.clone().or_else(builtin::list_here);
        Ok(given.map(std::path::absolute).transpose()?)
    }

    /// Returns the folder with what was built.
    pub(super) fn built(&self, equic: &Path) -> Done<PathBuf> {
        match &self.built {
            Some(built) => Ok(std::path::absolute(built)?),
            None => Ok(builtin::built(equic)),
        }
    }
}

/// Returns the path of this program.
pub(super) fn program() -> Done<PathBuf> {
    std::env::current_exe()
        .map_err(|error| Failure::because("this program does not find itself", error))
}
