//! A host of a lab: runs programs and closures, and creates sockets, in the host's network
//! namespace.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};

use crate::state::NETNS_DIR;
use crate::{LabError, NamespaceRecord};

/// A network namespace of a lab. Dereferences to its [`NamespaceRecord`]: name, interface,
/// addresses.
///
/// Clones share one file descriptor. The kernel keeps the namespace while a clone exists. After the
/// lab was removed, the namespace has no name, and the [`flood`](crate::flood) module refuses to
/// run in it.
#[derive(Debug, Clone)]
pub struct Namespace {
    record: Arc<NamespaceRecord>,
    file: Arc<File>,
}

impl Deref for Namespace {
    type Target = NamespaceRecord;

    fn deref(&self) -> &NamespaceRecord {
        &self.record
    }
}

impl Namespace {
    pub(crate) fn open(record: NamespaceRecord) -> Result<Self, LabError> {
        let path = Path::new(NETNS_DIR).join(&record.name);
        let file = File::open(&path).map_err(|e| LabError::file("open namespace", &path, e))?;
        let kind = nix::sys::statfs::fstatfs(&file)
            .map_err(|e| LabError::file("look at", &path, e.into()))?
            .filesystem_type();
        if kind != nix::sys::statfs::NSFS_MAGIC {
            let plain = io::Error::new(
                io::ErrorKind::InvalidData,
                "the path names a plain file, not a namespace",
            );
            return Err(LabError::file("open namespace", &path, plain));
        }
        Ok(Self { record: Arc::new(record), file: Arc::new(file) })
    }

    /// Returns the host's first address of the same family as `like`, with `port`.
    pub fn socket_address(&self, like: IpAddr, port: u16) -> SocketAddr {
        SocketAddr::new(self.address_like(like), port)
    }

    /// Returns a command whose child runs in this namespace. The kernel kills the child when the
    /// thread that starts it ends. To let the child live as long as this process instead, start it
    /// with [`spawn`](crate::spawn). The child sees the mounts of this process, including
    /// `/sys/fs/bpf`, which `ip netns exec` would hide.
    ///
    /// Removing the lab also kills processes that are still in it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let (file, parent) = (Arc::clone(&self.file), std::process::id());
        // SAFETY: the closure runs between fork and exec. It makes three system calls on values
        // that it owns, and neither allocates nor locks.
        unsafe {
            command.pre_exec(move || {
                setns(&*file, CloneFlags::CLONE_NEWNET)?;
                die_with_parent(parent)
            });
        }
        command
    }

    /// Moves the calling thread into the namespace. Threads that it starts later begin in the
    /// namespace, too. Use this for threads that do nothing else, such as those of a runtime
    /// (`on_thread_start`). Otherwise, use [`Namespace::run`], which is safer.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] without CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<(), LabError> {
        setns(&*self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| LabError::system(format!("enter namespace {}", self.name), e))
    }

    /// Runs `work` in a new thread inside the namespace, and waits for its result. Sockets that
    /// `work` creates stay in the namespace, and can be used in any thread.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the thread cannot be started or cannot enter the
    /// namespace.
    ///
    /// # Panics
    /// Panics if `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        std::thread::scope(|scope| {
            let inside = std::thread::Builder::new()
                .name(self.name.clone())
                .spawn_scoped(scope, || self.enter().map(|()| work()))
                .map_err(|e| LabError::system("start a thread", e))?;
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Creates a blocking UDP socket in this namespace, bound to `address`, which can be any
    /// address of the host's prefixes. Port 0 stands for any port.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the address is in use or does not belong to the host.
    pub fn udp_socket(&self, address: SocketAddr) -> Result<UdpSocket, LabError> {
        self.run(|| UdpSocket::bind(address))?
            .map_err(|e| LabError::system(format!("bind {address} in {}", self.name), e))
    }

    /// Like [`Namespace::udp_socket`], but non-blocking, for `tokio::net::UdpSocket::from_std` and
    /// `quinn::Endpoint::new`.
    ///
    /// # Errors
    /// Fails as [`Namespace::udp_socket`] does.
    pub fn udp_socket_nonblocking(&self, address: SocketAddr) -> Result<UdpSocket, LabError> {
        let socket = self.udp_socket(address)?;
        socket.set_nonblocking(true).map_err(|e| {
            LabError::system(format!("make the socket on {address} non-blocking"), e)
        })?;
        Ok(socket)
    }

    /// Sets a kernel parameter of the namespace, such as `net/ipv4/tcp_ecn`.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if there is no such parameter, or if the kernel rejects the
    /// value.
    pub fn set_sysctl(&self, parameter: &str, value: &str) -> Result<(), LabError> {
        let path = Path::new("/proc/sys").join(parameter);
        self.run(|| std::fs::write(&path, value))?.map_err(|e| LabError::file("set", &path, e))
    }
}

/// Makes the kernel kill the calling process when the thread that forked it ends. Called in the
/// child after fork. Fails if `parent` has already ended.
fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: prctl(2) with this option takes an integer, and getppid(2) takes nothing.
    let (set, ppid) =
        unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    if u32::try_from(ppid) != Ok(parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}
