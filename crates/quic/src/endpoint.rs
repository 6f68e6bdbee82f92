//! Sockets and their tasks.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equic_transport::{ConnectionIdGenerator, EndpointConfig, RandomIds};
use equic_wire::{ConnectionId, VarInt};
use rand::RngCore;
use rustls::pki_types::ServerName;

use crate::connection::Connecting;
use crate::driver::Driver;
use crate::error::ConnectError;
use crate::incoming::Incoming;
use crate::log::{Logs, PacketTrace, QlogFolder};
use crate::memory::SendMemory;
use crate::socket::{IncomingQueue, Shared, Socket};
use crate::tokens::{Home, Tokens};
use crate::udp::{Offloads, Udp};
use crate::{ClientConfig, ServerConfig};

/// Sockets that may share a port: a connection ID names its socket in one byte.
const MAX_SOCKETS: usize = 256;

/// Time for which a replaced socket still receives datagrams under way to it: some round trips.
const KEPT: Duration = Duration::from_secs(3);

/// Settings of an endpoint, given when it is made.
#[derive(Clone)]
pub struct Settings {
    /// Tokens, resets, limits. Its `ids` are replaced where there are several sockets.
    pub endpoint: EndpointConfig,
    /// UDP generic receive offload: faster, for up to half a megabyte of buffers a socket.
    pub receive_offload: bool,
    /// UDP generic segmentation offload, where the kernel has it.
    pub send_offload: bool,
    /// Folder for a qlog file of each connection; none: no qlog files are written.
    pub qlog: Option<QlogFolder>,
    /// Output for a line about each packet; none: no lines are written.
    pub trace: Option<PacketTrace>,
    /// Whether a server gives each client a token, which proves that it receives at its address the
    /// next time (RFC 9000 s.8.1.3), so that no Retry packet is needed.
    pub give_tokens: bool,
    /// Whether a client keeps the tokens of servers, for its next connection to the same server.
    pub keep_tokens: bool,
    /// Whether a client's connection ends when the network says, before anything has come from the
    /// server, that nothing listens there or that no way leads there (ICMP). Otherwise it goes on
    /// trying: the server may be about to start.
    pub heed_unreachable: bool,
    /// Bound on the data that waits to be sent in all connections, for applications that ask before
    /// they make it.
    pub send_memory: SendMemory,
}

impl Settings {
    /// The default settings, with a configuration of the QUIC endpoint.
    pub fn new(endpoint: EndpointConfig) -> Settings {
        Settings {
            endpoint,
            receive_offload: true,
            send_offload: true,
            qlog: None,
            trace: None,
            give_tokens: true,
            keep_tokens: true,
            heed_unreachable: false,
            send_memory: SendMemory::default(),
        }
    }
}

/// One or several sockets with their connections; clones are the same endpoint. When the last clone is
/// dropped nothing new comes, and what is open stays open until it is closed.
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

struct Owner {
    sockets: Vec<Arc<Socket>>,
    shared: Arc<Shared>,
    offloads: Offloads,
    server: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
        for socket in &self.sockets {
            let mut inner = socket.lock();
            inner.endpoint.set_server(None);
            inner.released = true;
            drop(inner);
            socket.wake();
        }
    }
}

impl Shared {
    /// Nobody looks at attempts any more.
    fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let list = std::mem::take(&mut queue.list);
        drop(queue);
        // Only now: each takes its socket's lock.
        drop(list);
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }
}

/// Says in the first byte which socket an ID belongs to.
struct SocketIds {
    index: u8,
    random: RandomIds,
}

impl ConnectionIdGenerator for SocketIds {
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        let mut bytes = [0; ConnectionId::MAX_LEN];
        let id = self.random.generate(rng);
        let bytes = bytes.get_mut(..id.len()).unwrap_or_default();
        bytes.copy_from_slice(id.as_bytes());
        if let Some(first) = bytes.first_mut() {
            *first = self.index;
        }
        ConnectionId::cut(bytes)
    }

    fn id_len(&self) -> usize {
        self.random.id_len()
    }
}

impl Endpoint {
    /// Sockets for [`Endpoint::server`], bound to one address, sharing the port if there are several;
    /// an IPv6 wildcard takes IPv4 as well. `receive_buffer` is SO_RCVBUF in bytes.
    ///
    /// # Errors
    /// The system's error, if it refuses to make or bind a socket.
    pub fn bind(
        address: SocketAddr,
        count: usize,
        receive_buffer: Option<usize>,
    ) -> io::Result<Vec<UdpSocket>> {
        crate::bind::bind_several(address, count, receive_buffer)
    }

    /// A client on a bound socket. Must be called inside a tokio runtime. The first of a process takes
    /// the tens of milliseconds that its cryptography needs to get ready, so that no connection does.
    ///
    /// # Errors
    /// The system's error, if the socket cannot be used.
    pub fn client(socket: UdpSocket, settings: Settings) -> io::Result<Endpoint> {
        Endpoint::new(vec![socket], settings, None)
    }

    /// A server on bound sockets: one, or several that share a port by SO_REUSEPORT. It can connect,
    /// too. Must be called inside a tokio runtime, and takes as long as [`Endpoint::client`].
    ///
    /// # Errors
    /// The system's error, if a socket cannot be used; also if there are no sockets or more than
    /// 256.
    pub fn server(
        sockets: Vec<UdpSocket>,
        settings: Settings,
        config: Arc<ServerConfig>,
    ) -> io::Result<Endpoint> {
        Endpoint::new(sockets, settings, Some(config))
    }

    fn new(
        sockets: Vec<UdpSocket>,
        settings: Settings,
        server: Option<Arc<ServerConfig>>,
    ) -> io::Result<Endpoint> {
        if sockets.is_empty() || sockets.len() > MAX_SOCKETS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "from 1 to 256 sockets"));
        }
        let shared = Arc::new(Shared {
            incoming: std::sync::Mutex::new(IncomingQueue::default()),
            arrived: tokio::sync::Notify::new(),
            gone: tokio::sync::Notify::new(),
            logs: Logs { qlog: settings.qlog, trace: settings.trace },
            tokens: Arc::new(Tokens::default()),
            gives_tokens: settings.give_tokens,
            keeps_tokens: settings.keep_tokens,
            heeds_unreachable: settings.heed_unreachable,
            send_memory: settings.send_memory,
        });
        let (start, several) = (Instant::now(), sockets.len() > 1);
        let mut config = settings.endpoint;
        config.warm_up();
        // A token of one socket is good on all.
        let seed: [u8; 32] = rand::random();
        config.token_key.get_or_insert(seed);
        config.reset_key.get_or_insert_with(rand::random);
        let offloads = Offloads { receive: settings.receive_offload, send: settings.send_offload };
        let mut made = Vec::new();
        for (index, socket) in (0..=u8::MAX).zip(sockets) {
            let udp = Udp::new(socket, offloads, server.is_some())?;
            let mut config = config.clone();
            if several {
                config.ids = Arc::new(SocketIds { index, random: RandomIds::default() });
            }
            let endpoint = equic_transport::Endpoint::new(config, server.clone(), rand::random());
            made.push(Socket::new(endpoint, udp, start, Arc::clone(&shared)));
        }
        for (index, socket) in made.iter().enumerate() {
            let siblings = if several { made.clone() } else { Vec::new() };
            let driver = Driver::new(Arc::clone(socket), siblings, index);
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                if let Some(error) = driver.await {
                    tracing::error!(%error, "the UDP socket failed");
                    shared.close();
                }
            });
        }
        let server = server.is_some();
        Ok(Endpoint(Arc::new(Owner { sockets: made, shared, offloads, server })))
    }

    fn first(&self) -> &Arc<Socket> {
        &self.0.sockets[0]
    }

    /// Begins a connection to a server, whose certificate has to be for `name`.
    ///
    /// # Errors
    /// [`ConnectError`]; what the network has to say comes when the [`Connecting`] is awaited.
    pub fn connect(
        &self,
        config: &ClientConfig,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Connecting, ConnectError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectError::ServerName(name.to_owned()))?;
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::Remote(remote));
        }
        let socket = self.first();
        let mut inner = socket.lock();
        if inner.dead {
            return Err(ConnectError::EndpointGone);
        }
        let local = inner.udp.local_addr().map_err(|_| ConnectError::EndpointGone)?;
        let remote = reachable(local, remote).ok_or(ConnectError::Remote(remote))?;
        let now = socket.now();
        let (handle, mut connection) = inner.endpoint.connect(now, config, name.clone(), remote)?;
        self.0.shared.logs.begin(&mut connection, now).release();
        let home = Home::new(Arc::clone(&socket.shared.tokens), name, remote);
        if let Some(token) = home.take(connection.version()) {
            // Of our own making is only that it is not too long, and nothing was sent yet.
            connection.set_token(token);
        }
        if self.0.shared.heeds_unreachable {
            inner.heed_errors(handle);
        }
        let cell = socket.add(&mut inner, handle, connection);
        cell.lock().home = Some(home).filter(|_| socket.shared.keeps_tokens);
        drop(inner);
        Ok(Connecting::new(cell))
    }

    /// The next attempt of a client; none: the endpoint is closed, or its sockets have failed.
    pub async fn accept(&self) -> Option<Incoming> {
        let shared = &self.0.shared;
        loop {
            let arrived = shared.arrived.notified();
            {
                let mut queue = shared.queue();
                if let Some(incoming) = queue.list.pop_front() {
                    return Some(incoming);
                }
                if queue.closed {
                    // For whoever else waits.
                    shared.arrived.notify_one();
                    return None;
                }
            }
            arrived.await;
        }
    }

    /// No more attempts are taken: [`Endpoint::accept`] gives none.
    pub fn stop_accepting(&self) {
        for socket in &self.0.sockets {
            socket.lock().endpoint.set_server(None);
        }
        self.0.shared.close();
    }

    /// Closes all connections, and takes no more attempts.
    pub fn close(&self, code: VarInt, reason: &str) {
        self.stop_accepting();
        for socket in &self.0.sockets {
            let cells: Vec<_> = socket.lock().cells.iter().flatten().cloned().collect();
            cells.iter().for_each(|cell| cell.close(code, reason));
        }
    }

    /// Waits until all connections are gone: closed, and their peers told.
    pub async fn wait_idle(&self) {
        loop {
            let gone = self.0.shared.gone.notified();
            tokio::pin!(gone);
            gone.as_mut().enable();
            if self.open_connections() == 0 {
                return;
            }
            gone.await;
        }
    }

    /// Connections that are open, being opened or being closed.
    pub fn open_connections(&self) -> usize {
        self.0.sockets.iter().map(|socket| socket.lock().open).sum()
    }

    /// The local address of the first socket.
    ///
    /// # Errors
    /// The system's error, if the address cannot be read.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.first().lock().udp.local_addr()
    }

    /// Puts another socket in the place of the first: its connections go on from there
    /// (RFC 9000 s.9). What is under way to the old one is still received for three seconds.
    ///
    /// # Errors
    /// The system's error, if the socket cannot be used; nothing has changed then.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let udp = Udp::new(socket, self.0.offloads, self.0.server)?;
        let socket = self.first();
        let local = udp.local_addr()?.ip();
        let local = (!local.is_unspecified()).then_some(local);
        // They are for the old address, and would tell who it was that moved.
        self.0.shared.tokens.clear();
        let mut inner = socket.lock();
        let before = std::mem::replace(&mut inner.udp, Arc::new(udp));
        inner.before = Some((before, socket.now() + KEPT));
        // What the network says of packets from the old address is over.
        inner.unanswered.clear();
        let cells: Vec<_> = inner.cells.iter().flatten().cloned().collect();
        drop(inner);
        let now = socket.now();
        for cell in cells {
            let mut state = cell.lock();
            if state.connection.migrate(now, local).is_err() {
                // Without another connection ID, as behind a NAT that has forgotten.
                state.connection.ping();
            }
            state.take_events();
            cell.touch(&mut state);
        }
        Ok(())
    }
}

/// A remote address as the socket has to write it.
fn reachable(local: SocketAddr, remote: SocketAddr) -> Option<SocketAddr> {
    match (local, remote) {
        (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
            local.ip().is_unspecified().then(|| (v4.ip().to_ipv6_mapped(), v4.port()).into())
        }
        (SocketAddr::V4(_), SocketAddr::V6(_)) => None,
        _ => Some(remote),
    }
}
