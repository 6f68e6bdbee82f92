//! The HTTP/3 server.
//!
//! Modules:
//!
//! * `config`: the settings;
//! * `admission`: the hooks that decide which clients may connect; `quota`: an implementation of
//!   them in the application; `presence`: reports a connection to the admission exactly once;
//! * `accept`: accepts connection attempts, and shuts down; `connection`: runs one connection from
//!   handshake to close; `tolerance`: limits a client's errors;
//! * `respond`: handles one request; `content`: counts the request's content; `date`: the Date field;
//! * `service`: answers with a service of the application; `request_body`: the content that the
//!   service reads;
//! * `resources`: answers with a resource of this server; `answer`: chooses the response; `body`: the
//!   response's content; `files`: finds a file below the root; `range`: parses Range;
//! * `stats`: the counters.
//!
//! [`Server::serve`] answers requests with a service of the application. [`Server::run`] answers with
//! these resources of the server: `GET /health` (200, `ok`), `GET /bytes/N` (N zero bytes, up to
//! [`Limits::max_bytes`]), and the files below [`ServerConfig::root`]. A file with the name of one
//! of the first two resources is not reachable. HEAD works for all of them. Any other method is
//! answered with 405. A Range field can request a part of a file or of `/bytes/N`.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use equic_quic::{self as quic, BindError, Endpoint, SendMemory, SettingError, TransportConfig};
use equic_transport::StreamConfig;
use equic_wire::KnownVersion;
use http::{Request, Response};
use http_body::Body;
use socket2::SockRef;
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use crate::Extension;
use crate::tls;
use crate::tls::{CertificateError, Fingerprint};

mod accept;
mod admission;
mod answer;
mod body;
mod config;
mod connection;
mod content;
mod date;
mod files;
mod presence;
mod quota;
mod range;
mod request_body;
mod resources;
mod respond;
mod service;
mod stats;
mod tolerance;

pub use admission::{Admission, Decision, NoQuota, Opened, Refused};
pub use config::{IdentitySource, Limits, PathCost, RequestLog, RequestRecord, ServerConfig};
pub use quota::{AtLimit, QuotaConfig, QuotaError, Rate, UserSpaceQuota};
pub use request_body::{RequestBody, RequestBodyError};
pub use stats::{ServerStats, StatsHandle};

/// Error of a server that could not be created, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The root directory cannot be served.
    #[error("cannot serve files from {}: {source}", path.display())]
    Root {
        /// The requested directory.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The certificate or key cannot be generated, read or used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A setting is out of range.
    #[error("{what} of {value} is out of range: {range}")]
    Limit {
        /// Name of the setting.
        what: &'static str,
        /// The value that is out of range.
        value: String,
        /// The permitted values, as text for the user.
        range: String,
    },
    /// The server's socket or runtime no longer works.
    #[error("the socket of the server failed; the log has the reason")]
    Lost,
}

/// An HTTP/3 server that is bound to its socket. It serves while [`run`](Self::run) is awaited.
pub struct Server {
    endpoint: Endpoint,
    context: Arc<Context>,
    address: SocketAddr,
    fingerprint: Fingerprint,
    receive_buffer: usize,
    phase: watch::Sender<Phase>,
}

/// Phase of a server's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// The server accepts no new requests, and finishes those in progress.
    Draining,
    /// Requests in progress are cancelled.
    CutOff,
}

impl Phase {
    /// Waits until this phase has begun.
    async fn begun(self, phase: &mut watch::Receiver<Phase>) {
        // An error means that the server was dropped. Its connections end then, too.
        let _ = phase.wait_for(|&phase| phase >= self).await;
    }
}

/// State that all connections of a server share.
struct Context {
    admission: Arc<dyn Admission>,
    files: Option<files::Root>,
    limits: Limits,
    log: Option<RequestLog>,
    stats: StatsHandle,
    handshakes: Arc<Semaphore>,
    max_handshakes: usize,
    /// Number of handshakes in progress up to which clients need not validate their addresses by
    /// Retry.
    unproven: usize,
    retry: bool,
    open_files: Arc<Semaphore>,
    max_open_files: usize,
    path_cost: Option<PathCost>,
}

/// Returns the limit of unacknowledged bytes of one response. The limit grows with the number of
/// paths, because several paths have more data in flight than one.
fn send_buffer(config: &ServerConfig) -> u64 {
    config.limits.send_window.saturating_mul(config.max_paths.max(1) as u64)
}

impl Server {
    /// Binds the socket, reads or generates the certificate, and opens the root directory.
    /// Connection attempts wait until [`run`](Self::run) is called.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the address is in use, the directory does not exist, the certificate cannot be
    /// read, or a limit is out of range. See [`ServerError`].
    pub fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let identity = config.identity.resolve(config.listen)?;
        let files = match &config.root {
            Some(path) => Some(
                files::Root::open(path)
                    .map_err(|source| ServerError::Root { path: path.clone(), source })?,
            ),
            None => None,
        };
        let mut server_tls = tls::server(&identity, config.early_data)?;
        if let Some(log) = &config.key_log {
            server_tls.key_log = Arc::new(log.clone());
        }
        let mut transport = transport(&config.limits)
            .with_congestion(Arc::new(config.congestion))
            .with_max_paths(config.max_paths)
            .with_scheduler(config.scheduler);
        let streams = &mut transport.streams;
        streams.send_buffer = send_buffer(&config);
        streams.connection_send_buffer = streams.connection_send_buffer.max(streams.send_buffer);
        if config.upgrade_to_v2 {
            transport.versions = vec![KnownVersion::V2, KnownVersion::V1];
        }
        let extension = config.extension.clone();
        transport.extra_parameters =
            extension.as_ref().map(|extension| extension.parameters.clone()).unwrap_or_default();
        transport.validate().map_err(limit)?;
        let mut quic = quic::ServerConfig::new(server_tls).with_transport(transport);
        if let Some(Extension { hooks, .. }) = extension {
            quic = quic.with_hooks(move |new| hooks.attach(new));
        }
        if let Some(hooks) = config.hooks.clone() {
            quic = quic.with_hooks(move |new| hooks.attach(new));
        }
        let bind_error = |error| {
            let source = BindError::system_error(error);
            ServerError::Bind { address: config.listen, source }
        };
        let sockets = Endpoint::bind(config.listen, config.sockets, config.receive_buffer)
            .map_err(bind_error)?;
        let receive_buffer = SockRef::from(&sockets[0]).recv_buffer_size().map_err(bind_error)?;
        let address = sockets[0].local_addr().map_err(bind_error)?;
        let send_memory = SendMemory::new(config.limits.send_memory);
        let mut settings = tls::endpoint()?
            .with_qlog(config.qlog)
            .with_send_memory(send_memory.clone())
            .with_ids(config.ids)
            .with_hide_sockets(config.hide_sockets);
        settings.core.retry_tokens = config.retry_tokens;
        settings.core.reset_key = config.reset_key;
        let endpoint = Endpoint::new(settings, Some(quic), sockets).map_err(bind_error)?;
        let handshakes = config.limits.max_handshakes.min(Semaphore::MAX_PERMITS);
        let threshold = config.limits.retry_threshold.map(|some| some.min(handshakes / 2));
        let open_files = config.limits.max_open_files.unwrap_or_else(body::room_for_files);
        let open_files = open_files.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            endpoint,
            context: Arc::new(Context {
                admission: config.admission,
                files,
                limits: config.limits,
                log: config.log,
                stats: StatsHandle::new(send_memory),
                handshakes: Arc::new(Semaphore::new(handshakes)),
                max_handshakes: handshakes,
                unproven: threshold.unwrap_or(usize::MAX),
                retry: config.retry,
                open_files: Arc::new(Semaphore::new(open_files)),
                max_open_files: open_files,
                path_cost: config.path_cost,
            }),
            address,
            fingerprint: identity.fingerprint(),
            receive_buffer,
            phase: watch::Sender::new(Phase::Serving),
        })
    }

    /// Returns the address of the socket, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the SHA-256 fingerprint of the server's certificate.
    pub fn certificate_fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the size of the receive buffer in bytes, as the kernel reports it. The kernel limits
    /// the requested size, and doubles it.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Returns a handle to the counters. They can be read while the server runs and afterwards.
    pub fn stats(&self) -> StatsHandle {
        self.context.stats.clone()
    }

    /// Serves until `shutdown` is ready. Then lets requests in progress finish for up to
    /// [`Limits::grace`], closes every connection, and returns the final counters.
    ///
    /// # Errors
    /// [`ServerError::Lost`] if the socket fails.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<ServerStats, ServerError> {
        accept::run(&self, None, shutdown).await
    }

    /// Like [`run`](Self::run), but answers requests with a tower service, such as a router of
    /// axum, instead of the server's own resources. [`ServerConfig::root`] has no effect.
    ///
    /// Each request gets a clone of the service. Its [`RequestInfo`] is an
    /// [extension](http::Extensions) of the request. The server does the following for the service:
    ///
    /// * It rejects malformed requests (RFC 9114 s.4.1.2), and requests in early data that are not
    ///   safe to repeat (status 425).
    /// * It limits the content that a client may send before the service reads it
    ///   ([`Limits::content_window`]), and the response's content in memory
    ///   ([`Limits::send_window`]). A client that does not read is cut off after
    ///   [`Limits::stall_timeout`].
    /// * It sends 100 (Continue) when the service begins to read the content of a request that waits
    ///   for it.
    /// * It drops the future of the service, or the content of the response, if the client cancels
    ///   the request.
    /// * It removes the fields of HTTP/1 connections from responses (RFC 9114 s.4.2), and adds Date,
    ///   and Content-Length if the length is known.
    ///
    /// If the service returns an error, the client gets status 500. If it panics, or its content
    /// fails, the server resets the request's stream with H3_INTERNAL_ERROR. Other requests of the
    /// connection continue.
    ///
    /// # Errors
    /// [`ServerError::Lost`] if the socket fails.
    pub async fn serve<S, B>(
        self,
        service: S,
        shutdown: impl Future<Output = ()>,
    ) -> Result<ServerStats, ServerError>
    where
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let handler = service::Cloned(Mutex::new(service));
        accept::run(&self, Some(Arc::new(handler)), shutdown).await
    }
}

/// Data about a request, apart from its header fields and content. It is an
/// [extension](http::Extensions) of each request that [`Server::serve`] passes to a service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestInfo {
    /// Address of the client when the request arrived.
    pub peer: SocketAddr,
    /// Number of the connection. Connections are numbered from 1, in the order in which they are
    /// opened.
    pub connection: u64,
    /// Number of the request on its connection, from 1.
    pub request: u64,
    /// True if the request arrived before the end of the handshake (0-RTT). An attacker may have
    /// replayed it (RFC 8470).
    pub early: bool,
}

/// Returns the transport parameters of a server (RFC 9000 s.18.2).
// RFC 9114 s.6.2 #1 #2
fn transport(limits: &Limits) -> TransportConfig {
    // A window grows only while the content is read. The server's own resources read little.
    let content = limits.content_window;
    let streams = StreamConfig::default()
        .with_max_streams_bidi(limits.max_concurrent_streams.into())
        // These are the control stream, the two QPACK streams (RFC 9114 s.6.2), and some streams of
        // reserved types, which clients may open as grease.
        .with_max_streams_uni(8)
        .with_stream_window(content.min(64 * 1024))
        .with_max_stream_window(content)
        .with_connection_window(content.min(64 * 1024).saturating_mul(4))
        .with_max_connection_window(content.saturating_mul(4))
        .with_send_buffer(limits.send_window)
        .with_max_send_buffer(limits.connection_send_window)
        .with_connection_send_buffer(limits.connection_send_window);
    TransportConfig::default()
        .with_max_idle_timeout(limits.idle_timeout)
        .with_streams(streams)
        // HTTP/3 without extensions uses no DATAGRAM frames.
        .with_datagram_receive_buffer(0)
}

/// Renames a setting of the transport to its name in [`ServerConfig`].
fn limit(error: SettingError) -> ServerError {
    let what = match error.field {
        "max_idle_timeout" => "idle timeout",
        "max_paths" => "number of paths",
        "streams.send_buffer" => "send window",
        "streams.max_send_buffer" | "streams.connection_send_buffer" => {
            "send window of a connection"
        }
        other => other,
    };
    ServerError::Limit { what, value: error.value, range: error.range }
}
