//! The UDP sockets, and waiting for datagrams.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Result;
use quiche::Connection;

/// The largest UDP payload that is sent, in bytes.
const MAX_SENT: usize = 1350;

pub struct Io {
    pub socket: UdpSocket,
    pub local: SocketAddr,
}

impl Io {
    pub fn bind(address: SocketAddr) -> Result<Io> {
        let socket = UdpSocket::bind(address)?;
        let local = socket.local_addr()?;
        Ok(Io { socket, local })
    }

    /// Waits for a datagram, at most for `timeout`.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<Option<(usize, SocketAddr)>> {
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        self.socket.set_read_timeout(timeout)?;
        match self.socket.recv_from(buffer) {
            Ok((len, from)) => Ok(Some((len, from))),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sends what is due, on the socket whose address quiche chose. Only probes of a new path use
/// another socket than that of the active path.
pub fn send(sockets: &[Io], connection: &mut Connection) {
    let mut out = [0; MAX_SENT];
    while let Ok((len, info)) = connection.send(&mut out) {
        if let Some(io) = sockets.iter().find(|io| io.local == info.from) {
            let _ = io.socket.send_to(&out[..len], info.to);
        }
    }
}
