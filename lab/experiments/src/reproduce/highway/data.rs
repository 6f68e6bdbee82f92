//! The stored data of the experiment: every figure of every round.

use equic_bench::result::Row;
use serde::{Deserialize, Serialize};

use super::part::Part;

/// The content of `data` in `result.json` (schema equic.reproduce.highway/1).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Highway {
    pub settings: Settings,
    pub parts: Vec<Measured>,
}

/// Parameters of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// Number of rounds of each part of the experiment.
    pub runs: u32,
    /// Size of a transfer in bytes.
    pub bytes: u64,
    /// Seed of the random order of the cells.
    pub seed: u64,
    /// Names of the selected implementations. If the list is empty, all built implementations take
    /// part.
    pub implementations: Vec<String>,
    /// Additional arguments of each `equic-lab bench run`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
    /// The environment variable `GLIBC_TUNABLES` for all programs.
    pub tunables: String,
}

/// Results of a part of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub part: Part,
    /// The command that repeats only this part.
    pub command: String,
    /// Time at which the part started, in seconds since the Unix epoch.
    pub started: f64,
    pub ended: f64,
    /// A row for each implementation and setting.
    pub rows: Vec<Row>,
}

impl Highway {
    /// Returns the results of a part, or `None` if it was not measured.
    pub(super) fn part(&self, part: Part) -> Option<&Measured> {
        self.parts.iter().find(|one| one.part == part)
    }
}

impl Measured {
    /// Returns the names of the measured implementations, in the order of the list of
    /// implementations.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.key.client.as_str()) {
                names.push(&row.key.client);
            }
        }
        names
    }

    /// Returns the values of the part's setting, in the order in which they were given.
    pub(super) fn values(&self) -> Vec<&'static str> {
        self.part.values().to_vec()
    }

    /// Returns the figures of an implementation with a value of the setting, or `None` if it was
    /// not measured.
    pub(super) fn row(&self, name: &str, value: &str) -> Option<&Row> {
        let knob = self.part.knob();
        self.rows.iter().find(|row| {
            row.key.client == name && row.key.point.get(knob).is_some_and(|one| one == value)
        })
    }
}
