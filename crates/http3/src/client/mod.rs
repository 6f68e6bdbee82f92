//! The HTTP/3 client.
//!
//! A [`Client`] has a UDP socket and settings. [`Client::connect`] opens a [`Connection`].
//! [`Connection::get`] sends a request on it, and the body of the [`Response`] arrives in chunks.
//! [`Connection::send`] sends a request with content.
//! [`Client::get`] does all of this in one call, and keeps the connection for further requests.
//! [`Client::rebind`] moves the client and its connections to another address.
//!
//! Modules:
//!
//! * `target`: parses URLs;
//! * `connection`: requests and responses; `upload`: the content of requests;
//! * `race`: tries several addresses of a server;
//! * `repeat`: keeps connections, and repeats requests that a server did not process;
//! * `paths`: opens and closes paths when addresses come and go;
//! * `error`: the errors, and how the results of a load test classify them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use equic_quic::{
    self as quic, BindError, Endpoint, PacketTrace, QlogFolder, Scheduler, TransportConfig,
};
use equic_transport::StreamConfig;
use equic_wire::{KnownVersion, VarInt};
use rustls::client::Resumption;
use tokio::time::{Instant, timeout_at};

use crate::tls::{KeyLog, Trust};
use crate::{Congestion, Extension, Hooks, h3_code, tls};

mod connection;
mod error;
mod paths;
mod race;
mod repeat;
mod target;
#[cfg(test)]
mod tests;
mod upload;

pub use connection::{Connection, Response, Timing};
pub use error::{ClientError, Failure, Unprocessed};
pub use paths::PathAddresses;
use paths::Paths;
pub use target::Target;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Which servers the client trusts, by their certificates.
    pub trust: Trust,
    /// Source address and port. `None`: any address of both families, with a port that the system
    /// chooses.
    pub bind: Option<SocketAddr>,
    /// Largest number of paths of a connection (RFC 10069), up to 8. More than one needs a server
    /// with multipath; see [`Client::set_paths`].
    pub max_paths: usize,
    /// How data is distributed over several paths.
    pub scheduler: Scheduler,
    /// Address that packets are sent to, instead of the URL's host. `None`: the address that the
    /// host resolves to.
    pub connect_to: Option<SocketAddr>,
    /// Time limit of one handshake, and of one request with its response. `None`: only the idle
    /// timeout applies.
    pub timeout: Option<Duration>,
    /// Time without a received packet after which a connection is closed. Zero: never.
    pub idle_timeout: Duration,
    /// Idle time after which the client sends a packet to keep the connection open. `None`: never.
    pub keep_alive: Option<Duration>,
    /// SO_RCVBUF of the socket, in bytes. `None`: the system's default.
    pub receive_buffer: Option<usize>,
    /// Enables UDP generic receive offload. It makes downloads faster, but each socket takes 3 MB
    /// of memory.
    pub receive_offload: bool,
    /// Congestion control algorithm.
    pub congestion: Congestion,
    /// Asks servers to continue in QUIC version 2 (RFC 9369 s.4). Connections begin in version 1.
    /// If the server stays with version 1, the connection takes one more round trip.
    pub upgrade_to_v2: bool,
    /// File that TLS secrets are written to, for packet analysers. `None`: they are not written.
    pub key_log: Option<KeyLog>,
    /// Folder for a qlog file of each connection. `None`: no qlog files are written.
    pub qlog: Option<QlogFolder>,
    /// Output that gets a line of text about each packet. `None`: no lines are written.
    pub trace: Option<PacketTrace>,
    /// Sends requests before the handshake is complete (0-RTT), if this client has been connected
    /// to the server before and the server permits it. Only requests with safe methods (RFC 9110
    /// s.9.2.1) are sent early, because an attacker can replay early requests (RFC 8470 s.2).
    /// Sessions are kept only in memory, because rustls cannot store them.
    pub early_data: bool,
    /// Ends a connection attempt when an ICMP error reports that the address or port is
    /// unreachable, unless the server has already answered. The next address of the host is then
    /// tried. If false, the attempt continues until its time limit.
    pub heed_unreachable: bool,
    /// An extension of QUIC that each connection uses. `None`: no extension.
    pub extension: Option<Extension>,
    /// Attaches hooks to each new connection before its first packet. `None`: no hooks.
    pub hooks: Option<Hooks>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            trust: Trust::System,
            bind: None,
            max_paths: 1,
            scheduler: Scheduler::default(),
            connect_to: None,
            timeout: Some(Duration::from_secs(30)),
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            receive_buffer: None,
            receive_offload: true,
            congestion: Congestion::default(),
            upgrade_to_v2: false,
            key_log: None,
            qlog: None,
            trace: None,
            early_data: false,
            heed_unreachable: true,
            extension: None,
            hooks: None,
        }
    }
}

/// TLS and transport settings that are prepared once. Any number of clients can share them.
#[derive(Clone)]
pub struct Prepared(quic::ClientConfig);

impl Prepared {
    /// Prepares the settings.
    ///
    /// # Errors
    /// Fails if a CA file cannot be read, or if a setting is out of range.
    pub fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let mut transport = TransportConfig::default()
            .with_max_idle_timeout(config.idle_timeout)
            .with_keep_alive(config.keep_alive.unwrap_or(Duration::ZERO))
            .with_congestion(Arc::new(config.congestion))
            // RFC 9114 s.6.1 #3
            .with_streams(StreamConfig::default().with_max_streams_bidi(0).with_max_streams_uni(8))
            // HTTP/3 without extensions uses no DATAGRAM frames.
            .with_datagram_receive_buffer(0)
            .with_sessions_v2(config.early_data.then(Resumption::default))
            .with_max_paths(config.max_paths)
            .with_scheduler(config.scheduler);
        if config.upgrade_to_v2 {
            transport.versions = vec![KnownVersion::V2, KnownVersion::V1];
            transport.first_version = Some(KnownVersion::V1);
        }
        let mut tls = tls::client(&config.trust)?;
        if config.early_data {
            tls.resumption = Resumption::default();
            tls.enable_early_data = true;
        }
        if let Some(log) = &config.key_log {
            tls.key_log = Arc::new(log.clone());
        }
        let extension = config.extension.clone();
        transport.extra_parameters =
            extension.as_ref().map(|extension| extension.parameters.clone()).unwrap_or_default();
        transport.validate()?;
        let mut quic = quic::ClientConfig::new(tls).with_transport(transport);
        if let Some(Extension { hooks, .. }) = extension {
            quic = quic.with_hooks(move |new| hooks.attach(new));
        }
        Ok(Self(match config.hooks.clone() {
            Some(hooks) => quic.with_hooks(move |new| hooks.attach(new)),
            None => quic,
        }))
    }
}

/// An HTTP/3 client. Its clones share the socket and the connections.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    config: Arc<ClientConfig>,
    quic: Prepared,
    kept: Arc<Mutex<HashMap<Target, repeat::Kept>>>,
    paths: Arc<Paths>,
}

impl Client {
    /// Binds a socket. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the address cannot be bound, or if a CA file cannot be read.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let quic = Prepared::new(&config)?;
        Self::with_prepared(Arc::new(config), quic)
    }

    /// Like [`new`](Self::new), with prepared settings that other clients share. The TLS and
    /// transport settings in `config` are ignored.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub fn with_prepared(config: Arc<ClientConfig>, quic: Prepared) -> Result<Self, ClientError> {
        let wildcard = (Ipv6Addr::UNSPECIFIED, 0).into();
        let socket = match config.bind {
            Some(address) => bind(address, &config)?,
            // The system has no IPv6, so bind to IPv4 only.
            None => bind(wildcard, &config)
                .or_else(|_| bind((Ipv4Addr::UNSPECIFIED, 0).into(), &config))?,
        };
        let address = config.bind.unwrap_or(wildcard);
        let mut settings = tls::endpoint()?;
        settings.receive_offload = config.receive_offload;
        settings.qlog.clone_from(&config.qlog);
        settings.trace.clone_from(&config.trace);
        // Address validation tokens are kept only with 0-RTT, like TLS sessions. Without 0-RTT, all
        // connections then cost the server the same.
        settings.keep_tokens = config.early_data;
        settings.heed_unreachable = config.heed_unreachable;
        let endpoint = Endpoint::new(settings, None, vec![socket]).map_err(|error| {
            ClientError::Bind { address, source: BindError::system_error(error) }
        })?;
        let paths = Arc::new(Paths::new(endpoint.clone()));
        Ok(Self { endpoint, config, quic, kept: Arc::default(), paths })
    }

    /// Sets the local addresses from which connections have additional paths (RFC 10069). All
    /// connections, also those that exist already, then open and close paths accordingly, if
    /// [`ClientConfig::max_paths`] and the server permit it. A path that cannot be opened is tried again later. If the address of the
    /// first path disappears, the path is closed once there is another one. It is opened again when
    /// its address is back.
    pub fn set_paths(&self, addresses: PathAddresses) {
        self.paths.set(addresses);
    }

    /// Returns the source address, with the port that the system chose.
    ///
    /// # Errors
    /// Returns the system's error if the address cannot be read.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Returns the number of connections of this socket that are open, being opened or being
    /// closed.
    pub fn open_connections(&self) -> usize {
        self.endpoint.open_connections()
    }

    /// Opens a connection to the host and port of a URL.
    ///
    /// # Errors
    /// Fails if the URL is not an `https` URL, if the host does not resolve, or if the handshake
    /// fails, is refused or takes longer than [`ClientConfig::timeout`].
    pub async fn connect(&self, url: &str) -> Result<Connection, ClientError> {
        let (target, _) = Target::parse(url)?;
        self.open(&target).await
    }

    /// Opens a connection to the first of a target's addresses that answers. If an address fails or
    /// does not answer for 250 ms, the next one is tried (RFC 8305).
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub async fn open(&self, target: &Target) -> Result<Connection, ClientError> {
        let peers = self.addresses(target).await?;
        self.race(target, peers, false).await
    }

    /// Opens a connection to a server whose address is known.
    ///
    /// # Errors
    /// Fails if the handshake fails, or is not complete at the deadline.
    pub async fn open_at(
        &self,
        target: &Target,
        peer: SocketAddr,
        deadline: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        let start = Instant::now();
        let connecting = self.begin(target, peer)?;
        self.finish(connecting, target, peer, start, deadline).await
    }

    fn begin(&self, target: &Target, peer: SocketAddr) -> Result<quic::Connecting, ClientError> {
        self.endpoint
            .connect_with(&self.quic.0, peer, target.server_name())
            .map_err(|source| ClientError::Start { peer, source })
    }

    async fn finish(
        &self,
        connecting: quic::Connecting,
        target: &Target,
        peer: SocketAddr,
        start: Instant,
        deadline: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        let quic = in_time(deadline, start, "handshake", async {
            connecting.await.map_err(|source| ClientError::Handshake { peer, source })
        })
        .await?;
        let handshake = Some(start.elapsed());
        self.open_paths(&quic);
        Connection::new(quic, target.clone(), peer, handshake, self.config.timeout).await
    }

    /// Starts a task that opens and closes the additional paths of a connection.
    fn open_paths(&self, quic: &quic::Connection) {
        if self.config.max_paths > 1 {
            let (paths, quic) = (Arc::clone(&self.paths), quic.clone());
            tokio::spawn(async move { paths.follow(quic).await });
        }
    }

    /// Returns the address that packets to a target are sent to. It is the target's first address
    /// of a family that the socket can reach.
    ///
    /// # Errors
    /// Fails if the host does not resolve, or only to addresses of the other family.
    pub async fn resolve(&self, target: &Target) -> Result<SocketAddr, ClientError> {
        let mut peers = self.addresses(target).await?;
        Ok(peers.swap_remove(0))
    }

    /// Returns the addresses that packets to a target may be sent to. They are of a family that the
    /// socket can reach, in the resolver's order (RFC 6724). There is at least one.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, ClientError> {
        if let Some(address) = self.config.connect_to {
            return Ok(vec![address]);
        }
        let unresolved = |reason| ClientError::Resolve { host: target.host().to_owned(), reason };
        let local = self.endpoint.local_addr().map_err(|e| unresolved(e.to_string()))?;
        let reachable = |peer: &SocketAddr| match (local.ip(), peer.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => true,
            (IpAddr::V6(own), IpAddr::V4(_)) => own.is_unspecified(),
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        };
        let found = tokio::net::lookup_host((target.host(), target.port())).await;
        let peers: Vec<_> =
            found.map_err(|e| unresolved(e.to_string()))?.filter(reachable).collect();
        if peers.is_empty() {
            return Err(unresolved(format!(
                "the host has no address that {} can send to",
                local.ip()
            )));
        }
        Ok(peers)
    }

    /// Drops the connection that [`get`](Self::get) keeps to the server of a URL, if there is one.
    /// The next request opens a new connection.
    ///
    /// # Errors
    /// Fails if the URL is not an `https` URL.
    pub async fn leave(&self, url: &str) -> Result<(), ClientError> {
        let (target, _) = Target::parse(url)?;
        self.kept().remove(&target);
        Ok(())
    }

    /// Moves the client to another source address of the same family. Open connections migrate with
    /// the next packet that they send (RFC 9000 s.9).
    ///
    /// # Errors
    /// Fails if the address cannot be bound. The client then keeps its old socket.
    pub fn rebind(&self, address: SocketAddr) -> Result<(), ClientError> {
        let socket = bind(address, &self.config)?;
        self.endpoint
            .rebind(socket)
            .map_err(|error| ClientError::Bind { address, source: BindError::system_error(error) })
    }

    /// Closes all connections, and waits up to a second for the close packets to reach the servers.
    pub async fn close(&self) {
        self.kept().clear();
        self.endpoint.close(VarInt::from_u32(h3_code::NO_ERROR), "");
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }

    /// Closes all connections without waiting. Their close packets are sent in the background.
    pub fn abandon(&self) {
        self.endpoint.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Target, repeat::Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deadline(&self) -> Option<Instant> {
        self.config.timeout.and_then(|limit| Instant::now().checked_add(limit))
    }
}

fn bind(address: SocketAddr, config: &ClientConfig) -> Result<std::net::UdpSocket, ClientError> {
    Endpoint::bind(address, 1, config.receive_buffer)
        .map(|mut sockets| sockets.swap_remove(0))
        .map_err(|error| ClientError::Bind { address, source: BindError::system_error(error) })
}

/// Runs a step until a deadline. `start` is the time at which the operation began, for the error
/// message.
///
/// # Errors
/// The error of the step, or [`ClientError::Timeout`] at the deadline.
pub async fn in_time<T>(
    deadline: Option<Instant>,
    start: Instant,
    what: &'static str,
    step: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match deadline {
        None => step.await,
        Some(deadline) => timeout_at(deadline, step)
            .await
            .unwrap_or_else(|_| Err(ClientError::Timeout { what, after: start.elapsed() })),
    }
}

/// Converts the options for a fingerprint, `--ca FILE` and `--insecure` into a [`Trust`]. If
/// several of them are given, the fingerprint takes precedence, then the CA file.
pub fn trust(
    insecure: bool,
    ca: Option<PathBuf>,
    fingerprint: Option<crate::Fingerprint>,
) -> Trust {
    match (fingerprint, ca, insecure) {
        (Some(fingerprint), ..) => Trust::Fingerprint(fingerprint),
        (None, Some(path), _) => Trust::Ca(path),
        (None, None, true) => Trust::Insecure,
        (None, None, false) => Trust::System,
    }
}
