//! Tests of our client with malformed responses (RFC 9114 s.4.1.2).

use equic_http3::{Client, ClientConfig, ClientError, Trust};
use http::StatusCode;
use quinn::Endpoint;
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback};
use crate::foreign::raw_server;
use crate::rules::{field, headers};

const MESSAGE_ERROR: u64 = 0x10e;
const REQUEST_CANCELLED: u64 = 0x10c;

const OK: &[u8] = &[0xd9];
/// Status 103.
const HINTS: &[u8] = &[0xd8];

fn status(digits: &str) -> Vec<u8> {
    field(":status", digits)
}

fn ok_with(name: &str, value: &str) -> Vec<u8> {
    headers(&[OK, &field(name, value)])
}

fn interim_with(name: &str, value: &str) -> Vec<u8> {
    [headers(&[HINTS, &field(name, value)]), headers(&[OK])].concat()
}

fn data(bytes: &[u8]) -> Vec<u8> {
    [&[0, bytes.len() as u8], bytes].concat()
}

fn server() -> (Endpoint, Client, String) {
    let (endpoint, fingerprint) = raw_server();
    let url = format!("https://{}/", endpoint.local_addr().unwrap());
    let trust = Trust::Fingerprint(fingerprint);
    let config = ClientConfig { trust, bind: Some(loopback()), ..ClientConfig::default() };
    (endpoint, Client::new(config).unwrap(), url)
}

/// Answers the first request with these bytes but leaves the stream open. Returns the code with
/// which the client stops the stream. The second request on the connection must succeed.
async fn stopped(response: &[u8], what: &str) -> u64 {
    let (endpoint, client, url) = server();
    let response = response.to_vec();
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        let _ = receive.read_to_end(10_000).await;
        let _ = send.write_all(&response).await;
        let code = send.stopped().await.unwrap().expect("the stream has not ended");
        let (mut send, _receive) = connection.accept_bi().await.unwrap();
        send.write_all(&headers(&[OK])).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
        code.into_inner()
    });
    let body = async { client.get(&url).await?.body(1 << 20).await };
    let body = timeout(PATIENCE, body).await.unwrap_or_else(|_| panic!("{what}: no end"));
    assert!(matches!(body, Err(ClientError::Http { .. } | ClientError::Length { .. })), "{what}");
    let next = async { client.get(&url).await.unwrap().body(0).await.unwrap() };
    assert!(timeout(PATIENCE, next).await.expect("the connection goes on").is_empty());
    client.close().await;
    timeout(PATIENCE, serving).await.unwrap_or_else(|_| panic!("{what}: not stopped")).unwrap()
}

/// Answers a request with these bytes and ends the stream. Returns the status and the length of the
/// body, or the client's error.
async fn answered(response: Vec<u8>) -> Result<(StatusCode, usize), ClientError> {
    let (endpoint, client, url) = server();
    tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let (mut send, _receive) = connection.accept_bi().await.unwrap();
        send.write_all(&response).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
    });
    let whole = async {
        let mut response = client.get(&url).await?;
        Ok((response.status, response.body(1 << 20).await?.len()))
    };
    timeout(PATIENCE, whole).await.expect("the response ends")
}

// RFC 9114 s.4.1.2 #2 #3, s.4.2 #2, s.4.3.2 #1
#[tokio::test]
async fn malformed_header_fields_of_a_response_are_message_errors() {
    for (response, what) in [
        (headers(&[&field("x", "y")]), "no :status"),
        (headers(&[OK, OK]), ":status twice"),
        (headers(&[OK, &status("200")]), ":status twice, in two ways"),
        (headers(&[&status("20")]), "two digits"),
        (headers(&[&status("2000")]), "four digits"),
        (headers(&[&status("1000")]), "four digits that begin like an interim response's"),
        (headers(&[&status("099")]), "under 100"),
        (headers(&[&status("")]), "no digits"),
        (headers(&[&status("2a0")]), "letters"),
        (headers(&[&status("+20")]), "a sign"),
        (headers(&[&status(" 200")]), "a space"),
        (headers(&[&field("x", "y"), OK]), ":status late"),
        (ok_with(":path", "/"), ":path"),
        (ok_with(":x", "/"), "an unknown pseudo-header field"),
        (ok_with("Foo", "x"), "an uppercase name"),
        (ok_with("foO", "x"), "an uppercase letter in a name"),
        (ok_with("", "x"), "an empty name"),
        (ok_with("fo o", "x"), "a space in a name"),
        (ok_with("fo:o", "x"), "a colon in a name"),
        (ok_with("fo\0", "x"), "NUL in a name"),
        (ok_with("foo", "a\0b"), "NUL in a value"),
        (ok_with("foo", "a\rb"), "CR in a value"),
        (ok_with("foo", "a\nb"), "LF in a value"),
        (ok_with("foo", "\r\n"), "a line's end as a value"),
        (ok_with("connection", "close"), "connection"),
        (ok_with("keep-alive", "1"), "keep-alive"),
        (ok_with("proxy-connection", "x"), "proxy-connection"),
        (ok_with("upgrade", "x"), "upgrade"),
        (ok_with("transfer-encoding", "chunked"), "transfer-encoding"),
        (ok_with("te", "gzip"), "te"),
        (ok_with("content-length", "-1"), "content-length -1"),
        (ok_with("content-length", ""), "content-length without digits"),
        ([ok_with("content-length", "1"), data(b"ab")].concat(), "more content than announced"),
        ([headers(&[&status("204")]), data(b"a")].concat(), "content with 204"),
    ] {
        assert_eq!(stopped(&response, what).await, MESSAGE_ERROR, "{what}");
    }
}

#[tokio::test]
async fn malformed_interim_responses_are_message_errors() {
    for (response, what) in [
        ([headers(&[&status("101")]), headers(&[OK])].concat(), "101"),
        (interim_with("content-length", "0"), "content-length"),
        (interim_with("connection", "close"), "connection"),
        (interim_with("upgrade", "x"), "upgrade"),
        (interim_with("Foo", "x"), "an uppercase name"),
        (interim_with("foo", "a\0b"), "NUL in a value"),
        (interim_with(":path", "/"), ":path"),
        ([headers(&[HINTS, HINTS]), headers(&[OK])].concat(), ":status twice"),
        ([headers(&[HINTS]), headers(&[&status("101")])].concat(), "101 after 103"),
    ] {
        assert_eq!(stopped(&response, what).await, MESSAGE_ERROR, "{what}");
    }
    let interim = ["100", "102", "103", "199"].map(|code| headers(&[&status(code)])).concat();
    let links = headers(&[HINTS, &field("link", "</style>"), &field("empty", "")]);
    let whole = [interim, links, headers(&[OK]), data(b"body")].concat();
    assert_eq!(answered(whole).await.unwrap(), (StatusCode::OK, 4));
}

// RFC 9114 s.10.3 #1 #2
#[tokio::test]
async fn malformed_trailers_are_errors() {
    let with = |trailers: &[&[u8]]| [headers(&[OK]), data(b"body"), headers(trailers)].concat();
    for (trailers, what) in [
        (field("Foo", "x"), "an uppercase name"),
        (field("", "x"), "an empty name"),
        (field("foo", "a\0b"), "NUL in a value"),
        (field("foo", "a\r\nb: c"), "a line's end in a value"),
        (field("connection", "close"), "connection"),
        (field("transfer-encoding", "chunked"), "transfer-encoding"),
        (status("200"), ":status"),
        // A name of one byte in Huffman code. Its padding has a zero bit, which is not permitted.
        (vec![0x29, 0x1c, 0], "padding"),
    ] {
        let error = answered(with(&[&trailers])).await;
        assert!(matches!(error, Err(ClientError::Http { .. })), "{what}: {error:?}");
        // An invalid Huffman code is an error of the connection, so the stream is not stopped
        // separately.
        if what != "padding" {
            assert_eq!(stopped(&with(&[&trailers]), what).await, MESSAGE_ERROR, "{what}");
        }
    }
    let allowed = [field("checksum", "x"), field("empty", ""), field("expires", "0")];
    let allowed = allowed.each_ref().map(Vec::as_slice);
    assert_eq!(answered(with(&allowed)).await.unwrap(), (StatusCode::OK, 4));
    assert_eq!(answered(with(&[])).await.unwrap(), (StatusCode::OK, 4));
}

#[tokio::test]
async fn response_of_every_valid_form_is_accepted() {
    for (response, what) in [
        (ok_with("empty", ""), "an empty value"),
        (ok_with("value", "a\tb c"), "a tab and a space in a value"),
        (ok_with("name-with_all.kinds!#$%&'*+^`|~0", "x"), "all kinds of characters in a name"),
        (headers(&[OK, &[0x23], b"foo", &[2, 0xc3, 0xa4]]), "bytes above 127 in a value"),
        (headers(&[OK, &field("a", "1"), &field("a", "2")]), "a field twice"),
        (ok_with("te", "trailers"), "te: trailers"),
    ] {
        assert_eq!(answered(response).await.unwrap(), (StatusCode::OK, 0), "{what}");
    }
    // RFC 9204 s.4.1.1: a base of 2^40. It has no meaning without a dynamic table.
    let block = [&[0, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20][..], OK].concat();
    let large = [&[1, block.len() as u8][..], &block].concat();
    assert_eq!(answered(large).await.unwrap(), (StatusCode::OK, 0));
}

/// RFC 9114 s.4.1.1 #6 #7: a client that drops a response must cancel it with H3_REQUEST_CANCELLED.
#[tokio::test]
async fn response_that_is_dropped_is_cancelled() {
    let (endpoint, client, url) = server();
    let (second, has_second) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let (mut send, _receive) = connection.accept_bi().await.unwrap();
        send.write_all(&headers(&[OK])).await.unwrap();
        let first = send.stopped().await.unwrap();
        let (send, _receive) = connection.accept_bi().await.unwrap();
        second.send(()).unwrap();
        [first, send.stopped().await.unwrap()].map(|code| code.map(u64::from))
    });
    drop(timeout(PATIENCE, client.get(&url)).await.unwrap().unwrap());
    // This request is dropped before its response.
    let asking = client.clone();
    let asked = tokio::spawn(async move { asking.get(&url).await.is_ok() });
    timeout(PATIENCE, has_second).await.unwrap().unwrap();
    asked.abort();
    let codes = timeout(PATIENCE, serving).await.unwrap().unwrap();
    assert_eq!(codes, [Some(REQUEST_CANCELLED); 2]);
}
