//! A log as a folder, which any server of files can serve:
//!
//! | file | |
//! |---|---|
//! | `head` | the tree head, signed |
//! | `leaves` | the hashes of all leaves, 32 bytes each |
//! | `entries/N` | entry N, from 0 |
//!
//! They are written in the order entry, leaves, head. Entries that the head does not count are not in the log yet.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::merkle::{self, Hash, Tree};
use super::{Entry, EntryError, HeadError, MAX_ENTRIES, MAX_ENTRY, MAX_HEAD, Staple, TreeHead};
use crate::bundle::Bundle;
use crate::file::read_regular;
use crate::key::{PublicKey, SigningKey};

/// Reason for which a log cannot be read or be added to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The tree head was refused.
    #[error("the log's head: {0}")]
    Head(#[from] HeadError),
    /// An entry was refused.
    #[error("entry {index} of the log: {error}")]
    Entry {
        /// Place of the entry, from 0.
        index: u64,
        /// Reason for which it was refused.
        error: EntryError,
    },
    /// The bundle cannot be an entry.
    #[error(transparent)]
    Bundle(#[from] EntryError),
    /// The leaves do not match the head.
    #[error(
        "the log's leaves are not those of its head: it was changed, or only a part of it copied"
    )]
    Leaves,
    /// An entry does not match its leaf.
    #[error("entry {0} of the log is not the one that its leaf stands for")]
    Other(u64),
    /// The key is not the log's.
    #[error("the key is that of {found}, and the log's {expected}")]
    Key {
        /// The log's public key.
        expected: PublicKey,
        /// Public key of the given key.
        found: PublicKey,
    },
    /// There are as many entries as a log may have.
    #[error("the log is full: it has {MAX_ENTRIES} entries")]
    Full,
    /// The bundle's entry is not in the log.
    #[error("the log does not have this bundle")]
    Missing,
}

/// A log that was read. Its head's signature is valid, and its leaves match the head.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    head: TreeHead,
    tree: Tree,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> LogError + '_ {
    move |error| LogError::File { path: path.to_owned(), error }
}

/// Reads a regular file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, LogError> {
    read_regular(path, most).map_err(failed(path))
}

/// Writes a file so that readers find either the old or the new content, complete.
fn write(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).map_err(failed(&new))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed(&new))?;
    fs::rename(&new, path).map_err(failed(path))
}

impl Log {
    /// Makes an empty log in a folder, which must not have one. `now` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub fn create(folder: &Path, key: &SigningKey, now: u64) -> Result<Log, LogError> {
        let entries = folder.join("entries");
        fs::create_dir_all(folder).map_err(failed(folder))?;
        // It fails if there is a log.
        fs::create_dir(&entries).map_err(failed(&entries))?;
        let tree = Tree::default();
        let head = TreeHead::sign(key, 0, now, tree.root());
        let log = Log { folder: folder.to_owned(), head, tree };
        log.store()?;
        Ok(log)
    }

    /// Reads a log's head and leaves, but not its entries.
    ///
    /// # Errors
    /// [`LogError::File`], [`LogError::Head`], [`LogError::Leaves`].
    pub fn open(folder: &Path) -> Result<Log, LogError> {
        let text = read(&folder.join("head"), MAX_HEAD as u64)?;
        let text = String::from_utf8(text).map_err(|_| HeadError::Form)?;
        let head: TreeHead = text.parse()?;
        let path = folder.join("leaves");
        // There may be one more leaf, if its head was not written.
        let bytes = read(&path, (head.size() + 1) * 32)?;
        let (leaves, _) = bytes.as_chunks::<32>();
        let size = usize::try_from(head.size()).map_err(|_| LogError::Leaves)?;
        let leaves: Vec<Hash> = leaves.get(..size).ok_or(LogError::Leaves)?.to_vec();
        let tree = Tree::new(leaves);
        if tree.root() != head.root() {
            return Err(LogError::Leaves);
        }
        Ok(Log { folder: folder.to_owned(), head, tree })
    }

    /// Returns the log's head.
    pub fn head(&self) -> &TreeHead {
        &self.head
    }

    /// Returns the log's tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads an entry, and checks its signature and that it matches the tree's leaf.
    ///
    /// # Errors
    /// [`LogError::File`], [`LogError::Other`], [`LogError::Entry`].
    pub fn entry(&self, index: u64) -> Result<Entry, LogError> {
        Entry::parse(&self.bytes(index)?).map_err(|error| LogError::Entry { index, error })
    }

    /// Reads the bytes of an entry, and checks that they match the tree's leaf.
    pub(super) fn bytes(&self, index: u64) -> Result<Vec<u8>, LogError> {
        let bytes = read(&self.place(index), MAX_ENTRY as u64)?;
        let leaf = usize::try_from(index).ok().and_then(|index| self.tree.leaves().get(index));
        if leaf == Some(&merkle::leaf(&bytes)) { Ok(bytes) } else { Err(LogError::Other(index)) }
    }

    /// Returns the proof that the bundle is in the log.
    ///
    /// # Errors
    /// [`LogError::Bundle`] if the bundle has no signature, [`LogError::Missing`].
    pub fn staple(&self, bundle: &Bundle<'_>) -> Result<Staple, LogError> {
        let leaf = Entry::of(bundle)?.leaf();
        let index = self.tree.leaves().iter().position(|known| *known == leaf);
        let index = index.ok_or(LogError::Missing)? as u64;
        let path = self.tree.proof(index).ok_or(LogError::Missing)?;
        Ok(Staple::new(self.head, index, path))
    }

    /// Adds a bundle, unless the log has it, and returns the proof that it is in the log. `now` is in seconds since the Unix epoch. Another
    /// process that adds to the same log waits.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn append(
        folder: &Path,
        bundle: &Bundle<'_>,
        key: &SigningKey,
        now: u64,
    ) -> Result<Staple, LogError> {
        let path = folder.join("head.lock");
        let lock = File::create(&path).map_err(failed(&path))?;
        lock.lock().map_err(failed(&path))?;
        let mut log = Log::open(folder)?;
        let (expected, found) = (log.head.log(), key.public());
        if expected != found {
            return Err(LogError::Key { expected, found });
        }
        let entry = Entry::of(bundle)?;
        match log.staple(bundle) {
            Err(LogError::Missing) => {}
            other => return other,
        }
        let index = log.head.size();
        if index >= MAX_ENTRIES {
            return Err(LogError::Full);
        }
        write(&log.place(index), entry.as_bytes())?;
        log.tree.push(entry.leaf());
        // If the clock was set back, the log's time stays.
        let time = now.max(log.head.time());
        log.head = TreeHead::sign(key, log.tree.size(), time, log.tree.root());
        log.store()?;
        log.staple(bundle)
    }

    fn place(&self, index: u64) -> PathBuf {
        self.folder.join("entries").join(index.to_string())
    }

    fn store(&self) -> Result<(), LogError> {
        write(&self.folder.join("leaves"), self.tree.leaves().as_flattened())?;
        write(&self.folder.join("head"), self.head.to_string().as_bytes())
    }
}
