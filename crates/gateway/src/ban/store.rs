//! Stores bans in a file, so that they survive a restart.
//!
//! A new version of the file is written completely under another name in the same folder, flushed,
//! and renamed. So a reader gets either the old file or the new one, and if the disk is full, the
//! old one stays. Only the file's owner can read it. If another user has put a file or link under
//! the temporary name, that file or link is removed, and neither followed nor written to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde::{Deserialize, Serialize};

/// Maximum size of a file of bans, in bytes. A longer file was not written by this module.
const LONGEST: u64 = 256 << 20;

/// Maximum number of unreadable files of bans that are kept under other names.
const MOST_ASIDE: u32 = 100;

/// One ban in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The banned prefix.
    pub prefix: IpNet,
    /// Time at which the ban ends or ended, in milliseconds of Unix time.
    pub until_ms: u64,
    /// Number of bans of the source, including this one.
    pub count: u16,
}

/// Content of a file that [`save`] writes and [`load`] reads. The schema is the first field, so
/// that later releases can recognise it.
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
    /// The operation that failed: `cannot read`, `cannot write`, or `cannot set aside` (rename an
    /// unreadable file).
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Description of what is wrong with the file.
    pub why: String,
}

/// Reads the bans in a file. Returns an empty list if the file does not exist.
///
/// # Errors
/// Fails if the file cannot be read, or is not a file of bans.
pub fn load(path: &Path) -> Result<Vec<Kept>, StoreError> {
    let failed = |why: String| StoreError { doing: "cannot read", path: path.to_owned(), why };
    let text = match crate::file::read_regular(path, LONGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
    if document.schema != SCHEMA {
        return Err(failed(format!(
            "the file has the schema `{}` instead of `{SCHEMA}`",
            document.schema
        )));
    }
    let odd = document.bans.iter().find(|one| {
        one.prefix != one.prefix.trunc() || crate::config::check_mapped(one.prefix).is_err()
    });
    match odd {
        Some(one) => {
            Err(failed(format!("the file contains {}, which is not a valid prefix", one.prefix)))
        }
        None => Ok(document.bans),
    }
}

/// Replaces the content of the file with these bans.
///
/// # Errors
/// Fails if the file cannot be written. In that case, its old content remains.
pub fn save(path: &Path, bans: Vec<Kept>) -> Result<(), StoreError> {
    let failed = |why: String| StoreError { doing: "cannot write", path: path.to_owned(), why };
    let document = Document { schema: SCHEMA.to_owned(), bans };
    let text = serde_json::to_vec(&document).map_err(|error| failed(error.to_string()))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let renamed = write(&new, &text).and_then(|()| fs::rename(&new, path));
    let written = renamed.and_then(|()| sync_folder_of(path));
    written.map_err(|error| {
        // Removes the partial file, because it would occupy space on a full disk.
        let _ = fs::remove_file(&new);
        failed(error.to_string())
    })
}

/// Renames a file that cannot be read as bans, so that the gateway does not overwrite it. Returns
/// its new name.
///
/// # Errors
/// Fails if the file cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error: io::Error| StoreError {
        doing: "cannot rename",
        path: path.to_owned(),
        why: error.to_string(),
    };
    for number in 1..=MOST_ASIDE {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".unread-{number}"));
        let aside = path.with_file_name(name);
        match renameat2(AT_FDCWD, path, AT_FDCWD, &aside, RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => return Ok(aside),
            Err(nix::Error::EEXIST) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
    let why = format!(
        "there are already {MOST_ASIDE} unreadable ban files (named `.unread-1` and so on): remove those that you do not need"
    );
    Err(failed(io::Error::other(why)))
}

/// Creates a file that only its owner can read. Fails if a file with this name exists.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        // The file was left by a process that was killed, or created by another user. If it is a
        // link, removing it does not affect its target.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Flushes the folder of a file, so that a rename survives a power failure.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
