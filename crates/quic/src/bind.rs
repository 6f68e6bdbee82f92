//! Binds UDP sockets for servers and clients.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::BindError;

/// Binds a non-blocking UDP socket. An IPv6 wildcard address receives IPv4, too.
///
/// `receive_buffer` is SO_RCVBUF in bytes. With CAP_NET_ADMIN, it may exceed the system's limit
/// `net.core.rmem_max`.
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

/// Returns an address in the form that a socket of the family of `first` uses. Returns `None` for
/// an IPv6 address if `first` is an IPv4 address.
pub(crate) fn as_beside(first: SocketAddr, address: IpAddr) -> Option<IpAddr> {
    match (first, address) {
        (SocketAddr::V4(_), IpAddr::V6(_)) => None,
        (SocketAddr::V6(_), IpAddr::V4(v4)) => Some(IpAddr::V6(v4.to_ipv6_mapped())),
        _ => Some(address),
    }
}

/// Binds a socket to a local address and a port that the system chooses. The socket has the same
/// family as `first`, so that both write the peer's address in the same form. Returns the socket
/// and its address in this form.
///
/// The socket is also bound to the interface that has the address. Otherwise the system would
/// choose the interface by the peer's address only. Packets from this address could then leave
/// through an interface at which no answer arrives.
///
/// # Errors
/// Returns the system's error with the address. Returns `InvalidInput` if `address` is an IPv6
/// address and `first` is an IPv4 address.
pub(crate) fn bind_beside(first: SocketAddr, address: IpAddr) -> io::Result<(UdpSocket, IpAddr)> {
    let failed = BindError::wrap(SocketAddr::new(address, 0));
    let address = as_beside(first, address).ok_or_else(|| {
        let message = "the endpoint's socket is bound to an IPv4 address";
        failed(io::Error::new(io::ErrorKind::InvalidInput, message))
    })?;
    open_beside(first, address).map(|socket| (socket, address)).map_err(failed)
}

/// Binds a socket of the family of `first` to an address that is already in the form of that
/// family.
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

/// Returns the name of the interface that has this address, or `None` if no interface has it.
fn interface_of(address: IpAddr) -> io::Result<Option<String>> {
    let mut interfaces = getifaddrs()?;
    let found = interfaces.find(|interface| {
        let v4 = || Some(IpAddr::V4(interface.address.as_ref()?.as_sockaddr_in()?.ip()));
        let v6 = || Some(IpAddr::V6(interface.address.as_ref()?.as_sockaddr_in6()?.ip()));
        v4().or_else(v6) == Some(address)
    });
    Ok(found.map(|interface| interface.interface_name))
}

/// Binds `count` sockets that share the port (SO_REUSEPORT), otherwise like [`bind`]. The kernel
/// distributes clients over the sockets by their address.
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
        // The option is set after binding. If it were set before, port 0 could become a port that
        // another process shares.
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

/// Disables UDP GRO, so that the kernel delivers each datagram separately.
pub(crate) fn disable_receive_offload(socket: &UdpSocket) {
    // This fails only if the kernel does not support GRO.
    let _ = setsockopt(socket, sockopt::UdpGroSegment, &false);
}
