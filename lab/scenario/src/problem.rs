//! Mistakes in a scenario description, with their lines.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake in a scenario description.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line of the text, counted from 1.
    pub line: usize,
    /// The key, such as `network.link.rate`. Empty if the mistake does not concern a key.
    pub key: String,
    /// Describes the mistake, and what would be correct.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// The reason why a scenario description is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file that cannot be read.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The description has mistakes. They are in the order of the text. Each is displayed on one
    /// line: `file:line: key: what is wrong`.
    #[error("{}", listed(path.as_deref(), problems))]
    Problems {
        /// The file, or `None` if the text did not come from a file.
        path: Option<PathBuf>,
        /// The mistakes, at least one.
        problems: Vec<Problem>,
    },
}

/// Largest number of mistakes that are reported for one scenario description.
const TOLD: usize = 100;

fn listed(path: Option<&Path>, problems: &[Problem]) -> String {
    let place = path.map_or_else(|| "line ".to_owned(), |path| format!("{}:", path.display()));
    let mut lines: Vec<String> =
        problems.iter().take(TOLD).map(|problem| format!("{place}{problem}")).collect();
    if problems.len() > TOLD {
        lines.push(format!("... and {} more mistakes", problems.len() - TOLD));
    }
    lines.join("\n")
}

impl ScenarioError {
    pub(crate) fn new(mut problems: Vec<Problem>) -> ScenarioError {
        problems.sort();
        problems.dedup();
        ScenarioError::Problems { path: None, problems }
    }

    /// Adds the name of the file to the list of mistakes.
    #[must_use]
    pub fn in_file(self, file: &Path) -> ScenarioError {
        match self {
            ScenarioError::Problems { problems, .. } => {
                ScenarioError::Problems { path: Some(file.to_owned()), problems }
            }
            other => other,
        }
    }
}

/// Returns up to three names that are similar to `wanted`, the most similar one first.
pub(crate) fn similar<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wanted, name), name))
        .filter(|(score, name)| *score > 0.8 || strsim::levenshtein(wanted, name) <= 1)
        .collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Returns `did you mean ...?` if a name is similar to `wanted`. Otherwise returns the list of all
/// names.
pub(crate) fn instead(wanted: &str, names: &[&str]) -> String {
    let near = similar(wanted, names.iter().copied());
    if near.is_empty() {
        return format!("there is {}", names.join(", "));
    }
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    format!("did you mean {}?", near.join(" or "))
}
