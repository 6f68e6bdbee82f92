//! What keeps a run from being made. What an implementation does wrong is no error, but an outcome.

use std::io;
use std::path::PathBuf;

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The list of implementations cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The list of implementations is not one.
    #[error("{} is no list of implementations: {reason}", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No implementation has this name.
    #[error("there is no implementation {name:?}: there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An implementation was not built.
    #[error("{} is missing, the program of {name}: run `make bench-deps`", path.display())]
    NotBuilt {
        /// The implementation.
        name: String,
        /// Its program.
        path: PathBuf,
    },
}
