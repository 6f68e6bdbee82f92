//! Problems of a configuration, all of them at once, each with its place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line, counted from 1; 0 when it did not come from a text.
    pub line: usize,
    /// Column in characters, counted from 1; 0 when it did not come from a text.
    pub column: usize,
    /// The key, as `service.web.listen`; empty where it is not about a key.
    pub key: String,
    /// Description of what is wrong and what would be right.
    pub message: String,
}

impl Problem {
    /// Without a place.
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

/// Reason that a configuration, a list file or a setting does not hold.
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
    /// Everything that does not hold, in the order of the text: a line each,
    /// `file:line:column: key: what is wrong`.
    #[error("{}", listed(.path.as_deref(), .problems, *.more))]
    Problems {
        /// The file; none: it did not come from one.
        path: Option<PathBuf>,
        /// Problems that are told, at least one.
        problems: Vec<Problem>,
        /// Number of problems beyond those.
        more: usize,
    },
    /// `set` with a value that does not hold.
    #[error("`{key}`: {message}")]
    Invalid {
        /// The setting.
        key: String,
        /// Description of what is wrong and what would be right.
        message: String,
    },
    /// `set` with a key that does not exist.
    #[error("no setting `{key}`{}; settings that can change: {}", crate::error::did_you_mean(.similar), .known.join(", "))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// Similar keys.
        similar: Vec<String>,
        /// Every key.
        known: Vec<String>,
    },
}

/// Most problems of one file that are told.
const TOLD: usize = 1_000;

impl ConfigError {
    /// Sorted, and not more than a person could want to read.
    pub(super) fn problems(path: Option<&Path>, mut problems: Vec<Problem>) -> ConfigError {
        problems.sort();
        problems.dedup();
        let more = problems.len().saturating_sub(TOLD);
        problems.truncate(TOLD);
        ConfigError::Problems { path: path.map(Path::to_owned), problems, more }
    }

    /// The same, about a file.
    pub(super) fn in_file(self, file: &Path) -> ConfigError {
        match self {
            ConfigError::Problems { path: None, problems, more } => {
                ConfigError::Problems { path: Some(file.to_owned()), problems, more }
            }
            other => other,
        }
    }

    /// Each thing that does not hold, as a line of its own.
    pub fn lines(&self) -> Vec<String> {
        self.to_string().lines().map(str::to_owned).collect()
    }
}

fn listed(path: Option<&Path>, problems: &[Problem], more: usize) -> String {
    let mut lines: Vec<String> = problems
        .iter()
        .map(|problem| match path {
            // As compilers write it, so that editors find the place.
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
