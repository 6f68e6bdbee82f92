//! Settings of an HTTP/3 server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use equic_quic::{QlogFolder, RetryTokens, Scheduler, SocketIdGenerator};
use http::{Method, StatusCode};
use zeroize::Zeroizing;

use crate::server::{Admission, NoQuota};
use crate::tls::{CertificateError, Identity};
use crate::{Congestion, Extension, Hooks, KeyLog};

/// Function that is called for each answered request. It runs in the connection's task, so it must
/// not block.
pub type RequestLog = Arc<dyn Fn(&RequestRecord) + Send + Sync>;

/// Function that returns the cost of a path, given the client's address. Plugins read the cost. Its
/// unit is the operator's choice
/// ([`Connection::set_path_cost`](equic_quic::Connection::set_path_cost)).
pub type PathCost = Arc<dyn Fn(IpAddr) -> u32 + Send + Sync>;

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Address of the client when the request arrived.
    pub peer: SocketAddr,
    /// Number of the connection. Connections are numbered from 1, in the order in which they are
    /// opened.
    pub connection: u64,
    /// Number of the request on its connection, from 1.
    pub request: u64,
    /// Method of the request.
    pub method: Method,
    /// Path and query as the client sent them. They are percent-encoded, and have at most
    /// [`Limits::max_field_section_size`] bytes.
    pub path: String,
    /// Status of the response.
    pub status: StatusCode,
    /// Number of body bytes that were passed to QUIC.
    pub bytes: u64,
    /// Time from the end of the request's header fields to the end of the response.
    pub duration: Duration,
    /// True if the whole response was passed to QUIC.
    pub complete: bool,
}

/// Settings of a server: its address, the files it serves, its certificate, admission and limits.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address and port to listen on. With port 0 the system chooses the port. `[::]` accepts IPv4,
    /// too.
    pub listen: SocketAddr,
    /// Directory whose files are served. `None`: only the built-in resources are served.
    pub root: Option<PathBuf>,
    /// Certificate and key.
    pub identity: IdentitySource,
    /// Decides which connections are admitted.
    pub admission: Arc<dyn Admission>,
    /// Limits of the resources that one client, and all clients together, may use.
    pub limits: Limits,
    /// Called for each answered request. `None`: requests are not logged.
    pub log: Option<RequestLog>,
    /// SO_RCVBUF of each socket, in bytes. `None`: the system's default.
    pub receive_buffer: Option<usize>,
    /// Number of sockets that share the port (SO_REUSEPORT), up to 256. Each socket has its own
    /// task. The system distributes clients over the sockets by address. If a client migrates, its
    /// packets are handed to the socket of its connection.
    pub sockets: usize,
    /// True if returning clients may send requests before the handshake is complete (0-RTT). An
    /// attacker can replay such requests, so only GET and HEAD are answered early. Other methods
    /// are answered with 425 (RFC 8470 s.5.2).
    ///
    /// A session ticket permits 0-RTT only once, only while this process runs, and only if the
    /// client's clock is right to a minute (RFC 8446 s.8).
    pub early_data: bool,
    /// True if the server first validates the address of every admitted client by Retry (RFC 9000
    /// s.8.1.2). This costs one more round trip, but connection attempts from forged addresses then
    /// take no memory.
    pub retry: bool,
    /// Validates Retry tokens that another device, such as a gateway in front of the server, has
    /// issued. `None`: all tokens are the server's own.
    pub retry_tokens: Option<Arc<dyn RetryTokens>>,
    /// Secret from which stateless reset tokens are derived, for connection IDs that
    /// [`ids`](Self::ids) generates without a token. A server that starts with the key of an
    /// earlier process can reset the connections of that process. Two servers must not use the same
    /// key at the same time, because each would reset the other's connections (RFC 9000 s.21.11).
    /// `None`: a random key. Connections of an earlier process then time out.
    pub reset_key: Option<Zeroizing<[u8; 32]>>,
    /// Generates the server's connection IDs. `None`: the IDs are random.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
    /// Encrypts the socket number that random connection IDs contain
    /// ([`EndpointConfig::hide_sockets`](equic_quic::EndpointConfig::hide_sockets)). The default is
    /// false.
    pub hide_sockets: bool,
    /// Congestion control algorithm.
    pub congestion: Congestion,
    /// Largest number of paths of a connection (RFC 10069), up to 8. 1 disables multipath.
    pub max_paths: usize,
    /// How data is distributed over several paths.
    pub scheduler: Scheduler,
    /// Function that returns the cost of a path, given the client's address. `None`: paths cost
    /// nothing.
    pub path_cost: Option<PathCost>,
    /// True if a client that begins in version 1 and prefers version 2 is answered in version 2
    /// (RFC 9369, RFC 9368 s.2.3). Otherwise a connection keeps the version of its first packet,
    /// which may be 1 or 2.
    pub upgrade_to_v2: bool,
    /// File that TLS secrets are written to, for packet analysers. `None`: they are not written.
    pub key_log: Option<KeyLog>,
    /// Folder for a qlog file of each connection. `None`: no qlog files are written.
    pub qlog: Option<QlogFolder>,
    /// An extension of QUIC that each connection uses. `None`: no extension.
    pub extension: Option<Extension>,
    /// Attaches hooks to each new connection before its first packet. `None`: no hooks.
    pub hooks: Option<Hooks>,
}

impl ServerConfig {
    /// Returns settings for this address with a new self-signed certificate, without files and
    /// quota, and with default limits.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            root: None,
            identity: IdentitySource::SelfSigned { names: Vec::new(), directory: None },
            admission: Arc::new(NoQuota),
            limits: Limits::default(),
            log: None,
            receive_buffer: None,
            sockets: 1,
            early_data: false,
            retry: false,
            retry_tokens: None,
            reset_key: None,
            ids: None,
            hide_sockets: false,
            congestion: Congestion::default(),
            max_paths: 1,
            scheduler: Scheduler::default(),
            path_cost: None,
            upgrade_to_v2: false,
            key_log: None,
            qlog: None,
            extension: None,
            hooks: None,
        }
    }
}

/// Source of the server's certificate and private key.
#[derive(Clone, Debug)]
pub enum IdentitySource {
    /// A generated certificate. If `directory` is given, the certificate is stored there, and is
    /// read from there the next time.
    SelfSigned {
        /// DNS names and IP addresses. If empty: localhost, the loopback addresses and the listen
        /// address.
        names: Vec<String>,
        /// Directory of `cert.pem` and `key.pem`. `None`: a new certificate is generated each time
        /// and is not stored.
        directory: Option<PathBuf>,
    },
    /// A certificate and a private key in PEM files.
    Files {
        /// File with the certificate chain, leaf first.
        certificate: PathBuf,
        /// File with the private key.
        key: PathBuf,
    },
}

impl IdentitySource {
    pub(super) fn resolve(&self, listen: SocketAddr) -> Result<Identity, CertificateError> {
        match self {
            Self::Files { certificate, key } => Identity::from_pem_files(certificate, key),
            Self::SelfSigned { names, directory } => {
                let names = if names.is_empty() { default_names(listen) } else { names.clone() };
                match directory {
                    Some(directory) => Identity::load_or_create(directory, &names),
                    None => Identity::self_signed(&names),
                }
            }
        }
    }
}

fn default_names(listen: SocketAddr) -> Vec<String> {
    let mut names = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
    let own = listen.ip().to_canonical();
    if !own.is_unspecified() && !names.contains(&own.to_string()) {
        names.push(own.to_string());
    }
    names
}

/// Limits of a server. The defaults suit a public server on a small machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time without a packet after which a connection is closed: at least 100 ms, or zero for
    /// never.
    pub idle_timeout: Duration,
    /// Time after which an incomplete handshake is abandoned.
    pub handshake_timeout: Duration,
    /// Largest number of handshakes in progress. Further attempts are ignored.
    pub max_handshakes: usize,
    /// Number of handshakes in progress from which on the server validates addresses by Retry, as
    /// with [`ServerConfig::retry`]. It is limited to half of
    /// [`max_handshakes`](Self::max_handshakes), so that attempts from forged addresses cannot take
    /// all handshake slots. `None`: the server does not use Retry because of the number of
    /// handshakes.
    pub retry_threshold: Option<usize>,
    /// Largest number of requests in progress on a connection.
    pub max_concurrent_streams: u32,
    /// Largest size of a request's header fields in bytes, as RFC 9114 s.4.2.2 counts them.
    pub max_field_section_size: u64,
    /// Largest N of `/bytes/N`.
    pub max_bytes: u64,
    /// Largest number of bytes of a request's content that a client may send before the service
    /// reads them. All requests of a connection together may send four times as much. The limits
    /// begin at 64 KiB and 256 KiB, and grow only while the service reads.
    pub content_window: u64,
    /// Largest number of unacknowledged bytes of one response in memory, for each path that
    /// [`ServerConfig::max_paths`] permits. The limit grows up to
    /// [`Limits::connection_send_window`] if the congestion windows of the paths are larger.
    pub send_window: u64,
    /// Largest number of unacknowledged bytes of all responses of a connection. Files are read at
    /// most 128 KiB beyond the client's flow control limits.
    pub connection_send_window: u64,
    /// Largest number of unacknowledged bytes of all connections together. A connection may take an
    /// eighth of the bytes that are still free, and at least 64 KiB.
    pub send_memory: u64,
    /// Largest number of open files. `None`: as many as the process's limit of file descriptors
    /// permits. The file of a response that makes no progress is closed, and opened again later.
    pub max_open_files: Option<usize>,
    /// Time that a request waits for permission to open a file, before it is answered with 503.
    pub shed_after: Duration,
    /// Time after which a request without progress is cancelled, because its header fields do not
    /// arrive or the client does not read the response.
    pub stall_timeout: Duration,
    /// Number of malformed requests after which a connection is closed with H3_EXCESSIVE_LOAD. The
    /// count decreases by one every ten seconds.
    pub max_malformed: u32,
    /// Number of requests cancelled by the client after which a connection is closed with
    /// H3_EXCESSIVE_LOAD. The count decreases by 33 per second.
    pub max_cancelled: u32,
    /// Longest time for which requests in progress may continue after the shutdown has begun.
    pub grace: Duration,
    /// Time for which a client may stay at a new, validated address whose source is at its
    /// connection limit. The server then closes the connection. Zero closes it at once.
    ///
    /// During this time the connection counts toward its old address, and the client can still move
    /// back. The delay also protects against an attacker who copies a client's packets and forwards
    /// them once (RFC 9000 s.9.3.3): the client's own packets move the connection back before it is
    /// closed.
    pub migration_settle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 4096,
            // HAProxy has the same default. A handshake takes one or two round trips, so 100
            // handshakes in progress mean about a thousand new clients per second, or an attack.
            retry_threshold: Some(100),
            max_concurrent_streams: 100,
            max_field_section_size: 16 * 1024,
            max_bytes: 1 << 30,
            content_window: 1 << 20,
            send_window: 1 << 20,
            connection_send_window: 8 << 20,
            send_memory: 64 << 20,
            max_open_files: None,
            shed_after: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(30),
            max_malformed: 16,
            // This is enough for a page with a thousand pictures, if the user leaves the page
            // before they arrive.
            max_cancelled: 1000,
            grace: Duration::from_secs(5),
            migration_settle: Duration::from_secs(4),
        }
    }
}
