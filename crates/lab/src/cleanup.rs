//! Removing labs: when they are dropped, when a signal ends the process, and, for those whose
//! owner was killed, by [`Lab::sweep`]. Only namespaces a record names are ever touched.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::state::{LabRecord, NETNS_DIR, PREFIX, record_paths};
use crate::{Lab, LabError};

/// Time that processes have between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
/// Time that the kernel has to carry out SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// A record that cannot be read may still be being written, but not for this long.
const UNREADABLE_FOR: Duration = Duration::from_secs(60);

/// Builders hold it shared, the signal thread alone: no lab comes to be behind its back.
pub(crate) static BUILDING: RwLock<()> = RwLock::new(());
/// Labs of this process that are not removed yet.
static LIVE: Mutex<Vec<LabRecord>> = Mutex::new(Vec::new());

/// Result of [`Lab::sweep`].
#[derive(Debug, Default)]
pub struct Sweep {
    /// Ids of the labs that were removed.
    pub removed: Vec<String>,
    /// Ids of the labs that were left alone, because their owners run.
    pub alive: Vec<String>,
    /// Errors of what could not be read or removed.
    pub failed: Vec<LabError>,
}

impl Lab {
    /// Removes labs whose owner has ended without doing so (SIGKILL, power cut of a container):
    /// the processes inside, the namespaces, the record. Labs of running owners, and namespaces no
    /// record names, are not touched.
    ///
    /// # Errors
    /// If the list of records cannot be read. What fails for one lab is in [`Sweep::failed`].
    pub fn sweep() -> Result<Sweep, LabError> {
        let mut sweep = Sweep::default();
        for path in record_paths()? {
            match LabRecord::read(&path) {
                Ok(record) if record.owner_alive() => sweep.alive.push(record.id),
                Ok(record) => match remove(&record) {
                    Ok(()) => sweep.removed.push(record.id),
                    Err(error) => sweep.failed.push(error),
                },
                Err(LabError::Record { .. }) if is_empty_and_old(&path) => {
                    // Its owner was killed before it wrote a byte, hence made no namespace.
                    if let Err(e) = unlink(&path) {
                        sweep.failed.push(e);
                    }
                }
                // Another sweep was faster.
                Err(_) if !path.exists() => {}
                Err(error) => sweep.failed.push(error),
            }
        }
        Ok(sweep)
    }

    /// The labs on this machine, those of other processes and of dead owners included.
    ///
    /// # Errors
    /// If the list of records cannot be read. Records that are not valid are left out.
    pub fn list() -> Result<Vec<LabRecord>, LabError> {
        Ok(record_paths()?.iter().filter_map(|path| LabRecord::read(path).ok()).collect())
    }
}

fn is_empty_and_old(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| {
        meta.len() == 0
            && meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNREADABLE_FOR))
    })
}

/// From now on SIGINT, SIGTERM and SIGHUP remove this process' labs and then end it the way the
/// signal does by default. For commands; a second call does nothing.
///
/// # Errors
/// [`LabError::System`] if the handlers cannot be installed.
pub fn cleanup_on_signals() -> Result<(), LabError> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if INSTALLED.get().is_some() {
        return Ok(());
    }
    let failed = |e| LabError::system("watch for signals", e);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    std::thread::Builder::new()
        .name("lab-signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Never released: the process ends here.
                let _alone = BUILDING.write();
                for record in live().clone() {
                    // Nobody is left to tell; a sweep finds what stayed.
                    let _ = remove(&record);
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })
        .map_err(failed)?;
    let _ = INSTALLED.set(());
    Ok(())
}

fn live() -> std::sync::MutexGuard<'static, Vec<LabRecord>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a lab for [`cleanup_on_signals`].
pub(crate) fn register(record: LabRecord) {
    live().push(record);
}

/// Removes a lab of this process.
pub(crate) fn retire(record: &LabRecord) -> Result<(), LabError> {
    let result = remove(record);
    live().retain(|other| other.id != record.id);
    result
}

/// Ends the processes inside, deletes the namespaces, then the record. Goes on after an error,
/// keeps the record then, and returns the first; things that are gone already are no error.
fn remove(record: &LabRecord) -> Result<(), LabError> {
    let keep = ["/proc/self/ns/net", "/proc/1/ns/net"].map(|path| identity(Path::new(path)));
    let inside: Vec<Identity> = record
        .names()
        .filter_map(|name| identity(&Path::new(NETNS_DIR).join(name)))
        .filter(|id| !keep.contains(&Some(*id)))
        .collect();
    let mut result = stop_processes(&inside);
    for name in record.names() {
        result = result.and(delete_namespace(name));
    }
    // Without its record nobody would come back for the rest.
    result.and_then(|()| unlink(&record.path()))
}

fn delete_namespace(name: &str) -> Result<(), LabError> {
    debug_assert!(name.starts_with(PREFIX));
    let path = Path::new(NETNS_DIR).join(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a file where nothing was mounted yet.
        Ok(()) | Err(nix::Error::ENOENT | nix::Error::EINVAL) => unlink(&path),
        Err(e) => Err(LabError::file("unmount", &path, e.into())),
    }
}

fn unlink(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LabError::file("remove", path, e)),
        _ => Ok(()),
    }
}

/// Device and inode: what tells namespaces apart.
pub(crate) type Identity = (u64, u64);

/// The identity of the namespace behind a path.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// SIGTERM, some grace, then SIGKILL, until no process but this one is in these namespaces.
fn stop_processes(namespaces: &[Identity]) -> Result<(), LabError> {
    let mut left = processes_in(namespaces);
    if left.is_empty() {
        return Ok(());
    }
    signal_all(&left, SIGTERM);
    wait_all(&left, GRACE);
    // A process may fork while it is looked at: look again.
    for _ in 0..5 {
        left = processes_in(namespaces);
        if left.is_empty() {
            return Ok(());
        }
        signal_all(&left, libc::SIGKILL);
        wait_all(&left, KILL_WAIT);
    }
    Err(LabError::Unkillable { pids: left.into_iter().map(|(pid, _)| pid).collect() })
}

/// Processes whose main thread is in one of the namespaces, each by a descriptor, so that a pid
/// that is given to another process in between hurts nobody.
fn processes_in(namespaces: &[Identity]) -> Vec<(i32, OwnedFd)> {
    let own = std::process::id().cast_signed();
    let Ok(proc) = fs::read_dir("/proc") else { return Vec::new() };
    proc.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| pid != own && is_in(pid, namespaces))
        .filter_map(|pid| Some((pid, pidfd_open(pid).ok()?)))
        .filter(|&(pid, _)| is_in(pid, namespaces))
        .collect()
}

fn is_in(pid: i32, namespaces: &[Identity]) -> bool {
    identity(Path::new(&format!("/proc/{pid}/ns/net"))).is_some_and(|id| namespaces.contains(&id))
}

fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the descriptor is open and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn signal_all(processes: &[(i32, OwnedFd)], signal: i32) {
    for (_, pidfd) in processes {
        // ESRCH, it has ended, is what we want; EPERM shows in the next look.
        // SAFETY: pidfd_send_signal(2) with no siginfo; the descriptor is open.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                pidfd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            );
        }
    }
}

/// Waits until all have ended (zombies have), or for `limit`.
fn wait_all(processes: &[(i32, OwnedFd)], limit: Duration) {
    let deadline = Instant::now() + limit;
    for (_, pidfd) in processes {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, i32::try_from(left).unwrap_or(i32::MAX)) };
    }
}
