//! Failures of commands: the message on standard error, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// Reason that a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The command could not do its work: exit code 1.
    Failed {
        /// Message that says what failed and why.
        message: String,
        /// Advice that mends it, on a line of its own; none if there is none.
        mend: Option<String>,
    },
    /// The command was called in a way that makes no sense: exit code 2.
    Usage(String),
    /// It was asked for by the QUIC Interop Runner, and is not done: exit code 127.
    Unsupported(String),
    /// Whoever read the output has gone, so there is nobody left to tell: exit code 0.
    ClosedPipe,
}

/// A result of a command.
pub type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// Exit code 1, for the reason given.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::Failed { message: message.into(), mend: None }
    }

    /// The same with a line that says what mends it.
    pub fn mend(self, mend: impl Into<String>) -> Failure {
        match self {
            Failure::Failed { message, .. } => Failure::Failed { message, mend: Some(mend.into()) },
            other => other,
        }
    }

    /// `what: why`.
    pub fn because(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(format!("{what}: {why}"))
    }

    /// The same with what it is about in front, unless it is in there already.
    pub fn about(self, what: &str) -> Failure {
        match self {
            Failure::Failed { message, mend } if !message.contains(what) => {
                Failure::Failed { message: format!("{what}: {message}"), mend }
            }
            other => other,
        }
    }

    /// Exit code 2, for the reason given.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }

    /// Says it on standard error and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let code = match self {
            Failure::ClosedPipe => return ExitCode::SUCCESS,
            Failure::Failed { .. } => 1,
            Failure::Usage(_) => 2,
            Failure::Unsupported(_) => 127,
        };
        crate::output::notice(self);
        ExitCode::from(code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed { message, mend: None } => f.write_str(message),
            Failure::Failed { message, mend: Some(mend) } => write!(f, "{message}\n  {mend}"),
            Failure::Usage(message) => {
                write!(f, "{message}\n  `--help` behind any command lists what it takes")
            }
            Failure::Unsupported(testcase) => {
                write!(f, "the test case {testcase:?} is not done")
            }
            Failure::ClosedPipe => Ok(()),
        }
    }
}

/// The libraries' errors say what failed, why, and the mend; nothing is to be added.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}
