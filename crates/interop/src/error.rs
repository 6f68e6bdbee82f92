//! What keeps a run from being made. What an implementation does wrong is no error, but an outcome.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InteropError {
    /// A file or folder cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// "read", "write" or "create".
        what: &'static str,
        /// Which.
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
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}")]
    Certificate(String),
}

impl InteropError {
    pub(crate) fn file<'a>(
        what: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> InteropError + 'a {
        move |source| InteropError::File { what, path: path.to_owned(), source }
    }
}
