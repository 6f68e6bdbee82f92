//! Errors that prevent a run. If an implementation fails, that is not such an error, but the
//! outcome of a cell.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a run is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InteropError {
    /// A file or folder cannot be read, written or created.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The failed operation: "read", "write" or "create".
        what: &'static str,
        /// The file or folder that cannot be used.
        path: PathBuf,
        /// Error from the operating system.
        #[source]
        source: io::Error,
    },
    /// A file is not a list of implementations.
    #[error("{} is not a valid list of implementations: {reason}", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// Description of the defect of the list.
        reason: String,
    },
    /// No implementation has this name.
    #[error("unknown implementation {name:?}: known are {known}")]
    Unknown {
        /// The name, as the user wrote it.
        name: String,
        /// The names of all known implementations.
        known: String,
    },
    /// Certificates cannot be created.
    #[error("cannot create certificates: {0}")]
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
