//! A client of TLS over TCP that implements [`Stack`].

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use super::socket;
use super::tls_wire::TlsWire;
use super::wire::{Receive, Send, Shared, Wire, shared, with};
use crate::{Connection, Effective, Knobs, Stack};

/// A client of TLS over TCP.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Address of the server.
    pub server: SocketAddr,
    /// Settings of the sockets.
    pub knobs: Knobs,
    /// Configuration of TLS.
    pub config: Arc<ClientConfig>,
    /// Name of the server, which its certificate must contain.
    pub name: ServerName<'static>,
    /// Number of handshakes so far that were not resumed.
    pub full: Arc<AtomicU64>,
}

/// An open connection.
pub struct Open<W>(Shared<W>);

impl<W> Open<W> {
    /// Opens the only stream of a connection.
    pub fn new(wire: W) -> Open<W> {
        Open(shared(wire))
    }
}

impl<W> fmt::Debug for Open<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}

/// Connects a TCP socket to the server.
///
/// # Errors
/// Errors of the operating system.
pub async fn connect(server: SocketAddr, knobs: &Knobs) -> Result<TcpStream> {
    let socket = socket::client(server, knobs)?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()).connect(server).await?)
}

impl Stack for Tls {
    type Connection = Open<TlsWire>;

    async fn connect(&self) -> Result<Open<TlsWire>> {
        let stream = connect(self.server, &self.knobs).await?;
        let wire = TlsWire::connect(stream, Arc::clone(&self.config), self.name.clone());
        Ok(Open::new(wire.await?))
    }

    fn full_handshakes(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }
}

impl<W: Wire> Connection for Open<W> {
    type Send = Send<W>;
    type Receive = Receive<W>;

    async fn open(&self) -> Result<(Send<W>, Receive<W>)> {
        Ok((Send(Arc::clone(&self.0)), Receive(Arc::clone(&self.0))))
    }

    fn observe(&self, effective: &mut Effective) {
        with(&self.0, |wire| {
            let socket = SockRef::from(wire.socket());
            effective.max_payload = socket.tcp_mss().ok().and_then(|mss| u16::try_from(mss).ok());
            effective.receive_buffer = socket.recv_buffer_size().ok();
            effective.send_buffer = socket.send_buffer_size().ok();
        });
    }

    async fn close(self, _code: u32) {}

    fn is_open(&mut self) -> bool {
        with(&self.0, |wire| {
            let wanted = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);
            let mut fds = [PollFd::new(wire.socket().as_fd(), wanted)];
            poll(&mut fds, PollTimeout::ZERO).is_ok_and(|gone| gone == 0)
        })
    }
}
