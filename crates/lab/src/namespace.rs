//! One host of a lab: how programs, closures and sockets get into its network namespace.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};

use crate::state::NETNS_DIR;
use crate::{LabError, NamespaceRecord};

/// A network namespace of a lab. Derefs to its [`NamespaceRecord`]: name, interface, addresses.
///
/// Clones share one file descriptor. While one exists the kernel keeps the namespace, but once the
/// lab is gone it has no name, and the [`flood`](crate::flood) module does not work in it any more.
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
            let plain =
                io::Error::new(io::ErrorKind::InvalidData, "it is no namespace, but a plain file");
            return Err(LabError::file("open namespace", &path, plain));
        }
        Ok(Self { record: Arc::new(record), file: Arc::new(file) })
    }

    /// The first address of the family of `like`, with `port`.
    pub fn socket_address(&self, like: IpAddr, port: u16) -> SocketAddr {
        SocketAddr::new(self.address_like(like), port)
    }

    /// A command whose child runs in this namespace, and is killed when the thread that starts it
    /// ends: start it with [`spawn`](crate::spawn) to tie it to this process instead. It sees the
    /// mounts of this process, `/sys/fs/bpf` included (`ip netns exec` hides that one).
    ///
    /// Whatever is left of it is also killed when the lab is removed.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let (file, parent) = (Arc::clone(&self.file), std::process::id());
        // SAFETY: the closure runs between fork and exec and makes three system calls on values it
        // owns: no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                setns(&*file, CloneFlags::CLONE_NEWNET)?;
                die_with_parent(parent)
            });
        }
        command
    }

    /// Moves the calling thread into the namespace. Threads it starts from now on begin there too.
    /// For threads that do nothing else, such as those of a runtime (`on_thread_start`); otherwise
    /// [`Namespace::run`] is safer.
    ///
    /// # Errors
    /// [`LabError::System`] without CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<(), LabError> {
        setns(&*self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| LabError::system(format!("enter namespace {}", self.name), e))
    }

    /// Runs `work` in a thread of its own inside the namespace, and waits for it. Sockets it makes
    /// belong to the namespace for good and can be returned and used anywhere.
    ///
    /// # Errors
    /// [`LabError::System`] if the thread cannot be started or cannot enter.
    ///
    /// # Panics
    /// If `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        std::thread::scope(|scope| {
            let inside = std::thread::Builder::new()
                .name(self.name.clone())
                .spawn_scoped(scope, || self.enter().map(|()| work()))
                .map_err(|e| LabError::system("start a thread", e))?;
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A blocking UDP socket of this namespace, bound to `address`: any address of the host's
    /// prefixes, port 0 for any.
    ///
    /// # Errors
    /// [`LabError::System`] if the address is taken or not the host's.
    pub fn udp_socket(&self, address: SocketAddr) -> Result<UdpSocket, LabError> {
        self.run(|| UdpSocket::bind(address))?
            .map_err(|e| LabError::system(format!("bind {address} in {}", self.name), e))
    }

    /// As [`Namespace::udp_socket`], in non-blocking mode: what `tokio::net::UdpSocket::from_std`
    /// and `quinn::Endpoint::new` take.
    ///
    /// # Errors
    /// As [`Namespace::udp_socket`].
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
    /// [`LabError::System`] if there is no such parameter or it refuses the value.
    pub fn set_sysctl(&self, parameter: &str, value: &str) -> Result<(), LabError> {
        let path = Path::new("/proc/sys").join(parameter);
        self.run(|| std::fs::write(&path, value))?.map_err(|e| LabError::file("set", &path, e))
    }

    /// The raw descriptor of the namespace, for setns(2); valid as long as `self`.
    pub fn raw_fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }
}

/// In the child: be killed when the thread that forked ends; fail if `parent` has ended already.
fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: prctl(2) with this option takes a plain integer; getppid(2) takes nothing.
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
