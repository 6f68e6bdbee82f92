//! Helpers that start a server in the background, and an admission that records its calls.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use equic_http3::{
    Admission, Client, ClientConfig, Decision, Fingerprint, Opened, Refused, Server, ServerConfig,
    ServerError, ServerStats, StatsHandle, Trust,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Time limit of each step. Only a step that hangs takes that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs in the background.
pub struct Running {
    /// Address of the server.
    pub address: SocketAddr,
    /// Fingerprint of the server's certificate.
    pub fingerprint: Fingerprint,
    /// Counters of the server.
    pub stats: StatsHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<ServerStats, ServerError>>,
}

/// Returns an address on loopback with port 0, for which the kernel chooses a port.
pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Starts a server in the background.
pub fn start(config: ServerConfig) -> Running {
    start_as(config, Server::run)
}

/// Starts a server in the background with `serve`, which gets the server and a future that is ready
/// when the server must stop.
pub fn start_as<F>(config: ServerConfig, serve: impl FnOnce(Server, Stop) -> F) -> Running
where
    F: Future<Output = Result<ServerStats, ServerError>> + Send + 'static,
{
    let server = Server::bind(config).unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped: Stop = Box::pin(async {
        let _ = stopped.await;
    });
    Running {
        address: server.local_addr(),
        fingerprint: server.certificate_fingerprint(),
        stats: server.stats(),
        stop,
        task: tokio::spawn(serve(server, stopped)),
    }
}

/// A future that is ready when a server must stop.
pub type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Running {
    /// Returns the URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Returns a client that trusts this server.
    pub fn client(&self) -> Client {
        Client::new(self.client_config(loopback())).unwrap()
    }

    /// Returns the configuration of a client that trusts this server and sends from `source`.
    pub fn client_config(&self, source: SocketAddr) -> ClientConfig {
        ClientConfig {
            trust: Trust::Fingerprint(self.fingerprint),
            bind: Some(source),
            ..ClientConfig::default()
        }
    }

    /// Tells the server to shut down, and does not wait for it.
    pub fn begin_stop(self) -> JoinHandle<Result<ServerStats, ServerError>> {
        self.stop.send(()).unwrap();
        self.task
    }

    /// Shuts the server down, and returns its counters.
    pub async fn stop(self) -> ServerStats {
        timeout(PATIENCE, self.begin_stop()).await.unwrap().unwrap().unwrap()
    }
}

/// The calls that an admission has received so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Number of open connections.
    pub open: usize,
    /// Highest number of connections that were open at the same time.
    pub peak: usize,
    /// Peers of all connections that were opened, in order.
    pub opened: Vec<SocketAddr>,
    /// New addresses of all connections that moved, in order.
    pub moved: Vec<SocketAddr>,
}

/// Forwards all calls to another admission and records them.
pub struct Watched<A> {
    /// The admission that decides.
    pub inner: A,
    seen: Arc<watch::Sender<Seen>>,
}

struct WatchedOpened {
    // The guard of the inner admission is dropped first, so that its count has already fallen when
    // the drop is recorded.
    inner: Option<Box<dyn Opened>>,
    seen: Arc<watch::Sender<Seen>>,
}

impl<A: Admission> Watched<A> {
    /// Returns an admission that forwards its calls to `inner`.
    pub fn new(inner: A) -> Arc<Self> {
        Arc::new(Self { inner, seen: Arc::new(watch::Sender::new(Seen::default())) })
    }

    /// Waits until the recorded calls meet a condition.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Seen) -> bool) -> Seen {
        let mut receiver = self.seen.subscribe();
        let seen = timeout(PATIENCE, receiver.wait_for(|seen| is_so(seen))).await;
        let Ok(seen) = seen else { panic!("never: {what}; seen {:?}", self.now()) };
        seen.unwrap().clone()
    }

    /// Returns the calls so far.
    pub fn now(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

impl<A: Admission> Admission for Watched<A> {
    fn incoming(&self, peer: SocketAddr) -> Decision {
        self.inner.incoming(peer)
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        let inner = Some(self.inner.opened(peer)?);
        self.seen.send_modify(|seen| {
            seen.open += 1;
            seen.peak = seen.peak.max(seen.open);
            seen.opened.push(peer);
        });
        Ok(Box::new(WatchedOpened { inner, seen: Arc::clone(&self.seen) }))
    }
}

impl Opened for WatchedOpened {
    fn moved(&mut self, to: SocketAddr) -> Result<(), Refused> {
        if let Some(inner) = &mut self.inner {
            inner.moved(to)?;
        }
        self.seen.send_modify(|seen| seen.moved.push(to));
        Ok(())
    }
}

impl Drop for WatchedOpened {
    fn drop(&mut self) {
        self.inner = None;
        self.seen.send_modify(|seen| seen.open -= 1);
    }
}
