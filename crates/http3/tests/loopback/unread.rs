//! Tests of requests whose content the server does not read to its end. The client must be able to
//! read each response before it receives STOP_SENDING (RFC 9114 s.4.1).

use std::time::Duration;

use equic_http3::{Limits, ServerConfig};
use quinn::VarInt;
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, start};
use crate::ends::{ControlStream, frame, stopped, until_stopped};
use crate::foreign::raw_with;
use crate::long_fields::has_date;
use crate::rules::{METHOD, asked, authority, exchange, field, headers, request_for, request_of};

const NO_ERROR: u64 = 0x100;

/// The header of a DATA frame of 1 GiB, and its first bytes.
const CONTENT: &[u8] = &[0, 0xc0, 0, 0, 0, 0x40, 0, 0, 0, 7, 7, 7];

/// Returns requests whose responses do not depend on their content, each with the expected
/// response.
fn requests() -> Vec<(Vec<u8>, &'static str)> {
    let (length, expect) = (field("content-length", "1073741824"), field("expect", "100-continue"));
    let http = field(":scheme", "http");
    let range = field("range", "bytes=10-");
    let ten = field(":path", "/bytes/10");
    vec![
        (request_of("POST", &[]), "405"),
        (request_of("POST", &[&length]), "405, announced content"),
        (request_of("POST", &[&length, &expect]), "405, expected content"),
        (request_of("GET", &[]), "200"),
        (request_of("HEAD", &[&length]), "200 of HEAD"),
        (request_for("GET", "/bytes/x"), "400"),
        (headers(&[METHOD, &http, &authority(), &field(":path", "/health")]), "400, scheme"),
        (request_for("GET", "/nothing"), "404"),
        (headers(&[METHOD, &[0xd7], &authority(), &ten, &range]), "416"),
        (request_for("GET", "/directory"), "308"),
        (request_for("GET", "/file"), "200 of a file"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_content_is_stopped_after_each_response() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("directory")).unwrap();
    std::fs::write(root.path().join("file"), vec![b'x'; 1000]).unwrap();
    let limits = Limits { shed_after: Duration::from_secs(10), ..Limits::default() };
    let root = Some(root.path().to_owned());
    let server = start(ServerConfig { limits, root, ..ServerConfig::new(loopback()) });
    // Because of the small window, a part of each response stays unread.
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(50));
    let (_endpoint, connection) = raw_with(&server, transport).await;
    for (request, what) in requests() {
        let (send, mut receive) = asked(&connection, &[&request, CONTENT].concat()).await;
        let mut start = [0; 1];
        timeout(PATIENCE, receive.read_exact(&mut start)).await.unwrap().unwrap();
        for _ in 0..2 {
            exchange(&connection).await;
            assert_eq!(stopped(&send), None, "{what}");
        }
        let rest = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap();
        let (kind, section, _) = frame(&[&start, &*rest].concat()).unwrap();
        assert!(kind == 1 && has_date(&section), "{what}: {section:x?}");
        assert_eq!(until_stopped(&send).await, Some(NO_ERROR), "{what}");
    }
    assert_eq!(server.stop().await.failed, 0);
}

/// Requests whose content is not read are in progress when the server shuts down. The server has a
/// long grace period, so it must send STOP_SENDING only after the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_content_is_stopped_after_the_response_of_a_server_that_ends() {
    let limits = Limits { grace: PATIENCE, stall_timeout: PATIENCE, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(50));
    let (_endpoint, connection) = raw_with(&server, transport).await;
    let mut control = ControlStream::accept(&connection).await;
    let request = [&*request_of("POST", &[]), CONTENT].concat();
    let (send, mut receive) = asked(&connection, &request).await;
    let mut start = [0; 1];
    timeout(PATIENCE, receive.read_exact(&mut start)).await.unwrap().unwrap();
    let stopping = server.begin_stop();
    assert_eq!(control.goaway().await, 4);
    // Several round trips pass. The server must not send STOP_SENDING yet.
    let early = timeout(Duration::from_secs(1), send.stopped()).await;
    assert!(early.is_err(), "{early:?}");
    let rest = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap();
    assert!(rest.ends_with(b"only GET and HEAD\n"));
    assert_eq!(until_stopped(&send).await, Some(NO_ERROR));
    timeout(PATIENCE, stopping).await.unwrap().unwrap().unwrap();
}
