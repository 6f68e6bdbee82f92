//! The failure of a command: its message on standard error, and its exit code.

use std::fmt;

/// The reason that a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The command could not do its work. Exit code 1.
    Failed {
        /// Says what failed and why.
        message: String,
        /// Says what the user can do about it. It is printed on a separate line.
        help: Option<String>,
    },
    /// The command was called with wrong arguments. Exit code 2.
    Usage(String),
    /// The configuration is invalid. The message lists its problems. Exit code 2.
    Invalid(String),
    /// The command did its work, but its input cannot answer the question. Exit code 3.
    Undecided {
        /// Says what cannot be answered and why.
        message: String,
        /// Says how the user can get an answer. It is printed on a separate line.
        help: String,
    },
    /// The command did its work, but its inputs have nothing that can be compared. Exit code 4.
    Incomparable {
        /// Says why nothing can be compared.
        message: String,
        /// Says what the user can do about it. It is printed on a separate line.
        help: String,
    },
    /// The QUIC Interop Runner asked for a feature that is not supported. Exit code 127.
    Unsupported(String),
    /// The reader of the output has closed it, so nothing can be reported. Exit code 0.
    ClosedPipe,
}

/// The result of a command.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Returns a failure with exit code 1 and this message.
    pub fn new(message: impl Into<String>) -> Failure {
        let message = message.into();
        let help = descriptors(&message).map(str::to_owned);
        Failure::Failed { message, help }
    }

    /// Adds advice to this failure: what the user can do. If the process ran out of file
    /// descriptors, the failure already has advice about that, and keeps it instead.
    pub fn help(self, help: impl Into<String>) -> Failure {
        match self {
            Failure::Failed { message, .. } => {
                let help = descriptors(&message).map_or_else(|| help.into(), str::to_owned);
                Failure::Failed { message, help: Some(help) }
            }
            other => other,
        }
    }

    /// Returns a failure with the message `what: why`.
    pub fn because(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(format!("{what}: {why}"))
    }

    /// Prefixes the message with the subject `what`, unless the message already contains it.
    pub fn about(self, what: &str) -> Failure {
        match self {
            Failure::Failed { message, help } if !message.contains(what) => {
                Failure::Failed { message: format!("{what}: {message}"), help }
            }
            other => other,
        }
    }

    /// Returns a failure with exit code 2 and this message.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }

    /// Returns a failure with exit code 3. `message` says why there is no answer, and `help` says
    /// how to get one.
    pub fn undecided(message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Undecided { message: message.into(), help: help.into() }
    }

    /// Returns a failure with exit code 4. `message` says why nothing can be compared, and `help`
    /// says what to do.
    pub fn incomparable(message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Incomparable { message: message.into(), help: help.into() }
    }

    /// Returns the exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Failure::ClosedPipe => 0,
            Failure::Failed { .. } => 1,
            Failure::Usage(_) | Failure::Invalid(_) => 2,
            Failure::Undecided { .. } => 3,
            Failure::Incomparable { .. } => 4,
            Failure::Unsupported(_) => 127,
        }
    }
}

/// Returns advice if the message says that the process or the machine ran out of file descriptors.
/// The advice is the same for every operation.
pub(crate) fn descriptors(message: &str) -> Option<&'static str> {
    // The standard library formats EMFILE as "(os error 24)" and ENFILE as "(os error 23)". The
    // gateway's errors already contain the advice.
    if message.contains("LimitNOFILE") || message.contains("fs.file-max") {
        None
    } else if message.contains("(os error 24)") {
        Some(
            "this process has reached its limit of open files: raise the limit (`ulimit -n`, or `LimitNOFILE=` in a \
             systemd unit)",
        )
    } else if message.contains("(os error 23)") {
        Some(
            "the machine has reached its limit of open files: end processes that leak them, or raise the sysctl \
             `fs.file-max`",
        )
    } else {
        None
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed { message, help: None } => f.write_str(message),
            Failure::Failed { message, help: Some(help) }
            | Failure::Undecided { message, help }
            | Failure::Incomparable { message, help } => {
                write!(f, "{message}\n  {help}")
            }
            Failure::Invalid(message) => f.write_str(message),
            Failure::Usage(message) => {
                write!(f, "{message}\n  `--help` after any command lists its arguments and options")
            }
            Failure::Unsupported(testcase) => {
                write!(f, "the test case {testcase:?} is not supported")
            }
            Failure::ClosedPipe => Ok(()),
        }
    }
}

/// Converts an error of a library into a failure with the same message. The project's libraries
/// already say in their errors what failed, why, and what to do.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_by_the_descriptor_limit_advises_about_the_limit() {
        let full = |number| std::io::Error::from_raw_os_error(number);
        for (number, advice) in [(24, "LimitNOFILE="), (23, "fs.file-max")] {
            for failure in [
                Failure::because("cannot listen", full(number)),
                Failure::because("cannot listen", full(number)).help("choose another port"),
                Failure::from(full(number)),
            ] {
                let text = failure.to_string();
                assert!(text.contains(advice) && !text.contains("another port"), "{text}");
            }
        }
        let said = Failure::because("x", "y (os error 24): see `LimitNOFILE=`").to_string();
        assert_eq!(said.matches("LimitNOFILE").count(), 1, "{said}");
        let other = Failure::because("cannot listen", full(98)).help("choose another port");
        assert!(other.to_string().ends_with("\n  choose another port"));
    }
}
