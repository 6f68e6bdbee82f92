//! UDP sockets, bound the way servers and clients need them.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::BindError;

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

/// An address as a socket beside one that is bound to `first` writes it; none: such a socket has no address of this family.
pub(crate) fn as_beside(first: SocketAddr, address: IpAddr) -> Option<IpAddr> {
    match (first, address) {
        (SocketAddr::V4(_), IpAddr::V6(_)) => None,
        (SocketAddr::V6(_), IpAddr::V4(v4)) => Some(IpAddr::V6(v4.to_ipv6_mapped())),
        _ => Some(address),
    }
}

/// Binds a socket to an address of ours and a port that the system chooses, beside one that is bound to `first`: of the
/// same family, so that the peer's address is written alike in both. Gives the address as the socket writes it.
///
/// The socket is bound to the interface that has the address, too: otherwise the system would choose the interface by the
/// peer's address alone, and send from this address where no answer comes back to.
///
/// # Errors
/// The system's error; also if there is no way from an address of this family to what `first` reaches.
pub(crate) fn bind_beside(first: SocketAddr, address: IpAddr) -> io::Result<(UdpSocket, IpAddr)> {
    let failed = BindError::wrap(SocketAddr::new(address, 0));
    let address = as_beside(first, address).ok_or_else(|| {
        let message = "the endpoint's socket is bound to an IPv4 address";
        failed(io::Error::new(io::ErrorKind::InvalidInput, message))
    })?;
    open_beside(first, address).map(|socket| (socket, address)).map_err(failed)
}

/// Binds a socket to an address that is written as the one that is bound to `first` writes it.
fn open_beside(first: SocketAddr, address: IpAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(first), Type::DGRAM, Some(Protocol::UDP))?;
    if first.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    let canonical = address.to_canonical();
    if let Some(interface) = interface_of(canonical)?.filter(|_| !canonical.is_loopback()) {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&SocketAddr::new(address, 0).into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Name of the interface that has this address; none: no interface has exactly this one.
fn interface_of(address: IpAddr) -> io::Result<Option<String>> {
    let mut interfaces = getifaddrs()?;
    let found = interfaces.find(|interface| {
        let v4 = || Some(IpAddr::V4(interface.address.as_ref()?.as_sockaddr_in()?.ip()));
        let v6 = || Some(IpAddr::V6(interface.address.as_ref()?.as_sockaddr_in6()?.ip()));
        v4().or_else(v6) == Some(address)
    });
    Ok(found.map(|interface| interface.interface_name))
}

/// As [`bind`], so many sockets that share the port (SO_REUSEPORT): the kernel distributes clients
/// over them by their address.
pub(crate) fn bind_several(
    address: SocketAddr,
    count: usize,
    receive_buffer: Option<usize>,
) -> io::Result<Vec<UdpSocket>> {
    bind_all(address, count, receive_buffer).map_err(BindError::wrap(address))
}

fn bind_all(
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
