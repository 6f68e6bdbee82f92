//! Stores a transparency log as a folder, which any file server can serve:
//!
//! | file | |
//! |---|---|
//! | `head` | the signed tree head |
//! | `leaves` | the hashes of all leaves, 32 bytes each |
//! | `entries/N` | entry N, counted from 0 |
//!
//! A new entry is written first, then its leaf, then the head. Entries beyond the size in the head
//! do not belong to the log yet.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::merkle::{self, Hash, Tree};
use super::{Entry, EntryError, HeadError, MAX_ENTRIES, MAX_ENTRY, MAX_HEAD, Staple, TreeHead};
use crate::bundle::Bundle;
use crate::file::read_regular;
use crate::key::{PublicKey, SigningKey};

/// Why a log cannot be read or extended.
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
    /// The log's tree head is invalid.
    #[error("the log's head: {0}")]
    Head(#[from] HeadError),
    /// An entry of the log is invalid.
    #[error("entry {index} of the log: {error}")]
    Entry {
        /// Index of the entry, from 0.
        index: u64,
        /// Why the entry is invalid.
        error: EntryError,
    },
    /// The bundle cannot become an entry of a log.
    #[error(transparent)]
    Bundle(#[from] EntryError),
    /// The hashes in the file `leaves` do not give the root in the tree head.
    #[error(
        "the log's leaves do not match the log's head: the log was changed, or copied incompletely"
    )]
    Leaves,
    /// The hash of an entry differs from that in the file `leaves`.
    #[error("entry {0} of the log does not match the leaf of the same number")]
    Other(u64),
    /// The given signing key is not the log's key.
    #[error("the key belongs to {found}, but the log's key is {expected}")]
    Key {
        /// The log's public key.
        expected: PublicKey,
        /// Public key that belongs to the given signing key.
        found: PublicKey,
    },
    /// There are as many entries as a log may have.
    #[error("the log is full: it has {MAX_ENTRIES} entries")]
    Full,
    /// The log does not contain the bundle.
    #[error("the log does not contain this bundle")]
    Missing,
}

/// A log on disk. The signature of its tree head is valid, and its leaves match the head.
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

/// Replaces a file. A concurrent reader finds either the complete old content or the complete new
/// content.
fn write(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).map_err(failed(&new))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed(&new))?;
    fs::rename(&new, path).map_err(failed(path))
}

impl Log {
    /// Creates an empty log in a folder, which must not contain a log. `now` is in seconds since
    /// the Unix epoch.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub fn create(folder: &Path, key: &SigningKey, now: u64) -> Result<Log, LogError> {
        let entries = folder.join("entries");
        fs::create_dir_all(folder).map_err(failed(folder))?;
        // This fails if the folder already contains a log.
        fs::create_dir(&entries).map_err(failed(&entries))?;
        let tree = Tree::default();
        let head = TreeHead::sign(key, 0, now, tree.root());
        let log = Log { folder: folder.to_owned(), head, tree };
        log.store()?;
        Ok(log)
    }

    /// Opens a log and reads its tree head and leaves, but not its entries.
    ///
    /// # Errors
    /// [`LogError::File`], [`LogError::Head`], [`LogError::Leaves`].
    pub fn open(folder: &Path) -> Result<Log, LogError> {
        let text = read(&folder.join("head"), MAX_HEAD as u64)?;
        let text = String::from_utf8(text).map_err(|_| HeadError::Form)?;
        let head: TreeHead = text.parse()?;
        let path = folder.join("leaves");
        // If writing the head failed earlier, the file has one more leaf than the head counts.
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

    /// Returns the log's signed tree head.
    pub fn head(&self) -> &TreeHead {
        &self.head
    }

    /// Returns the log's Merkle tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads an entry, and checks its signature and that its hash is the one in the tree.
    ///
    /// # Errors
    /// [`LogError::File`], [`LogError::Other`], [`LogError::Entry`].
    pub fn entry(&self, index: u64) -> Result<Entry, LogError> {
        Entry::parse(&self.bytes(index)?).map_err(|error| LogError::Entry { index, error })
    }

    /// Reads the bytes of an entry, and checks that their hash is the one in the tree.
    pub(super) fn bytes(&self, index: u64) -> Result<Vec<u8>, LogError> {
        let bytes = read(&self.place(index), MAX_ENTRY as u64)?;
        let leaf = usize::try_from(index).ok().and_then(|index| self.tree.leaves().get(index));
        if leaf == Some(&merkle::leaf(&bytes)) { Ok(bytes) } else { Err(LogError::Other(index)) }
    }

    /// Returns the proof that the log contains the bundle.
    ///
    /// # Errors
    /// [`LogError::Bundle`] if the bundle has no signature, [`LogError::Missing`] if the log does
    /// not contain it.
    pub fn staple(&self, bundle: &Bundle<'_>) -> Result<Staple, LogError> {
        let leaf = Entry::of(bundle)?.leaf();
        let index = self.tree.leaves().iter().position(|known| *known == leaf);
        let index = index.ok_or(LogError::Missing)? as u64;
        let path = self.tree.proof(index).ok_or(LogError::Missing)?;
        Ok(Staple::new(self.head, index, path))
    }

    /// Adds a bundle to the log unless it is already there. Returns the proof that the log contains
    /// the bundle. `now` is in seconds since the Unix epoch. The call waits while another process
    /// adds to the log.
    ///
    /// # Errors
    /// Any [`LogError`].
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
        // The log's time never decreases, even if the clock was set back.
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
