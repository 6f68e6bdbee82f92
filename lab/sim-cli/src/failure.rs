//! Failures of commands: the message on standard error, and the exit code.

use std::process::ExitCode;

/// The reason why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command failed: exit code 1.
    Failed(String),
    /// The command was called with invalid arguments: exit code 2.
    Usage(String),
    /// There was too little data to decide: exit code 3.
    Undecided(String),
    /// Nothing could be compared: exit code 4.
    Incomparable(String),
    /// The reader of standard output has closed the pipe, so nothing more can be reported: exit
    /// code 0.
    ClosedPipe,
}

/// The result of a command.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Returns a failure with exit code 1 and this message.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// Writes the message to standard error, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Failure::ClosedPipe => return ExitCode::SUCCESS,
            Failure::Failed(message) => (message, 1),
            Failure::Usage(message) => (message, 2),
            Failure::Undecided(message) => (message, 3),
            Failure::Incomparable(message) => (message, 4),
        };
        crate::output::notice(message);
        ExitCode::from(code)
    }
}

/// The message of an error from a library is used unchanged, because it already says what failed,
/// why, and what to do.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}
