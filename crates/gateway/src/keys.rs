//! Keys of Retry tokens (docs/retry.md s.2): in the program's map, in a file for servers, and their rotation.
//!
//! A ring is made when a gateway is loaded. A gateway that takes over another's maps goes on with its ring,
//! so that what was answered before still opens connections after.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use equic_token::{Clock, Epoch, Key, KeyRing};

use crate::abi;
use crate::config::nanos;
use crate::control::{Control, JoinedServer};
use crate::error::{Error, Result};
use crate::key_ring::{failed, ring_of, store_ring};
use crate::periodic::Periodic;
use crate::rotation::RotationFile;
use crate::sys;
use crate::sys::region::{Shared, atomic};

/// Time for which tokens are made with one key.
const EVERY: Duration = Duration::from_secs(12 * 3_600);
/// Time after the making of a ring for which connections may be older than it. As long as a key is used: by then
/// servers have replaced the IDs of all connections (docs/policy.md s.10).
pub(crate) const OLDER_IDS: Duration = EVERY;
/// Time between the announcement of a key and its use: servers read the file again meanwhile.
const SETTLING: Duration = Duration::from_secs(60);

/// Time between two looks for what others ask for.
const POLL: Duration = Duration::from_millis(100);
/// Time that servers have to take another ring before the keys that are withdrawn are forgotten.
const RENEWING: Duration = Duration::from_secs(1);
/// Time that servers have to replace connection IDs whose keys were withdrawn.
const REPLACING: Duration = Duration::from_secs(60);
/// Longest time that the gateway's process may take to change the ring.
const PATIENCE: Duration = Duration::from_secs(20);

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
    /// still hold. If another process looks after the gateway, that one does it. If none does, servers at the socket
    /// have the new key only when the next one has come.
    ///
    /// # Errors
    /// As [`Control::key_ring`]; the system gave no random numbers; the process does not answer.
    pub fn rotate_keys(&self) -> Result<Rotation> {
        if self.is_own() || !self.owner().alive {
            return turn(self.key_ring()?, None, |ring| self.set_key_ring(ring));
        }
        self.ask_for(How::Turn)?;
        let ring = self.key_ring()?;
        Ok(match ring.announced() {
            true => Rotation::Announced(ring.newest()),
            false => Rotation::Advanced(ring.epoch()),
        })
    }

    /// Withdraws all keys, because others may know them: the process that looks after the gateway makes a new one, hands
    /// it to the servers that have a place now, and forgets the others a second later. Returns the new epoch.
    ///
    /// Retry tokens of before hold no longer. Connection IDs of before are of an unknown epoch: with `check_ids`, packets
    /// with one go on for a minute if their source holds a connection, and are dropped after that. Servers have
    /// replaced them by then. A process that had the keys and has no place any more does not see the new ones.
    ///
    /// # Errors
    /// No process looks after the gateway, or it does not answer, or it could not write its files: then all is as before.
    pub fn renew_keys(&self) -> Result<Epoch> {
        self.note("renew the keys of tokens and connection IDs");
        self.ask_for(How::Renew)?;
        Ok(self.key_ring()?.epoch())
    }

    /// Has the process that looks after the gateway change the ring, and waits for it.
    fn ask_for(&self, how: How) -> Result<()> {
        let failed =
            |why: &str| Error::system("changing the gateway's keys", io::Error::other(why));
        let Some(notes) = self.maps().notes.as_ref().map(Shared::pointer) else {
            return Err(failed("it has no map `equic_notes`"));
        };
        if !self.owner().alive {
            return Err(failed(
                "no process looks after it: start `equic gateway run` with the same `pin` first",
            ));
        }
        atomic!(AtomicU32, notes, keys_how[how as usize]).store(1, Release);
        let number = atomic!(AtomicU64, notes, keys_wanted).fetch_add(1, AcqRel) + 1;
        let until = Instant::now() + PATIENCE;
        while atomic!(AtomicU64, notes, keys_done).load(Acquire) < number {
            if Instant::now() > until {
                return Err(failed("its process does not answer"));
            }
            std::thread::sleep(POLL / 5);
        }
        if atomic!(AtomicU64, notes, keys_failed).load(Acquire) >= number {
            return Err(failed(
                "it keeps its keys, because it could not hand on new ones: its log says why",
            ));
        }
        Ok(())
    }

    /// Time since the ring changed last; `None` if that is not known.
    pub fn keys_age(&self) -> Option<Duration> {
        let notes = self.maps().notes.as_ref()?.pointer();
        let at = atomic!(AtomicU64, notes, keys_at).load(Acquire);
        (at != 0).then(|| Duration::from_nanos(sys::monotonic_ns().saturating_sub(at)))
    }

    /// Gives the program another ring, so that it never sees an epoch before its key. Servers at this process's socket
    /// have it before.
    pub fn set_key_ring(&self, ring: &KeyRing) {
        self.served_rings().iter().for_each(|served| served.update(ring));
        store_ring(&self.maps().ring, ring);
        if let Some(notes) = &self.maps().notes {
            atomic!(AtomicU64, notes.pointer(), keys_at).store(sys::monotonic_ns().max(1), Release);
        }
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

/// Changes that others ask for, by their place in `equic_notes.keys_how`.
#[derive(Debug, Clone, Copy)]
enum How {
    Turn = 0,
    Renew = 1,
}

/// Rotates keys from now on, makes the changes that others ask for, and keeps the files up to date, which have the ring
/// of now.
pub(crate) fn rotating(
    control: Control,
    file: Option<PathBuf>,
    rotation: Option<RotationFile>,
) -> Result<Periodic> {
    let mut keeper = KeyKeeper { control, file, rotation, due: 0, renewing: None };
    keeper.begin();
    Periodic::start("equic-keys", move || keeper.look())
}

/// When the next step of a rotation is due, if the ring changed at `at`; all in nanoseconds.
fn due_after(at: u64, announced: bool) -> u64 {
    at.saturating_add(nanos(if announced { SETTLING } else { EVERY }))
}

/// Looks after a ring: the only one who changes it while there is one.
struct KeyKeeper {
    control: Control,
    file: Option<PathBuf>,
    rotation: Option<RotationFile>,
    /// Time of the next step of the rotation (monotonic nanoseconds).
    due: u64,
    /// Time at which the keys are forgotten that are being withdrawn, and the number of the request.
    renewing: Option<(u64, u64)>,
}

impl KeyKeeper {
    /// Goes on with the rotation where the process before this one was. Its requests are of callers who gave up.
    fn begin(&mut self) {
        let now = sys::monotonic_ns();
        let announced = self.control.key_ring().is_ok_and(|ring| ring.announced());
        let age = self.control.keys_age().map_or(0, nanos);
        self.due = due_after(now.saturating_sub(age), announced);
        if let Some(notes) = self.control.maps().notes.as_ref().map(Shared::pointer) {
            let wanted = atomic!(AtomicU64, notes, keys_wanted).load(Acquire);
            for how in [How::Turn, How::Renew] {
                atomic!(AtomicU32, notes, keys_how[how as usize]).store(0, Relaxed);
            }
            atomic!(AtomicU64, notes, keys_failed).store(wanted, Release);
            atomic!(AtomicU64, notes, keys_done).store(wanted, Release);
        }
    }

    /// Does what is due; returns how long to pause.
    fn look(&mut self) -> Duration {
        // Who has taken the gateway over looks after its ring from then on.
        if !self.control.is_owner(std::process::id()) {
            return POLL;
        }
        let now = sys::monotonic_ns();
        match self.renewing {
            Some((at, number)) if now >= at => {
                self.renewing = None;
                let done = self.forget_others();
                self.answer(number, &done);
            }
            // Nothing else changes the ring meanwhile.
            Some(_) => {}
            None => {
                self.hear();
                if now >= self.due && self.renewing.is_none() && self.step().is_err() {
                    self.due = now.saturating_add(nanos(SETTLING));
                }
            }
        }
        POLL
    }

    /// Makes the changes that others ask for.
    fn hear(&mut self) {
        let Some(notes) = self.control.maps().notes.as_ref().map(Shared::pointer) else { return };
        let wanted = atomic!(AtomicU64, notes, keys_wanted).load(Acquire);
        if atomic!(AtomicU64, notes, keys_done).load(Relaxed) >= wanted {
            return;
        }
        let asked =
            |how: How| atomic!(AtomicU32, notes, keys_how[how as usize]).swap(0, AcqRel) != 0;
        let (turn, renew) = (asked(How::Turn), asked(How::Renew));
        let mut done = if turn { self.step().map(drop) } else { Ok(()) };
        if renew {
            match self.announce_another() {
                Ok(()) => {
                    let at = sys::monotonic_ns().saturating_add(nanos(RENEWING));
                    self.renewing = Some((at, wanted));
                    return;
                }
                Err(error) => done = Err(error),
            }
        }
        self.answer(wanted, &done);
    }

    fn answer(&self, number: u64, done: &Result<()>) {
        let Some(notes) = self.control.maps().notes.as_ref().map(Shared::pointer) else { return };
        if let Err(error) = done {
            tracing::warn!(%error, "the keys stay as they are");
            atomic!(AtomicU64, notes, keys_failed).store(number, Release);
        }
        atomic!(AtomicU64, notes, keys_done).store(number, Release);
    }

    /// Takes the next step of the rotation.
    fn step(&mut self) -> Result<Rotation> {
        let step = self
            .control
            .key_ring()
            .and_then(|ring| turn(ring, self.file.as_deref(), |ring| self.put_in_force(ring)));
        match &step {
            Ok(Rotation::Announced(_)) => {}
            Ok(Rotation::Advanced(epoch)) => {
                tracing::debug!(epoch = epoch.number(), "a new key is used");
            }
            Err(error) => tracing::warn!(%error, "the keys of Retry tokens stay as they are"),
        }
        if let Ok(step) = &step {
            let announced = matches!(step, Rotation::Announced(_));
            self.due = due_after(sys::monotonic_ns(), announced);
        }
        step
    }

    fn put_in_force(&self, ring: &KeyRing) {
        if let Some(Err(error)) = self.rotation.as_ref().map(|file| file.note(ring)) {
            tracing::warn!(%error, "the number of the rotation cannot be written down");
        }
        self.control.set_key_ring(ring);
    }

    /// First half of withdrawing all keys: another one is known, in copies of the ring that only the servers get that
    /// have a place now.
    fn announce_another(&mut self) -> Result<()> {
        let failed = |error| failed("making keys", error);
        let old = self.control.key_ring()?;
        let readers = self.file.as_deref().map(|path| readers(path, &old)).transpose()?.flatten();
        let mut ring = old.clone();
        // Nothing is made with it yet.
        ring.retire(old.epoch().next());
        ring.announce(Key::random().map_err(failed)?).map_err(failed)?;
        let others = |error| Error::system("copying the new keys for servers", error);
        for served in self.control.served_rings() {
            served.replace(&ring).map_err(others)?;
        }
        if let Some(path) = &self.file {
            write_for(readers.as_ref(), path, &ring)?;
        }
        self.put_in_force(&ring);
        Ok(())
    }

    /// Second half: the new key is used, and no other is known.
    fn forget_others(&mut self) -> Result<()> {
        let mut ring = self.control.key_ring()?;
        let readers = self.file.as_deref().map(|path| readers(path, &ring)).transpose();
        ring.advance().map_err(|error| failed("withdrawing keys", error))?;
        ring.retire_all();
        if let (Some(path), Ok(readers)) = (&self.file, readers)
            && let Err(error) = write_for(readers.flatten().as_ref(), path, &ring)
        {
            // Its readers have the new key, and no token of another one gets as far as them.
            tracing::warn!(%error, "the file has keys that were withdrawn");
        }
        let until = sys::monotonic_ns().saturating_add(nanos(REPLACING));
        atomic!(AtomicU64, self.control.maps().control.pointer(), older_ids_until_ns)
            .store(until, Release);
        self.put_in_force(&ring);
        self.due = due_after(sys::monotonic_ns(), false);
        tracing::info!(epoch = ring.epoch().number(), "all older keys are withdrawn");
        Ok(())
    }
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

    /// A gateway that is restarted more often than keys are rotated must rotate them all the same.
    #[test]
    fn keys_rotation_goes_on_where_the_process_before_was() {
        let hour = nanos(Duration::from_secs(3_600));
        assert_eq!(due_after(5 * hour, false), 17 * hour);
        assert_eq!(due_after(5 * hour, true), 5 * hour + nanos(SETTLING));
        assert_eq!(due_after(u64::MAX, false), u64::MAX);
    }

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
