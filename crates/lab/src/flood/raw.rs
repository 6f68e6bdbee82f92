//! Frames exactly as the caller made them, for tests of what looks at frames.

use std::os::fd::{AsRawFd as _, OwnedFd};

use super::emit::{Batch, open_packet, send_all};
use super::interface::Interface;
use super::{FloodError, guard};

/// Sends frames out of one interface of the lab.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
    interface: Interface,
}

impl RawSender {
    /// Opens a sender on an interface of the calling thread's namespace. Once open, it works from
    /// any thread: the socket stays in the namespace.
    ///
    /// # Errors
    /// The refusals of [`FloodError`]: the thread is not in a lab, the interface is not a veth.
    pub fn open(interface: &str) -> Result<Self, FloodError> {
        guard::check_namespace()?;
        let interface = Interface::find(interface)?;
        let socket = open_packet(&interface)?;
        Ok(Self { socket, interface })
    }

    /// Link-layer address of the interface.
    ///
    /// # Errors
    /// [`FloodError::System`] if the interface is gone.
    pub fn mac(&self) -> Result<[u8; 6], FloodError> {
        self.interface.mac()
    }

    /// Sends one frame, Ethernet header first.
    ///
    /// # Errors
    /// [`FloodError::System`] if the kernel does not take it: shorter than an Ethernet header, or
    /// longer than the MTU allows.
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
