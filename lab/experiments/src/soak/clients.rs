//! Legitimate clients of the endurance test: long-lived HTTP/3 connections with occasional
//! requests. Each connection must stay open.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equic_http3::client::Target;
use equic_http3::{Client, ClientConfig, ClientError, Connection, Trust};
use equic_netns::Namespace;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::{Failure, Result};

/// Timeout of a request. It is far longer than a response takes, even if an interface is down or
/// the machine is busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two requests on a connection.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause between two attempts to connect. It is short, because a killed server is restarted soon.
const RETRY: Duration = Duration::from_millis(200);
/// Paths that the clients request. The larger response takes several full packets.
const PATHS: [&str; 3] = ["/bytes/1", "/bytes/40000", "/health"];

/// Results of all groups of clients so far.
#[derive(Default)]
pub(super) struct Ledger {
    pub opened: AtomicU64,
    pub requests: AtomicU64,
    lost: Mutex<Vec<String>>,
}

impl Ledger {
    /// Returns the connections that ended unexpectedly, each with the reason.
    pub(super) fn lost(&self) -> Vec<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lose(&self, why: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }
}

/// The clients on one host of the lab.
pub(super) struct Fleet {
    runtime: Runtime,
    pub ledger: Arc<Ledger>,
}

/// A group of connections from one address to one server.
pub(super) struct Group {
    end: watch::Sender<bool>,
    open: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    pub(super) fn new(host: &Namespace, ledger: &Arc<Ledger>) -> Result<Fleet> {
        let inside = host.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .on_thread_start(move || {
                // Threads must be in the host's namespace. In another one, they would not find the
                // server.
                let _ = inside.enter();
            })
            .build()?;
        Ok(Fleet { runtime, ledger: Arc::clone(ledger) })
    }

    /// Opens connections to a server. They stay open until the group is closed explicitly.
    pub(super) fn open(&self, from: IpAddr, server: SocketAddr, count: usize) -> Result<Group> {
        let config = ClientConfig {
            trust: Trust::Insecure,
            bind: Some(SocketAddr::new(from, 0)),
            timeout: Some(PATIENCE),
            idle_timeout: Duration::ZERO,
            ..ClientConfig::default()
        };
        let client = self.runtime.spawn(async { Client::new(config) });
        let client = self.runtime.block_on(client)??;
        let (end, ended) = watch::channel(false);
        let open = Arc::default();
        let url = format!("https://{server}/");
        let tasks = (0..count).map(|number| {
            self.runtime.spawn(hold(
                client.clone(),
                url.clone(),
                number,
                ended.clone(),
                Arc::clone(&open),
                Arc::clone(&self.ledger),
            ))
        });
        Ok(Group { end, tasks: tasks.collect(), open })
    }

    /// Closes a group of connections in order, so that the server is notified. Also used before a
    /// server is killed.
    pub(super) fn close(&self, group: Group) -> Result {
        group.end.send_replace(true);
        for task in group.tasks {
            self.runtime.block_on(task)?;
        }
        Ok(())
    }
}

impl Group {
    /// Returns the number of open connections in the group.
    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Waits until all connections are open.
    pub(super) fn await_open(&self) -> Result {
        let deadline = Instant::now() + PATIENCE;
        while self.open() < self.tasks.len() as u64 {
            if Instant::now() > deadline {
                return Err(Failure::new("the clients' connections did not open in time"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

async fn hold(
    client: Client,
    url: String,
    number: usize,
    mut ended: watch::Receiver<bool>,
    open: Arc<AtomicU64>,
    ledger: Arc<Ledger>,
) {
    let connected = tokio::select! {
        connected = connect(&client, &url) => connected,
        _ = ended.wait_for(|ended| *ended) => return,
    };
    let connection = match connected {
        Ok(connection) => connection,
        Err(why) => return ledger.lose(format!("{url}: never opened: {why}")),
    };
    open.fetch_add(1, Ordering::AcqRel);
    ledger.opened.fetch_add(1, Ordering::Relaxed);
    let mut request = number;
    loop {
        let path = PATHS[request % PATHS.len()];
        request += 1;
        let answered = tokio::select! {
            answered = timeout(PATIENCE, get(&connection, path)) => answered,
            // The group is being closed, so the result of the request does not matter.
            _ = ended.wait_for(|ended| *ended) => break,
        };
        match answered {
            Ok(Ok(())) => ledger.requests.fetch_add(1, Ordering::Relaxed),
            Ok(Err(error)) => break ledger.lose(format!("{url}: {error}")),
            Err(_) => break ledger.lose(format!("{url}: no answer within {PATIENCE:?}")),
        };
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = ended.wait_for(|ended| *ended) => break,
        }
    }
    open.fetch_sub(1, Ordering::AcqRel);
    connection.close();
}

/// Connects to a server. Retries until it succeeds, because the server may be starting.
async fn connect(client: &Client, url: &str) -> Result<Connection, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let attempt = async {
            let connection = client.connect(url).await?;
            get(&connection, PATHS[0]).await?;
            Ok::<_, ClientError>(connection)
        };
        let why = match timeout(PATIENCE / 6, attempt).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if Instant::now() > deadline {
            return Err(why);
        }
        sleep(RETRY).await;
    }
}

async fn get(connection: &Connection, path: &str) -> Result<(), ClientError> {
    let (_, path) = Target::parse(&format!("https://localhost{path}"))?;
    connection.get(&path).await?.drain().await.map(drop)
}
