//! Reads the files in the folder of a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ResultError;
use super::profiles::{PROFILES, Profiled, profiles};
use crate::Record;

/// Name of the file of records in a run's folder.
pub const SAMPLES: &str = "samples.jsonl";

/// A run, as stored in its folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Folder of the run.
    pub dir: PathBuf,
    /// All records, in the order they were written.
    pub records: Vec<Record>,
    /// Lines of `samples.jsonl` that are not records.
    pub unreadable: Vec<Unreadable>,
    /// Contents of `profiles.jsonl`. Empty if the file does not exist.
    pub profiles: Vec<Profiled>,
    /// True if the last line of `samples.jsonl` is incomplete because the run was killed.
    pub cut: bool,
    /// Contents of `plan.json` without its list of cells. Null if there is no such file.
    pub plan: Value,
    /// Contents of `manifest.json`. Null if the file does not exist.
    pub manifest: Value,
}

/// A line of `samples.jsonl` that is not a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Number of the line, counted from 1.
    pub line: usize,
    /// Reason why the line is not a record.
    pub why: String,
}

/// Facts about an implementation that took part in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Address of the implementation's source or home page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Version of the implementation, according to the plan or to the program itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl Run {
    /// Reads the folder of a run. Lines that are not records are returned separately. An incomplete
    /// last line is not an error.
    ///
    /// # Errors
    /// [`ResultError::Read`] if a file cannot be read. [`ResultError::Samples`] if no line of
    /// `samples.jsonl` is a record. [`ResultError::Json`] if `plan.json` or `manifest.json` is
    /// invalid.
    pub fn read(dir: &Path) -> Result<Run, ResultError> {
        let path = dir.join(SAMPLES);
        let bytes =
            fs::read(&path).map_err(|source| ResultError::Read { path: path.clone(), source })?;
        let mut run = Run { dir: dir.to_owned(), ..Run::parse(&bytes) };
        if run.records.is_empty() {
            let reason = match run.unreadable.first() {
                Some(first) => format!("line {}: {}", first.line, first.why),
                None => "the file has no lines".to_owned(),
            };
            return Err(ResultError::Samples { path, reason });
        }
        run.plan = json(&dir.join("plan.json"))?;
        if let Value::Object(plan) = &mut run.plan {
            // The list of cells is removed, because it is as long as the list of attempts and the
            // samples contain the same data.
            plan.remove("cells");
        }
        run.manifest = json(&dir.join("manifest.json"))?;
        run.profiles = profiles(&dir.join(PROFILES))?;
        Ok(run)
    }

    /// Parses the records of `samples.jsonl`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Run {
        let mut run = Run::default();
        let whole = bytes.last().is_none_or(|last| *last == b'\n');
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        if whole {
            lines.pop();
        }
        let count = lines.len();
        for (index, line) in lines.into_iter().enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(record) => run.records.push(record),
                Err(_) if index + 1 == count && !whole => run.cut = true,
                Err(error) => {
                    run.unreadable.push(Unreadable { line: index + 1, why: error.to_string() });
                }
            }
        }
        run
    }

    /// Returns the records that decide the outcomes of rounds: the last attempt of each round,
    /// without the warm-up and without discarded attempts. If an attempt is in the file twice
    /// because a run was resumed, its last record counts.
    #[must_use]
    pub fn counted(&self) -> Vec<&Record> {
        let mut last: BTreeMap<_, &Record> = BTreeMap::new();
        let ended = |record: &&Record| record.round >= 0 && !record.is_thrown_away();
        for record in self.records.iter().filter(ended) {
            let place = last.entry((&record.key, record.round)).or_insert(record);
            if record.attempt >= place.attempt {
                *place = record;
            }
        }
        last.into_values().collect()
    }

    /// Returns the seed of random choices, from the manifest or the plan.
    #[must_use]
    pub fn seed(&self) -> u64 {
        let places = [&self.manifest["seed"], &self.plan["options"]["seed"]];
        places.iter().find_map(|seed| seed.as_u64()).unwrap_or(1)
    }

    /// Returns descriptions of the implementations: from `implementations` in the plan or the
    /// manifest (a map, or a list whose items have a `name`), and from the output of the programs.
    #[must_use]
    pub fn implementations(&self) -> BTreeMap<String, About> {
        let mut all: BTreeMap<String, About> = BTreeMap::new();
        for file in [&self.plan, &self.manifest] {
            for (name, entry) in listed(file.get("implementations")) {
                let about = all.entry(name).or_default();
                let text = |field: &str| Some(entry.get(field)?.as_str()?.to_owned());
                about.url = text("url").unwrap_or_else(|| std::mem::take(&mut about.url));
                about.version =
                    text("version").unwrap_or_else(|| std::mem::take(&mut about.version));
            }
        }
        for record in &self.records {
            let ends = [&record.key.client, &record.key.server];
            let crate::End::Measured { figures } = &record.end else {
                for name in ends {
                    all.entry(name.clone()).or_default();
                }
                continue;
            };
            let said = [&figures.client_effective, &figures.server_effective];
            for (name, said) in ends.into_iter().zip(said) {
                let about = all.entry(name.clone()).or_default();
                if let Some(said) = said.as_ref().filter(|_| about.version.is_empty()) {
                    about.version.clone_from(&said.implementation);
                }
            }
        }
        all
    }
}

/// Returns the entries of a map, or of a list whose items have a `name`.
fn listed(value: Option<&Value>) -> Vec<(String, Map<String, Value>)> {
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    match value {
        Some(Value::Object(map)) => {
            map.iter().map(|(name, entry)| (name.clone(), object(entry))).collect()
        }
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|entry| Some((entry.get("name")?.as_str()?.to_owned(), object(entry))))
            .collect(),
        _ => Vec::new(),
    }
}

/// Reads a JSON file. Returns null if the file does not exist.
fn json(path: &Path) -> Result<Value, ResultError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| ResultError::Json {
            path: path.to_owned(),
            reason: error.to_string(),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(source) => Err(ResultError::Read { path: path.to_owned(), source }),
    }
}
