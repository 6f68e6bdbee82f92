//! UDP sockets, bound the way servers and clients need them.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

/// Binds a non-blocking UDP socket. An IPv6 wildcard takes IPv4 as well.
///
/// `receive_buffer` is SO_RCVBUF in bytes. Where the process may (CAP_NET_ADMIN), the system's limit
/// `net.core.rmem_max` is passed over.
fn bind(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<UdpSocket> {
    let socket = open(address, receive_buffer)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn open(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<Socket> {
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
    Ok(socket)
}

/// As [`bind`], so many sockets that share the port (SO_REUSEPORT): the kernel distributes clients
/// over them by their address.
pub(crate) fn bind_several(
    address: SocketAddr,
    count: usize,
    receive_buffer: Option<usize>,
) -> io::Result<Vec<UdpSocket>> {
    let first = bind(address, receive_buffer)?;
    let mut sockets = Vec::with_capacity(count);
    if count > 1 {
        // Only now: with it, port 0 might be one that another process shares.
        socket2::SockRef::from(&first).set_reuse_port(true)?;
        let address = first.local_addr()?;
        for _ in 1..count {
            let socket = open(address, receive_buffer)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            sockets.push(socket.into());
        }
    }
    sockets.insert(0, first);
    Ok(sockets)
}

/// Has the kernel hand over each datagram by itself, where it would gather them.
pub(crate) fn disable_receive_offload(socket: &UdpSocket) {
    // A kernel without it has nothing to disable.
    let _ = setsockopt(socket, sockopt::UdpGroSegment, &false);
}
