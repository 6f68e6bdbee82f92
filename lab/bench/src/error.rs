//! Errors that prevent a run. If an implementation fails, that is not such an error, but the
//! outcome of an attempt.

use std::io;
use std::path::PathBuf;

use crate::Failure;

/// Reason why a run is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The list of implementations cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
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
        /// The implementation name that the user gave.
        name: String,
        /// Names of all known implementations.
        known: String,
    },
    /// An implementation was not built.
    #[error("{name} cannot be run: {} {what}: {help}", path.display())]
    NotBuilt {
        /// The implementation.
        name: String,
        /// The missing or defective file or folder.
        path: PathBuf,
        /// The defect.
        what: &'static str,
        /// Advice on how to fix the problem.
        help: String,
    },
    /// A sweep is invalid.
    #[error("cannot sweep {text}: {why}")]
    Sweep {
        /// The sweep, as the user wrote it.
        text: String,
        /// Description of the defect of the sweep.
        why: String,
    },
    /// A path between client and server is invalid.
    #[error("invalid path {text}: {why}")]
    Path {
        /// The path, as the user wrote it.
        text: String,
        /// Description of the defect of the path.
        why: String,
    },
    /// The requested run is not possible.
    #[error("{0}")]
    Plan(String),
    /// A file of the run cannot be written, or there is no space for it.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder that cannot be written.
        path: PathBuf,
        /// Error from the operating system.
        #[source]
        source: io::Error,
    },
    /// A run cannot be resumed from this folder.
    #[error("the run in {} cannot be resumed: {why}", path.display())]
    Resume {
        /// The folder.
        path: PathBuf,
        /// Reason why the run cannot be resumed.
        why: String,
    },
    /// A machine of a testbed does not work as required.
    #[error("the testbed's {machine}: {why}")]
    Testbed {
        /// Name of the machine: `server` or `client`.
        machine: String,
        /// Description of the defect of the machine.
        why: String,
    },
    /// A profile cannot be stored.
    #[error(transparent)]
    Result(#[from] crate::result::ResultError),
    /// Network namespaces cannot be created or removed.
    #[error(transparent)]
    Lab(#[from] equic_netns::LabError),
    /// A relay cannot be started.
    #[error(transparent)]
    Relay(#[from] equic_netns::relay::RelayError),
}

/// Reason that an attempt has no measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum CellError {
    /// The server or the client does not support the attempt.
    Unsupported(String),
    /// The attempt failed: the kind of failure, and its description.
    Failed(Failure, String),
}

pub(crate) fn failed<T>(failure: Failure, why: impl Into<String>) -> Result<T, CellError> {
    Err(CellError::Failed(failure, why.into()))
}
