//! Tests that the load generators count correctly, however the server behaves.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use equic_http3::{
    Admission, AtLimit, Decision, NoQuota, Opened, QuotaConfig, Refused, ServerConfig, Trust,
    UserSpaceQuota,
};
use equic_load::{
    self as load, Hold, JsonLines, Load, LoadError, Outcome, Sample, Sink, Sockets, Summary,
};
use tokio::time::timeout;

use equic_test_kit::http3::{PATIENCE, Running, Watched, loopback, start};

fn with(admission: Arc<dyn Admission>) -> Running {
    start(ServerConfig { admission, ..ServerConfig::new(loopback()) })
}

fn quota(max_connections: u32, at_limit: AtLimit) -> UserSpaceQuota {
    UserSpaceQuota::new(QuotaConfig { max_connections, at_limit, ..QuotaConfig::default() })
        .unwrap()
}

fn trusting(load: Load, server: &Running) -> Load {
    Load { trust: Trust::Fingerprint(server.fingerprint), ..load }
}

async fn run(load: Load, sink: impl Sink + 'static) -> Summary {
    timeout(PATIENCE, load::run(load, sink, std::future::pending())).await.unwrap().unwrap()
}

/// A buffer that can be read after the load has ended.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check(summary: &Summary) {
    let parts = summary.ok + summary.refused + summary.timeouts + summary.errors;
    assert_eq!(summary.requests, parts);
    let rows = summary.series.iter().map(|s| s.ok + s.refused + s.timeouts + s.errors);
    assert_eq!(rows.sum::<u64>(), summary.requests, "the series holds every request");
    assert_eq!(summary.error_kinds.values().sum::<u64>(), summary.errors);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_sequential_clients_opens_a_connection_per_request() {
    let admission = Watched::new(NoQuota);
    let server = with(admission.clone());
    let lines = Buffer::default();
    let load = Load { count: Some(40), ..Load::sequential(server.url("/bytes/262144"), 3) };
    let summary = run(trusting(load, &server), JsonLines::new(lines.clone())).await;
    check(&summary);
    assert_eq!((summary.requests, summary.ok, summary.bytes), (40, 40, 40 * 262_144));
    assert!(summary.median_ms <= summary.p99_ms && summary.median_ms > Some(0.0));
    admission.until("all closed", |seen| seen.open == 0 && seen.opened.len() == 40).await;
    assert!(admission.now().peak <= 6, "{}", admission.now().peak);
    let stats = server.stop().await;
    assert_eq!((stats.opened, stats.requests, stats.bytes), (40, 40, 40 * 262_144));

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let samples: Vec<Sample> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(samples.len(), 40);
    assert!(samples.iter().all(|s| s.outcome == Outcome::Ok && s.bytes == 262_144));
    assert!(samples.iter().all(|s| s.handshake_ms.unwrap() <= s.duration_ms));
    assert!(samples.iter().all(|s| s.start_ms >= summary.start_ms));
    let clients: HashSet<usize> = samples.iter().map(|s| s.client).collect();
    assert_eq!(clients, HashSet::from([0, 1, 2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_parallel_clients_holds_its_connections() {
    let admission = Watched::new(NoQuota);
    let server = with(admission.clone());
    let sources = vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()];
    for sockets in [Sockets::PerConnection, Sockets::PerClient] {
        let load = Load {
            requests: 2,
            count: Some(2 * 2 * 8),
            sources: sources.clone(),
            sockets,
            ..Load::parallel(server.url("/bytes/1000"), 2, 8)
        };
        let summary = run(trusting(load, &server), ()).await;
        check(&summary);
        assert_eq!((summary.requests, summary.ok), (32, 32));
        let seen = admission.until("all closed", |seen| seen.open == 0).await;
        let ports: HashSet<_> = seen.opened.iter().rev().take(16).collect();
        let addresses: HashSet<_> = ports.iter().map(|peer| peer.ip()).collect();
        assert_eq!(addresses, sources.iter().copied().collect());
        assert_eq!(ports.len(), if sockets == Sockets::PerClient { 2 } else { 16 });
    }
    let seen = admission.now();
    assert_eq!((seen.opened.len(), seen.peak), (32, 16), "all were held until the end");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_counts_refusals_apart_from_successes() {
    let admission = Watched::new(quota(3, AtLimit::Refuse));
    let server = with(admission.clone());
    let load = Load { count: Some(60), ..Load::parallel(server.url("/bytes/1000"), 1, 10) };
    let summary = run(trusting(load, &server), ()).await;
    check(&summary);
    assert_eq!((summary.ok, summary.refused), (3, 57), "{summary:?}");
    admission.until("all closed", |seen| seen.open == 0).await;
    assert_eq!(admission.now().peak, 3);
    let stats = server.stop().await;
    assert_eq!(stats.refused + stats.refused_late, 57);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_counts_connections_closed_after_their_handshake_as_refused() {
    let server = with(Arc::new(quota(3, AtLimit::Close)));
    let load = Load { count: Some(20), ..Load::parallel(server.url("/bytes/1000"), 1, 10) };
    let summary = run(trusting(load, &server), ()).await;
    check(&summary);
    assert_eq!((summary.ok, summary.refused), (3, 17), "{summary:?}");
    let stats = server.stop().await;
    assert_eq!((stats.refused, stats.ignored, stats.refused_late), (0, 0, 17));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_an_open_loop_begins_no_sooner_than_its_rate() {
    let server = with(Arc::new(NoQuota));
    let lines = Buffer::default();
    let load = Load {
        count: Some(20),
        rate: Some(100.0),
        hold: Hold::No,
        ..Load::parallel(server.url("/bytes/1000"), 1, 5)
    };
    let summary = run(trusting(load, &server), JsonLines::new(lines.clone())).await;
    check(&summary);
    assert_eq!(summary.ok, 20);
    server.stop().await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let samples = text.lines().map(|line| serde_json::from_str::<Sample>(line).unwrap());
    let mut starts: Vec<f64> = samples.map(|s| s.start_ms - summary.start_ms).collect();
    starts.sort_unstable_by(f64::total_cmp);
    // Subtract a millisecond, because timers are rounded.
    let early = starts.iter().enumerate().find(|(n, start)| **start + 1.0 < *n as f64 * 10.0);
    assert_eq!(early, None, "{starts:?}");
    let load = Load { rate: Some(0.0), ..Load::sequential("https://localhost/", 1) };
    let error = load::run(load, (), std::future::pending()).await.unwrap_err();
    assert!(matches!(error, LoadError::Nothing(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_survives_thousands_of_failed_handshakes() {
    struct Refusing;
    impl Admission for Refusing {
        fn incoming(&self, _: std::net::SocketAddr) -> Decision {
            Decision::Refuse
        }
        fn opened(&self, _: std::net::SocketAddr) -> Result<Box<dyn Opened>, Refused> {
            Err(Refused::excessive_load(""))
        }
    }
    let server = with(Arc::new(Refusing));
    let load = Load {
        count: Some(3000),
        retry_pause: Duration::ZERO,
        ..Load::parallel(server.url("/"), 5, 10)
    };
    let summary = run(trusting(load, &server), ()).await;
    check(&summary);
    assert_eq!((summary.requests, summary.refused), (3000, 3000), "{:?}", summary.error_kinds);
    assert_eq!(server.stop().await.refused, 3000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_counts_silence_as_timeouts() {
    // The server's quota of one connection is used up, so no client of the load can connect.
    let admission = Watched::new(quota(1, AtLimit::Ignore));
    let server = with(admission.clone());
    let held = server.client().connect(&server.url("/")).await.unwrap();
    // Wait for the server, because the client finishes its handshake first.
    admission.until("the one", |seen| seen.open == 1).await;
    let load = Load {
        count: Some(20),
        timeout: Duration::from_millis(150),
        ..Load::sequential(server.url("/health"), 10)
    };
    let summary = run(trusting(load, &server), ()).await;
    check(&summary);
    assert_eq!((summary.requests, summary.timeouts), (20, 20), "{:?}", summary.error_kinds);
    assert_eq!(summary.median_ms, None);
    assert!(held.is_open(), "who is in stays in");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_errors_have_kinds() {
    let server = with(Arc::new(NoQuota));
    let load = Load { count: Some(4), ..Load::sequential(server.url("/missing"), 2) };
    let summary = run(trusting(load, &server), ()).await;
    check(&summary);
    assert_eq!((summary.errors, summary.error_kinds["status"]), (4, 4));

    // By default, the clients trust only the system's certificates, so they must reject the
    // server's certificate.
    let load = Load { count: Some(4), ..Load::sequential(server.url("/health"), 2) };
    let summary = run(load, ()).await;
    check(&summary);
    assert_eq!((summary.errors, summary.error_kinds["tls"]), (4, 4));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_ends_with_its_duration_or_on_request() {
    let server = with(Arc::new(NoQuota));
    let load = Load {
        duration: Some(Duration::from_millis(1200)),
        think: Duration::from_millis(20),
        ..Load::sequential(server.url("/health"), 2)
    };
    let summary = run(trusting(load, &server), ()).await;
    check(&summary);
    assert!(summary.ok > 0 && summary.elapsed_s >= 1.2, "{summary:?}");
    assert_eq!(summary.failures(), 0, "requests under way were finished: {summary:?}");

    let (told, stop) = tokio::sync::oneshot::channel();
    let mut told = Some(told);
    let sink = move |_: &Sample| {
        if let Some(told) = told.take() {
            let _ = told.send(());
        }
    };
    let load = Load { hold: Hold::UntilClosed, ..Load::parallel(server.url("/health"), 1, 2) };
    let ended = load::run(trusting(load, &server), sink, async {
        let _ = stop.await;
    });
    let summary = timeout(PATIENCE, ended).await.unwrap().unwrap();
    check(&summary);
    assert!(summary.ok >= 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_that_cannot_run_says_why() {
    struct Full;
    impl Sink for Full {
        fn sample(&mut self, _: &Sample) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }
    let server = with(Arc::new(NoQuota));
    let start = async |load: Load| {
        let run = load::run(trusting(load, &server), Full, std::future::pending());
        timeout(PATIENCE, run).await.unwrap().unwrap_err()
    };
    let good = Load { count: Some(100), ..Load::sequential(server.url("/health"), 1) };
    assert!(matches!(start(good.clone()).await, LoadError::Sink(_)));
    assert!(matches!(
        start(Load { clients: 0, ..good.clone() }).await,
        LoadError::Nothing("clients")
    ));
    assert!(matches!(start(Load { requests: 0, ..good.clone() }).await, LoadError::Nothing(_)));
    assert!(matches!(
        start(Load { url: "x".into(), ..good.clone() }).await,
        LoadError::Client { .. }
    ));
    let many = Load { clients: usize::MAX, connections: 2, ..good.clone() };
    assert!(matches!(start(many).await, LoadError::TooMany { .. }));
    let foreign = vec!["192.0.2.1".parse().unwrap()];
    assert!(matches!(start(Load { sources: foreign, ..good }).await, LoadError::Client { .. }));
    server.stop().await;
}
