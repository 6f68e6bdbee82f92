//! What an implementation does for `equic bench transport` (docs/bench-transport.md): its command line,
//! the figures that are the same for all, and the object that a client prints.

mod command;
pub mod perf;
pub mod tls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

pub use command::{Client, Role, Server, Work, read};

/// ALPN of draft-banks-quic-performance.
pub const PERF: &[u8] = b"perf";
/// ALPN of HTTP/3.
pub const H3: &[u8] = b"h3";
/// SO_RCVBUF and SO_SNDBUF, in bytes, before the kernel doubles them.
pub const BUFFER: usize = 4 << 20;
/// Flow control of a stream and of a connection, in bytes.
pub const STREAM_WINDOW: u64 = 16 << 20;
pub const CONNECTION_WINDOW: u64 = 32 << 20;
/// Streams of a kind that a peer may have open.
pub const STREAMS: u32 = 1024;
/// The largest UDP payload, in bytes.
pub const PAYLOAD: u16 = 1452;
/// Nothing is idle for so long, except connections that are held.
pub const IDLE: Duration = Duration::from_secs(600);
/// What `GET /1k` is answered with.
pub const SMALL_BODY: usize = 1024;
/// Connections that are opened at a time for `--hold`.
pub const OPENING: usize = 32;
/// Exit status: it does not do that.
pub const UNSUPPORTED: i32 = 127;

/// Ends the process: it does not do that.
pub fn unsupported() -> ! {
    std::process::exit(UNSUPPORTED)
}

/// A UDP socket with the buffers that all have.
pub fn socket(address: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // Root passes net.core.rmem_max over, others get what it allows: what came of it is in the answer.
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    if setsockopt(&socket, sockopt::SndBufForce, &BUFFER).is_err() {
        socket.set_send_buffer_size(BUFFER)?;
    }
    socket.bind(&address.into()).with_context(|| format!("cannot listen on {address}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A client's socket, bound to the address that leads to `server`.
pub fn client_socket(server: SocketAddr) -> Result<UdpSocket> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(server)?;
    socket(SocketAddr::new(probe.local_addr()?.ip(), 0))
}

/// Says that the server listens.
pub fn ready(address: SocketAddr) {
    println!("ready {address}");
}

/// Says that all connections are there.
pub fn held() {
    println!("held");
}

/// What a client prints at its end.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// Bytes of payload that arrived: here, or for an upload at the server by its own account.
    pub bytes: u64,
    /// Streams, handshakes, requests or connections that were completed.
    pub count: u64,
    /// Handshakes that were resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
    /// From the first request to the last byte, without the handshake.
    pub seconds: f64,
    /// Of the connection's handshake, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    pub effective: Effective,
}

/// What was in force at the client.
#[derive(Debug, Serialize)]
pub struct Effective {
    pub implementation: String,
    /// `native`, or `shared` for a stack that brings no sockets and runs on quinn-udp.
    pub io: &'static str,
    /// As the kernel counts them: twice what was asked for.
    pub receive_buffer: usize,
    pub send_buffer: usize,
    pub stream_window: u64,
    pub connection_window: u64,
    pub congestion: &'static str,
    /// None: the stack does not tell.
    pub cipher: Option<&'static str>,
    pub max_payload: u16,
    /// Segmentation offload, sending and receiving.
    pub gso: bool,
    pub gro: bool,
}

impl Effective {
    /// With what all have in common; the socket's buffers are looked at.
    pub fn new(package: &str, io: &'static str, socket: &UdpSocket) -> Result<Effective> {
        Ok(Effective {
            implementation: format!("{package} {}", version(package)),
            io,
            receive_buffer: getsockopt(socket, sockopt::RcvBuf)?,
            send_buffer: getsockopt(socket, sockopt::SndBuf)?,
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
            congestion: "cubic",
            cipher: Some("TLS_AES_128_GCM_SHA256"),
            max_payload: PAYLOAD,
            gso: true,
            gro: true,
        })
    }
}

impl Answer {
    pub fn print(&self) -> Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// What the lock file says of a package.
fn version(package: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let mark = format!("name = \"{package}\"\nversion = \"");
    let rest = lock.split_once(&mark).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_once('"')).map_or("?", |(version, _)| version)
}
