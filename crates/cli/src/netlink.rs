//! Receives the kernel's notifications about interfaces and their addresses: rtnetlink(7).
//!
//! The content of a notification is not used: the receiver reads the current state in another way.
//! A lost message (ENOBUFS) therefore does no harm.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use tokio::io::unix::AsyncFd;

/// Maximum number of messages that one call of [`Listener::hear`] reads. The rest waits for the
/// next call.
const MOST: usize = 10_000;

/// A socket that receives notifications about this network namespace. It needs no privileges.
pub(crate) struct Listener {
    socket: AsyncFd<OwnedFd>,
}

impl Listener {
    /// Subscribes to these multicast groups (RTMGRP_...). Must be called inside a tokio runtime.
    pub(crate) fn open(groups: i32) -> io::Result<Listener> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let netlink = AddressFamily::Netlink;
        let socket = socket(netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups as u32))?;
        // SAFETY: the OwnedFd owns the descriptor. The socket inside the AsyncFd is neither
        // replaced nor closed.
        Ok(Listener { socket: unsafe { AsyncFd::register(socket) }? })
    }

    /// Waits until [`Listener::hear`] has something to read.
    pub(crate) async fn ready(&self) {
        match self.socket.readable().await {
            // Clear the readiness before messages are read. A message that arrives in between sets
            // it again.
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Reads all pending messages, and calls `message` for each that the kernel sent.
    pub(crate) fn hear(&self, mut message: impl FnMut(&[u8])) {
        let mut buffer = vec![0; 32 << 10];
        for _ in 0..MOST {
            match recvfrom::<NetlinkAddr>(self.socket.get_ref().as_raw_fd(), &mut buffer) {
                // A message from port ID 0 comes from the kernel.
                Ok((length, Some(from))) if from.pid() == 0 => {
                    message(&buffer[..length.min(buffer.len())]);
                }
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => {}
                Err(_) => break,
            }
        }
    }
}
