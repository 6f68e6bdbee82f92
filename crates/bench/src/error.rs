//! Errors that keep a run from being made, and from being measured: a fault of an implementation is an outcome.

use std::io;
use std::path::PathBuf;

use crate::Failure;

/// Reason for which a run cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The list of implementations cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error from the system.
        #[source]
        source: io::Error,
    },
    /// The list of implementations is not one.
    #[error("{} is no list of implementations: {reason}", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// Defect of the file.
        reason: String,
    },
    /// No implementation has this name.
    #[error("there is no implementation {name:?}: there are {known}")]
    Unknown {
        /// Name that was asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// An implementation was not built.
    #[error("{name} cannot be run: {} {what}: {mend}", path.display())]
    NotBuilt {
        /// The implementation.
        name: String,
        /// File or folder that is not as it should be.
        path: PathBuf,
        /// Defect of it.
        what: &'static str,
        /// Advice what to do about it.
        mend: String,
    },
    /// Something to sweep that makes no sense.
    #[error("cannot sweep {text}: {why}")]
    Sweep {
        /// Sweep as it was written.
        text: String,
        /// Defect of the sweep.
        why: String,
    },
    /// No path between client and server is like that.
    #[error("no path {text}: {why}")]
    Path {
        /// Path as it was written.
        text: String,
        /// Defect of the path.
        why: String,
    },
    /// The run as asked for is not possible.
    #[error("{0}")]
    Plan(String),
    /// A file of the run cannot be written, or there is no space for it.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Error from the system.
        #[source]
        source: io::Error,
    },
    /// A folder is not that of a run which could go on.
    #[error("{} cannot be gone on with: {why}", path.display())]
    Resume {
        /// The folder.
        path: PathBuf,
        /// Reason for which the run cannot go on.
        why: String,
    },
    /// A machine of a testbed does not do what it has to.
    #[error("the testbed's {machine}: {why}")]
    Testbed {
        /// Name of the machine.
        machine: String,
        /// Defect of the machine.
        why: String,
    },
    /// A profile cannot be kept.
    #[error(transparent)]
    Result(#[from] crate::result::ResultError),
    /// The namespaces cannot be made, or removed.
    #[error(transparent)]
    Lab(#[from] equic_lab::LabError),
    /// A relay cannot be started.
    #[error(transparent)]
    Relay(#[from] equic_lab::relay::RelayError),
}

/// Reason for which a cell has no measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum CellError {
    /// An end says that it does not do that.
    Unsupported(String),
    /// The attempt failed.
    Failed(Failure, String),
}

pub(crate) fn failed<T>(failure: Failure, why: impl Into<String>) -> Result<T, CellError> {
    Err(CellError::Failed(failure, why.into()))
}
