//! Keys of Retry tokens (docs/retry.md s.2): in the program's map, in a file for servers, and their rotation.
//!
//! A ring is made when a gateway is loaded. A gateway that takes over another's maps goes on with its ring,
//! so that what was answered before still opens connections after.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_token::{Clock, Epoch, Key, KeyRing};

use crate::abi;
use crate::control::{Control, JoinedServer};
use crate::error::{Error, Result};
use crate::key_ring::{failed, ring_of};
use crate::periodic::Periodic;
use crate::rotation::RotationFile;
use crate::sys::region::atomic;

/// Time for which tokens are made with one key.
const EVERY: Duration = Duration::from_secs(12 * 3_600);
/// Time after the making of a ring for which connections may be older than it. As long as a key is used: by then
/// servers have replaced the IDs of all connections (docs/policy.md s.10).
pub(crate) const OLDER_IDS: Duration = EVERY;
/// Time between the announcement of a key and its use: servers read the file again meanwhile.
const SETTLING: Duration = Duration::from_secs(60);

/// A step of a rotation of keys; two make a whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// The key of this epoch is known from now on, and not used yet.
    Announced(Epoch),
    /// Tokens are made with the key of this epoch from now on.
    Advanced(Epoch),
}

impl Control {
    /// The ring that the program makes and checks Retry tokens with. Who has it can make tokens.
    ///
    /// # Errors
    /// Fails if the program's map does not hold a ring.
    pub fn key_ring(&self) -> Result<KeyRing> {
        ring_of(&self.maps().ring)
    }

    /// Servers that may serve a service and have not said that they check the tokens of the gateway's Retry
    /// packets: their clients get no further once they have to bring one. Those that are dead or silent are left
    /// out; of those whose ledger this process may not look into, the dead.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
    pub fn servers_without_keys(&self, service: &str) -> Result<Vec<JoinedServer>> {
        self.servers_without(abi::EQUIC_MEMBER_KEYS, service)
    }

    fn servers_without(&self, flag: u32, service: &str) -> Result<Vec<JoinedServer>> {
        let index = self.service_names().iter().position(|name| name == service);
        let Some(index) = index else { return Ok(Vec::new()) };
        let group = self.maps().services.read()[index].group;
        self.servers_where(|record| {
            record.flags & flag == 0 && record.barred >> (group & 63) & 1 == 0
        })
    }

    /// Servers that may serve a service and have not said that their connection IDs prove themselves: with
    /// `check_ids` their clients get no further than their first packet. Who is left out is as with
    /// [`Control::servers_without_keys`].
    ///
    /// # Errors
    /// As [`Control::servers_without_keys`].
    pub fn servers_without_ids(&self, service: &str) -> Result<Vec<JoinedServer>> {
        self.servers_without(abi::EQUIC_MEMBER_IDS, service)
    }

    /// Servers that may serve a service and live, by place, process id and name.
    ///
    /// # Errors
    /// As [`Control::servers_without_keys`].
    pub fn servers_of(&self, service: &str) -> Result<Vec<JoinedServer>> {
        self.servers_without(0, service)
    }

    /// Takes the next step of a rotation: announces a new key, or uses the one announced. Tokens made before
    /// still hold.
    ///
    /// # Errors
    /// As [`Control::key_ring`]; the system gave no random numbers.
    pub fn rotate_keys(&self) -> Result<Rotation> {
        turn(self.key_ring()?, None, |ring| self.set_key_ring(ring))
    }

    /// Gives the program another ring, so that it never sees an epoch before its key.
    pub fn set_key_ring(&self, ring: &KeyRing) {
        let bytes = ring.to_bytes();
        let to = self.maps().ring.pointer();
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or_default());
        let (first, second) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        for (index, word) in words.enumerate().filter(|(_, word)| *word != 0) {
            // A key that is not known stays where it is until there is another: nobody looks at it.
            atomic!(AtomicU64, to, words[index + 2])
                .store(word, std::sync::atomic::Ordering::Relaxed);
        }
        atomic!(AtomicU64, to, words[1]).store(second, std::sync::atomic::Ordering::Relaxed);
        // Magic, version, clock, current and known epochs, all at once.
        atomic!(AtomicU64, to, words[0]).store(first, std::sync::atomic::Ordering::Release);
    }

    /// A ring of its own, unless there is one. It follows the one that had this rotation last.
    pub(crate) fn begin_keys(&self, before: Option<Epoch>) -> Result<()> {
        if self.maps().ring.read() != abi::equic_ring::default() {
            return self.key_ring().map(drop);
        }
        let ring = match before {
            Some(newest) => KeyRing::following(Clock::Monotonic, newest),
            None => KeyRing::generate(Clock::Monotonic),
        };
        self.set_key_ring(&ring.map_err(|error| failed("making keys", error))?);
        Ok(())
    }
}

/// Writes a ring for servers to read: whoever reads the file can make tokens, so only its owner may. The
/// file is there whole or not at all.
///
/// # Errors
/// The system's, when the file cannot be written.
pub fn write_key_ring(path: &Path, ring: &KeyRing) -> Result<()> {
    write_for(None, path, ring)
}

/// As [`write_key_ring`], but a file that somebody gave to the servers' user stays that user's.
fn write_for(readers: Option<&Metadata>, path: &Path, ring: &KeyRing) -> Result<()> {
    let fresh = PathBuf::from(format!("{}.new", path.display()));
    let failed = |error| Error::system(format!("writing `{}`", path.display()), error);
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Nothing that is there is written to, wherever a link leads.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&fresh).map_err(failed)?;
    if let Some(readers) = readers {
        give(&file, readers).map_err(|error| {
            let (uid, gid) = (readers.uid(), readers.gid());
            failed(io::Error::other(format!(
                "it belongs to user {uid} and group {gid} with mode {:o}, and a new file cannot be given to \
                 them ({error}): run the gateway and the server as one user",
                readers.mode() & 0o777
            )))
        })?;
    }
    file.write_all(&*ring.to_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)
}

/// Gives a new file the owner, group and mode of another one, if they are not the same already.
fn give(file: &File, like: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(file, Some(like.uid()), Some(like.gid()))?;
    }
    if own.mode() & 0o777 != like.mode() & 0o777 {
        file.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    }
    Ok(())
}

/// Who may read the file with a ring, if it has just that: what others put in its place says nothing.
fn readers(path: &Path, ring: &KeyRing) -> Result<Option<Metadata>> {
    let failed = |error| Error::system(format!("looking at `{}`", path.display()), error);
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ELOOP)) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() != KeyRing::LEN as u64 {
        return Ok(None);
    }
    // Both are overwritten when they are dropped.
    let (wanted, mut there) = (ring.to_bytes(), ring.to_bytes());
    file.read_exact(&mut *there).map_err(failed)?;
    Ok((*wanted == *there).then_some(metadata))
}

/// Rotates keys from now on, and keeps the file up to date, which has those of now.
pub(crate) fn rotating(
    control: Control,
    file: Option<PathBuf>,
    rotation: Option<RotationFile>,
) -> Result<Periodic> {
    let mut due = false;
    Periodic::start("equic-keys", move || {
        // The first time is now, and the keys are new.
        if !std::mem::replace(&mut due, true) {
            return EVERY;
        }
        let put_in_force = |ring: &KeyRing| {
            if let Some(Err(error)) = rotation.as_ref().map(|file| file.note(ring)) {
                tracing::warn!(%error, "the number of the rotation cannot be written down");
            }
            control.set_key_ring(ring);
        };
        let step = control.key_ring().and_then(|ring| turn(ring, file.as_deref(), put_in_force));
        match step {
            Ok(Rotation::Announced(_)) => SETTLING,
            Ok(Rotation::Advanced(epoch)) => {
                tracing::debug!(epoch = epoch.number(), "a new key is used");
                EVERY
            }
            Err(error) => {
                tracing::warn!(%error, "the keys of Retry tokens stay as they are");
                SETTLING
            }
        }
    })
}

/// Takes the next step of a rotation. Servers can know of it before it is in force: when the file cannot be
/// written, all stays as it is.
fn turn(
    mut ring: KeyRing,
    file: Option<&Path>,
    put_in_force: impl FnOnce(&KeyRing),
) -> Result<Rotation> {
    let failed = |error| failed("rotating the keys", error);
    let readers = file.map(|path| readers(path, &ring)).transpose()?.flatten();
    let step = if ring.announced() {
        Rotation::Advanced(ring.advance().map_err(failed)?)
    } else {
        let key = Key::random().map_err(failed)?;
        Rotation::Announced(ring.announce(key).map_err(failed)?)
    };
    if let Some(path) = file {
        write_for(readers.as_ref(), path, &ring)?;
    }
    put_in_force(&ring);
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers that do not know a key would turn away everybody who has a token of it.
    #[test]
    fn a_key_that_servers_cannot_read_is_not_used() {
        let mut ring = KeyRing::generate(Clock::Monotonic).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (path, missing) = (folder.path().join("keys"), folder.path().join("missing/keys"));
        for number in 0..4 {
            let refused = turn(ring.clone(), Some(&missing), |_| panic!("nobody can know it"));
            assert!(refused.is_err());
            let before = ring.epoch();
            let step = turn(ring.clone(), Some(&path), |next| {
                assert_eq!(*std::fs::read(&path).unwrap(), *next.to_bytes());
                ring = next.clone();
            });
            let wanted = match number % 2 {
                0 => Rotation::Announced(before.next()),
                _ => Rotation::Advanced(before.next()),
            };
            assert_eq!(step.unwrap(), wanted);
        }
    }

    /// A server of another user would read the keys of the start for ever, and refuse all new clients
    /// when the second rotation is over.
    #[test]
    fn a_file_that_was_given_to_the_server_stays_the_servers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let mut ring = KeyRing::generate(Clock::Monotonic).unwrap();
        let mut rotate = || turn(ring.clone(), Some(&path), |next| ring = next.clone()).unwrap();
        let of_file = || {
            let metadata = std::fs::metadata(&path).unwrap();
            (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
        };
        rotate();
        let (uid, gid, mode) = of_file();
        assert_eq!(mode, 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        rotate();
        assert_eq!(of_file(), (uid, gid, 0o640));
        if uid == 0 {
            std::os::unix::fs::chown(&path, Some(4242), Some(4343)).unwrap();
            rotate();
            assert_eq!(of_file(), (4242, 4343, 0o640));
        } else {
            assert!(!crate::ci::in_ci(), "giving files away takes root");
            eprintln!("SKIPPED: giving files away takes root");
        }
        // Whoever puts a file of their own there does not get the keys.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [0; KeyRing::LEN]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        rotate();
        assert_eq!(of_file(), (uid, gid, 0o600));
    }
}
