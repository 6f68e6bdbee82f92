//! Sends arbitrary frames, to test components that process frames.

use std::os::fd::{AsRawFd as _, OwnedFd};

use super::emit::{Batch, open_packet, send_all};
use super::interface::Interface;
use super::{FloodError, guard};

/// A sender of frames on one interface of the lab.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
    interface: Interface,
}

impl RawSender {
    /// Opens a sender on an interface in the calling thread's namespace. After that, the sender
    /// works in any thread, because its socket stays in the namespace.
    ///
    /// # Errors
    /// Fails if a safety check of [`FloodError`] fails: the thread is not in a lab, or the
    /// interface is not a veth.
    pub fn open(interface: &str) -> Result<Self, FloodError> {
        guard::check_namespace()?;
        let interface = Interface::find(interface)?;
        let socket = open_packet(&interface)?;
        Ok(Self { socket, interface })
    }

    /// Returns the link-layer address of the interface.
    ///
    /// # Errors
    /// Fails with [`FloodError::System`] if the interface no longer exists.
    pub fn mac(&self) -> Result<[u8; 6], FloodError> {
        self.interface.mac()
    }

    /// Sends one frame, which includes its Ethernet header.
    ///
    /// # Errors
    /// Fails with [`FloodError::System`] if the kernel rejects the frame, because it is shorter
    /// than an Ethernet header or longer than the MTU permits.
    pub fn send(&self, frame: &[u8]) -> Result<(), FloodError> {
        let mut batch = Batch::default();
        let room = send_all(self.socket.as_raw_fd(), None, &[[frame, &[]]], &mut batch);
        let what =
            || format!("send a frame of {} bytes out of {}", frame.len(), self.interface.name());
        match batch.error {
            Some(source) => Err(FloodError::system(what(), source)),
            None if !room => Err(FloodError::system(what(), std::io::ErrorKind::WouldBlock)),
            None => Ok(()),
        }
    }
}
