//! A UDP socket that tells ECN marks, and sets them.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

use super::RelayError;

/// The kernel may hand over many datagrams at once, up to this many bytes.
pub(super) const BUFFER: usize = 1 << 16;

pub(super) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    pub(super) local: SocketAddr,
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> Result<Socket, RelayError> {
        let bound = || {
            let socket = UdpSocket::bind(address)?;
            let state = UdpSocketState::new((&socket).into())?;
            // A sender's burst is not to be lost before the link has judged it. If the system allows
            // less, it stays less.
            let _ = state.set_recv_buffer_size((&socket).into(), 4 << 20);
            let local = socket.local_addr()?;
            Ok(Socket { socket, state, local })
        };
        bound().map_err(|source| RelayError::Bind { address, source })
    }

    /// Calls `each` with the sender, the ECN bits and the content of what has come; `false` if nothing
    /// has.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        mut each: impl FnMut(SocketAddr, u8, &[u8]),
    ) -> io::Result<bool> {
        let mut meta = [RecvMeta::default()];
        let received = {
            let mut slices = [IoSliceMut::new(buffer)];
            self.state.recv((&self.socket).into(), &mut slices, &mut meta)
        };
        match received {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // Somebody does not listen (any more), or a signal came: not the relay's business.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        let [meta] = meta;
        let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
        let content = buffer.get(..meta.len).unwrap_or_default();
        for datagram in content.chunks(meta.stride.max(1)) {
            each(meta.addr, ecn, datagram);
        }
        Ok(true)
    }

    /// Sends; `false` if the system did not take it, as it does when nobody listens there.
    pub(super) fn send(&self, to: SocketAddr, ecn: u8, content: &[u8]) -> bool {
        let transmit = Transmit {
            destination: to,
            ecn: EcnCodepoint::from_bits(ecn),
            contents: content,
            segment_size: None,
            src_ip: None,
        };
        self.state.try_send((&self.socket).into(), &transmit).is_ok()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
