//! Failures: the message on standard error, and the exit code.

use std::process::ExitCode;

/// Reason that a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not do its work: exit code 1.
    Failed(String),
    /// It was called in a way that makes no sense: exit code 2.
    Usage(String),
    /// Whoever read the output has gone, so there is nobody left to tell: exit code 0.
    ClosedPipe,
}

/// A result of a command.
pub(crate) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// Exit code 1, for the reason given.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// Says it on standard error and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Failure::ClosedPipe => return ExitCode::SUCCESS,
            Failure::Failed(message) => (message, 1),
            Failure::Usage(message) => (message, 2),
        };
        crate::output::notice(message);
        ExitCode::from(code)
    }
}

/// The library's errors say what failed, why, and the mend; nothing is to be added.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}
