//! Tests of requests whose header fields are larger than the server's limit. The client must be
//! able to read the response, which has status 431 (RFC 6585 s.5).

use equic_http3::{Limits, ServerConfig};
use quinn::{RecvStream, VarInt};
use tokio::time::timeout;

use crate::common::{PATIENCE, Running, loopback, start};
use crate::ends::{frame, response, stopped, until_stopped};
use crate::foreign::{raw, raw_with};
use crate::rules::{asked, closed, exchange, request};

const NO_ERROR: u64 = 0x100;
const FRAME_ERROR: u64 = 0x106;
const EXCESSIVE_LOAD: u64 = 0x107;

/// Limit of the size of header fields, in bytes.
const LIMIT: usize = 4096;

fn server(max_malformed: u32) -> Running {
    let limits =
        Limits { max_field_section_size: LIMIT as u64, max_malformed, ..Limits::default() };
    start(ServerConfig { limits, ..ServerConfig::new(loopback()) })
}

/// Returns the type and length of a HEADERS frame with a payload of `length` bytes.
fn beginning(length: usize) -> Vec<u8> {
    let length = 0x8000_0000 | u32::try_from(length).unwrap();
    [&[1][..], &length.to_be_bytes()].concat()
}

/// Returns a request that exceeds the limit only when it is decoded. It has entries of the static
/// table, which are one byte long and add more than 32 bytes to the decoded size.
fn long_when_decoded() -> Vec<u8> {
    request(&[&[0xc2; 200]])
}

/// Reads the response, and checks that it has status 431, a Date and no content.
async fn assert_refused(receive: &mut RecvStream, what: &str) {
    let response = response(receive).await;
    let (kind, section, length) = frame(&response).unwrap();
    assert_eq!((kind, length), (1, response.len()), "{what}: only header fields");
    // The status is encoded as a name from the static table with a value in Huffman code, which
    // `h3` uses for all values.
    assert!(section.starts_with(&[0, 0, 0x5f, 9, 0x83, 0x69, 0x90, 0xff]), "{what}: {section:x?}");
    assert!(has_date(&section), "{what}: {section:x?}");
}

/// Returns `true` if the last field of a field section is Date. `h3` encodes Date with a name from
/// the static table.
pub(crate) fn has_date(section: &[u8]) -> bool {
    (1..section.len())
        .any(|at| section[at - 1..=at] == [0x56, 0x80 | (section.len() - at - 1) as u8])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_fields_are_answered_before_the_request_ends() {
    let server = server(100);
    let (_endpoint, connection) = raw(&server).await;
    let whole = [beginning(LIMIT + 1), vec![7; LIMIT + 1]].concat();
    for (bytes, rest, what) in [
        (whole.clone(), vec![], "a whole frame"),
        (whole[..5].to_vec(), whole[5..].to_vec(), "the beginning of a frame"),
        (whole[..2000].to_vec(), whole[2000..].to_vec(), "a part of a frame"),
        (long_when_decoded(), vec![], "a frame that is long when decoded"),
    ] {
        let (mut send, mut receive) = asked(&connection, &bytes).await;
        assert_refused(&mut receive, what).await;
        // If the server had sent STOP_SENDING, it would arrive during one of these exchanges.
        for _ in 0..2 {
            exchange(&connection).await;
            assert_eq!(stopped(&send), None, "{what}");
        }
        send.write_all(&rest).await.unwrap();
        send.finish().unwrap();
        assert_eq!(until_stopped(&send).await, None, "{what}");
    }
}

/// The server reads only the beginning of a frame that is too long. It must send STOP_SENDING only
/// after the response.
// RFC 9114 s.4.1 #12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_fields_are_stopped_after_the_response() {
    const LENGTH: usize = 64 * LIMIT;
    let server = server(100);
    // Because of the small window, the server still has a part of the response to send.
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(50));
    let (_endpoint, connection) = raw_with(&server, transport).await;
    for sent in [1, 1_000, 20_000] {
        let bytes = [beginning(LENGTH), vec![7; sent]].concat();
        let (mut send, mut receive) = asked(&connection, &bytes).await;
        let mut first = [0; 1];
        timeout(PATIENCE, receive.read_exact(&mut first)).await.unwrap().unwrap();
        for _ in 0..2 {
            exchange(&connection).await;
            assert_eq!(stopped(&send), None, "{sent} bytes");
        }
        let rest = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap();
        assert!(rest.len() > 50, "{sent} bytes");
        assert_eq!(until_stopped(&send).await, Some(NO_ERROR), "{sent} bytes");
        assert!(send.write_all(&[7; LENGTH]).await.is_err(), "{sent} bytes");
    }
    exchange(&connection).await;
}

/// Many clients send a whole frame before they read. All of them must get the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_fields_of_many_requests_are_all_answered() {
    let server = server(100);
    let (_endpoint, connection) = raw(&server).await;
    let bytes = [beginning(60_000), vec![7; 60_000]].concat();
    let mut streams = Vec::new();
    for _ in 0..40 {
        let (mut send, receive) = timeout(PATIENCE, asked(&connection, &bytes)).await.unwrap();
        send.finish().unwrap();
        streams.push(receive);
    }
    for mut receive in streams {
        assert_refused(&mut receive, "one of many").await;
    }
    exchange(&connection).await;
    assert_eq!(server.stop().await.failed, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_fields_that_are_too_many_or_truncated_close_the_connection() {
    let server = server(2);
    let (_endpoint, connection) = raw(&server).await;
    let tries = async {
        while let Ok((mut send, mut receive)) = connection.open_bi().await {
            let _ = send.write_all(&long_when_decoded()).await;
            let _ = send.finish();
            let _ = receive.read_to_end(10_000).await;
        }
    };
    timeout(PATIENCE, tries).await.unwrap();
    closed(&connection, EXCESSIVE_LOAD, "too many").await;
    // RFC 9114 s.7.1: a stream that ends inside a frame closes the connection.
    let (_endpoint, connection) = raw(&server).await;
    let (mut send, mut receive) = asked(&connection, &beginning(LIMIT + 1)).await;
    assert_refused(&mut receive, "a frame that ends early").await;
    send.finish().unwrap();
    closed(&connection, FRAME_ERROR, "a frame that ends early").await;
    let (_endpoint, connection) = raw(&server).await;
    let _ = asked(&connection, &beginning(64 * LIMIT + 1)).await;
    closed(&connection, EXCESSIVE_LOAD, "an absurd length").await;
}
