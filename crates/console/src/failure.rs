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
    /// The command did its work, and its input cannot answer the question: exit code 3.
    Undecided {
        /// Message that says what cannot be answered and why.
        message: String,
        /// What gives an answer, on a line of its own.
        mend: String,
    },
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
        let message = message.into();
        let mend = descriptors(&message).map(str::to_owned);
        Failure::Failed { message, mend }
    }

    /// The same with a line that says what mends it. If file descriptors ran out, the advice about that
    /// stays instead.
    pub fn mend(self, mend: impl Into<String>) -> Failure {
        match self {
            Failure::Failed { message, .. } => {
                let mend = descriptors(&message).map_or_else(|| mend.into(), str::to_owned);
                Failure::Failed { message, mend: Some(mend) }
            }
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

    /// Exit code 3: `message` says why there is no answer, `mend` what gives one.
    pub fn undecided(message: impl Into<String>, mend: impl Into<String>) -> Failure {
        Failure::Undecided { message: message.into(), mend: mend.into() }
    }

    /// Says it on standard error and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let code = match self {
            Failure::ClosedPipe => return ExitCode::SUCCESS,
            Failure::Failed { .. } => 1,
            Failure::Usage(_) => 2,
            Failure::Undecided { .. } => 3,
            Failure::Unsupported(_) => 127,
        };
        crate::output::notice(self);
        ExitCode::from(code)
    }
}

/// Advice if a message is about an error of the system that has nothing to do with what was tried: no file
/// descriptor was free.
pub(crate) fn descriptors(message: &str) -> Option<&'static str> {
    // EMFILE and ENFILE, as the standard library words them. The gateway's errors have the advice.
    if message.contains("LimitNOFILE") || message.contains("fs.file-max") {
        None
    } else if message.contains("(os error 24)") {
        Some(
            "this process has as many files open as it may: raise its limit (`ulimit -n`, or `LimitNOFILE=` in a \
             systemd unit)",
        )
    } else if message.contains("(os error 23)") {
        Some(
            "the machine has as many files open as it may: end processes that leak them, or raise the sysctl \
             `fs.file-max`",
        )
    } else {
        None
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed { message, mend: None } => f.write_str(message),
            Failure::Failed { message, mend: Some(mend) }
            | Failure::Undecided { message, mend } => {
                write!(f, "{message}\n  {mend}")
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_ran_out_are_what_the_advice_is_about() {
        let full = |number| std::io::Error::from_raw_os_error(number);
        for (number, advice) in [(24, "LimitNOFILE="), (23, "fs.file-max")] {
            for failure in [
                Failure::because("cannot listen", full(number)),
                Failure::because("cannot listen", full(number)).mend("choose another port"),
                Failure::from(full(number)),
            ] {
                let text = failure.to_string();
                assert!(text.contains(advice) && !text.contains("another port"), "{text}");
            }
        }
        let said = Failure::because("x", "y (os error 24): see `LimitNOFILE=`").to_string();
        assert_eq!(said.matches("LimitNOFILE").count(), 1, "{said}");
        let other = Failure::because("cannot listen", full(98)).mend("choose another port");
        assert!(other.to_string().ends_with("\n  choose another port"));
    }
}
