//! Files, bytes, limits, trust, shutdown.

use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use equic_http3::client::Failure;
use equic_http3::{
    Client, ClientConfig, ClientError, IdentitySource, Limits, RequestRecord, Server, ServerConfig,
    ServerError, Trust,
};
use http::{Method, StatusCode, header};
use tokio::time::timeout;

use crate::common::{PATIENCE, Running, loopback, path, start, until};

async fn status(server: &Running, target: &str) -> StatusCode {
    let mut response = server.client().get(&server.url(target)).await.unwrap();
    response.drain().await.unwrap();
    response.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_is_served_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(root.path().join("large.bin"), &large).unwrap();
    std::fs::write(root.path().join("page.html"), "<p>page").unwrap();
    std::fs::write(root.path().join("sp ace.txt"), "").unwrap();
    std::fs::create_dir(root.path().join("dir")).unwrap();
    std::fs::write(root.path().join("dir/index.html"), "index").unwrap();
    symlink("page.html", root.path().join("link.html")).unwrap();
    let server =
        start(ServerConfig { root: Some(root.path().into()), ..ServerConfig::new(loopback()) });
    let connection = server.client().connect(&server.url("/")).await.unwrap();

    for (target, content_type, content) in [
        ("/large.bin", "application/octet-stream", large.as_slice()),
        ("/page.html?query", "text/html; charset=utf-8", b"<p>page"),
        ("/link.html", "text/html; charset=utf-8", b"<p>page"),
        ("/sp%20ace.txt", "text/plain; charset=utf-8", b""),
        ("/dir/", "text/html; charset=utf-8", b"index"),
    ] {
        let mut response = connection.get(&path(target)).await.unwrap();
        assert_eq!(response.status, StatusCode::OK, "{target}");
        assert_eq!(response.headers[header::CONTENT_TYPE], content_type, "{target}");
        assert_eq!(response.announced(), Some(content.len() as u64), "{target}");
        assert!(response.body(1 << 30).await.unwrap() == content, "{target}");
        assert!(response.timing().total.unwrap() >= response.timing().first_byte);

        let mut response = connection.request(Method::HEAD, &path(target)).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        assert_eq!(response.headers[header::CONTENT_LENGTH], content.len().to_string());
        assert_eq!(response.drain().await.unwrap(), 0, "HEAD has no body");
    }
    let response = connection.get(&path("/dir?q=1")).await.unwrap();
    assert_eq!(response.status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(response.headers[header::LOCATION], "/dir/?q=1");
    let mut response = connection.get(&path("/missing")).await.unwrap();
    assert_eq!(response.status, StatusCode::NOT_FOUND);
    response.drain().await.unwrap();
    drop((response, connection));
    let stats = server.stop().await;
    assert_eq!((stats.opened, stats.open, stats.requests, stats.failed), (1, 0, 12, 0));
    assert_eq!(stats.handshakes_failed, 0);
}

#[tokio::test]
async fn bytes_are_counted_and_limited() {
    let limits = Limits { max_bytes: 1_000_000, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    for length in [0, 1, 65_535, 65_536, 65_537, 1_000_000] {
        let mut response = connection.get(&path(&format!("/bytes/{length}"))).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        assert_eq!(response.drain().await.unwrap(), length);
    }
    for wrong in ["", "x", "-1", "+1", "1000001", "99999999999999999999999", "1/2", "%31", "1.5"] {
        let response = connection.get(&path(&format!("/bytes/{wrong}"))).await.unwrap();
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let mut response = connection.get(&path("/bytes/1000")).await.unwrap();
    assert!(matches!(response.body(999).await, Err(ClientError::TooLarge { limit: 999 })));
    assert_eq!(status(&server, "/health").await, StatusCode::OK);
    assert_eq!(status(&server, "/").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn method_other_than_get_and_head_is_refused() {
    let server = start(ServerConfig::new(loopback()));
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        let method: Method = method.parse().unwrap();
        let response = connection.request(method.clone(), &path("/health")).await.unwrap();
        assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(response.headers[header::ALLOW], "GET, HEAD");
    }
}

#[tokio::test]
async fn log_has_each_request() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let config = ServerConfig {
        log: Some(Arc::new(move |record: &RequestRecord| {
            sink.lock().unwrap().push(record.clone())
        })),
        ..ServerConfig::new(loopback())
    };
    let server = start(config);
    let client = server.client();
    for target in ["/bytes/10", "/missing?x=%20", "/health"] {
        client.get(&server.url(target)).await.unwrap().drain().await.unwrap();
    }
    let source = client.local_addr().unwrap();
    server.stop().await;
    let log = log.lock().unwrap();
    let rows: Vec<_> = log
        .iter()
        .map(|r| (r.connection, r.request, r.path.as_str(), r.status.as_u16(), r.bytes, r.complete))
        .collect();
    assert_eq!(
        rows,
        [
            (1, 1, "/bytes/10", 200, 10, true),
            (1, 2, "/missing?x=%20", 404, 10, true),
            (1, 3, "/health", 200, 3, true)
        ]
    );
    assert!(log.iter().all(|r| r.peer == source && r.method == Method::GET));
}

#[tokio::test]
async fn trust_settings_decide_which_servers_are_trusted() {
    let home = tempfile::tempdir().unwrap();
    let identity =
        IdentitySource::SelfSigned { names: Vec::new(), directory: Some(home.path().into()) };
    let server = start(ServerConfig { identity, ..ServerConfig::new(loopback()) });
    let other = start(ServerConfig::new(loopback()));
    let get = async |trust| {
        let config = ClientConfig { trust, ..server.client_config(loopback()) };
        Client::new(config).unwrap().get(&server.url("/health")).await
    };
    let ca = Trust::Ca(home.path().join("cert.pem"));
    for trust in [Trust::Insecure, Trust::Fingerprint(server.fingerprint), ca] {
        assert!(get(trust.clone()).await.is_ok(), "{trust:?}");
    }
    for trust in [Trust::System, Trust::Fingerprint(other.fingerprint)] {
        let error = get(trust.clone()).await.err().unwrap();
        assert_eq!(error.failure(), Failure::Error("tls"), "{trust:?}: {error}");
        assert!(error.to_string().contains("--insecure"), "{error}");
    }
    let missing = ClientConfig { trust: Trust::Ca("/missing".into()), ..ClientConfig::default() };
    assert!(matches!(Client::new(missing).err(), Some(ClientError::Certificate(_))));
}

#[tokio::test]
async fn socket_serves_ipv4_and_ipv6() {
    let server = start(ServerConfig::new("[::]:0".parse().unwrap()));
    let port = server.address.port();
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let config = ClientConfig { bind: None, ..server.client_config(loopback()) };
        let client = Client::new(config).unwrap();
        let response = client.get(&format!("https://{host}:{port}/health")).await.unwrap();
        assert_eq!(response.status, StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn config_that_cannot_be_served_says_why() {
    let taken = std::net::UdpSocket::bind(loopback()).unwrap();
    let listen = taken.local_addr().unwrap();
    let error = Server::bind(ServerConfig::new(listen)).err().unwrap();
    assert!(matches!(error, ServerError::Bind { address, .. } if address == listen), "{error}");

    let root = Some("/nowhere/at/all".into());
    let error = Server::bind(ServerConfig { root, ..ServerConfig::new(loopback()) }).err().unwrap();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");

    let usual = Limits::default;
    for (limits, text) in [
        (Limits { idle_timeout: Duration::MAX, ..usual() }, "or zero for never"),
        (
            Limits { idle_timeout: Duration::from_millis(1), ..usual() },
            "idle timeout of 1ms is out",
        ),
        (Limits { send_window: 0, ..usual() }, "send window of 0 is out of range: 1200 to"),
        (
            Limits { connection_send_window: 7, ..usual() },
            "send window of a connection of 7 is out",
        ),
    ] {
        let error =
            Server::bind(ServerConfig { limits, ..ServerConfig::new(loopback()) }).err().unwrap();
        assert!(matches!(error, ServerError::Limit { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let config = ClientConfig { trust: Trust::Insecure, ..ClientConfig::default() };
    let idle_timeout = Duration::from_millis(1);
    let error = Client::new(ClientConfig { idle_timeout, ..config }).err().unwrap().to_string();
    assert!(error.contains("max_idle_timeout is 1ms: allowed is 100ms"), "{error}");

    let missing = || "/nowhere/cert.pem".into();
    let identity = IdentitySource::Files { certificate: missing(), key: missing() };
    let error =
        Server::bind(ServerConfig { identity, ..ServerConfig::new(loopback()) }).err().unwrap();
    assert!(matches!(error, ServerError::Certificate(_)), "{error}");
}

#[tokio::test]
async fn socket_receive_buffer_can_be_set() {
    let config = ServerConfig { receive_buffer: Some(64 * 1024), ..ServerConfig::new(loopback()) };
    assert_eq!(Server::bind(config).unwrap().receive_buffer(), 128 * 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_lets_responses_finish() {
    let server = start(ServerConfig::new(loopback()));
    let idle = server.client().connect(&server.url("/")).await.unwrap();
    let client = server.client();
    // More than send and receive windows hold, so that it cannot be complete before the stop.
    let mut response = client.get(&server.url("/bytes/20000000")).await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    let address = server.address;
    let stats = server.stats.clone();
    let ending = server.begin_stop();
    // The idle connection is closed first, which shows that the shutdown is under way.
    timeout(PATIENCE, idle.closed()).await.unwrap();
    assert_eq!(response.drain().await.unwrap(), 20_000_000);
    drop(response);
    let stats_end = timeout(PATIENCE, ending).await.unwrap().unwrap().unwrap();
    assert_eq!((stats_end.open, stats_end.requests, stats_end.failed), (0, 1, 0));
    assert_eq!(stats.snapshot(), stats_end);
    // The port becomes free again.
    let free = async {
        while std::net::UdpSocket::bind(address).is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, free).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_is_limited_in_time() {
    let limits = Limits { grace: Duration::from_millis(100), ..Limits::default() };
    // One client has stopped reading, one reads as fast as it can.
    for reading in [false, true] {
        let limits = limits.clone();
        let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
        let client = server.client();
        let mut response = client.get(&server.url("/bytes/1000000000")).await.unwrap();
        let connection = response.connection().clone();
        let mut drained = tokio::spawn(async move {
            if reading {
                response.drain().await
            } else {
                response.connection().closed().await;
                response.drain().await
            }
        });
        let stats = server.stop().await;
        assert_eq!((stats.open, stats.opened, stats.requests), (0, 1, 0));
        // The server sends CONNECTION_CLOSE, so the client does not wait for its idle timeout.
        let error = timeout(PATIENCE, &mut drained).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error.failure(), Failure::Error(_)), "{error}");
        let reason = timeout(PATIENCE, connection.closed()).await.unwrap();
        assert!(
            matches!(reason, equic_quic::ConnectionError::ApplicationClosed { .. }),
            "{reason}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_ends_handshakes_under_way() {
    let hour = Duration::from_secs(3600);
    let limits = Limits { grace: hour, handshake_timeout: hour, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    // Forwards in one direction only: the server waits for an answer that never arrives.
    let relay = tokio::net::UdpSocket::bind(loopback()).await.unwrap();
    let config =
        ClientConfig { connect_to: relay.local_addr().ok(), ..server.client_config(loopback()) };
    let (client, url, target) = (Client::new(config).unwrap(), server.url("/"), server.address);
    let connecting = tokio::spawn(async move { client.connect(&url).await.map(drop) });
    let one_way = tokio::spawn(async move {
        let mut datagram = [0; 2000];
        loop {
            let length = relay.recv(&mut datagram).await.unwrap();
            relay.send_to(&datagram[..length], target).await.unwrap();
        }
    });
    let stats = server.stats.clone();
    until("a handshake has begun", || stats.snapshot().attempts > 0).await;
    let stats = server.stop().await;
    assert!(stats.handshakes_failed >= 1 && stats.opened == 0, "{stats:?}");
    one_way.abort();
    connecting.abort();
}

/// Several sockets share the port. Packets of a client that migrates are handed to the socket of its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_group_serves_clients_that_migrate() {
    let server = start(ServerConfig { sockets: 4, ..ServerConfig::new(loopback()) });
    let mut clients = Vec::new();
    for _ in 0..12 {
        let client = server.client();
        let connection = client.connect(&server.url("/")).await.unwrap();
        clients.push((client, connection));
    }
    for _ in 0..3 {
        for (client, connection) in &clients {
            let target = path("/bytes/100000");
            let asked = timeout(PATIENCE, connection.get(&target)).await;
            let mut response = asked.unwrap().unwrap();
            client.rebind(loopback()).unwrap();
            assert_eq!(timeout(PATIENCE, response.drain()).await.unwrap().unwrap(), 100_000);
        }
    }
    let stats = server.stop().await;
    assert_eq!((stats.opened, stats.requests), (12, 36), "{stats:?}");
    let many = Server::bind(ServerConfig { sockets: 257, ..ServerConfig::new(loopback()) });
    assert!(matches!(many.err(), Some(ServerError::Bind { .. })));
}
