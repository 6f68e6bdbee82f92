//! Creates UDP sockets with the requested buffer sizes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Knobs;

/// Creates a non-blocking UDP socket.
pub fn udp(address: SocketAddr, knobs: &Knobs) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    set_buffers(&socket, knobs)?;
    socket.bind(&address.into()).with_context(|| format!("cannot listen on {address}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Creates a client's socket, bound to a local address that can reach `server`.
pub fn udp_client(server: SocketAddr, knobs: &Knobs) -> Result<UdpSocket> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(server)?;
    udp(SocketAddr::new(probe.local_addr()?.ip(), 0), knobs)
}

/// Sets SO_RCVBUF and SO_SNDBUF. Root may exceed net.core.rmem_max, and for other users the kernel
/// reduces the sizes to what it permits. The client's answer reports the resulting sizes.
pub fn set_buffers(socket: &impl AsFd, knobs: &Knobs) -> Result<()> {
    let (receive, send) = (knobs.receive_buffer(), knobs.send_buffer());
    if setsockopt(socket, sockopt::RcvBufForce, &receive).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &receive)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &send).is_err() {
        setsockopt(socket, sockopt::SndBuf, &send)?;
    }
    Ok(())
}
