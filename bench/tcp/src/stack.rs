//! TCP, as the contract's crate sees a stack.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use equic_bench_contract::{Connection, Effective, Knobs, Stack};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::BufReader;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::wire::{Receive, Send, Shared, Wire, shared, with};
use crate::{buffered, socket};

/// Stack of TCP with TLS.
#[derive(Clone)]
pub struct Tls {
    pub server: SocketAddr,
    pub knobs: Knobs,
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
    /// Handshakes that were not resumed.
    pub full: Arc<AtomicU64>,
}

/// Stack of TCP without TLS.
#[derive(Clone)]
pub struct Plain {
    pub server: SocketAddr,
    pub knobs: Knobs,
}

pub struct Open<W>(Shared<W>);

async fn connect(server: SocketAddr, knobs: &Knobs) -> Result<TcpStream> {
    let socket = socket::client(server, knobs)?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()).connect(server).await?)
}

impl Stack for Tls {
    type Connection = Open<TlsStream<BufReader<TcpStream>>>;

    async fn connect(&self) -> Result<Self::Connection> {
        let stream = buffered(connect(self.server, &self.knobs).await?);
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(Open(shared(connector.connect(self.name.clone(), stream).await?)))
    }

    fn full_handshakes(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }
}

impl Stack for Plain {
    type Connection = Open<BufReader<TcpStream>>;

    async fn connect(&self) -> Result<Self::Connection> {
        Ok(Open(shared(buffered(connect(self.server, &self.knobs).await?))))
    }

    fn full_handshakes(&self) -> u64 {
        0
    }
}

impl<W: Wire> Connection for Open<W> {
    type Send = Send<W>;
    type Receive = Receive<W>;

    async fn open(&self) -> Result<(Send<W>, Receive<W>)> {
        Ok((Send(Arc::clone(&self.0)), Receive::new(&self.0)))
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
