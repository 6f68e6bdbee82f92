//! The profiles of a run, which divide the CPU time of cells. Each [`Profiled`] is a line of
//! `profiles.jsonl`.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ResultError;
use super::profile::{Groups, Split};
use crate::record::Key;

/// Name of the file with profiles in the folder of a run.
pub const PROFILES: &str = "profiles.jsonl";

/// Division of the CPU time of a cell's server and client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profiled {
    /// Cell that was profiled.
    #[serde(flatten)]
    pub key: Key,
    /// Samples of the server, divided into four parts.
    pub server_split: Split,
    /// Samples of the client, divided into four parts.
    pub client_split: Split,
    /// Samples of the server by groups of functions. Empty in files of older releases.
    #[serde(default, skip_serializing_if = "Groups::is_empty")]
    pub server_groups: Groups,
    /// Samples of the client by groups of functions.
    #[serde(default, skip_serializing_if = "Groups::is_empty")]
    pub client_groups: Groups,
}

/// Appends a profile to `profiles.jsonl` in a run's folder. First removes an incomplete last line,
/// which is left if the disk was full or the program was killed.
///
/// # Errors
/// [`ResultError::Write`] if the file cannot be written.
pub fn append(dir: &Path, profiled: &Profiled) -> Result<(), ResultError> {
    let path = dir.join(PROFILES);
    let mut line = serde_json::to_vec(profiled)
        .map_err(|error| ResultError::Json { path: path.clone(), reason: error.to_string() })?;
    line.push(b'\n');
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1) as u64;
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        file.write_all(&line)?;
        file.sync_data()
    };
    write().map_err(|source| equic_report::WriteError { path: path.clone(), source }.into())
}

/// Reads lines of [`Profiled`]. Returns an empty list if the file does not exist. Skips an
/// incomplete last line. If a cell was profiled more than once, the last profile counts.
pub(super) fn profiles(path: &Path) -> Result<Vec<Profiled>, ResultError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ResultError::Read { path: path.to_owned(), source }),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let wrong = |error: serde_json::Error| ResultError::Json {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let mut profiles: Vec<Profiled> = Vec::new();
    for line in whole.lines() {
        let profile: Profiled = serde_json::from_str(line).map_err(wrong)?;
        profiles.retain(|earlier| earlier.key != profile.key);
        profiles.push(profile);
    }
    Ok(profiles)
}

#[cfg(test)]
#[path = "profiles_tests.rs"]
mod tests;
