//! Creates TCP sockets with the requested settings. SO_RCVBUF and SO_SNDBUF are set as for UDP
//! sockets, which disables the kernel's automatic tuning. The congestion control algorithm is
//! always set, so that the system's default has no effect.

use std::net::SocketAddr;

use crate::socket::set_buffers;
use crate::{Congestion, Knobs, unsupported};
use anyhow::{Context as _, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Creates a client's socket, in blocking mode.
pub fn client(server: SocketAddr, knobs: &Knobs) -> Result<Socket> {
    if knobs.gso.is_some() {
        unsupported("setting segmentation offload for TCP");
    }
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    set_buffers(&socket, knobs)?;
    let name = kernel(knobs.congestion());
    if socket.set_tcp_congestion(name.as_bytes()).is_err() {
        unsupported(&format!(
            "the congestion control {name}, which is not in net.ipv4.tcp_available_congestion_control"
        ));
    }
    if let Some(mtu) = knobs.mtu {
        socket.set_tcp_mss(mtu.into()).context("TCP_MAXSEG")?;
    }
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// Creates a server's socket, in non-blocking mode. Accepted sockets inherit its settings.
pub fn listen(address: SocketAddr, knobs: &Knobs) -> Result<Socket> {
    let socket = client(address, knobs)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into()).with_context(|| format!("cannot listen on {address}"))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns the name by which the kernel knows the congestion control algorithm.
fn kernel(congestion: Congestion) -> &'static str {
    match congestion {
        Congestion::Cubic => "cubic",
        Congestion::NewReno => "reno",
        Congestion::Bbr => "bbr",
    }
}

/// Returns the congestion control in force, as the kernel reports it.
pub fn congestion(socket: &Socket) -> Result<Option<&'static str>> {
    let name = socket.tcp_congestion()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let known = [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr];
    let found = known.into_iter().find(|one| kernel(*one).as_bytes() == name);
    Ok(found.map(Congestion::name))
}
