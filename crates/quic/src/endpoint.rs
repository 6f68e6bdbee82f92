//! Endpoints: sockets and their tasks.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use equic_transport::StartError;
use equic_transport::token::TokenKey;
use equic_wire::VarInt;
use rustls::pki_types::ServerName;

use crate::attempts::AttemptQueue;
use crate::clock::system_clock;
use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::driver::Driver;
use crate::endpoint_shared::EndpointShared;
use crate::error::ConnectError;
use crate::handshake::Connecting;
use crate::incoming::Incoming;
#[cfg(feature = "qlog")]
use crate::log::Logs;
use crate::socket::Socket;
use crate::socket_ids::RandomSocketIds;
use crate::tokens::{ServerTokens, Tokens};
use crate::udp::{Offloads, Udp};

/// Maximum number of sockets of an endpoint. A connection ID names its socket in one byte.
const MAX_SOCKETS: usize = 256;

/// Time for which a replaced socket still receives. This covers datagrams that were sent to it some
/// round trips ago.
const KEPT: Duration = Duration::from_secs(3);

/// One or several sockets with their connections. Clones refer to the same endpoint.
///
/// When the last clone is dropped, open connections stay open until they are closed. Until then,
/// the endpoint refuses new clients (CONNECTION_REFUSED). The sockets are closed when no connection
/// is open, and new clients then get no answer. Before a server exits, it should call
/// [`Endpoint::close`] and await [`Endpoint::wait_idle`].
#[derive(Clone)]
pub struct Endpoint {
    owner: Arc<Owner>,
    /// The configuration of [`Endpoint::connect`].
    client: Option<ClientConfig>,
}

struct Owner {
    sockets: Vec<Arc<Socket>>,
    shared: Arc<EndpointShared>,
    attempts: Arc<AttemptQueue<Incoming>>,
    offloads: Offloads,
    /// True if the endpoint is a server now, or was one before.
    server: AtomicBool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.attempts.close(Incoming::refuse);
        for socket in &self.sockets {
            let mut inner = socket.lock();
            inner.serving = false;
            inner.released = true;
            drop(inner);
            socket.driver.wake();
        }
    }
}

impl Endpoint {
    /// Binds the sockets for [`Endpoint::new`] to one address. Several sockets share the port. An
    /// IPv6 wildcard address receives IPv4, too. `receive_buffer` is SO_RCVBUF in bytes; `None`
    /// keeps the system's default.
    ///
    /// # Errors
    /// Returns the system's error and the address ([`BindError`](crate::BindError)) if a socket
    /// cannot be made or bound. Returns `InvalidInput` if `count` is not in the range 1 to 256.
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

    /// Creates a client on a new socket that is bound to `address`. With port 0, the system chooses
    /// the port. Connect with [`Endpoint::connect_with`], or with [`Endpoint::connect`] after
    /// [`Endpoint::set_default_client_config`]. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns the system's error and the address ([`BindError`](crate::BindError)) if the socket
    /// cannot be made, a [`ConfigError`](crate::ConfigError) if there is no crypto provider, and
    /// the errors of [`Endpoint::new`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Endpoint;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let endpoint = Endpoint::client("[::]:0".parse()?)?;
    /// println!("sends from {}", endpoint.local_addr()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(address: SocketAddr) -> io::Result<Endpoint> {
        let config = EndpointConfig::with_default_provider()?;
        Endpoint::new(config, None, Endpoint::bind(address, 1, None)?)
    }

    /// Creates a server on a new socket that is bound to `address`. An IPv6 wildcard address
    /// receives IPv4, too. The endpoint can also connect to other servers. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// Returns the errors of [`Endpoint::client`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::rustls::pki_types::pem::PemObject;
    /// use equic_quic::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    /// use equic_quic::{Endpoint, ServerConfig};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let chain = CertificateDer::pem_file_iter("chain.pem")?.collect::<Result<_, _>>()?;
    /// let key = PrivateKeyDer::from_pem_file("key.pem")?;
    /// let config = ServerConfig::with_single_cert(chain, key)?.with_alpn(&[b"echo"]);
    /// let endpoint = Endpoint::server(config, "[::]:4433".parse()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn server(config: ServerConfig, address: SocketAddr) -> io::Result<Endpoint> {
        let endpoint = EndpointConfig::new(config.tls.crypto_provider())?;
        Endpoint::new(endpoint, Some(config), Endpoint::bind(address, 1, None)?)
    }

    /// Creates an endpoint on bound sockets. Without `server`, the endpoint accepts no connections,
    /// but can connect. Must be called inside a tokio runtime.
    ///
    /// Several sockets must share a port by SO_REUSEPORT, as [`Endpoint::bind`] makes them. Pass
    /// them in the order in which they were bound. No other socket may share this port.
    ///
    /// The kernel passes each datagram to the socket of its connection (SO_ATTACH_REUSEPORT_CBPF,
    /// classic BPF, which needs no privilege). In two cases, datagrams of clients that have
    /// migrated are instead passed from one socket to another in this process: if the kernel does
    /// not support this, or if IDs name their socket in encrypted form
    /// ([`EndpointConfig::hide_sockets`]).
    ///
    /// The first call in a process blocks for some tens of milliseconds to initialise cryptography,
    /// so that no connection has to wait for that.
    ///
    /// # Errors
    /// Returns the system's error if a socket cannot be used. Returns `InvalidInput` if there are
    /// no sockets or more than 256, or if a setting of `config` or `server` is out of range
    /// ([`SettingError`](crate::SettingError)). Returns `Unsupported` outside a tokio runtime, or
    /// inside one without I/O or timers.
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
        let attempts = Arc::new(AttemptQueue::default());
        let shared = Arc::new(EndpointShared {
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
        // All sockets share the key and the record of used tokens, so that a token is valid at
        // every socket, but only once.
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
            let attempts = Arc::clone(&attempts);
            let driver = Driver::new(Arc::clone(socket), siblings, index, Arc::clone(&attempts));
            tokio::spawn(async move {
                if let Some(error) = driver.await {
                    tracing::error!(%error, "the UDP socket failed");
                    attempts.close(Incoming::refuse);
                }
            });
        }
        let server = AtomicBool::new(server.is_some());
        let owner = Arc::new(Owner { sockets: made, shared, attempts, offloads, server });
        Ok(Endpoint { owner, client: None })
    }

    pub(crate) fn offloads(&self) -> Offloads {
        self.owner.offloads
    }

    pub(crate) fn first(&self) -> &Arc<Socket> {
        &self.owner.sockets[0]
    }

    /// Sets the configuration of [`Endpoint::connect`] for this clone and for clones that are made
    /// of it later.
    pub fn set_default_client_config(&mut self, config: ClientConfig) {
        self.client = Some(config);
    }

    /// Replaces the server configuration, for example to use a new certificate. With `None`, the
    /// endpoint refuses new clients (CONNECTION_REFUSED) until it has a configuration again.
    ///
    /// The new configuration also applies to attempts that wait in [`Endpoint::accept`].
    /// [`Incoming::accept`] uses the configuration at the time of its call, and fails if a
    /// transport setting is out of range. Open connections do not change.
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
            // Without a new configuration, the endpoint keeps the last one, to read and refuse the
            // Initial packets of new clients.
            if core.is_some() {
                inner.endpoint.set_server(core.clone());
            }
            inner.prepare.clone_from(&prepare);
        }
    }

    /// Starts to connect to a server, with the configuration of
    /// [`Endpoint::set_default_client_config`]. The server's certificate must be valid for `name`.
    ///
    /// # Errors
    /// Returns [`ConnectError::NoClientConfig`] if there is no configuration, and the errors of
    /// [`Endpoint::connect_with`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{ClientConfig, Endpoint};
    ///
    /// # async fn example(mut endpoint: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::with_platform_roots()?.with_alpn(&[b"echo"]);
    /// endpoint.set_default_client_config(config);
    /// let connection = endpoint.connect("192.0.2.1:4433".parse()?, "example.org")?.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(&self, remote: SocketAddr, name: &str) -> Result<Connecting, ConnectError> {
        let config = self.client.as_ref().ok_or(ConnectError::NoClientConfig)?;
        self.connect_with(config, remote, name)
    }

    /// Starts to connect to a server. The server's certificate must be valid for `name`.
    ///
    /// # Errors
    /// Returns a [`ConnectError`] if an argument is invalid or the endpoint is closed. Errors of
    /// the network and of the handshake are returned by the [`Connecting`] future.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{ClientConfig, Endpoint};
    ///
    /// # async fn example(endpoint: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::with_platform_roots()?.with_alpn(&[b"echo"]);
    /// let remote = "192.0.2.1:4433".parse()?;
    /// let connection = endpoint.connect_with(&config, remote, "example.org")?.await?;
    /// # Ok(())
    /// # }
    /// ```
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
        let tokens = ServerTokens::new(Arc::clone(&socket.shared.tokens), name, remote);
        if let Some(token) = tokens.take(connection.version()) {
            // This cannot fail: stored tokens are short enough, and no packet was sent yet.
            connection.set_token(token);
        }
        if self.owner.shared.heeds_unreachable {
            inner.heed_errors(handle);
        }
        let conn = socket.add(&mut inner, handle, connection);
        conn.lock().server_tokens = socket.shared.keeps_tokens.then(|| Box::new(tokens));
        drop(inner);
        Ok(Connecting::new(conn))
    }

    /// Waits for the next connection attempt of a client. Returns `None` if the endpoint is closed,
    /// if a socket has failed, if the runtime has ended, or if the endpoint never had a server
    /// configuration.
    ///
    /// If several attempts wait, this function yields to other tasks between two of them. The
    /// answer to the first attempt is then sent before the second attempt is returned.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Endpoint;
    ///
    /// # async fn example(endpoint: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// while let Some(incoming) = endpoint.accept().await {
    ///     tokio::spawn(async move {
    ///         match incoming.await {
    ///             Ok(connection) => println!("connected: {}", connection.remote_address()),
    ///             Err(error) => println!("failed: {error}"),
    ///         }
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept(&self) -> Option<Incoming> {
        if !self.owner.server.load(Ordering::Relaxed) {
            return None;
        }
        self.owner.attempts.next().await
    }

    /// Stops accepting clients. [`Endpoint::accept`] returns `None`. While the endpoint is open, it
    /// refuses attempts that wait or arrive later (CONNECTION_REFUSED). A later
    /// [`Endpoint::set_server_config`] does not change that.
    pub fn stop_accepting(&self) {
        for socket in &self.owner.sockets {
            socket.lock().serving = false;
        }
        self.owner.attempts.close(Incoming::refuse);
    }

    /// Closes all connections with this error code and reason, and refuses new clients. From now
    /// on, [`Endpoint::connect`] fails.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{Endpoint, VarInt};
    ///
    /// # async fn example(endpoint: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// endpoint.close(VarInt::from_u32(0), "the server exits");
    /// endpoint.wait_idle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self, code: VarInt, reason: &str) {
        for socket in &self.owner.sockets {
            socket.lock().closed = true;
        }
        self.stop_accepting();
        for socket in &self.owner.sockets {
            let open: Vec<_> = socket.lock().connections.iter().flatten().cloned().collect();
            open.iter().for_each(|conn| conn.close(code, reason));
        }
    }

    /// Waits until no connection is left. A connection is removed at the end of its closing or
    /// draining period (RFC 9000 s.10.2).
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

    /// Returns the number of connections that are open, in their handshake, or closing.
    pub fn open_connections(&self) -> usize {
        self.owner.sockets.iter().map(|socket| socket.lock().open).sum()
    }

    /// Returns the number of connections that a panic has ended. The panic was in a hook or in this
    /// library. Each panic is logged as an error.
    pub fn broken_connections(&self) -> u64 {
        self.owner.shared.broken.load(Ordering::Relaxed)
    }

    /// Returns the local address of the first socket.
    ///
    /// # Errors
    /// Returns the system's error if the address cannot be read.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.first().lock().udp.local_addr())
    }

    /// Replaces the first socket. Its connections migrate to the new socket (RFC 9000 s.9). The old
    /// socket still receives for three seconds.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns the system's error if the new socket cannot be used, and `Unsupported` outside a
    /// tokio runtime. Nothing changes in these cases.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let udp = Udp::new(socket, self.owner.offloads, self.owner.server.load(Ordering::Relaxed))?;
        let socket = self.first();
        let local = udp.local_addr().ip();
        let local = (!local.is_unspecified()).then_some(local);
        // The tokens were issued to the old address. A server could use them to link the client's
        // two addresses.
        self.owner.shared.tokens.clear();
        let mut inner = socket.lock();
        let before = std::mem::replace(&mut inner.udp, Arc::new(udp));
        // The endpoint may have become a server after `udp` was created.
        inner.udp.serve(self.owner.server.load(Ordering::Relaxed));
        inner.before = Some((before, socket.now() + KEPT));
        // ICMP errors about packets from the old address are no longer of interest.
        inner.unanswered.clear();
        let open: Vec<_> = inner.connections.iter().flatten().cloned().collect();
        drop(inner);
        // The socket's task waits for the old socket. Without this wake-up, an idle task would not
        // use the new one.
        socket.driver.wake();
        let now = socket.now();
        for conn in open {
            let mut state = conn.lock();
            if state.connection.migrate(now, local).is_err() {
                // The peer has provided no unused connection ID. A packet makes the peer notice the
                // new address, as after a NAT rebinding.
                state.connection.ping();
            }
            state.take_events();
            conn.wake_driver(&mut state);
        }
        Ok(())
    }
}

/// Returns the remote address in the form that the socket needs, or `None` if the socket cannot
/// send to this address family.
fn reachable(local: SocketAddr, remote: SocketAddr) -> Option<SocketAddr> {
    match (local, remote) {
        (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
            local.ip().is_unspecified().then(|| (v4.ip().to_ipv6_mapped(), v4.port()).into())
        }
        (SocketAddr::V4(_), SocketAddr::V6(_)) => None,
        _ => Some(remote),
    }
}

#[cfg(test)]
mod tests;
