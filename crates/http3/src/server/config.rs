//! Settings of a server.

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

/// Called once per answered request, from the connection's task: it must not block.
pub type RequestLog = Arc<dyn Fn(&RequestRecord) + Send + Sync>;

/// Cost of a path whose client has this address, in units of the server's owner: a label that plugins read
/// ([`Connection::set_path_cost`](equic_quic::Connection::set_path_cost)).
pub type PathCost = Arc<dyn Fn(IpAddr) -> u32 + Send + Sync>;

/// One answered request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Address of the client when the request came.
    pub peer: SocketAddr,
    /// Number of the connection, from 1, in the order they were opened.
    pub connection: u64,
    /// Number of the request on its connection, from 1.
    pub request: u64,
    /// Its method.
    pub method: Method,
    /// Its path and query as sent: percent-encoded, chosen by the client, at most
    /// [`Limits::max_field_section_size`] bytes.
    pub path: String,
    /// The status answered.
    pub status: StatusCode,
    /// Bytes of body handed to QUIC.
    pub bytes: u64,
    /// Time from the end of the request's headers to the end of the response.
    pub duration: Duration,
    /// True if the whole response was handed to QUIC.
    pub complete: bool,
}

/// Settings of a server: its address, the files it serves, its certificate, admission and limits.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address and port; port 0 lets the system choose, `[::]` takes IPv4 too.
    pub listen: SocketAddr,
    /// Directory whose files are served; none: only the built-in resources.
    pub root: Option<PathBuf>,
    /// Certificate and key.
    pub identity: IdentitySource,
    /// Decides which connections are admitted.
    pub admission: Arc<dyn Admission>,
    /// Limits that keep one client from taking everything.
    pub limits: Limits,
    /// Called for each answered request; none: requests are not logged.
    pub log: Option<RequestLog>,
    /// SO_RCVBUF of each socket, bytes; none: the system's default.
    pub receive_buffer: Option<usize>,
    /// Sockets that share the port (SO_REUSEPORT), each with a task of its own; up to 256. The system
    /// distributes clients over them by their addresses; who moves is brought back to the socket of
    /// its connection.
    pub sockets: usize,
    /// True if clients that come back may ask before the handshake is complete (0-RTT): an attacker who
    /// records such a request can have it carried out again, so only GET and HEAD are answered then,
    /// others by 425 (RFC 8470 s.5.2). Each session ticket is good for that once, for as long as this
    /// process lives, and while the client's clock agrees to a minute (RFC 8446 s.8).
    pub early_data: bool,
    /// True if every client whom the admission lets in has to prove its address first, by a Retry
    /// (RFC 9000 s.8.1.2): another round trip, and no state for forged addresses.
    pub retry: bool,
    /// Judges the Retry tokens of somebody in front of the server, who has clients prove their addresses in
    /// its name; none: all tokens are the server's own.
    pub retry_tokens: Option<Arc<dyn RetryTokens>>,
    /// Secret from which stateless reset tokens are made, where [`ids`](Self::ids) makes none. A server
    /// that starts with the key of an earlier process resets the connections that this process left
    /// behind. No two servers may use one key at the same time: each would reset connections of the
    /// other (RFC 9000 s.21.11). `None`: a random key, so that such connections time out.
    pub reset_key: Option<Zeroizing<[u8; 32]>>,
    /// Makes the server's connection IDs; none: they are random.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
    /// True if random connection IDs name their socket in encrypted form
    /// ([`EndpointConfig::hide_sockets`](equic_quic::EndpointConfig::hide_sockets)); false by
    /// default.
    pub hide_sockets: bool,
    /// Congestion control of what is sent.
    pub congestion: Congestion,
    /// Most paths that a client may have at a time (RFC 10069), up to 8; 1: one that knows of no others is all there is.
    pub max_paths: usize,
    /// Way to divide what is sent among several paths.
    pub scheduler: Scheduler,
    /// Labels the paths of connections by what they cost; none: they cost nothing.
    pub path_cost: Option<PathCost>,
    /// True if clients that begin in version 1 and say that they would rather speak version 2 are
    /// answered in that (RFC 9369, RFC 9368 s.2.3). Otherwise everybody keeps the version of the first
    /// packet, which may be 1 or 2.
    pub upgrade_to_v2: bool,
    /// File that TLS secrets are written to, for packet analysers; none: they are not written.
    pub key_log: Option<KeyLog>,
    /// Folder for a qlog file of each connection; none: no qlog files are written.
    pub qlog: Option<QlogFolder>,
    /// An extension of QUIC that each connection speaks; none: QUIC as it is.
    pub extension: Option<Extension>,
    /// Attaches hooks to each new connection before its first packet; none: there are no hooks.
    pub hooks: Option<Hooks>,
}

impl ServerConfig {
    /// A server with a fresh self-signed certificate, no files, no quota and default limits.
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
    /// Made on the spot; kept in, and taken again from, `directory` if there is one.
    SelfSigned {
        /// DNS names and addresses; empty: localhost, the loopback addresses and the listen address.
        names: Vec<String>,
        /// Directory of `cert.pem` and `key.pem`; none: the certificate is made anew and not kept.
        directory: Option<PathBuf>,
    },
    /// PEM files.
    Files {
        /// Certificate chain, leaf first.
        certificate: PathBuf,
        /// Private key.
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
    /// Time without a packet after which a connection is dropped: at least 100 ms, or zero for never.
    pub idle_timeout: Duration,
    /// A handshake is given up after this long.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once; attempts beyond are ignored.
    pub max_handshakes: usize,
    /// While so many handshakes are under way, or half of [`max_handshakes`](Self::max_handshakes),
    /// clients have to prove their addresses first, as with [`ServerConfig::retry`]: forged addresses
    /// take no more places than that. None: never.
    pub retry_threshold: Option<usize>,
    /// Requests under way at once on a connection.
    pub max_concurrent_streams: u32,
    /// Size of a request's header fields as RFC 9114 s.4.2.2 counts them, bytes.
    pub max_field_section_size: u64,
    /// Largest N of `/bytes/N`.
    pub max_bytes: u64,
    /// Unacknowledged bytes a response may hold in memory, for each path that [`ServerConfig::max_paths`] allows; more, up to
    /// [`Limits::connection_send_window`], where what its paths hold is more.
    pub send_window: u64,
    /// Unacknowledged bytes all responses of a connection may hold together. What the client's flow
    /// control does not let out counts for 128 KiB at most: no more is read of files.
    pub connection_send_window: u64,
    /// Unacknowledged bytes that all connections may hold together. Each may take an eighth of what is
    /// left of them, and always 64 KiB.
    pub send_memory: u64,
    /// Files that are open at once; none: as many as the process's limit of descriptors leaves. A
    /// response that is not taken for a moment holds none.
    pub max_open_files: Option<usize>,
    /// A request that finds no room for so long to open a file is answered by 503.
    pub shed_after: Duration,
    /// A request whose headers do not arrive, or whose response is not taken, for this long is given up.
    pub stall_timeout: Duration,
    /// Malformed requests after which a connection is closed with H3_EXCESSIVE_LOAD. One is forgiven
    /// every ten seconds.
    pub max_malformed: u32,
    /// Requests that the client gave up, after which a connection is closed so. 33 are forgiven a
    /// second.
    pub max_cancelled: u32,
    /// Longest time that requests under way may take after the shutdown began.
    pub grace: Duration,
    /// Time for which a client may stay at a new, validated address that has no room for its
    /// connection, before the server closes the connection.
    ///
    /// The connection counts at its old address meanwhile. The time lets a client return, and keeps
    /// somebody who copies and forwards a client's packets once (RFC 9000 s.9.3.3) from having the
    /// connection closed: the packets that the client sends itself move it back. Zero closes at once.
    pub migration_settle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 4096,
            // As HAProxy does. A handshake takes a round trip or two, so this is some thousand new
            // clients a second, or an attack.
            retry_threshold: Some(100),
            max_concurrent_streams: 100,
            max_field_section_size: 16 * 1024,
            max_bytes: 1 << 30,
            send_window: 1 << 20,
            connection_send_window: 8 << 20,
            send_memory: 64 << 20,
            max_open_files: None,
            shed_after: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(30),
            max_malformed: 16,
            // A page with a thousand pictures, left before they came.
            max_cancelled: 1000,
            grace: Duration::from_secs(5),
            migration_settle: Duration::from_secs(4),
        }
    }
}
