//! Reports of the kernel about interfaces and their addresses: rtnetlink(7).
//!
//! A message says that it is time to look; what there is now is asked elsewhere, so a message that is lost (ENOBUFS)
//! does no harm.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use tokio::io::unix::AsyncFd;

/// Greatest number of messages that are read at a time: the rest waits for the next one.
const MOST: usize = 10_000;

/// A socket that hears of this network namespace. Takes no privilege.
pub(crate) struct Listener {
    socket: AsyncFd<OwnedFd>,
}

impl Listener {
    /// Listens from now on to these multicast groups (RTMGRP_...); inside a runtime.
    pub(crate) fn open(groups: i32) -> io::Result<Listener> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let netlink = AddressFamily::Netlink;
        let socket = socket(netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups as u32))?;
        // SAFETY: an OwnedFd owns its descriptor, and the one in AsyncFd is neither replaced nor closed.
        Ok(Listener { socket: unsafe { AsyncFd::register(socket) }? })
    }

    /// Waits until there is something to [`Listener::hear`].
    pub(crate) async fn ready(&self) {
        match self.socket.readable().await {
            // Before reading, and all is read: what comes in between makes it ready again.
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Reads what there is; `message` is given what the kernel has said, and nobody else.
    pub(crate) fn hear(&self, mut message: impl FnMut(&[u8])) {
        let mut buffer = vec![0; 32 << 10];
        for _ in 0..MOST {
            match recvfrom::<NetlinkAddr>(self.socket.get_ref().as_raw_fd(), &mut buffer) {
                // Number 0 is the kernel.
                Ok((length, Some(from))) if from.pid() == 0 => {
                    message(&buffer[..length.min(buffer.len())]);
                }
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => {}
                Err(_) => break,
            }
        }
    }
}
