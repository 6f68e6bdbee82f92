//! Tests of our client with servers that violate HTTP/3.

use std::time::Duration;

use bytes::Bytes;
use equic_http3::{Client, ClientConfig, ClientError, Trust};
use quinn::VarInt;
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback};
use crate::foreign::raw_server;
use crate::rules::{field, headers};

const OK: &[u8] = &[0xd9];

/// Starts a server that answers each request with these bytes and ends the stream. Returns the body
/// that the client gets, or its error.
async fn answered(bytes: Vec<u8>) -> Result<Bytes, ClientError> {
    let (endpoint, fingerprint) = raw_server();
    let url = format!("https://{}/", endpoint.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        while let Ok((mut send, mut receive)) = connection.accept_bi().await {
            let _ = receive.read_to_end(10_000).await;
            let _ = send.write_all(&bytes).await;
            let _ = send.finish();
        }
    });
    let config = ClientConfig {
        trust: Trust::Fingerprint(fingerprint),
        bind: Some(loopback()),
        ..ClientConfig::default()
    };
    let client = Client::new(config).unwrap();
    let body = async { client.get(&url).await?.body(1 << 20).await };
    let body = timeout(PATIENCE, body).await.unwrap();
    client.close().await;
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    body
}

fn data(bytes: &[u8]) -> Vec<u8> {
    [&[0, bytes.len() as u8], bytes].concat()
}

// RFC 9114 s.4.1 #8
#[tokio::test]
async fn body_ends_with_its_stream() {
    let whole = [headers(&[OK]), data(b"first"), data(b""), data(b"second")].concat();
    assert_eq!(&answered(whole).await.unwrap()[..], b"firstsecond");
    let trailers = headers(&[&field("checksum", "x")]);
    let with_trailers = [headers(&[OK]), data(b"body"), trailers].concat();
    assert_eq!(&answered(with_trailers).await.unwrap()[..], b"body");
    let interim =
        [headers(&[&[0xd8]]), headers(&[OK, &field("content-length", "4")]), data(b"body")];
    assert_eq!(&answered(interim.concat()).await.unwrap()[..], b"body");
}

// RFC 9114 s.4.1 #2, s.7.1 #4
#[tokio::test]
async fn body_that_lost_bytes_is_an_error() {
    let with = |value: &str| headers(&[OK, &field("content-length", value)]);
    let trailers = headers(&[&field("checksum", "x")]);
    for (bytes, what) in [
        ([headers(&[OK]), data(b"a"), trailers.clone(), data(b"b")].concat(), "after trailers"),
        ([headers(&[OK]), data(b"a"), trailers.clone(), trailers].concat(), "trailers twice"),
        ([headers(&[OK]), vec![0, 5, b'a']].concat(), "a frame that is cut short"),
        ([headers(&[OK]), vec![0, 0x80]].concat(), "a frame header that is cut short"),
        ([with("-1"), data(b"body")].concat(), "-1"),
        ([with("5, 5"), data(b"body")].concat(), "5, 5"),
        ([with("5, 5"), data(b"body!")].concat(), "5, 5 and five of them"),
        ([with("5"), data(b"body")].concat(), "too few"),
        ([with("3"), data(b"body")].concat(), "too many"),
        ([with("0"), data(b"body")].concat(), "too many for none"),
        ([headers(&[&[0xff, 1]]), data(b"body")].concat(), "content with 204"),
        (
            [headers(&[OK, &field("transfer-encoding", "chunked")]), data(b"body")].concat(),
            "chunked",
        ),
        ([headers(&[OK, OK]), data(b"body")].concat(), ":status twice"),
        (headers(&[&[0xd8]]), "an interim response alone"),
        (vec![], "nothing"),
        ([headers(&[OK]), vec![5, 1, 0], data(b"body")].concat(), "a push"),
    ] {
        let body = answered(bytes).await;
        assert!(body.is_err(), "{what}: {body:?}");
    }
}

/// The server sends bytes that are not content, without end. The client must not buffer them, and
/// must stop the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_section_without_end_is_ended() {
    for (start, more) in [
        // HEADERS of 2^40 bytes.
        (vec![1, 0xc0, 0, 1, 0, 0, 0, 0, 0], vec![0; 1000]),
        // An unknown frame of 2^40 bytes, inside a body.
        ([headers(&[OK]), vec![0x21, 0xc0, 0, 1, 0, 0, 0, 0, 0]].concat(), vec![0; 1000]),
        // Interim responses without a final one.
        (vec![], headers(&[&[0xd8]])),
        // Empty DATA frames.
        (headers(&[OK]), vec![0; 1000]),
    ] {
        let (endpoint, fingerprint) = raw_server();
        let url = format!("https://{}/", endpoint.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let connection = endpoint.accept().await.unwrap().await.unwrap();
            let (mut send, _receive) = connection.accept_bi().await.unwrap();
            send.write_all(&start).await.unwrap();
            let more = more.repeat(64);
            let mut sent = 0;
            // Writing fails when the client stops the stream.
            while send.write_all(&more).await.is_ok() {
                sent += more.len();
            }
            sent
        });
        let trust = Trust::Fingerprint(fingerprint);
        let bind = Some(loopback());
        let timeout_after = Some(Duration::from_secs(600));
        let config =
            ClientConfig { trust, bind, timeout: timeout_after, ..ClientConfig::default() };
        let client = Client::new(config).unwrap();
        let body = async { client.get(&url).await?.drain().await };
        assert!(
            timeout(PATIENCE, body).await.expect("the client does not stop the response").is_err()
        );
        let sent = timeout(PATIENCE, serving).await.unwrap().unwrap();
        // The client accepts only as much as its limit of useless bytes and its flow control
        // windows permit.
        assert!(sent < 16 << 20, "{sent}");
    }
}

/// The client has not sent MAX_PUSH_ID, so it permits no push.
// RFC 9114 s.4.6 #2
#[tokio::test]
async fn push_stream_without_permission_is_a_violation() {
    let (endpoint, fingerprint) = raw_server();
    let url = format!("https://{}/", endpoint.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let mut push = connection.open_uni().await.unwrap();
        push.write_all(&[1, 0]).await.unwrap();
        connection.closed().await
    });
    let trust = Trust::Fingerprint(fingerprint);
    let config = ClientConfig { trust, bind: Some(loopback()), ..ClientConfig::default() };
    let client = Client::new(config).unwrap();
    assert!(timeout(PATIENCE, client.get(&url)).await.unwrap().is_err());
    match timeout(PATIENCE, serving).await.unwrap().unwrap() {
        quinn::ConnectionError::ApplicationClosed(close) => {
            assert_eq!(close.error_code.into_inner(), 0x108, "{close}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn reason_phrase_with_control_characters_is_escaped() {
    let (endpoint, fingerprint) = raw_server();
    let url = format!("https://{}/", endpoint.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        connection.close(VarInt::from_u32(7), "\x1b[2J\x07\r\n\u{202e}all is well".as_bytes());
        connection.closed().await;
        endpoint.wait_idle().await;
    });
    let trust = Trust::Fingerprint(fingerprint);
    let config = ClientConfig { trust, bind: Some(loopback()), ..ClientConfig::default() };
    let error = Client::new(config).unwrap().get(&url).await.err().unwrap().to_string();
    assert!(error.contains("\\u{1b}[2J\\u{7}\\r\\n\\u{202e}all is well"), "{error}");
    assert!(!error.contains(|c: char| c.is_control() || c == '\u{202e}'), "{error:?}");
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}
