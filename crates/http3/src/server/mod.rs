//! The HTTP/3 server.
//!
//! Modules:
//!
//! * `config`: the settings;
//! * `admission`: the hooks that decide which clients may connect; `quota`: an implementation of
//!   them in the application; `presence`: reports a connection to the admission exactly once;
//! * `accept`: accepts connection attempts, and shuts down; `connection`: runs one connection from
//!   handshake to close; `tolerance`: limits a client's errors;
//! * `respond`: handles one request; `content`: reads the request's content; `answer`: chooses the
//!   response; `date`: the Date field; `body`: the response's content; `files`: finds a file below
//!   the root; `range`: parses Range;
//! * `stats`: the counters.
//!
//! The server has these resources: `GET /health` (200, `ok`), `GET /bytes/N` (N zero bytes, up to
//! [`Limits::max_bytes`]), and the files below [`ServerConfig::root`]. A file with the name of one
//! of the first two resources is not reachable. HEAD works for all of them. Any other method is
//! answered with 405. A Range field can request a part of a file or of `/bytes/N`.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use equic_quic::{self as quic, BindError, Endpoint, SendMemory, SettingError, TransportConfig};
use equic_transport::StreamConfig;
use equic_wire::KnownVersion;
use socket2::SockRef;
use tokio::sync::{Semaphore, watch};

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
mod respond;
mod stats;
mod tolerance;

pub use admission::{Admission, Decision, NoQuota, Opened, Refused};
pub use config::{IdentitySource, Limits, PathCost, RequestLog, RequestRecord, ServerConfig};
pub use quota::{AtLimit, QuotaConfig, QuotaError, Rate, UserSpaceQuota};
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
        accept::run(&self, shutdown).await
    }
}

/// Returns the transport parameters of a server (RFC 9000 s.18.2).
// RFC 9114 s.6.2 #1 #2
fn transport(limits: &Limits) -> TransportConfig {
    let streams = StreamConfig::default()
        .with_max_streams_bidi(limits.max_concurrent_streams.into())
        // These are the control stream, the two QPACK streams (RFC 9114 s.6.2), and some streams of
        // reserved types, which clients may open as grease.
        .with_max_streams_uni(8)
        .with_stream_window(64 * 1024)
        .with_max_stream_window(64 * 1024)
        .with_connection_window(256 * 1024)
        .with_max_connection_window(256 * 1024)
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
