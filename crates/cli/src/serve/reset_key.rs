//! The key of stateless resets that is kept across restarts (`--reset-key`).
//!
//! A process with this key can reset connections of the server. Two servers with the same key would
//! reset each other's connections (RFC 9000 s.21.11), so a server holds a lock on the key file
//! while it runs.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use zeroize::Zeroizing;

use crate::failure::{Failure, Result};

const LEN: usize = 32;

type Key = Zeroizing<[u8; LEN]>;

/// The key, and the lock that keeps other servers from using the same file.
pub(super) struct ResetKey {
    key: Key,
    _lock: Flock<File>,
}

impl ResetKey {
    /// Reads and locks the key file. Creates the file with a random key if it does not exist.
    pub(super) fn open(path: &Path) -> Result<ResetKey> {
        open(path).map_err(|why| {
            let what = format_args!("cannot use the reset key in {}", path.display());
            Failure::because(what, why)
                .help("use a separate file for each server; the server creates a file that does not exist")
        })
    }

    pub(super) fn key(&self) -> Key {
        self.key.clone()
    }
}

fn open(path: &Path) -> Result<ResetKey, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut options = OpenOptions::new();
    // If the path is a FIFO, open(2) must not block.
    options.read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY);
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            create(path).map_err(failed)?;
            options.open(path).map_err(failed)?
        }
        opened => opened.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("the path does not name a regular file".to_owned());
    }
    let user = nix::unistd::geteuid().as_raw();
    if ![0, user].contains(&metadata.uid()) {
        return Err(format!(
            "the file belongs to another user ({}): change its owner",
            metadata.uid()
        ));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(format!(
            "other users may access the file: change its mode from {mode:03o} to 600"
        ));
    }
    let mut lock =
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EWOULDBLOCK => "another server already uses the file".to_owned(),
            error => error.desc().to_owned(),
        })?;
    // The buffer is one byte longer than a key, so that a file that is too long is detected.
    let mut bytes = Zeroizing::new([0; LEN + 1]);
    let length = read_up_to(&mut lock, &mut *bytes).map_err(failed)?;
    let (key, rest) = bytes.split_at(LEN);
    let key = match <[u8; LEN]>::try_from(key) {
        Ok(key) if length == LEN => Zeroizing::new(key),
        _ => return Err(format!("the file does not contain {LEN} random bytes")),
    };
    debug_assert_eq!(rest, [0]);
    // If all bytes are equal, a crash left a file that was extended but never written.
    if key.iter().all(|byte| *byte == key[0]) {
        return Err(format!("the file does not contain {LEN} random bytes"));
    }
    Ok(ResetKey { key, _lock: lock })
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Creates the file with a random key, in one step. Does nothing if a file with this name exists.
fn create(path: &Path) -> std::io::Result<()> {
    let mut key = Zeroizing::new([0; LEN]);
    OsRng.try_fill_bytes(&mut *key).map_err(std::io::Error::other)?;
    let temporary = PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()));
    // A process that was killed may have left its temporary file behind.
    let _ = std::fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(&*key).and_then(|()| file.sync_all()));
    // Use link(2), which never replaces a file, unlike rename(2).
    let linked = written.and_then(|()| std::fs::hard_link(&temporary, path));
    let _ = std::fs::remove_file(&temporary);
    match linked {
        // Another server has created the file in the meantime. The lock decides which of the two
        // may use it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn refused(path: &Path, says: &str) {
        let error = ResetKey::open(path).err().expect("no key").to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn reset_key_is_created_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let first = ResetKey::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read(&path).unwrap(), first.key().as_slice());
        // No temporary file may remain in the directory.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        refused(&path, "another server already uses the file");
        let key = first.key();
        drop(first);
        assert_eq!(*ResetKey::open(&path).unwrap().key(), *key);
        // Another file must get another key.
        assert_ne!(*ResetKey::open(&folder.path().join("other")).unwrap().key(), *key);
    }

    #[test]
    fn reset_key_is_a_file_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        refused(&folder.path().join("missing/key"), "No such file");
        refused(folder.path(), "not name a regular file");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused(&path, "not name a regular file");
        std::fs::remove_file(&path).unwrap();
        for link in ["/dev/zero", "/dev/null", "/proc/self/nothing"] {
            std::os::unix::fs::symlink(link, &path).unwrap();
            assert!(ResetKey::open(&path).is_err(), "{link}");
            std::fs::remove_file(&path).unwrap();
        }
        drop(ResetKey::open(&path).unwrap());
        for mode in [0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            refused(&path, "other users may access the file");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(ResetKey::open(&path).is_ok(), "only reading is needed");
    }

    #[test]
    fn reset_key_has_32_random_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        drop(ResetKey::open(&path).unwrap());
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for length in [1 << 40, 33, 31, 0] {
            file.set_len(length).unwrap();
            refused(&path, "does not contain 32 random bytes");
        }
        file.set_len(32).unwrap();
        refused(&path, "does not contain 32 random bytes");
    }
}
