//! Sockets and their tasks.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use equic_transport::StartError;
use equic_transport::token::TokenKey;
use equic_wire::VarInt;
use rustls::pki_types::ServerName;

use crate::clock::system_clock;
use crate::connection::Connecting;
use crate::driver::Driver;
use crate::error::ConnectError;
use crate::incoming::{Incoming, NoAttempt};
#[cfg(feature = "qlog")]
use crate::log::Logs;
use crate::socket::{IncomingQueue, Shared, Socket};
use crate::socket_ids::RandomSocketIds;
use crate::tokens::{Home, Tokens};
use crate::udp::{Offloads, Udp};
use crate::{ClientConfig, EndpointConfig, ServerConfig};

/// Sockets that may share a port: a connection ID names its socket in one byte.
const MAX_SOCKETS: usize = 256;

/// Time for which a replaced socket still receives datagrams under way to it: some round trips.
const KEPT: Duration = Duration::from_secs(3);

/// One or several sockets with their connections; clones are the same endpoint.
///
/// When the last clone is dropped, open connections stay open until they are closed, and new clients are refused
/// (CONNECTION_REFUSED) meanwhile. The socket is closed when no connection is open, at once if none is: new clients get
/// no answer from then on. A server that ends calls [`Endpoint::close`] and awaits [`Endpoint::wait_idle`] first.
#[derive(Clone)]
pub struct Endpoint {
    owner: Arc<Owner>,
    /// For [`Endpoint::connect`].
    client: Option<ClientConfig>,
}

struct Owner {
    sockets: Vec<Arc<Socket>>,
    shared: Arc<Shared>,
    offloads: Offloads,
    /// True if it is, or was, a server.
    server: AtomicBool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
        for socket in &self.sockets {
            let mut inner = socket.lock();
            inner.serving = false;
            inner.released = true;
            drop(inner);
            socket.wake();
        }
    }
}

impl Shared {
    /// Ends [`Endpoint::accept`], and refuses the attempts that wait for it.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let list = std::mem::take(&mut queue.list);
        drop(queue);
        // After the queue is unlocked, because each attempt locks its socket.
        list.into_iter().for_each(Incoming::refuse);
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }
}

impl Endpoint {
    /// Sockets for [`Endpoint::new`], bound to one address, sharing the port if there are several;
    /// an IPv6 wildcard takes IPv4 as well. `receive_buffer` is SO_RCVBUF in bytes.
    ///
    /// # Errors
    /// The system's error with the address, if it refuses to make or bind a socket. `InvalidInput` if `count` is not from
    /// 1 to 256.
    pub fn bind(
        address: SocketAddr,
        count: usize,
        receive_buffer: Option<usize>,
    ) -> io::Result<Vec<UdpSocket>> {
        if !(1..=MAX_SOCKETS).contains(&count) {
            let message = format!("{count} sockets: allowed is 1 to {MAX_SOCKETS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        crate::bind::bind_several(address, count, receive_buffer)
    }

    /// A client on a socket of its own, bound to `address`; port 0: one that the system chooses. Connections
    /// are made with [`Endpoint::connect_with`], or with [`Endpoint::connect`] after
    /// [`Endpoint::set_default_client_config`]. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The system's error with the address, if the socket cannot be made; [`ConfigError`](crate::ConfigError); and as
    /// [`Endpoint::new`].
    pub fn client(address: SocketAddr) -> io::Result<Endpoint> {
        let config = EndpointConfig::with_default_provider()?;
        Endpoint::new(config, None, Endpoint::bind(address, 1, None)?)
    }

    /// A server on a socket of its own, bound to `address`; an IPv6 wildcard takes IPv4 as well. It can
    /// connect, too. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// As [`Endpoint::client`].
    pub fn server(config: ServerConfig, address: SocketAddr) -> io::Result<Endpoint> {
        let endpoint = EndpointConfig::new(config.tls.crypto_provider())?;
        Endpoint::new(endpoint, Some(config), Endpoint::bind(address, 1, None)?)
    }

    /// An endpoint on bound sockets: one, or several that share a port by SO_REUSEPORT, in the order in which they were bound
    /// and with no others at it, as [`Endpoint::bind`] makes them. Without `server` it
    /// takes no connections, but can connect. Must be called inside a tokio runtime. The first of a process
    /// takes the tens of milliseconds that its cryptography needs to get ready, so that no connection does.
    ///
    /// Of several sockets, the kernel is told to give each what is for its connections
    /// (SO_ATTACH_REUSEPORT_CBPF, classic BPF, which needs no privilege). Where it does not, and
    /// where IDs name their socket in encrypted form ([`EndpointConfig::hide_sockets`]), datagrams
    /// of clients that have moved are handed from one socket to the other here.
    ///
    /// # Errors
    /// The system's error, if a socket cannot be used. `InvalidInput` if there are no sockets or more than 256, or if
    /// a setting of `config` or `server` is out of range ([`SettingError`](crate::SettingError)). `Unsupported`
    /// outside a tokio runtime, or inside one without I/O or timers.
    pub fn new(
        config: EndpointConfig,
        server: Option<ServerConfig>,
        sockets: Vec<UdpSocket>,
    ) -> io::Result<Endpoint> {
        if sockets.is_empty() || sockets.len() > MAX_SOCKETS {
            let message = format!("{} sockets: allowed is 1 to {MAX_SOCKETS}", sockets.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        config.core.validate().map_err(|error| invalid(error.inside("CoreConfig")))?;
        if let Some(server) = &server {
            server.transport.validate().map_err(invalid)?;
        }
        let several = sockets.len() > 1;
        let random = || Arc::new(RandomSocketIds::new(config.hide_sockets)) as Arc<_>;
        let ids = config.ids.or_else(|| several.then(random));
        let shared = Arc::new(Shared {
            incoming: std::sync::Mutex::new(IncomingQueue::default()),
            arrived: tokio::sync::Notify::new(),
            gone: tokio::sync::Notify::new(),
            broken: AtomicU64::new(0),
            #[cfg(feature = "qlog")]
            logs: Logs { qlog: config.qlog, trace: config.trace, subscriber: config.subscriber },
            tokens: Arc::new(Tokens::default()),
            gives_tokens: config.give_tokens,
            keeps_tokens: config.keep_tokens,
            heeds_unreachable: config.heed_unreachable,
            send_memory: config.send_memory,
            ids: ids.clone(),
        });
        let start = Instant::now();
        let offloads = Offloads { receive: config.receive_offload, send: config.send_offload };
        let mut config = config.core;
        config.warm_up();
        // A token of one socket is good at all, and once at all of them.
        let token_key = || TokenKey::new(rand::random::<[u8; 32]>(), system_clock());
        config.token_key.get_or_insert_with(token_key);
        config.reset_key.get_or_insert_with(|| rand::random::<[u8; 32]>().into());
        if several
            && let Some(ids) = ids.as_ref().filter(|ids| !ids.is_hidden())
            && let Err(error) = crate::steer::by_connection_id(&sockets[0], ids.number_at())
        {
            tracing::debug!(%error, "the kernel cannot choose sockets by connection ID");
        }
        let mut made = Vec::new();
        for (index, socket) in (0..=u8::MAX).zip(sockets) {
            let udp = Udp::new(socket, offloads, server.is_some())?;
            let mut config = config.clone();
            if let Some(ids) = &ids {
                config.ids = ids.of_socket(index);
            }
            let core = server.as_ref().map(ServerConfig::core);
            let endpoint = equic_transport::Endpoint::new(config, core, rand::random());
            let prepare = server.as_ref().and_then(|server| server.prepare.clone());
            made.push(Socket::new(endpoint, udp, prepare, start, Arc::clone(&shared)));
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
        let server = AtomicBool::new(server.is_some());
        let owner = Arc::new(Owner { sockets: made, shared, offloads, server });
        Ok(Endpoint { owner, client: None })
    }

    pub(crate) fn offloads(&self) -> Offloads {
        self.owner.offloads
    }

    pub(crate) fn first(&self) -> &Arc<Socket> {
        &self.owner.sockets[0]
    }

    /// Sets the configuration of [`Endpoint::connect`], for this clone and those made of it.
    pub fn set_default_client_config(&mut self, config: ClientConfig) {
        self.client = Some(config);
    }

    /// Accepts clients with another configuration from now on, such as one with a new certificate. With `None`, new
    /// clients are refused (CONNECTION_REFUSED) until there is a configuration again. It is for attempts that wait in
    /// [`Endpoint::accept`], too: what counts is the configuration at the moment of [`Incoming::accept`], which fails if
    /// a transport setting is out of range.
    /// Connections that are open stay as they are.
    pub fn set_server_config(&self, config: Option<ServerConfig>) {
        let core = config.as_ref().map(ServerConfig::core);
        let prepare = config.as_ref().and_then(|config| config.prepare.clone());
        let invalid = config.as_ref().and_then(|config| config.transport.validate().err());
        self.owner.server.fetch_or(config.is_some(), Ordering::Relaxed);
        for socket in &self.owner.sockets {
            let mut inner = socket.lock();
            inner.udp.serve(config.is_some());
            inner.serving = core.is_some();
            inner.invalid.clone_from(&invalid);
            // A server keeps its last configuration, to read and refuse the Initial packets of new clients.
            if core.is_some() {
                inner.endpoint.set_server(core.clone());
            }
            inner.prepare.clone_from(&prepare);
        }
    }

    /// Begins a connection to a server, whose certificate has to be for `name`, with the configuration of
    /// [`Endpoint::set_default_client_config`].
    ///
    /// # Errors
    /// [`ConnectError::NoClientConfig`], and as [`Endpoint::connect_with`].
    pub fn connect(&self, remote: SocketAddr, name: &str) -> Result<Connecting, ConnectError> {
        let config = self.client.as_ref().ok_or(ConnectError::NoClientConfig)?;
        self.connect_with(config, remote, name)
    }

    /// Begins a connection to a server, whose certificate has to be for `name`.
    ///
    /// # Errors
    /// [`ConnectError`]; what the network has to say comes when the [`Connecting`] is awaited.
    pub fn connect_with(
        &self,
        config: &ClientConfig,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Connecting, ConnectError> {
        config.transport.validate().map_err(StartError::Setting)?;
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectError::ServerName(name.to_owned()))?;
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::Remote(remote));
        }
        let socket = self.first();
        let mut inner = socket.lock();
        if inner.dead || inner.closed {
            return Err(ConnectError::EndpointGone);
        }
        let local = inner.udp.local_addr();
        let remote = reachable(local, remote).ok_or(ConnectError::Remote(remote))?;
        let now = socket.now();
        let (handle, mut connection) =
            inner.endpoint.connect(now, &config.core(), name.clone(), remote)?;
        self.owner.shared.begin(&mut connection, config.prepare.as_ref(), now).release();
        let home = Home::new(Arc::clone(&socket.shared.tokens), name, remote);
        if let Some(token) = home.take(connection.version()) {
            // Of our own making is only that it is not too long, and nothing was sent yet.
            connection.set_token(token);
        }
        if self.owner.shared.heeds_unreachable {
            inner.heed_errors(handle);
        }
        let cell = socket.add(&mut inner, handle, connection);
        cell.lock().home = socket.shared.keeps_tokens.then(|| Box::new(home));
        drop(inner);
        Ok(Connecting::new(cell))
    }

    /// Waits for the next attempt of a client. Returns `None` if the endpoint is closed, if a socket has failed, if the
    /// runtime has ended, or if the endpoint has never had a server configuration.
    /// Other tasks have a turn between two attempts that wait, so that what a server answers the first leaves before the second is taken.
    pub async fn accept(&self) -> Option<Incoming> {
        let shared = &self.owner.shared;
        if !self.owner.server.load(Ordering::Relaxed) {
            return None;
        }
        loop {
            let arrived = shared.arrived.notified();
            let next = shared.queue().take();
            match next {
                Ok((incoming, more)) => {
                    if more {
                        // Two that came together have woken one.
                        shared.arrived.notify_one();
                    }
                    return Some(incoming);
                }
                Err(NoAttempt::Closed) => {
                    // For whoever else waits.
                    shared.arrived.notify_one();
                    return None;
                }
                Err(NoAttempt::AfterOthers) => {
                    // For whoever else waits, should this one be given up now.
                    shared.arrived.notify_one();
                    turn_of_others().await;
                }
                Err(NoAttempt::NoneWaits) => arrived.await,
            }
        }
    }

    /// Stops accepting clients: [`Endpoint::accept`] returns `None`, and attempts that wait or come later are refused
    /// (CONNECTION_REFUSED) while the endpoint is open. A later [`Endpoint::set_server_config`] does not change that.
    pub fn stop_accepting(&self) {
        for socket in &self.owner.sockets {
            socket.lock().serving = false;
        }
        self.owner.shared.close();
    }

    /// Closes all connections, and refuses new clients. [`Endpoint::connect`] fails from now on.
    pub fn close(&self, code: VarInt, reason: &str) {
        for socket in &self.owner.sockets {
            socket.lock().closed = true;
        }
        self.stop_accepting();
        for socket in &self.owner.sockets {
            let cells: Vec<_> = socket.lock().cells.iter().flatten().cloned().collect();
            cells.iter().for_each(|cell| cell.close(code, reason));
        }
    }

    /// Waits until all connections are gone: closed, and their peers told.
    pub async fn wait_idle(&self) {
        loop {
            let gone = self.owner.shared.gone.notified();
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
        self.owner.sockets.iter().map(|socket| socket.lock().open).sum()
    }

    /// Returns the number of connections that a panic has ended. The panic was in a hook or in this
    /// library. Each one is logged as an error.
    pub fn broken_connections(&self) -> u64 {
        self.owner.shared.broken.load(Ordering::Relaxed)
    }

    /// The local address of the first socket.
    ///
    /// # Errors
    /// The system's error, if the address cannot be read.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.first().lock().udp.local_addr())
    }

    /// Puts another socket in the place of the first: its connections go on from there
    /// (RFC 9000 s.9). What is under way to the old one is still received for three seconds.
    ///
    /// # Errors
    /// The system's error, if the socket cannot be used; nothing has changed then.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let udp = Udp::new(socket, self.owner.offloads, self.owner.server.load(Ordering::Relaxed))?;
        let socket = self.first();
        let local = udp.local_addr().ip();
        let local = (!local.is_unspecified()).then_some(local);
        // They are for the old address, and would tell who it was that moved.
        self.owner.shared.tokens.clear();
        let mut inner = socket.lock();
        let before = std::mem::replace(&mut inner.udp, Arc::new(udp));
        // That may have changed since.
        inner.udp.serve(self.owner.server.load(Ordering::Relaxed));
        inner.before = Some((before, socket.now() + KEPT));
        // What the network says of packets from the old address is over.
        inner.unanswered.clear();
        let cells: Vec<_> = inner.cells.iter().flatten().cloned().collect();
        drop(inner);
        // Its task waits for the old socket, and where no connection is open nothing else has it look at the new one.
        socket.wake();
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

/// Lets the tasks that are ready have a turn, without a look at what the system has for them.
async fn turn_of_others() {
    let mut has_waited = false;
    let turn = poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    turn.await;
}

#[cfg(test)]
mod tests;
