//! Removal of labs. A lab is removed when it is dropped, when a signal ends the process, or by
//! [`Lab::sweep`] if its owner was killed. Only namespaces that a lab's record names are removed.

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

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
/// Maximum time to wait for the kernel to carry out SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// Age from which an unreadable record is treated as abandoned. A younger one may not be completely
/// written yet.
const UNREADABLE_FOR: Duration = Duration::from_secs(60);

/// Lock that keeps a lab from being created while the signal thread removes labs. Builders hold it
/// shared, the signal thread exclusively.
pub(crate) static BUILDING: RwLock<()> = RwLock::new(());
/// Labs of this process that still exist.
static LIVE: Mutex<Vec<LabRecord>> = Mutex::new(Vec::new());

/// Result of [`Lab::sweep`].
#[derive(Debug, Default)]
pub struct Sweep {
    /// IDs of the labs that were removed.
    pub removed: Vec<String>,
    /// IDs of the labs that were kept because their owners are running.
    pub alive: Vec<String>,
    /// Errors of reading records or removing labs.
    pub failed: Vec<LabError>,
}

impl Lab {
    /// Removes labs whose owner ended without removing them (after SIGKILL, or a stopped
    /// container): the processes inside, the namespaces, and the record. Labs of running owners,
    /// and namespaces without a record, are kept.
    ///
    /// # Errors
    /// Fails if the list of records cannot be read. [`Sweep::failed`] has the errors of single
    /// labs.
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
                    // The file is empty: its owner was killed before it wrote the record, and
                    // namespaces are created only after that.
                    if let Err(e) = unlink(&path) {
                        sweep.failed.push(e);
                    }
                }
                // Another sweep has removed it already.
                Err(_) if !path.exists() => {}
                Err(error) => sweep.failed.push(error),
            }
        }
        Ok(sweep)
    }

    /// Lists the labs on this machine, including those of other processes and of dead owners.
    ///
    /// # Errors
    /// Fails if the list of records cannot be read. Invalid records are skipped.
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

/// Installs signal handlers for a command: SIGINT, SIGTERM and SIGHUP remove the labs of this
/// process, and then end the process as they do by default. A second call does nothing.
///
/// # Errors
/// Fails with [`LabError::System`] if the handlers cannot be installed.
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
                // The lock is never released, because the process ends here.
                let _alone = BUILDING.write();
                for record in live().clone() {
                    // The process ends, so the error cannot be reported. A later sweep removes what
                    // is left.
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

/// Registers a lab for [`cleanup_on_signals`].
pub(crate) fn register(record: LabRecord) {
    live().push(record);
}

/// Removes a lab that this process has created.
pub(crate) fn retire(record: &LabRecord) -> Result<(), LabError> {
    let result = remove(record);
    live().retain(|other| other.id != record.id);
    result
}

/// Ends the processes in a lab, then deletes its namespaces, then its record. If a step fails,
/// continues with the next one, but keeps the record, and returns the first error. A namespace that
/// does not exist is not an error.
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
    // Keep the record after an error. Without it, no sweep would find the remaining namespaces.
    result.and_then(|()| unlink(&record.path()))
}

fn delete_namespace(name: &str) -> Result<(), LabError> {
    debug_assert!(name.starts_with(PREFIX));
    let path = Path::new(NETNS_DIR).join(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL means that the file exists, but that no namespace is mounted on it.
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

/// Device and inode, which identify a namespace.
pub(crate) type Identity = (u64, u64);

/// Returns the identity of the namespace at a path.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Sends SIGTERM, waits, then sends SIGKILL, until no process other than this one is in these
/// namespaces.
fn stop_processes(namespaces: &[Identity]) -> Result<(), LabError> {
    let mut left = processes_in(namespaces);
    if left.is_empty() {
        return Ok(());
    }
    signal_all(&left, SIGTERM);
    wait_all(&left, GRACE);
    // A process may fork during the search, so search again.
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

/// Returns the processes whose main thread is in one of the namespaces, each with a pidfd. A pidfd
/// always refers to the same process, so a reused PID does no harm.
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
    // SAFETY: the call succeeded, so the descriptor is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn signal_all(processes: &[(i32, OwnedFd)], signal: i32) {
    for (_, pidfd) in processes {
        // ESRCH means that the process has ended, as intended. After EPERM, the next search finds
        // the process again.
        // SAFETY: pidfd_send_signal(2) without siginfo reads no memory; the descriptor is open.
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

/// Waits until all these processes have ended, but no longer than `limit`. Zombies count as ended.
fn wait_all(processes: &[(i32, OwnedFd)], limit: Duration) {
    let deadline = Instant::now() + limit;
    for (_, pidfd) in processes {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one pollfd, which lives during the call.
        unsafe { libc::poll(&raw mut poll, 1, i32::try_from(left).unwrap_or(i32::MAX)) };
    }
}
