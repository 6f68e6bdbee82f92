//! Bundles that were fetched once, by hash, so that no later connection needs to.
//!
//! Whether an endpoint asks for a bundle says whether it has met it before. So a cache is of one peer, by the name that
//! its certificate was checked for: two servers do not learn of each other.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bundle::{MAX_BUNDLE, sha256};
use crate::key::hex;

/// Bundles by their hash, kept so that a later connection need not fetch them. It is called while the connection is
/// locked: it must not wait for anything but a disk.
pub trait Cache: Send + Sync {
    /// The bundle with this SHA-256; none: it is not known.
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<[u8]>>;

    /// Keeps a bundle whose SHA-256 is `hash`. It need not be kept.
    fn put(&self, hash: &[u8; 32], bundle: &Arc<[u8]>);
}

/// A hash and the bundle that has it.
type Entry = ([u8; 32], Arc<[u8]>);

/// A cache in memory: of so many bytes at most, of which the oldest are forgotten first.
#[derive(Debug)]
pub struct MemoryCache {
    most: usize,
    kept: Mutex<VecDeque<Entry>>,
}

impl MemoryCache {
    /// A cache of `most` bytes at most.
    pub fn new(most: usize) -> MemoryCache {
        MemoryCache { most, kept: Mutex::default() }
    }
}

impl Cache for MemoryCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == hash).map(|(_, bundle)| bundle.clone())
    }

    fn put(&self, hash: &[u8; 32], bundle: &Arc<[u8]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if bundle.len() > self.most || kept.iter().any(|(known, _)| known == hash) {
            return;
        }
        kept.push_back((*hash, bundle.clone()));
        let mut sum: usize = kept.iter().map(|(_, bundle)| bundle.len()).sum();
        while sum > self.most
            && let Some((_, oldest)) = kept.pop_front()
        {
            sum -= oldest.len();
        }
    }
}

/// Most bundles in a folder.
const MAX_FILES: usize = 256;

/// A cache in a folder: a file `HASH.qplug` for each bundle, 256 at most. A file whose content is not what its name says
/// counts for nothing.
#[derive(Debug)]
pub struct FolderCache {
    folder: PathBuf,
}

impl FolderCache {
    /// The cache for a peer of this name, in a folder of its own below `folder`. The folders are made.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn open(folder: &Path, peer: &str) -> io::Result<FolderCache> {
        // Names of peers are theirs to choose; no character of them becomes one of a path.
        let folder = folder.join(hex(&sha256(peer.as_bytes())));
        fs::create_dir_all(&folder)?;
        Ok(FolderCache { folder })
    }

    fn file(&self, hash: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{}.qplug", hex(hash)))
    }

    fn write(&self, hash: &[u8; 32], bundle: &[u8]) -> io::Result<()> {
        let file = self.file(hash);
        if file.exists() {
            return Ok(());
        }
        self.make_room()?;
        // Another process may look at the same time: the file appears whole or not at all.
        let part = self.folder.join(format!("{}.{}.part", hex(hash), std::process::id()));
        fs::write(&part, bundle)?;
        fs::rename(&part, &file)
    }

    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let many = files.len().saturating_sub(MAX_FILES - 1);
        files.iter().take(many).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

impl Cache for FolderCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<[u8]>> {
        let file = self.file(hash);
        let length = fs::metadata(&file).ok()?.len();
        if length > MAX_BUNDLE as u64 {
            return None;
        }
        let bytes = fs::read(&file).ok()?;
        (sha256(&bytes) == *hash).then(|| bytes.into())
    }

    fn put(&self, hash: &[u8; 32], bundle: &Arc<[u8]>) {
        // A bundle that is not kept is fetched again.
        let _ = self.write(hash, bundle);
    }
}
