//! Errors that keep a run from being made. A mistake of an implementation is no error, but an outcome.

use std::io;
use std::path::{Path, PathBuf};

/// Reason that a run cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InteropError {
    /// A file or folder cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// "read", "write" or "create".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The list of implementations is not one.
    #[error("{} is no list of implementations: {reason}", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// Description of what is wrong with the list, for people.
        reason: String,
    },
    /// No implementation has this name.
    #[error("there is no implementation {name:?}: there are {known}")]
    Unknown {
        /// The name as given.
        name: String,
        /// The names that there are.
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
