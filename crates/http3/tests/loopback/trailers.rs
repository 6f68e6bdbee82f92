//! Tests of trailers of requests (RFC 9114 s.4.1), which are checked like header fields.

use equic_http3::{Limits, ServerConfig};
use quinn::{Connection, ReadError, ReadToEndError};
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, start, until};
use crate::ends::{response, until_stopped};
use crate::foreign::raw;
use crate::rules::{asked, closed, exchange, field, headers, request_of};

const MESSAGE_ERROR: u64 = 0x10e;
const EXCESSIVE_LOAD: u64 = 0x107;
const DECOMPRESSION_FAILED: u64 = 0x200;

/// Returns lines that are not permitted in a trailer section.
fn malformed() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (field("Foo", "x"), "an uppercase name"),
        (field("foO", "x"), "an uppercase letter in a name"),
        // The letter A in Huffman code.
        (vec![0x29, 0x87, 0], "an uppercase name in Huffman code"),
        (field("", "x"), "an empty name"),
        (field("fo o", "x"), "a space in a name"),
        (field("fo:o", "x"), "a colon in a name"),
        (field("fo\0", "x"), "NUL in a name"),
        (field("foo", "a\0b"), "NUL in a value"),
        (field("foo", "a\rb"), "CR in a value"),
        (field("foo", "a\nb: c"), "LF in a value"),
        // The field line has a name from the table (index 2) and an LF as its value. The next line
        // has the same LF in Huffman code.
        (vec![0x52, 1, b'\n'], "LF in a value for a name of the table"),
        (vec![0x52, 0x84, 0xff, 0xff, 0xff, 0xf3], "LF in Huffman code"),
        (field("connection", "close"), "connection"),
        (field("keep-alive", "1"), "keep-alive"),
        (field("proxy-connection", "x"), "proxy-connection"),
        (field("transfer-encoding", "chunked"), "transfer-encoding"),
        (field("upgrade", "x"), "upgrade"),
        (field("te", "gzip"), "te"),
        (field(":path", "/"), ":path"),
        (field(":status", "200"), ":status"),
        (field(":x", "y"), "an unknown pseudo-header field"),
        // The entry of the static table for :method GET.
        (vec![0xd1], ":method of the table"),
        ([field("a", "1"), field("B", "2")].concat(), "the second of two lines"),
        // Each line adds more than 32 bytes to the size of the section (RFC 9114 s.4.2.2).
        (vec![0xc2; 600], "more lines than the limit allows"),
    ]
}

async fn assert_reset(connection: &Connection, bytes: &[u8], end: bool, what: &str) {
    let (mut send, mut receive) = asked(connection, bytes).await;
    if end {
        // This fails if the server has already sent STOP_SENDING.
        let _ = send.finish();
    }
    match timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap() {
        Err(ReadToEndError::Read(ReadError::Reset(code))) => {
            assert_eq!(code.into_inner(), MESSAGE_ERROR, "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
    if !end {
        assert_eq!(until_stopped(&send).await, Some(MESSAGE_ERROR), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_that_are_malformed_are_message_errors() {
    let limits = Limits { max_malformed: 1000, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    let content = [0, 3, 7, 7, 7];
    let length = field("content-length", "3");
    for (lines, what) in malformed() {
        let trailers = headers(&[&lines]);
        let announced = [request_of("POST", &[&length]), content.to_vec(), trailers.clone()];
        assert_reset(&connection, &announced.concat(), true, what).await;
        assert_reset(&connection, &announced.concat(), false, what).await;
        let unknown = [request_of("POST", &[]), content.to_vec(), trailers.clone()].concat();
        assert_reset(&connection, &unknown, false, what).await;
        let nothing = [request_of("GET", &[]), trailers].concat();
        assert_reset(&connection, &nothing, false, what).await;
    }
    exchange(&connection).await;
}

/// The malformed trailers arrive after the complete response. The server must stop the stream with
/// H3_MESSAGE_ERROR.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_that_are_late_and_malformed_are_stopped() {
    let limits = Limits { max_malformed: 1000, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    let malformed = malformed();
    for (lines, what) in &malformed {
        let (mut send, mut receive) = asked(&connection, &request_of("POST", &[])).await;
        assert!(!response(&mut receive).await.is_empty(), "{what}");
        send.write_all(&[&[0, 1, 7], &*headers(&[lines])].concat()).await.unwrap();
        assert_eq!(until_stopped(&send).await, Some(MESSAGE_ERROR), "{what}");
    }
    let failed = malformed.len() as u64;
    until("all are counted", || server.stats.snapshot().failed == failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_that_are_malformed_close_the_connection_at_last() {
    let limits = Limits { max_malformed: 3, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let (_endpoint, connection) = raw(&server).await;
    let bytes = [request_of("GET", &[]), headers(&[&field("Foo", "x")])].concat();
    let tries = async {
        while let Ok((mut send, mut receive)) = connection.open_bi().await {
            let _ = send.write_all(&bytes).await;
            let _ = receive.read_to_end(10_000).await;
        }
    };
    timeout(PATIENCE, tries).await.unwrap();
    closed(&connection, EXCESSIVE_LOAD, "malformed trailers").await;
    // RFC 9204 s.2.2: an invalid Huffman code closes the connection.
    let (_endpoint, connection) = raw(&server).await;
    let padding = [request_of("GET", &[]), headers(&[&[0x29, 0x1c, 0]])].concat();
    let _ = asked(&connection, &padding).await;
    closed(&connection, DECOMPRESSION_FAILED, "padding").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_that_are_permitted_are_no_error() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let all = [field("checksum", "x"), field("empty", ""), field("te", "trailers"), vec![0xc2]];
    for trailers in [headers(&[&all.concat()]), headers(&[])] {
        for before in [request_of("GET", &[]), [&*request_of("POST", &[]), &[0, 1, 7]].concat()] {
            let (mut send, mut receive) =
                asked(&connection, &[before, trailers.clone()].concat()).await;
            assert!(response(&mut receive).await.ends_with(b"\n"));
            send.finish().unwrap();
            assert_eq!(until_stopped(&send).await, None);
        }
    }
    assert_eq!(server.stop().await.failed, 0);
}
