//! Bans as a file, so that they outlast a restart.
//!
//! It is written whole under another name in the same folder, flushed, and renamed: a reader finds
//! the old one or the new one, never half of one, and a full disk leaves the old one.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A file that is longer is none of ours.
const LONGEST: u64 = 256 << 20;

/// A ban in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Prefix that is banned.
    pub prefix: IpNet,
    /// Time at which the ban ends or ended, in milliseconds of Unix time.
    pub until_ms: u64,
    /// Number of this ban among those of the source.
    pub count: u16,
}

/// Content of a file that [`save`] writes and [`load`] reads: the schema first, so that a later
/// release can tell.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: String,
    bans: Vec<Kept>,
}

const SCHEMA: &str = "equic.bans/1";

/// Reason that a file of bans could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {why}", .path.display())]
pub struct StoreError {
    /// `cannot read`, `cannot write`.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Description of what is wrong, for people.
    pub why: String,
}

/// Reads the bans in a file; a file that is not there has none.
///
/// # Errors
/// The file cannot be read, or is no file of bans.
pub fn load(path: &Path) -> Result<Vec<Kept>, StoreError> {
    let failed = |why: String| StoreError { doing: "cannot read", path: path.to_owned(), why };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
    if document.schema != SCHEMA {
        return Err(failed(format!("its schema is `{}`, not `{SCHEMA}`", document.schema)));
    }
    Ok(document.bans)
}

/// Writes bans in place of what is in the file.
///
/// # Errors
/// The file cannot be written; then it is as before.
pub fn save(path: &Path, bans: Vec<Kept>) -> Result<(), StoreError> {
    let failed = |why: String| StoreError { doing: "cannot write", path: path.to_owned(), why };
    let document = Document { schema: SCHEMA.to_owned(), bans };
    let text = serde_json::to_vec(&document).map_err(|error| failed(error.to_string()))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = write(&new, &text).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        // A half of a file takes up a full disk's last room.
        let _ = fs::remove_file(&new);
        failed(error.to_string())
    })
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text)?;
    file.sync_all()
}
