//! Load generators: many clients, and one sample per request.
//!
//! A client is a source address with a number of simultaneous connections. The eQUIC paper has two
//! kinds. [`Load::sequential`] creates well-behaved clients: one connection, one request, close,
//! repeat. [`Load::parallel`] creates greedy clients: many connections from one source, which are
//! held open and replaced as soon as they end or are refused. [`run`] runs one load and returns its
//! [`Summary`]. Every request also becomes a [`Sample`] for a [`Sink`], for example [`JsonLines`].
//!
//! `worker` runs one connection slot; `sample` and `summary` have the measurements. The
//! configuration bounds the number of tasks and sockets, and the memory, even if many handshakes
//! fail.

#![forbid(unsafe_code)]

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use equic_http3::client::{Client, ClientConfig, ClientError, Prepared, Target};
use equic_http3::tls::Trust;

mod sample;
mod summary;
mod worker;

pub use sample::{JsonLines, Outcome, Sample, Sink};
pub use summary::{Second, Summary};

use sample::Clock;
use summary::Collector;

/// Maximum number of samples that wait for the sink. If the sink is slower, the load waits.
const BACKLOG: usize = 16 * 1024;

/// Maximum number of simultaneous connections, over all clients.
const MAX_SLOTS: usize = 1 << 20;

/// Maximum time to wait at the end of a load until all CONNECTION_CLOSE frames are sent.
const CLOSING: Duration = Duration::from_millis(500);

/// The client's treatment of a connection after the last request on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Closed at once.
    No,
    /// Kept open for this time. It ends earlier if the server closes the connection or the load
    /// ends.
    For(Duration),
    /// Kept open until the server closes it, or the load ends.
    UntilClosed,
}

/// Sharing of UDP sockets between the connections of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// One socket for each simultaneous connection of a client. Each has its own source port.
    PerConnection,
    /// One socket for all connections of a client.
    PerClient,
}

/// Settings of a load: its URL, clients, connections and requests, and their pace.
#[derive(Clone, Debug)]
pub struct Load {
    /// URL to request: `https://host:port/path`.
    pub url: String,
    /// The certificates that the clients trust.
    pub trust: Trust,
    /// Address to which packets are sent, or `None` to resolve the host of the URL.
    pub connect_to: Option<SocketAddr>,
    /// Number of clients.
    pub clients: usize,
    /// Source addresses. Client i uses index i modulo their number. If empty, the system chooses an
    /// address.
    pub sources: Vec<IpAddr>,
    /// Simultaneous connections of each client.
    pub connections: usize,
    /// Requests on each connection, one after the other.
    pub requests: u32,
    /// The client's treatment of a connection after the last request on it.
    pub hold: Hold,
    /// Pause of a connection slot after a connection whose requests all succeeded.
    pub think: Duration,
    /// Pause of a connection slot after a failed connection.
    pub retry_pause: Duration,
    /// Timeout of a request. For the first request on a connection, it includes the handshake.
    pub timeout: Duration,
    /// Duration of the load, or `None` for no limit. Requests in progress at the end are finished
    /// and counted.
    pub duration: Option<Duration>,
    /// Connections to open per second, over all clients, regardless of the results of earlier ones
    /// (an open loop). A connection waits until it is due and a connection slot is free. With
    /// `None`, each slot opens its next connection as soon as it can.
    pub rate: Option<f64>,
    /// Total number of requests, or `None` for no limit. With [`Hold::UntilClosed`], all connection
    /// slots may be in use before that many requests are made, so set a duration, too.
    pub count: Option<u64>,
    /// Sharing of UDP sockets between the connections of a client.
    pub sockets: Sockets,
    /// True to use UDP generic receive offload. It makes downloads faster, but needs 3 MB of memory
    /// per socket.
    pub receive_offload: bool,
    /// Maximum number of closed connections, over all clients, that may linger in the closing
    /// state. New connections wait until there are fewer. A connection lingers for three probe
    /// timeouts (RFC 9000 s.10.2), or for 3 s if the server never answered, and uses about 20 KiB.
    pub max_closing: usize,
}

impl Load {
    /// Returns the load of the eQUIC paper's well-behaved clients: each opens a connection, makes
    /// one request, closes the connection, and repeats that.
    pub fn sequential(url: impl Into<String>, clients: usize) -> Self {
        Self {
            url: url.into(),
            trust: Trust::System,
            connect_to: None,
            clients,
            sources: Vec::new(),
            connections: 1,
            requests: 1,
            hold: Hold::No,
            think: Duration::ZERO,
            retry_pause: Duration::from_millis(10),
            timeout: Duration::from_secs(5),
            duration: None,
            rate: None,
            count: None,
            sockets: Sockets::PerConnection,
            receive_offload: true,
            max_closing: 16 * 1024,
        }
    }

    /// Returns the load of the eQUIC paper's parallel clients: each has `connections` at a time
    /// from one source, makes one request on each, and holds it open. A connection that ends or is
    /// refused is replaced.
    pub fn parallel(url: impl Into<String>, clients: usize, connections: usize) -> Self {
        let hold = Hold::UntilClosed;
        Self { connections, hold, receive_offload: false, ..Self::sequential(url, clients) }
    }
}

/// Reason why a load could not be started or recorded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A setting is 0, but must be at least 1.
    #[error("a load needs at least one of: {0}")]
    Nothing(&'static str),
    /// The load has more simultaneous connections than a machine has ports.
    #[error(
        "{clients} clients with {connections} connections each are too many: at most {MAX_SLOTS} connections in total are possible"
    )]
    TooMany {
        /// Number of clients.
        clients: usize,
        /// Connections of each client.
        connections: usize,
    },
    /// The URL, the certificate or a socket cannot be used.
    #[error("cannot start the load: {source}{}", help(source))]
    Client {
        /// The client's error.
        #[from]
        source: ClientError,
    },
    /// The samples cannot be written.
    #[error("cannot record the load: {0}")]
    Sink(#[from] std::io::Error),
}

fn help(error: &ClientError) -> &'static str {
    match error {
        ClientError::Bind { source, .. } if source.raw_os_error() == Some(nix::libc::EMFILE) => {
            " (raise `ulimit -n`, or let the connections of a client share a socket)"
        }
        _ => "",
    }
}

/// State that all workers of a load share.
struct Shared {
    target: Target,
    path: http::uri::PathAndQuery,
    peer: SocketAddr,
    load: Load,
    clock: Clock,
    begun: AtomicU64,
    taken: AtomicU64,
    recorded: AtomicU64,
    stop: watch::Sender<bool>,
    samples: mpsc::Sender<Sample>,
}

/// Runs a load until its duration or count is reached, or `shutdown` is ready. In the latter case,
/// requests in progress are dropped and not counted. Must be called inside a tokio runtime.
///
/// A separate thread calls the sink.
///
/// # Errors
/// An invalid configuration, a host that does not resolve, sockets that cannot be bound, or a
/// failing sink. Failed requests are samples, not errors.
pub async fn run(
    load: Load,
    sink: impl Sink + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, LoadError> {
    for (number, what) in [
        (load.clients as u64, "clients"),
        (load.connections as u64, "connections"),
        (u64::from(load.requests), "requests"),
    ] {
        if number == 0 {
            return Err(LoadError::Nothing(what));
        }
    }
    if load.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(LoadError::Nothing("connections a second"));
    }
    let (clients, connections) = (load.clients, load.connections);
    if clients.checked_mul(connections).is_none_or(|slots| slots > MAX_SLOTS) {
        return Err(LoadError::TooMany { clients, connections });
    }
    let (target, path) = Target::parse(&load.url)?;
    let clients = bind(&load)?;
    let peer = clients[0].resolve(&target).await?;
    let clock = Clock::start();
    let (samples, receiver) = mpsc::channel(BACKLOG);
    let collector =
        tokio::task::spawn_blocking(move || Collector::new(clock, sink).collect(receiver));
    let shared = Arc::new(Shared {
        target,
        path,
        peer,
        load,
        clock,
        begun: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        recorded: AtomicU64::new(0),
        stop: watch::Sender::new(false),
        samples,
    });

    let mut workers = JoinSet::new();
    let load = &shared.load;
    for number in 0..load.clients * load.connections {
        let client = match load.sockets {
            Sockets::PerConnection => &clients[number],
            Sockets::PerClient => &clients[number / load.connections],
        };
        let sharers = load.clients * load.connections / clients.len();
        let lingering = (load.max_closing / clients.len()).max(1);
        workers.spawn(worker::run(worker::Slot {
            shared: Arc::clone(&shared),
            client: client.clone(),
            number: number / load.connections,
            max_open: sharers + lingering,
        }));
    }
    supervise(&shared, &mut workers, shutdown).await;
    workers.shutdown().await;
    for client in &clients {
        client.abandon();
    }
    let elapsed = shared.clock.elapsed();
    drop(shared);
    // All senders of samples are dropped, so the collector ends.
    let collected = collector.await.map_err(std::io::Error::other)?;
    // Tell the servers that the connections are closed, even if the process exits right after this.
    let closing = async {
        for client in &clients {
            client.close().await;
        }
    };
    let _ = tokio::time::timeout(CLOSING, closing).await;
    Ok(collected?.finish(elapsed))
}

/// Waits for the workers, stops them when the duration is over, and returns early on shutdown.
async fn supervise(shared: &Shared, workers: &mut JoinSet<()>, shutdown: impl Future<Output = ()>) {
    let time_up = async {
        match shared.load.duration.and_then(|duration| Instant::now().checked_add(duration)) {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(time_up, shutdown);
    let mut going = true;
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            () = &mut time_up, if going => {
                going = false;
                shared.stop.send_replace(true);
            }
            done = workers.join_next() => if done.is_none() { return },
        }
    }
}

fn bind(load: &Load) -> Result<Vec<Client>, LoadError> {
    let base = ClientConfig {
        trust: load.trust.clone(),
        connect_to: load.connect_to,
        timeout: None,
        receive_offload: load.receive_offload,
        // Keep trying to connect until the server is up.
        heed_unreachable: false,
        keep_alive: (load.hold != Hold::No).then_some(Duration::from_secs(5)),
        ..ClientConfig::default()
    };
    let quic = Prepared::new(&base)?;
    let sockets = match load.sockets {
        Sockets::PerConnection => load.connections,
        Sockets::PerClient => 1,
    };
    (0..load.clients * sockets)
        .map(|number| {
            let source = match load.sources.len() {
                0 => None,
                length => Some(load.sources[number / sockets % length]),
            };
            let config = ClientConfig { bind: source.map(|ip| (ip, 0).into()), ..base.clone() };
            Ok(Client::with_prepared(Arc::new(config), quic.clone())?)
        })
        .collect()
}
