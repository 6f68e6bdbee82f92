//! UDP sockets, bound the way servers and clients need them.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

/// Binds a non-blocking UDP socket. An IPv6 wildcard takes IPv4 as well.
///
/// `receive_buffer` is SO_RCVBUF in bytes. Where the process may (CAP_NET_ADMIN), the system's limit
/// `net.core.rmem_max` is passed over; [`receive_buffer`] tells what came of it.
pub(crate) fn bind(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    if let Some(bytes) = receive_buffer
        && setsockopt(&socket, sockopt::RcvBufForce, &bytes).is_err()
    {
        setsockopt(&socket, sockopt::RcvBuf, &bytes)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// The receive buffer as the kernel accounts for it: twice what was asked for, or twice its limit.
pub(crate) fn receive_buffer(socket: &UdpSocket) -> io::Result<usize> {
    Ok(getsockopt(socket, sockopt::RcvBuf)?)
}
