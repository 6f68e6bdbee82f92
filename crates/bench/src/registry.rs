//! The implementations: `bench/implementations.json`, or a file like it.
//!
//! An entry has a URL and a command, to which `server` or `client` and what docs/bench-contract.md says
//! is added.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::BenchError;

/// The implementation that the others are compared with.
pub const OURS: &str = "equic";

/// An implementation.
#[derive(Clone, Debug)]
pub struct Implementation {
    /// Its name.
    pub name: String,
    /// Where it is from.
    pub url: String,
    /// Program and first arguments.
    pub command: Vec<String>,
}

/// All that are known.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    implementations: Vec<Implementation>,
}

#[derive(Deserialize)]
struct Entry {
    url: String,
    command: Vec<String>,
    /// 1 where nothing is said.
    tier: Option<u8>,
    /// What the command speaks; `perf` where nothing is said.
    speaks: Option<Vec<String>>,
}

impl Registry {
    /// Reads a file: those of the first tier that speak `perf`. In commands `{dir}` is the folder of the file, `{built}` and `{equic}` are what
    /// was given.
    ///
    /// # Errors
    /// [`BenchError::Read`] and [`BenchError::Registry`].
    pub fn read(path: &Path, built: &Path, equic: &Path) -> Result<Registry, BenchError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| BenchError::Read { path: path.to_owned(), source })?;
        let wrong = |reason: String| BenchError::Registry { path: path.to_owned(), reason };
        let entries: BTreeMap<String, Entry> =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let folder = path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let places = [("{dir}", &*folder), ("{built}", built), ("{equic}", equic)];
        let mut implementations = Vec::new();
        for (name, entry) in entries {
            let perf = entry.speaks.is_none_or(|speaks| speaks.iter().any(|one| one == "perf"));
            if entry.tier.is_some_and(|tier| tier > 1) || !perf {
                continue;
            }
            if entry.command.is_empty() {
                return Err(wrong(format!("{name} has no command")));
            }
            let fill = |word: &String| {
                places.iter().fold(word.clone(), |word, (mark, place)| {
                    word.replace(mark, &place.to_string_lossy())
                })
            };
            let command = entry.command.iter().map(fill).collect();
            implementations.push(Implementation { name, url: entry.url, command });
        }
        // Ours first: what the others are compared with.
        implementations.sort_by_key(|one| one.name != OURS);
        Ok(Registry { implementations })
    }

    /// Those of these names, or all if there are no names; their programs are there.
    ///
    /// # Errors
    /// [`BenchError::Unknown`] and [`BenchError::NotBuilt`].
    pub fn select(&self, names: &[String]) -> Result<Vec<Implementation>, BenchError> {
        for name in names {
            if !self.implementations.iter().any(|known| known.name == *name) {
                let known: Vec<&str> =
                    self.implementations.iter().map(|known| known.name.as_str()).collect();
                let known = known.join(", ");
                return Err(BenchError::Unknown { name: name.clone(), known });
            }
        }
        let wanted = |one: &&Implementation| names.is_empty() || names.contains(&one.name);
        let selected: Vec<Implementation> =
            self.implementations.iter().filter(wanted).cloned().collect();
        for one in &selected {
            // A bare name is looked for in PATH when it is started.
            let program = one.command.first().map(PathBuf::from).unwrap_or_default();
            if program.components().count() > 1 && !program.exists() {
                return Err(BenchError::NotBuilt { name: one.name.clone(), path: program });
            }
        }
        Ok(selected)
    }
}
