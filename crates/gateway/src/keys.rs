//! Manages the keys of Retry tokens (docs/retry.md s.2): stores them in the XDP program's map and
//! in a file for servers, and rotates them.
//!
//! Loading a gateway generates a key ring. A gateway that takes over the maps of another one keeps
//! its ring, so that tokens from before the takeover remain valid.

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

/// Time for which new Retry tokens are made with the same key.
const EVERY: Duration = Duration::from_secs(12 * 3_600);
/// Time after a new ring is generated during which clients may still use connection IDs that are
/// older than the ring. It equals the time between two keys, because within that time servers
/// replace the IDs of all connections (docs/policy.md s.10).
pub(crate) const OLDER_IDS: Duration = EVERY;
/// Time between the announcement of a key and its first use. During this time, servers read the key
/// file again.
const SETTLING: Duration = Duration::from_secs(60);

/// Interval at which requests of other processes are polled.
const POLL: Duration = Duration::from_millis(100);
/// Time that servers have to read the new ring before the gateway forgets the withdrawn keys.
const RENEWING: Duration = Duration::from_secs(1);
/// Time that servers have to replace connection IDs whose keys were withdrawn.
const REPLACING: Duration = Duration::from_secs(60);
/// Maximum time to wait until the gateway's process has changed the ring.
const PATIENCE: Duration = Duration::from_secs(20);

/// A step of a key rotation. A complete rotation takes two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// The key of this epoch was announced: servers know it, but the gateway does not use it yet.
    Announced(Epoch),
    /// The gateway now makes tokens with the key of this epoch.
    Advanced(Epoch),
}

impl Control {
    /// Returns the ring with which the XDP program makes and checks Retry tokens. It is a secret,
    /// because its holder can make valid tokens.
    ///
    /// # Errors
    /// Fails if the program's map does not contain a ring.
    pub fn key_ring(&self) -> Result<KeyRing> {
        ring_of(&self.maps().ring)
    }

    /// Returns the servers that may serve a service and have not declared that they check the
    /// tokens of the gateway's Retry packets. Once the gateway requires tokens, their clients
    /// cannot connect. Dead servers, and servers without a recent heartbeat, are not returned. A
    /// server whose ledger this process may not read, so that its heartbeat is unknown, is returned
    /// unless it is dead.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
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

    /// Returns the servers that may serve a service and have not declared that the gateway can
    /// verify their connection IDs. With `check_ids`, only the first packet of their clients would
    /// reach them. Dead servers, and servers without a recent heartbeat, are treated as in
    /// [`Control::servers_without_keys`].
    ///
    /// # Errors
    /// Returns the errors of [`Control::servers_without_keys`].
    pub fn servers_without_ids(&self, service: &str) -> Result<Vec<JoinedServer>> {
        self.servers_without(abi::EQUIC_MEMBER_IDS, service)
    }

    /// Returns the live servers that may serve a service, each with slot, process ID and name.
    ///
    /// # Errors
    /// Returns the errors of [`Control::servers_without_keys`].
    pub fn servers_of(&self, service: &str) -> Result<Vec<JoinedServer>> {
        self.servers_without(0, service)
    }

    /// Takes the next step of a rotation: announces a new key, or starts to use the announced one.
    /// Older tokens remain valid.
    ///
    /// If another process manages the gateway, this call asks that process to take the step. If no
    /// process does, servers at the socket get the new key only from the next process that manages
    /// the gateway.
    ///
    /// # Errors
    /// Returns the errors of [`Control::key_ring`]. Also fails if the system provides no random
    /// numbers, or if the other process does not answer.
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

    /// Withdraws all keys, because an attacker may know them. The process that manages the gateway
    /// generates a new key, hands it to the servers that have a slot, and forgets the old keys a
    /// second later. Returns the new epoch.
    ///
    /// Older Retry tokens become invalid. The epoch of older connection IDs becomes unknown. With
    /// `check_ids`, packets with such an ID still pass for a minute if their source holds a
    /// connection, and are dropped after that. By then, servers have replaced the IDs. A process
    /// that has the old keys but no slot does not see the new keys.
    ///
    /// # Errors
    /// Fails if no process manages the gateway, or if that process does not answer or cannot write
    /// its files. In that case, nothing has changed.
    pub fn renew_keys(&self) -> Result<Epoch> {
        self.note("renew the keys of tokens and connection IDs");
        self.ask_for(How::Renew)?;
        Ok(self.key_ring()?.epoch())
    }

    /// Asks the process that manages the gateway to change the ring, and waits for its answer.
    fn ask_for(&self, how: How) -> Result<()> {
        let failed =
            |why: &str| Error::system("changing the gateway's keys", io::Error::other(why));
        let Some(notes) = self.maps().notes.as_ref().map(Shared::pointer) else {
            return Err(failed(
                "the running program has no map `equic_notes`, so it belongs to another release",
            ));
        };
        if !self.owner().alive {
            return Err(failed(
                "no process manages the gateway: first start `equic gateway run` with the same `pin`",
            ));
        }
        atomic!(AtomicU32, notes, keys_how[how as usize]).store(1, Release);
        let number = atomic!(AtomicU64, notes, keys_wanted).fetch_add(1, AcqRel) + 1;
        let until = Instant::now() + PATIENCE;
        while atomic!(AtomicU64, notes, keys_done).load(Acquire) < number {
            if Instant::now() > until {
                return Err(failed("the process that manages the gateway does not answer"));
            }
            std::thread::sleep(POLL / 5);
        }
        if atomic!(AtomicU64, notes, keys_failed).load(Acquire) >= number {
            return Err(failed(
                "the gateway keeps its old keys, because it could not distribute new ones: see the log of the process that manages the gateway",
            ));
        }
        Ok(())
    }

    /// Returns the time since the ring last changed, or `None` if it is unknown.
    pub fn keys_age(&self) -> Option<Duration> {
        let notes = self.maps().notes.as_ref()?.pointer();
        let at = atomic!(AtomicU64, notes, keys_at).load(Acquire);
        (at != 0).then(|| Duration::from_nanos(sys::monotonic_ns().saturating_sub(at)))
    }

    /// Gives the XDP program another ring, in an order in which the program never sees an epoch
    /// before its key. Servers at this process's socket get the ring first.
    pub fn set_key_ring(&self, ring: &KeyRing) {
        self.served_rings().iter().for_each(|served| served.update(ring));
        store_ring(&self.maps().ring, ring);
        if let Some(notes) = &self.maps().notes {
            atomic!(AtomicU64, notes.pointer(), keys_at).store(sys::monotonic_ns().max(1), Release);
        }
    }

    /// Generates a ring, unless the map already has one. If `before` is given, the rotation of the
    /// ring continues after that epoch.
    pub(crate) fn begin_keys(&self, before: Option<Epoch>) -> Result<()> {
        if self.maps().ring.read() != abi::equic_ring::default() {
            return self.key_ring().map(drop);
        }
        let ring = match before {
            Some(newest) => KeyRing::following(Clock::Monotonic, newest),
            None => KeyRing::generate(Clock::Monotonic),
        };
        self.set_key_ring(&ring.map_err(|error| failed("creating keys", error))?);
        Ok(())
    }
}

/// Writes a ring to a file for servers. A reader of the file can make valid tokens, so only the
/// file's owner may read it. The file is replaced atomically.
///
/// # Errors
/// Returns the system's error if the file cannot be written.
pub fn write_key_ring(path: &Path, ring: &KeyRing) -> Result<()> {
    write_for(None, path, ring)
}

/// Writes a ring like [`write_key_ring`], but with the owner and mode in `readers`. So a file that
/// was given to the servers' user remains readable for that user.
fn write_for(readers: Option<&Metadata>, path: &Path, ring: &KeyRing) -> Result<()> {
    let fresh = PathBuf::from(format!("{}.new", path.display()));
    let failed = |error| Error::system(format!("writing `{}`", path.display()), error);
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // The ring is written to a new file, so that the write cannot follow a symbolic link to an
    // existing file.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&fresh).map_err(failed)?;
    if let Some(readers) = readers {
        give(&file, readers).map_err(|error| {
            let (uid, gid) = (readers.uid(), readers.gid());
            failed(io::Error::other(format!(
                "the old file belongs to user {uid} and group {gid} and has mode {:o}, but the gateway cannot set the same owner, group and mode on a new file ({error}): run the gateway and the server as the same user",
                readers.mode() & 0o777
            )))
        })?;
    }
    file.write_all(&*ring.to_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)
}

/// Gives a new file the owner, group and mode of another one, if they differ.
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

/// Returns the metadata of the key file if the file contains exactly this ring. If not, another
/// user may have written the file, and its owner must not be trusted.
fn readers(path: &Path, ring: &KeyRing) -> Result<Option<Metadata>> {
    let failed = |error| Error::system(format!("reading `{}`", path.display()), error);
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
    // Both buffers are zeroized when they are dropped.
    let (wanted, mut there) = (ring.to_bytes(), ring.to_bytes());
    file.read_exact(&mut *there).map_err(failed)?;
    Ok((*wanted == *there).then_some(metadata))
}

/// Changes that other processes can request. The number is the index into `equic_notes.keys_how`.
#[derive(Debug, Clone, Copy)]
enum How {
    Turn = 0,
    Renew = 1,
}

/// Starts the thread that manages the keys. It rotates them, makes the changes that other processes
/// request, and keeps the files up to date. When it starts, the files must contain the current
/// ring.
pub(crate) fn rotating(
    control: Control,
    file: Option<PathBuf>,
    rotation: Option<RotationFile>,
) -> Result<Periodic> {
    let mut keeper = KeyKeeper { control, file, rotation, due: 0, renewing: None };
    keeper.begin();
    Periodic::start("equic-keys", move || keeper.look())
}

/// Returns the time at which the next step of a rotation is due, if the ring last changed at `at`
/// (nanoseconds).
fn due_after(at: u64, announced: bool) -> u64 {
    at.saturating_add(nanos(if announced { SETTLING } else { EVERY }))
}

/// Manages a key ring. While it runs, nothing else may change the ring.
struct KeyKeeper {
    control: Control,
    file: Option<PathBuf>,
    rotation: Option<RotationFile>,
    /// Time of the next step of the rotation (monotonic nanoseconds).
    due: u64,
    /// While keys are being withdrawn: the time at which they are forgotten, and the number of the
    /// request.
    renewing: Option<(u64, u64)>,
}

impl KeyKeeper {
    /// Continues the rotation of the previous process. Pending requests are answered as failed,
    /// because their callers have given up.
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

    /// Makes the changes that are due. Returns the time until the next call.
    fn look(&mut self) -> Duration {
        // Another process has taken the gateway over and manages its ring.
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
            // While keys are being withdrawn, no other change is made.
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

    /// Makes the changes that other processes have requested.
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
            tracing::warn!(%error, "the keys of tokens and connection IDs were not changed");
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
                tracing::debug!(epoch = epoch.number(), "the gateway now uses a new key");
            }
            Err(error) => tracing::warn!(%error, "the keys of Retry tokens were not changed"),
        }
        if let Ok(step) = &step {
            let announced = matches!(step, Rotation::Announced(_));
            self.due = due_after(sys::monotonic_ns(), announced);
        }
        step
    }

    fn put_in_force(&self, ring: &KeyRing) {
        if let Some(Err(error)) = self.rotation.as_ref().map(|file| file.note(ring)) {
            tracing::warn!(%error, "cannot save the number of the key rotation");
        }
        self.control.set_key_ring(ring);
    }

    /// First half of withdrawing all keys. Announces a new key in new copies of the ring, which
    /// only servers with a slot can get.
    fn announce_another(&mut self) -> Result<()> {
        let failed = |error| failed("creating keys", error);
        let old = self.control.key_ring()?;
        let readers = self.file.as_deref().map(|path| readers(path, &old)).transpose()?.flatten();
        let mut ring = old.clone();
        // Removes the key of the next epoch, which may have been announced but was never used.
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

    /// Second half of withdrawing all keys. Starts to use the new key and forgets all others.
    fn forget_others(&mut self) -> Result<()> {
        let mut ring = self.control.key_ring()?;
        let readers = self.file.as_deref().map(|path| readers(path, &ring)).transpose();
        ring.advance().map_err(|error| failed("withdrawing keys", error))?;
        ring.retire_all();
        if let (Some(path), Ok(readers)) = (&self.file, readers)
            && let Err(error) = write_for(readers.flatten().as_ref(), path, &ring)
        {
            // The failure is tolerable. Readers of the old file know the new key, and the XDP
            // program drops tokens of the other keys before they reach a server.
            tracing::warn!(%error, "cannot rewrite the key file, so it still contains withdrawn keys");
        }
        let until = sys::monotonic_ns().saturating_add(nanos(REPLACING));
        atomic!(AtomicU64, self.control.maps().control.pointer(), older_ids_until_ns)
            .store(until, Release);
        self.put_in_force(&ring);
        self.due = due_after(sys::monotonic_ns(), false);
        tracing::info!(epoch = ring.epoch().number(), "all older keys were withdrawn");
        Ok(())
    }
}

/// Takes the next step of a rotation. Servers get the ring before the XDP program uses it. If the
/// file cannot be written, nothing changes.
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

    /// Keys must rotate even if the gateway is restarted more often than the rotation is due.
    #[test]
    fn keys_rotation_keeps_its_due_time_over_a_restart() {
        let hour = nanos(Duration::from_secs(3_600));
        assert_eq!(due_after(5 * hour, false), 17 * hour);
        assert_eq!(due_after(5 * hour, true), 5 * hour + nanos(SETTLING));
        assert_eq!(due_after(u64::MAX, false), u64::MAX);
    }

    /// Servers must get a new key before the XDP program uses it. Otherwise they would refuse every
    /// client with a token of that key.
    #[test]
    fn keys_that_cannot_be_written_to_the_file_are_not_used() {
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

    /// A file that was given to another user must remain readable for that user. Otherwise a server
    /// that runs as this user would keep the first keys that it read, and refuse all new clients
    /// after the second rotation.
    #[test]
    fn keys_file_keeps_its_owner_and_mode_on_rotation() {
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
            assert!(!equic_testing::ci::in_ci(), "giving files away takes root");
            eprintln!("SKIPPED: giving files away takes root");
        }
        // A user who replaces the file with another one must not get the keys.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [0; KeyRing::LEN]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        rotate();
        assert_eq!(of_file(), (uid, gid, 0o600));
    }
}
