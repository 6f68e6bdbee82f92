//! Messages to the service manager: sd_notify(3), for units with `Type=notify`.
//!
//! The manager sets `NOTIFY_SOCKET` to the path of a datagram socket, or to `@` and the name of an
//! abstract socket. Without this variable, nothing is sent. A message that cannot be sent is
//! dropped, because the manager has its own timeouts.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::time::{ClockId, clock_gettime};

/// A connection to the service manager, if a service manager started this process and expects
/// messages.
#[derive(Debug)]
pub struct Manager(Option<UnixDatagram>);

impl Manager {
    /// Connects to the socket in `NOTIFY_SOCKET`. Call it before dropping privileges.
    ///
    /// # Errors
    /// Fails if the variable is set and the connection fails. To continue without a service
    /// manager, use [`Manager::none`].
    pub fn connect() -> io::Result<Manager> {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(name) if !name.is_empty() => Manager::at(&name),
            _ => Ok(Manager::none()),
        }
    }

    /// Returns a manager that sends nothing.
    pub fn none() -> Manager {
        Manager(None)
    }

    fn at(name: &OsStr) -> io::Result<Manager> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that does not read must not block this process.
        socket.set_nonblocking(true)?;
        Ok(Manager(Some(socket)))
    }

    /// Reports that the process is ready. Must be called after the start and after each reload,
    /// even if the reload failed.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the configuration is being reloaded. [`Manager::ready`] must follow.
    pub fn reloading(&self) {
        // With `Type=notify-reload`, the service manager compares this time with the time at which
        // it requested the reload.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| {
            i128::from(now.tv_sec()) * 1_000_000 + i128::from(now.tv_nsec()) / 1_000
        });
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Reports that the process is about to end.
    pub fn stopping(&self, why: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(why)));
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.0 {
            let _ = socket.send(message.as_bytes());
        }
    }
}

/// Joins the lines of a text, because a line feed ends an assignment in a message.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_is_notified_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("equic-manager-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        let at = format!("@{name}");
        for (socket, name) in [(by_path, path.as_os_str()), (by_name, OsStr::new(&at))] {
            let manager = Manager::at(name).unwrap();
            manager.ready("in force");
            manager.reloading();
            manager.ready("refused\nneeds a restart");
            manager.stopping("SIGTERM");
            let mut buffer = [0; 256];
            let mut next = || {
                let length = socket.recv(&mut buffer).unwrap();
                String::from_utf8(buffer[..length].to_vec()).unwrap()
            };
            assert_eq!(next(), "READY=1\nSTATUS=in force");
            let reloading = next();
            let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(time.parse::<u64>().unwrap() > 0);
            assert_eq!(next(), "READY=1\nSTATUS=refused; needs a restart");
            assert_eq!(next(), "STOPPING=1\nSTATUS=SIGTERM");
        }
    }

    #[test]
    fn manager_that_is_missing_is_not_found() {
        Manager::none().ready("in force");
        let missing = OsStr::new("/nowhere/notify");
        assert_eq!(Manager::at(missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
