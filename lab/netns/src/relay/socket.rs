//! A UDP socket that reads and sets ECN marks.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

use super::RelayError;

/// Size of the receive buffer in bytes. The kernel may return many datagrams at once, up to this
/// size.
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
            // A sender's burst must reach the simulated link before the kernel drops any of it. A
            // smaller buffer is accepted if the system does not allow this size.
            let _ = state.set_recv_buffer_size((&socket).into(), 4 << 20);
            let local = socket.local_addr()?;
            Ok(Socket { socket, state, local })
        };
        bound().map_err(|source| RelayError::Bind { address, source })
    }

    /// Calls `each` for every received datagram, with the sender, the ECN bits and the content.
    /// Returns `false` if no datagram was waiting.
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
            // The other side does not listen (any longer), or a signal interrupted the call. The
            // relay continues in both cases.
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

    /// Sends a datagram. Returns `false` if the system rejected it, for example because nothing
    /// listens at the destination.
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
