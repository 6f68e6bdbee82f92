//! Tests of paths that lead outside of the root, and of clients that do not speak HTTP/3.

use std::os::unix::fs::symlink;
use std::time::Duration;

use equic_http3::{Limits, ServerConfig};
use http::StatusCode;
use quinn::{Connection, ConnectionError, VarInt};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::time::timeout;

use crate::common::{PATIENCE, Running, get, loopback, path, seed, start};
use crate::foreign::raw;

const EXCESSIVE_LOAD: u64 = 0x107;

#[tokio::test]
async fn file_paths_out_of_the_root_are_not_served() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root");
    std::fs::create_dir_all(root.join("dir")).unwrap();
    std::fs::write(home.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("public"), "public").unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(home.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("/proc/self/cwd", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("../public", root.join("dir/inside")).unwrap();
    nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let server = start(ServerConfig { root: Some(root), ..ServerConfig::new(loopback()) });
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    let status = async |target: &str| get(&connection, target).await;

    assert_eq!(status("/public").await, StatusCode::OK);
    assert_eq!(status("/dir/inside").await, StatusCode::OK);
    let long = format!("/{}", "a".repeat(5000));
    for target in [
        "/../secret",
        "/dir/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/.%2e/secret",
        "/dir/%2e%2e/%2e%2e/secret",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/out",
        "/absolute",
        "/up/secret",
        "/up/",
        "/magic/Cargo.toml",
        "/loop",
        "/fifo",
        "/public/",
        "/public/x",
        "/dir/",
        "/public%00",
        "/%252e%252e/secret",
        "/..;/secret",
        "/..\\secret",
        &long,
    ] {
        assert_eq!(status(target).await, StatusCode::NOT_FOUND, "{target}");
    }
    for target in ["/%", "/%zz", "/public%2"] {
        assert_eq!(status(target).await, StatusCode::BAD_REQUEST, "{target}");
    }
}

#[tokio::test]
async fn field_section_that_is_too_long_is_refused() {
    let limits = Limits { max_field_section_size: 4096, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    // After this response the client knows the server's settings, so the client itself may refuse
    // to send the long request.
    get(&connection, "/health").await;
    let long = path(&format!("/{}", "a".repeat(5000)));
    match connection.get(&long).await {
        Ok(response) => assert_eq!(response.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        Err(error) => assert!(error.to_string().contains("Header too big"), "{error}"),
    }
    assert_eq!(get(&connection, "/health").await, StatusCode::OK);
}

async fn healthy(server: &Running) {
    let response = server.client().get(&server.url("/health")).await.unwrap();
    assert_eq!(response.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_does_not_affect_other_clients() {
    let seed = seed("garbage_does_not_affect_other_clients");
    let mut random = StdRng::seed_from_u64(seed);
    let server = start(ServerConfig::new(loopback()));
    let neighbour = server.client().connect(&server.url("/")).await.unwrap();
    let fixed: [&[u8]; 12] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x01, 0x00],                         // HEADERS without fields
        &[0x01, 0x02, 0x00, 0x00], // an empty field section, without pseudo-header fields
        &[0x01, 0x04, 0xff, 0xff, 0xff, 0xff], // QPACK with a reference to the empty dynamic table
        &[0x01, 0x05, 0x00, 0x00, 0xd1], // a truncated frame
        &[0x00, 0x01, 0x61],       // DATA before HEADERS
        &[0x04, 0x00],             // SETTINGS on a request stream
        &[0x05, 0x01, 0x00],       // PUSH_PROMISE
        &[0x02, 0x00],             // a frame type of HTTP/2
        &[0x40, 0x41, 0x00],       // a WebTransport stream
        // HEADERS with the largest possible length
        &[0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00],
    ];
    for round in 0..fixed.len() + 60 {
        let bytes = match fixed.get(round) {
            Some(bytes) => bytes.to_vec(),
            None => {
                let mut bytes = vec![0; random.random_range(1..200)];
                random.fill_bytes(&mut bytes);
                if random.random() {
                    // Turns the random bytes into the payload of a complete HEADERS frame.
                    let length = bytes.len().min(60);
                    bytes.truncate(length);
                    bytes.splice(0..0, [0x01, length as u8]);
                }
                bytes
            }
        };
        let (_endpoint, connection) = raw(&server).await;
        if (random.random() || round < fixed.len())
            && let Ok((mut send, _recv)) = connection.open_bi().await
        {
            let _ = send.write_all(&bytes).await;
            let _ = send.finish();
        }
        if random.random()
            && let Ok(mut send) = connection.open_uni().await
        {
            // Writes a stream type and then random bytes. The type is control, push, QPACK, or
            // unknown.
            let _ = send.write_all(&[random.random_range(0..6)]).await;
            let _ = send.write_all(&bytes).await;
        }
        if round % 8 == 0 {
            assert_eq!(get(&neighbour, "/health").await, StatusCode::OK);
        }
    }
    healthy(&server).await;
    assert!(neighbour.is_open());
    drop(neighbour);
    let stats = server.stop().await;
    assert_eq!(stats.open, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_an_endless_frame_is_bounded() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(&[0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).await.unwrap();
    let flood = async { while send.write_all(&[0; 65536]).await.is_ok() {} };
    timeout(PATIENCE, flood).await.expect("the server closes the connection");
    assert_closed(&connection, EXCESSIVE_LOAD);
    healthy(&server).await;
}

#[tokio::test]
async fn malformed_requests_close_the_connection() {
    let limits = Limits { max_malformed: 3, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    // The server tolerates one stream that ends without a request. Many such streams must close the
    // connection.
    let tries = async {
        while let Ok((mut send, mut recv)) = connection.open_bi().await {
            let _ = send.finish();
            let _ = recv.read_to_end(100).await;
        }
    };
    timeout(PATIENCE, tries).await.expect("the server closes the connection");
    assert_closed(&connection, EXCESSIVE_LOAD);
    healthy(&server).await;
}

// RFC 9114 s.6.1 #1
#[tokio::test]
async fn stream_limit_is_enforced() {
    let limits = Limits { max_concurrent_streams: 3, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (mut send, recv) = connection.open_bi().await.unwrap();
        send.write_all(&[0x01]).await.unwrap();
        streams.push((send, recv));
    }
    tokio::select! {
        biased;
        _ = connection.open_bi() => panic!("a fourth stream"),
        () = async {} => {}
    }
    // When one stream ends, the client may open another.
    let (mut send, _recv) = streams.pop().unwrap();
    send.reset(VarInt::from_u32(0)).unwrap();
    timeout(PATIENCE, connection.open_bi()).await.unwrap().unwrap();
}

// RFC 9114 s.4.1 #10
#[tokio::test]
async fn stall_timeout_of_a_request_that_does_not_end() {
    let limits = Limits { stall_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&[0x01, 0x10, 0x00]).await.unwrap();
    // The server must end both directions of the stream. If the server's direction ended cleanly
    // without a response, the client would treat it as an error of the connection (RFC 9114 s.4.1).
    match timeout(PATIENCE, recv.read_to_end(100)).await.unwrap() {
        Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => {
            assert_eq!(code.into_inner(), 0x10d, "H3_REQUEST_INCOMPLETE");
        }
        other => panic!("{other:?}"),
    }
    timeout(PATIENCE, send.stopped()).await.unwrap().unwrap();
    healthy(&server).await;
    assert_eq!(server.stop().await.failed, 1);
}

#[tokio::test]
async fn stall_timeout_of_a_response_that_is_not_read() {
    let limits = Limits { stall_timeout: Duration::from_millis(100), ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let client = server.client();
    let mut response = client.get(&server.url("/bytes/1000000000")).await.unwrap();
    let stats = server.stats.clone();
    let given_up = async {
        while stats.snapshot().failed == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, given_up).await.expect("the server gives up");
    assert!(response.drain().await.is_err());
}

pub(crate) fn assert_closed(connection: &Connection, code: u64) {
    match connection.close_reason() {
        Some(ConnectionError::ApplicationClosed(close)) => {
            assert_eq!(close.error_code.into_inner(), code, "{close}");
        }
        other => panic!("closed with {other:?}"),
    }
}
