//! Tests of clients that take more than their share, or try to block others.

use std::net::UdpSocket;
use std::time::Duration;

use equic_http3::{Client, ClientConfig, Limits, ServerConfig};
use http::StatusCode;
use quinn::{RecvStream, TransportConfig, VarInt};
use tokio::time::timeout;

use crate::common::{PATIENCE, Running, get, loopback, start, until};
use crate::foreign::{raw, raw_with};
use crate::hostile::assert_closed;
use crate::rules::{field, headers};

const EXCESSIVE_LOAD: u64 = 0x107;

fn request(path: &str) -> Vec<u8> {
    headers(&[&[0xd1, 0xd7], &field(":authority", "localhost"), &field(":path", path)])
}

/// Opens a connection with the largest number of requests, and reads none of the responses.
/// `window` is the flow control window of each stream, in bytes.
async fn hog(
    server: &Running,
    path: &str,
    window: u32,
) -> (quinn::Endpoint, quinn::Connection, Vec<RecvStream>) {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(window));
    let (endpoint, connection) = raw_with(server, transport).await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&request(path)).await.unwrap();
        send.finish().unwrap();
        streams.push(receive);
    }
    (endpoint, connection, streams)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_responses_that_are_not_read_is_small() {
    let server = start(ServerConfig::new(loopback()));
    let mut hogs = Vec::new();
    for window in [0, 1000, 1 << 20] {
        hogs.push(hog(&server, "/bytes/1000000", window).await);
    }
    // The last client has the largest window, so it acknowledges the 1 MB that its connection
    // window permits.
    let last = &hogs[2];
    until("the last one got something", || last.1.stats().udp_rx.bytes > 500_000).await;
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    for _ in 0..20 {
        assert_eq!(get(&connection, "/bytes/100000").await, StatusCode::OK);
        let buffered = server.stats.snapshot().buffered;
        assert!(buffered < 12 << 20, "{buffered}");
    }
    // For each of the first two clients, the server may buffer 128 KiB and the header fields beyond
    // the client's flow control limits.
    until("little waits", || server.stats.snapshot().buffered < 3 * (200 << 10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_files_are_closed_if_the_client_reads_nothing() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), vec![7; 1_000_000]).unwrap();
    let limits = Limits {
        max_open_files: Some(8),
        shed_after: PATIENCE,
        stall_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let root = Some(root.path().to_owned());
    let server = start(ServerConfig { root, limits, ..ServerConfig::new(loopback()) });
    let hogs = [hog(&server, "/file", 0).await, hog(&server, "/file", 1000).await];
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    for _ in 0..10 {
        assert_eq!(get(&connection, "/file").await, StatusCode::OK);
        assert!(server.stats.snapshot().open_files <= 8);
    }
    until("all files are closed", || server.stats.snapshot().open_files == 0).await;
    // The response of a client that did not read must continue, so the server opens its file again.
    let (_, _, mut streams) = hogs.into_iter().nth(1).unwrap();
    let body = timeout(PATIENCE, streams[50].read_to_end(2_000_000)).await.unwrap().unwrap();
    assert!(body.len() > 1_000_000 && body.iter().filter(|byte| **byte == 7).count() >= 1_000_000);
    assert_eq!(server.stats.snapshot().shed, 0);
}

// RFC 9114 s.4.1.1 #1
#[tokio::test]
async fn overload_sheds_requests() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), "content").unwrap();
    let shed_after = Duration::from_millis(1);
    let limits = Limits { max_open_files: Some(0), shed_after, ..Limits::default() };
    let root = Some(root.path().to_owned());
    let server = start(ServerConfig { root, limits, ..ServerConfig::new(loopback()) });
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    assert_eq!(get(&connection, "/file").await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(&connection, "/health").await, StatusCode::OK);
    assert_eq!(server.stats.snapshot().shed, 1);
}

/// A client with many requests in progress sends an unknown frame of 2^40 bytes on its control
/// stream.
// RFC 9114 s.10.5 #2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excessive_load_by_useless_frames() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    for _ in 0..50 {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&request("/bytes/1000000")).await.unwrap();
        send.finish().unwrap();
        receive.read_to_end(2_000_000).await.unwrap();
    }
    let mut control = connection.open_uni().await.unwrap();
    control.write_all(&[0, 4, 0, 0x21, 0xc0, 0, 1, 0, 0, 0, 0, 0]).await.unwrap();
    let mut sent = 0;
    let flood = async {
        while control.write_all(&[0; 65536]).await.is_ok() {
            sent += 65536;
        }
    };
    timeout(PATIENCE, flood).await.expect("the server closes the connection");
    assert!(sent < 4 << 20, "{sent}");
    assert_closed(&connection, EXCESSIVE_LOAD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excessive_load_by_incomplete_frames() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let mut open = Vec::new();
    // 100 HEADERS frames of 16,000 bytes, each without its last byte.
    let start = [&[1, 0x80, 0, 0x3e, 0x80][..], &[0; 15_999]].concat();
    let flood = async {
        while let Ok((mut send, receive)) = connection.open_bi().await {
            if send.write_all(&start).await.is_err() {
                return;
            }
            open.push((send, receive));
        }
    };
    timeout(PATIENCE, flood).await.expect("the server closes the connection");
    assert_closed(&connection, EXCESSIVE_LOAD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_requests_are_not_malformed() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    for _ in 0..50 {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&request("/health")[..10]).await.unwrap();
        send.reset(VarInt::from_u32(0x10c)).unwrap();
        // Wait until the server has handled this request.
        let _ = timeout(PATIENCE, receive.read_to_end(100)).await.unwrap();
    }
    until("all are counted", || server.stats.snapshot().failed == 50).await;
    assert_eq!(connection.close_reason(), None);
    let client = server.client();
    assert_eq!(client.get(&server.url("/health")).await.unwrap().status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excessive_load_by_rapid_resets() {
    let limits = Limits { max_cancelled: 20, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    let flood = async {
        while let Ok((mut send, mut receive)) = connection.open_bi().await {
            let _ = send.write_all(&request("/bytes/100000000")).await;
            let _ = send.finish();
            let _ = receive.stop(VarInt::from_u32(0x10c));
        }
    };
    timeout(PATIENCE, flood).await.expect("the server closes the connection");
    assert_closed(&connection, EXCESSIVE_LOAD);
}

/// Returns the first datagram of a client that then disappears.
async fn first_datagram() -> Vec<u8> {
    let socket = tokio::net::UdpSocket::bind(loopback()).await.unwrap();
    let address = socket.local_addr().unwrap();
    let config = ClientConfig { bind: Some(loopback()), ..ClientConfig::default() };
    let client = Client::new(config).unwrap();
    let mut buffer = vec![0; 2000];
    let url = format!("https://{address}/");
    tokio::select! {
        length = socket.recv(&mut buffer) => buffer.truncate(length.unwrap()),
        _ = client.connect(&url) => panic!("no server answers there"),
    }
    buffer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overload_of_forged_initials_keeps_clients_served() {
    let forged = || async {
        let mut datagrams = Vec::new();
        for _ in 0..12 {
            datagrams.push(first_datagram().await);
        }
        datagrams
    };
    // By default, clients whose addresses are not validated can take only half of the handshake
    // slots.
    let limits = Limits { max_handshakes: 6, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let silent = UdpSocket::bind(loopback()).unwrap();
    for datagram in forged().await {
        silent.send_to(&datagram, server.address).unwrap();
    }
    until("all have come", || server.stats.snapshot().attempts >= 12).await;
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    assert_eq!(get(&connection, "/health").await, StatusCode::OK);
    let stats = server.stats.snapshot();
    assert_eq!(
        (stats.retried, stats.overloaded),
        (10, 0),
        "nine of theirs and one of ours: {stats:?}"
    );

    // Without Retry, forged attempts take all handshake slots.
    let limits = Limits { max_handshakes: 6, retry_threshold: None, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    for datagram in forged().await {
        silent.send_to(&datagram, server.address).unwrap();
    }
    until("some are turned away", || server.stats.snapshot().overloaded >= 6).await;
    assert_eq!(server.stats.snapshot().retried, 0);
}
