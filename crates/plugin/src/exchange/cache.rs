//! Caches fetched bundles by their hash, so that later connections need not fetch them.
//!
//! A peer can notice whether an endpoint requests an offered bundle, and so whether the endpoint
//! already has it. Therefore, each peer has its own cache, under the name in the peer's verified
//! certificate. Two servers learn nothing about each other.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bundle::{MAX_BUNDLE, sha256};
use crate::file::read_regular_here;
use crate::key::hex;

/// Stores bundles under their hash, so that a later connection need not fetch them. The exchange
/// calls it while the connection is locked, so an implementation may wait for a disk, but for
/// nothing slower.
pub trait Cache: Send + Sync {
    /// Returns the bundle with this SHA-256, or `None` if it is not in the cache.
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<[u8]>>;

    /// Stores a bundle whose SHA-256 is `hash`. An implementation may ignore the call.
    fn put(&self, hash: &[u8; 32], bundle: &Arc<[u8]>);
}

/// The SHA-256 of a bundle, and the bundle.
type Entry = ([u8; 32], Arc<[u8]>);

/// A cache of bundles in memory with a limit on its bytes. It removes the oldest bundles first.
#[derive(Debug)]
pub struct MemoryCache {
    most: usize,
    kept: Mutex<VecDeque<Entry>>,
}

impl MemoryCache {
    /// Creates a cache of at most `most` bytes.
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

/// Maximum number of bundles in the folder of a cache.
const MAX_FILES: usize = 256;

/// A cache of bundles in a folder. Each bundle is a file `HASH.qplug`, and there are at most 256
/// files.
///
/// [`Cache::get`] returns a bundle only from a regular file whose content has the hash in the
/// file's name. It treats anything else under such a name as missing: a damaged or overlong file, a
/// FIFO, a device, a symbolic link. [`Cache::put`] replaces it.
#[derive(Debug)]
pub struct FolderCache {
    folder: PathBuf,
}

impl FolderCache {
    /// Opens the cache for the peer with this name. Each peer has its own folder below `folder`.
    /// Missing folders are created.
    ///
    /// # Errors
    /// A folder cannot be created.
    pub fn open(folder: &Path, peer: &str) -> io::Result<FolderCache> {
        // The peer chooses its name, so the name must not become part of the path.
        let folder = folder.join(hex(&sha256(peer.as_bytes())));
        fs::create_dir_all(&folder)?;
        Ok(FolderCache { folder })
    }

    fn file(&self, hash: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{}.qplug", hex(hash)))
    }

    fn write(&self, hash: &[u8; 32], bundle: &[u8]) -> io::Result<()> {
        if self.get(hash).is_some() {
            return Ok(());
        }
        let file = self.file(hash);
        self.make_room()?;
        // Another process may read the file at the same time. The file is therefore written under
        // another name and then moved, so that it is always complete.
        let part = self.part(hash, bundle)?;
        let moved = fs::rename(&part, &file).or_else(|_| {
            // A file cannot replace a folder. `remove_dir` removes only an empty folder, because
            // the content of any other folder does not belong to this cache.
            fs::remove_dir(&file)?;
            fs::rename(&part, &file)
        });
        if moved.is_err() {
            // An error is ignored here, because the caller gets the error of the move.
            let _ = fs::remove_file(&part);
        }
        moved
    }

    /// Writes a bundle to a new temporary file, and returns its path.
    fn part(&self, hash: &[u8; 32], bundle: &[u8]) -> io::Result<PathBuf> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{}.{number}.part", hex(hash), std::process::id());
        let part = self.folder.join(name);
        let create = || fs::OpenOptions::new().write(true).create_new(true).open(&part);
        let mut file = create().or_else(|error| match error.kind() {
            // A killed process with the same process ID left this file behind, or another program
            // created a FIFO or a link under this name.
            io::ErrorKind::AlreadyExists => fs::remove_file(&part).and_then(|()| create()),
            _ => Err(error),
        })?;
        if let Err(error) = file.write_all(bundle) {
            // An error is ignored here, because the caller gets the error of the write.
            let _ = fs::remove_file(&part);
            return Err(error);
        }
        Ok(part)
    }

    /// Removes the oldest files until there is room for one more bundle.
    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have removed the file meanwhile. The cache itself creates no
            // folders here.
            if let Ok(found) = entry.metadata()
                && !found.is_dir()
            {
                files.push((found.modified()?, entry.path()));
            }
        }
        files.sort();
        let many = files.len().saturating_sub(MAX_FILES - 1);
        for (_, path) in files.iter().take(many) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Cache for FolderCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<[u8]>> {
        let bytes = read_regular_here(&self.file(hash), MAX_BUNDLE as u64).ok()?;
        (sha256(&bytes) == *hash).then(|| bytes.into())
    }

    fn put(&self, hash: &[u8; 32], bundle: &Arc<[u8]>) {
        // If this fails, the next connection fetches the bundle again.
        let _ = self.write(hash, bundle);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    use std::process::Command;

    use super::*;

    /// Calls `spoil` to damage or replace the file of a bundle. The cache must then not return the
    /// bundle, and the next `put` must replace the file.
    fn repairs(spoil: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().unwrap();
        let cache = FolderCache::open(folder.path(), "peer").unwrap();
        let bundle: Arc<[u8]> = vec![7; 1000].into();
        let hash = sha256(&bundle);
        let file = cache.file(&hash);
        spoil(&file);
        assert_eq!(cache.get(&hash), None, "{:?}", fs::symlink_metadata(&file));
        cache.put(&hash, &bundle);
        assert_eq!(cache.get(&hash), Some(bundle));
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "a file was left over");
    }

    fn fifo(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        assert!(fs::metadata(path).unwrap().file_type().is_fifo());
    }

    #[test]
    fn cache_replaces_damaged_files() {
        repairs(|file| fs::write(file, b"").unwrap());
        repairs(|file| fs::write(file, [7; 999]).unwrap());
        repairs(|file| fs::write(file, [8; 1000]).unwrap());
        repairs(|file| fs::File::create(file).unwrap().set_len(1 << 40).unwrap());
    }

    #[test]
    fn cache_replaces_entries_that_are_not_regular_files() {
        repairs(fifo);
        repairs(|file| fs::create_dir(file).unwrap());
        repairs(|file| symlink("/dev/zero", file).unwrap());
        repairs(|file| symlink("/nowhere/at/all", file).unwrap());
    }

    /// A cache must not return a bundle through a symbolic link, whatever its target is, and must
    /// not write to the target.
    #[test]
    fn cache_does_not_follow_links() {
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("target");
        fs::write(&target, [7; 1000]).unwrap();
        repairs(|file| symlink(&target, file).unwrap());
        assert_eq!(fs::read(&target).unwrap(), [7; 1000]);
    }

    #[test]
    fn cache_leaves_a_folder_that_is_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FolderCache::open(folder.path(), "peer").unwrap();
        let bundle: Arc<[u8]> = vec![7; 1000].into();
        let hash = sha256(&bundle);
        let file = cache.file(&hash);
        fs::create_dir(&file).unwrap();
        fs::write(file.join("kept"), b"kept").unwrap();
        cache.put(&hash, &bundle);
        assert_eq!(cache.get(&hash), None);
        assert_eq!(fs::read(file.join("kept")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "a file was left over");
    }

    #[test]
    fn cache_keeps_its_limit_next_to_folders() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FolderCache::open(folder.path(), "peer").unwrap();
        fs::create_dir(cache.folder.join("folder")).unwrap();
        for number in 0..MAX_FILES + 5 {
            let bundle: Arc<[u8]> = number.to_be_bytes().to_vec().into();
            let hash = sha256(&bundle);
            cache.put(&hash, &bundle);
            assert!(cache.get(&hash).is_some(), "{number}");
        }
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), MAX_FILES + 1);
    }
}
