//! Tests of admission: the server accepts or refuses clients, and counts each one while it is
//! connected.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use equic_http3::client::Failure;
use equic_http3::{
    Admission, AtLimit, Client, ClientConfig, Decision, Limits, NoQuota, Opened, QuotaConfig,
    Refused, ServerConfig, ServerStats, UserSpaceQuota,
};
use http::StatusCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use crate::common::{PATIENCE, Running, Watched, get, loopback, path, seed, start};
use crate::foreign;

/// An admission that makes the same decision for every client, and counts the calls.
struct Always(Decision, AtomicU64);

impl Admission for Always {
    fn incoming(&self, _peer: SocketAddr) -> Decision {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        NoQuota.opened(peer)
    }
}

fn always(decision: Decision) -> Arc<Always> {
    Arc::new(Always(decision, AtomicU64::new(0)))
}

fn with(admission: Arc<dyn Admission>, limits: Limits) -> Running {
    start(ServerConfig { admission, limits, ..ServerConfig::new(loopback()) })
}

/// Makes requests that must all time out, until the server has counted one of them. (The time limit
/// is short, so a client may time out before the server gets its first packet.)
async fn time_out_until(server: &Running, is_counted: impl Fn(&ServerStats) -> bool) {
    let config = ClientConfig {
        timeout: Some(Duration::from_millis(100)),
        ..server.client_config(loopback())
    };
    let requests = async {
        loop {
            let client = Client::new(config.clone()).unwrap();
            let error = client.get(&server.url("/health")).await.err().unwrap();
            assert_eq!(error.failure(), Failure::Timeout, "{error}");
            if is_counted(&server.stats.snapshot()) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, requests).await.expect("the server counts a request");
}

#[tokio::test]
async fn admission_refuses_ignores_and_retries() {
    let refusing = with(always(Decision::Refuse), Limits::default());
    let error = refusing.client().get(&refusing.url("/health")).await.err().unwrap();
    assert_eq!(error.failure(), Failure::Refused, "{error}");
    let stats = refusing.stop().await;
    assert_eq!(
        (stats.attempts, stats.refused, stats.opened, stats.handshakes_failed),
        (1, 1, 0, 0)
    );

    let ignoring = with(always(Decision::Ignore), Limits::default());
    time_out_until(&ignoring, |stats| stats.ignored >= 1).await;
    let stats = ignoring.stop().await;
    assert!(stats.ignored >= 1 && stats.opened == 0, "{stats:?}");

    let admission = always(Decision::Retry);
    let retrying = with(admission.clone(), Limits::default());
    assert_eq!(foreign::get(&retrying, "/health").await, (StatusCode::OK, 3));
    let stats = retrying.stop().await;
    assert_eq!((stats.attempts, stats.retried, stats.opened), (2, 1, 1));
    assert_eq!(admission.1.load(Ordering::Relaxed), 2, "asked about both");
}

#[tokio::test]
async fn admission_refuses_after_the_handshake() {
    struct Late;
    impl Admission for Late {
        fn incoming(&self, _peer: SocketAddr) -> Decision {
            Decision::Accept
        }
        fn opened(&self, _peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
            Err(Refused::excessive_load("come back later"))
        }
    }
    let server = with(Arc::new(Late), Limits::default());
    let error = server.client().get(&server.url("/health")).await.err().unwrap();
    assert_eq!(error.failure(), Failure::Refused, "{error}");
    assert!(error.to_string().contains("come back later"), "{error}");
    let stats = server.stop().await;
    assert_eq!((stats.refused_late, stats.opened, stats.open, stats.requests), (1, 0, 0, 0));
}

#[tokio::test]
async fn admission_ignores_too_many_handshakes() {
    let server = with(Arc::new(NoQuota), Limits { max_handshakes: 0, ..Limits::default() });
    time_out_until(&server, |stats| stats.overloaded >= 1).await;
    let stats = server.stop().await;
    assert!(stats.overloaded >= 1 && stats.opened == 0, "{stats:?}");
}

/// Many clients connect at random and end in different ways: they close, are dropped, disappear
/// without closing, or leave during a response. The quota's counts must stay exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_count_is_exact_under_churn() {
    const LIMIT: u32 = 4;
    const SOURCES: usize = 3;
    let seed = seed("quota_count_is_exact_under_churn");
    let quota = UserSpaceQuota::new(QuotaConfig {
        max_connections: LIMIT,
        at_limit: AtLimit::Refuse,
        ..QuotaConfig::default()
    });
    let admission = Watched::new(quota.unwrap());
    let limits = Limits { idle_timeout: Duration::from_millis(700), ..Limits::default() };
    let server = Arc::new(with(admission.clone(), limits));

    let mut clients = JoinSet::new();
    for number in 0..36u64 {
        let server = Arc::clone(&server);
        clients.spawn(async move {
            let mut random = StdRng::seed_from_u64(seed ^ number);
            let source = format!("127.0.0.{}:0", 1 + number as usize % SOURCES).parse().unwrap();
            for _ in 0..3 {
                churn(&server, source, random.random_range(0..5)).await;
            }
        });
    }
    let quota = &admission.inner;
    while let Some(done) = clients.join_next().await {
        done.unwrap();
        assert!(quota.total() <= u64::from(LIMIT) * SOURCES as u64);
    }
    let seen = admission.until("everybody gone", |seen| seen.open == 0).await;
    assert!(seen.peak <= LIMIT as usize * SOURCES, "{}", seen.peak);
    assert!(!seen.opened.is_empty());
    assert_eq!((quota.total(), quota.sources()), (0, 0));
    let server = Arc::into_inner(server).unwrap();
    let stats = server.stop().await;
    assert_eq!((stats.opened, stats.open), (seen.opened.len() as u64, 0));
    assert_eq!(stats.refused + stats.refused_late, quota.over_quota());
}

async fn churn(server: &Running, source: SocketAddr, way: u32) {
    let url = server.url("/bytes/100000");
    let config = server.client_config(source);
    match way {
        // Closes after a complete response.
        0 => {
            let client = Client::new(config).unwrap();
            if let Ok(mut response) = client.get(&url).await {
                let _ = response.drain().await;
            }
            client.close().await;
        }
        // Closes in the middle of a response.
        1 => {
            let client = Client::new(config).unwrap();
            if let Ok(response) = client.get(&url).await {
                response.connection().close();
            }
        }
        // Is dropped in the middle of the handshake.
        2 => {
            let client = Client::new(config).unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(2), client.connect(&url)).await;
        }
        // Disappears without CONNECTION_CLOSE, during a response or while idle.
        _ => drop(vanish(config, url, way == 3).await),
    }
}

/// Connects in a separate runtime, which is then dropped before it can send anything more. Returns
/// whether the client got a response on the connection.
async fn vanish(config: ClientConfig, url: String, ask: bool) -> bool {
    let vanished = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let held = runtime.block_on(async {
            let client = Client::new(config).unwrap();
            let connection = client.connect(&url).await.ok()?;
            // The client has a response, so the server has counted the connection.
            connection.get(&path("/health")).await.ok()?.drain().await.ok()?;
            let response =
                if ask { connection.get(&path("/bytes/50000000")).await.ok() } else { None };
            Some((client, connection, response))
        });
        // Nothing polls the connection from here on, so no CONNECTION_CLOSE is sent.
        drop(runtime);
        held.is_some()
    });
    vanished.await.unwrap()
}

#[tokio::test]
async fn quota_counts_a_vanished_client_until_the_idle_timeout() {
    // The timeout is much longer than a busy machine needs for the handshake and a request.
    const IDLE: Duration = Duration::from_secs(3);
    let admission = Watched::new(UserSpaceQuota::new(QuotaConfig::default()).unwrap());
    let limits = Limits { idle_timeout: IDLE, ..Limits::default() };
    let server = with(admission.clone(), limits);
    for ask in [true, false] {
        let begun = Instant::now();
        let connected = vanish(server.client_config(loopback()), server.url("/"), ask).await;
        assert!(connected, "the client did not connect");
        let seen = admission.until("opened, then gone", |seen| seen.open == 0).await;
        assert!(begun.elapsed() >= IDLE, "not by the idle timeout");
        assert_eq!(seen.opened.len(), if ask { 1 } else { 2 });
        assert_eq!(admission.inner.total(), 0);
    }
    server.stop().await;
}

#[tokio::test]
async fn quota_counts_end_with_the_server() {
    let admission = Watched::new(UserSpaceQuota::new(QuotaConfig::default()).unwrap());
    let server = with(admission.clone(), Limits::default());
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(server.client().connect(&server.url("/")).await.unwrap());
    }
    admission.until("five", |seen| seen.open == 5).await;
    server.stop().await;
    assert_eq!(admission.now().open, 0);
    assert_eq!(admission.inner.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_is_reported_when_the_new_address_is_validated() {
    let admission = Watched::new(UserSpaceQuota::new(QuotaConfig::default()).unwrap());
    let server = with(admission.clone(), Limits::default());
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    get(&connection, "/health").await;
    assert!(admission.now().moved.is_empty());
    let mut moves = Vec::new();
    // The client moves to another address, to another port of that address, and back.
    for to in ["127.0.0.2:0", "127.0.0.2:0", "127.0.0.1:0"] {
        client.rebind(to.parse().unwrap()).unwrap();
        moves.push(client.local_addr().unwrap());
        assert_eq!(get(&connection, "/health").await, StatusCode::OK);
        let seen = admission.until("moved", |seen| seen.moved.len() == moves.len()).await;
        assert_eq!(seen.moved, moves);
        for ip in ["127.0.0.1", "127.0.0.2"] {
            let here = moves.last().unwrap().ip() == ip.parse::<std::net::IpAddr>().unwrap();
            assert_eq!(admission.inner.connections(ip.parse().unwrap()), u32::from(here));
        }
    }
    connection.close();
    admission.until("closed", |seen| seen.open == 0).await;
    assert_eq!(admission.inner.sources(), 0);
    let stats = server.stop().await;
    assert_eq!((stats.moved, stats.opened, stats.requests), (3, 1, 4));
}

/// A client opens connections from other addresses and moves them to one address. It must not
/// exceed the quota of that address in this way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_to_an_address_at_its_quota_is_refused() {
    let config = QuotaConfig { max_connections: 2, ..QuotaConfig::default() };
    let admission = Watched::new(UserSpaceQuota::new(config).unwrap());
    let limits = Limits { migration_settle: Duration::from_millis(50), ..Limits::default() };
    let server = with(admission.clone(), limits);
    let (full, elsewhere) = ("127.0.0.2", "127.0.0.1");
    let count = |ip: &str| admission.inner.connections(ip.parse().unwrap());
    let residents = server.client();
    residents.rebind(format!("{full}:0").parse().unwrap()).unwrap();
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(residents.connect(&server.url("/")).await.unwrap());
        get(held.last().unwrap(), "/health").await;
    }
    let mover = server.client();
    let connection = mover.connect(&server.url("/")).await.unwrap();
    get(&connection, "/health").await;
    assert_eq!((count(full), count(elsewhere)), (2, 1));
    mover.rebind(format!("{full}:0").parse().unwrap()).unwrap();
    // The request may fail or succeed, because its response may arrive before the server closes the
    // connection.
    let _ = connection.get(&path("/health")).await;
    let error = tokio::time::timeout(PATIENCE, connection.closed()).await.expect("it is closed");
    assert!(error.to_string().contains("too many connections"), "{error}");
    admission.until("closed", |seen| seen.open == 2).await;
    assert_eq!((count(full), count(elsewhere)), (2, 0));
    assert!(admission.now().moved.is_empty());
    for resident in &held {
        assert_eq!(get(resident, "/health").await, StatusCode::OK);
    }
    let stats = server.stop().await;
    assert_eq!((stats.moved, stats.refused_late, stats.opened), (0, 1, 3));
}

/// A client moves to an address that is at its quota, and moves back before the server closes the
/// connection. The client must keep its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_that_is_refused_may_be_taken_back() {
    let config = QuotaConfig { max_connections: 1, ..QuotaConfig::default() };
    let admission = Watched::new(UserSpaceQuota::new(config).unwrap());
    let limits = Limits { migration_settle: Duration::from_secs(3600), ..Limits::default() };
    let server = with(admission.clone(), limits);
    let resident = server.client();
    resident.rebind("127.0.0.2:0".parse().unwrap()).unwrap();
    let there = resident.connect(&server.url("/")).await.unwrap();
    get(&there, "/health").await;
    let mover = server.client();
    let connection = mover.connect(&server.url("/")).await.unwrap();
    get(&connection, "/health").await;
    let mut moves = Vec::new();
    for _ in 0..3 {
        mover.rebind("127.0.0.2:0".parse().unwrap()).unwrap();
        assert_eq!(get(&connection, "/health").await, StatusCode::OK);
        mover.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
        moves.push(mover.local_addr().unwrap());
        assert_eq!(get(&connection, "/health").await, StatusCode::OK);
        let seen = admission.until("back", |seen| seen.moved.last() == moves.last()).await;
        assert_eq!(seen.moved, moves, "only where there is room");
    }
    // When the address is no longer at its quota, the client may move there.
    there.close();
    admission.until("closed", |seen| seen.open == 1).await;
    mover.rebind("127.0.0.2:0".parse().unwrap()).unwrap();
    let to = mover.local_addr().unwrap();
    get(&connection, "/health").await;
    admission.until("moved", |seen| seen.moved.last() == Some(&to)).await;
    server.stop().await;
}

/// An admission that panics for the first connection.
struct PanicsOnce(AtomicU64);

impl Admission for PanicsOnce {
    fn incoming(&self, _peer: SocketAddr) -> Decision {
        Decision::Accept
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "this panic is a part of the test");
        NoQuota.opened(peer)
    }
}

/// A panic in the task of a connection must end only that connection. The server must serve the
/// next one.
#[tokio::test]
async fn panic_in_a_connections_task_ends_only_that_connection() {
    let server = with(Arc::new(PanicsOnce(AtomicU64::new(0))), Limits::default());
    let first = server.client();
    // The request fails, unless the client repeats it on another connection.
    let _ = first.get(&server.url("/health")).await;
    let second = server.client();
    let mut response = second.get(&server.url("/bytes/10000")).await.unwrap();
    response.drain().await.unwrap();
    assert_eq!((response.status, response.bytes()), (StatusCode::OK, 10_000));
    let stats = server.stop().await;
    assert!(stats.open == 0 && stats.requests >= 1, "{stats:?}");
}
