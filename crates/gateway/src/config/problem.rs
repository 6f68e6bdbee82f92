//! Problems of a configuration. All of them are reported at once, each with its position.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line, counted from 1. 0 if the problem is not in a text.
    pub line: usize,
    /// Column in characters, counted from 1. 0 if the problem is not in a text.
    pub column: usize,
    /// The key, such as `service.web.listen`. Empty if the problem concerns no key.
    pub key: String,
    /// Description of what is wrong and what is expected.
    pub message: String,
}

impl Problem {
    /// Returns a problem without a position.
    pub(super) fn of(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { line: 0, column: 0, key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line != 0 {
            write!(f, "{}:{}: ", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// The reason that a configuration, a list file or a setting is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The text has problems. They are listed in the order of the text, one per line:
    /// `file:line:column: key: message`.
    #[error("{}", listed(.path.as_deref(), .problems, *.more))]
    Problems {
        /// The file with the problems, or `None` if the text does not come from a file.
        path: Option<PathBuf>,
        /// The reported problems. There is at least one.
        problems: Vec<Problem>,
        /// Number of further problems that are not reported.
        more: usize,
    },
    /// `set` or `-o` was called with an invalid value.
    #[error("`{key}`: {message}")]
    Invalid {
        /// The setting.
        key: String,
        /// Description of what is wrong and what is expected.
        message: String,
    },
    /// `set` or `-o` was called with an unknown key.
    #[error("no setting `{key}`{}", instead(.similar, .known))]
    UnknownKey {
        /// The key as the caller wrote it.
        key: String,
        /// Similar keys.
        similar: Vec<String>,
        /// Every key.
        known: Vec<String>,
    },
}

/// Maximum number of problems of one file that are reported.
const TOLD: usize = 1_000;

impl ConfigError {
    /// Returns the error for these problems. The problems are sorted, and their number is limited.
    pub(super) fn problems(path: Option<&Path>, mut problems: Vec<Problem>) -> ConfigError {
        problems.sort();
        problems.dedup();
        let more = problems.len().saturating_sub(TOLD);
        problems.truncate(TOLD);
        ConfigError::Problems { path: path.map(Path::to_owned), problems, more }
    }

    /// Returns this error with the name of the file that has the problems.
    pub(super) fn in_file(self, file: &Path) -> ConfigError {
        match self {
            ConfigError::Problems { path: None, problems, more } => {
                ConfigError::Problems { path: Some(file.to_owned()), problems, more }
            }
            other => other,
        }
    }

    /// Returns true if another attempt would fail, too, until somebody corrects the configuration or
    /// names another file. Returns false if the system could not read a file for a reason that may
    /// pass, such as a lack of file descriptors.
    pub fn is_permanent(&self) -> bool {
        use io::ErrorKind::{
            FileTooLarge, InvalidInput, NotADirectory, NotFound, PermissionDenied,
        };
        match self {
            ConfigError::Unreadable { source, .. } => matches!(
                source.kind(),
                NotFound | PermissionDenied | InvalidInput | NotADirectory | FileTooLarge
            ),
            _ => true,
        }
    }

    /// Returns each problem as one line.
    pub fn lines(&self) -> Vec<String> {
        self.to_string().lines().map(str::to_owned).collect()
    }
}

/// Returns a remark with the similar keys, or with all keys if none is similar.
fn instead(similar: &[String], known: &[String]) -> String {
    match similar {
        [] => format!("; there are {}", known.join(", ")),
        similar => crate::error::did_you_mean(similar),
    }
}

fn listed(path: Option<&Path>, problems: &[Problem], more: usize) -> String {
    let mut lines: Vec<String> = problems
        .iter()
        .map(|problem| match path {
            // Compilers print messages in this form, so editors can jump to the position.
            Some(path) if problem.line != 0 => format!("{}:{problem}", path.display()),
            Some(path) => format!("{}: {problem}", path.display()),
            None => problem.to_string(),
        })
        .collect();
    if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    lines.join("\n")
}
