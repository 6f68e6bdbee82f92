//! Tests of our server with clients that break rules of RFC 9114 and RFC 9204 on one or more raw
//! streams.

use equic_http3::ServerConfig;
use http::StatusCode;
use quinn::{Connection, ReadError, ReadToEndError, RecvStream, SendStream, VarInt};
use tokio::time::timeout;

use crate::common::{PATIENCE, get, loopback, start};
use crate::foreign::raw;

const STREAM_CREATION: u64 = 0x103;
const CLOSED_CRITICAL: u64 = 0x104;
const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const MESSAGE_ERROR: u64 = 0x10e;
const ENCODER_STREAM: u64 = 0x201;
const DECODER_STREAM: u64 = 0x202;

/// The type of a control stream, and an empty SETTINGS frame.
pub(crate) const CONTROL: &[u8] = &[0, 4, 0];

/// Returns a field line with a literal name and a literal value.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut line = match name.len() {
        short @ 0..7 => vec![0x20 | short as u8],
        long => vec![0x27, (long - 7) as u8],
    };
    line.extend_from_slice(name.as_bytes());
    line.push(value.len() as u8);
    line.extend_from_slice(value.as_bytes());
    line
}

/// Returns a HEADERS frame with these field lines.
pub(crate) fn headers(lines: &[&[u8]]) -> Vec<u8> {
    let block = [&[0, 0], &*lines.concat()].concat();
    let length = [0x40 | (block.len() >> 8) as u8, block.len() as u8];
    [&[1], &length[..], &*block].concat()
}

pub(crate) const METHOD: &[u8] = &[0xd1];
pub(crate) const SCHEME: &[u8] = &[0xd7];
const PATH: &[u8] = b"\x51\x07/health";

pub(crate) fn authority() -> Vec<u8> {
    field(":authority", "localhost")
}

/// Returns a request for /health with this method and additional fields.
pub(crate) fn request_of(method: &str, more: &[&[u8]]) -> Vec<u8> {
    let (method, authority) = (field(":method", method), authority());
    headers(&[&[&method, SCHEME, PATH, &authority], more].concat())
}

/// Returns a request with this method and path.
pub(crate) fn request_for(method: &str, path: &str) -> Vec<u8> {
    let (method, path) = (field(":method", method), field(":path", path));
    headers(&[&method, SCHEME, &authority(), &path])
}

/// Returns a GET request for /health whose authority is given by these fields.
fn request_to(fields: &[&[u8]]) -> Vec<u8> {
    headers(&[&[METHOD, SCHEME, PATH], fields].concat())
}

/// Returns a GET request for /health with additional fields.
pub(crate) fn request(more: &[&[u8]]) -> Vec<u8> {
    let authority = authority();
    headers(&[&[METHOD, SCHEME, PATH, &authority], more].concat())
}

pub(crate) async fn opened(connection: &Connection, bytes: &[u8]) -> SendStream {
    let mut send = connection.open_uni().await.unwrap();
    send.write_all(bytes).await.unwrap();
    send
}

pub(crate) async fn asked(connection: &Connection, bytes: &[u8]) -> (SendStream, RecvStream) {
    let (mut send, receive) = connection.open_bi().await.unwrap();
    send.write_all(bytes).await.unwrap();
    (send, receive)
}

/// Sends a request and reads the response. When it returns, the server has read everything that was
/// sent before.
pub(crate) async fn exchange(connection: &Connection) {
    let (mut send, mut receive) = asked(connection, &request(&[])).await;
    send.finish().unwrap();
    let answer = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap();
    assert!(answer.ends_with(b"ok\n"));
}

pub(crate) async fn closed(connection: &Connection, code: u64, what: &str) {
    match timeout(PATIENCE, connection.closed()).await {
        Ok(quinn::ConnectionError::ApplicationClosed(close)) => {
            assert_eq!(close.error_code.into_inner(), code, "{what}: {close}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

// RFC 9114 s.6.2.1 #3, s.6.2.2 #1, s.7.2.2 #1
// RFC 9204 s.4.2 #2, s.4.4.1 #1, s.4.4.3 #1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn violation_of_a_stream_rule_closes_the_connection() {
    let server = start(ServerConfig::new(loopback()));
    let after = |bytes: &[u8]| [CONTROL, bytes].concat();
    for (streams, code, what) in [
        (vec![after(&[7, 0])], FRAME_ERROR, "GOAWAY without an ID"),
        (vec![after(&[7, 2, 1, 1])], FRAME_ERROR, "GOAWAY with two"),
        (vec![after(&[7, 1, 1, 7, 1, 2])], ID_ERROR, "GOAWAY that grows"),
        (vec![after(&[0xd, 1, 5, 0xd, 1, 4])], ID_ERROR, "MAX_PUSH_ID that shrinks"),
        (vec![after(&[3, 1, 0])], ID_ERROR, "CANCEL_PUSH of nothing"),
        (vec![after(&[4, 0])], FRAME_UNEXPECTED, "SETTINGS twice"),
        (vec![after(&[1, 0])], FRAME_UNEXPECTED, "HEADERS on the control stream"),
        (vec![vec![0, 0x21, 0]], MISSING_SETTINGS, "a reserved frame before SETTINGS"),
        (vec![vec![0, 4, 4, 6, 1, 6, 1]], SETTINGS_ERROR, "a setting twice"),
        (vec![after(&[]), after(&[])], STREAM_CREATION, "two control streams"),
        (vec![vec![1, 0]], STREAM_CREATION, "a push stream of a client"),
        (vec![vec![2], vec![2]], STREAM_CREATION, "two encoder streams"),
        (vec![vec![2, 0x3f, 0x01]], ENCODER_STREAM, "a capacity of 32"),
        (vec![vec![2, 0xc0, 1, b'x']], ENCODER_STREAM, "an insertion without a table"),
        (vec![vec![3, 0x80]], DECODER_STREAM, "an acknowledgement of nothing"),
        (vec![vec![3, 0x01]], DECODER_STREAM, "an increment of nothing"),
    ] {
        let (_endpoint, connection) = raw(&server).await;
        let mut open = Vec::new();
        for stream in &streams {
            open.push(opened(&connection, stream).await);
        }
        closed(&connection, code, what).await;
    }
}

// RFC 9114 s.6.2.1 #5
// RFC 9204 s.4.2 #4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn critical_streams_stay_open() {
    let server = start(ServerConfig::new(loopback()));
    for (bytes, what) in [(CONTROL, "control"), (&[2], "encoder"), (&[3], "decoder")] {
        for reset in [true, false] {
            let (_endpoint, connection) = raw(&server).await;
            let mut stream = opened(&connection, bytes).await;
            exchange(&connection).await;
            if reset {
                stream.reset(VarInt::from_u32(0)).unwrap();
            } else {
                stream.finish().unwrap();
            }
            closed(&connection, CLOSED_CRITICAL, what).await;
        }
    }
}

/// Frames and streams that a correct client may send must not cause an error.
// RFC 9114 s.4.1 #8, s.6.2 #1 #4 #6 #9, s.6.2.3 #1, s.9 #2
// RFC 9204 s.4.2 #5
#[tokio::test]
async fn violation_is_not_reported_for_what_is_permitted() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let control = [CONTROL, &[0xd, 1, 3, 0xd, 1, 3, 0x21, 2, 9, 9, 0x40, 0x41, 1, 7]].concat();
    let _streams = [
        opened(&connection, &control).await,
        opened(&connection, &[2, 0x20]).await,
        opened(&connection, &[3, 0x44]).await,
        opened(&connection, &[0x40, 0x54, 0]).await,
    ];
    // A client may end a stream before its type is complete.
    opened(&connection, &[0x40]).await.finish().unwrap();
    exchange(&connection).await;
    // The request has a name in Huffman code, and content of the announced length before trailers.
    let huffman = [0x2d, 0xb9, 0x49, 0x53, 0x39, 0xe4, 3, b'G', b'E', b'T'];
    let length = field("content-length", "3");
    let bytes = [
        headers(&[&huffman, SCHEME, PATH, &authority(), &length]),
        vec![0, 1, 7, 0, 0, 0x21, 1, 7, 0, 2, 7, 7],
        headers(&[&field("trailer", "x")]),
    ];
    let (mut send, mut receive) = asked(&connection, &bytes.concat()).await;
    send.finish().unwrap();
    let answer = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap();
    assert!(answer.ends_with(b"ok\n"));
}

// RFC 9114 s.7.2.4 #6, s.7.2.4.1 #2
#[tokio::test]
async fn settings_that_are_unknown_are_ignored() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    // Reserved settings 0x21 and 0x40, and two unknown ones.
    let _control =
        opened(&connection, &[0, 4, 11, 0x21, 7, 0x40, 0x40, 9, 0x3f, 1, 0x7f, 0xff, 0x40, 0])
            .await;
    exchange(&connection).await;
}

// RFC 9114 s.4.1.2 #2, s.4.2 #2, s.4.3.1 #5 #6 #7 #8 #9, s.10.3 #1 #2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_not_answered() {
    let server = start(ServerConfig::new(loopback()));
    let neighbour = server.client().connect(&server.url("/")).await.unwrap();
    let length = |value: &str| field("content-length", value);
    let data = [0, 2, 7, 7];
    for (bytes, what) in [
        (request(&[METHOD]), ":method twice"),
        (request(&[&field(":path", "/bytes/1")]), ":path twice"),
        (headers(&[METHOD, SCHEME, &authority(), &field("a", "b"), PATH]), ":path late"),
        (request(&[&field(":status", "200")]), ":status"),
        (request(&[&field(":protocol", "x")]), ":protocol"),
        (headers(&[METHOD, &authority()]), "neither scheme nor path"),
        (request(&[&field("connection", "close")]), "connection"),
        (request(&[&field("transfer-encoding", "chunked")]), "transfer-encoding"),
        (request(&[&length("-1")]), "content-length -1"),
        (request(&[&length("5, 5")]), "content-length 5, 5"),
        (request(&[&length("1"), &length("1")]), "two of them"),
        (request(&[&length("1")]), "no content"),
        ([request(&[&length("1")]), data.to_vec()].concat(), "more content"),
        ([request(&[&length("3")]), data.to_vec()].concat(), "less content"),
        (request(&[&field("te", "gzip")]), "te"),
        (request(&[&field("Upper", "x")]), "an uppercase name"),
        (request(&[&field("a b", "x")]), "a name with a space"),
        (request(&[&field("", "x")]), "an empty name"),
        (request(&[&field("a", "x\0y")]), "NUL in a value"),
        (request(&[&field("a", "x\ry")]), "CR in a value"),
        (request(&[&field("a", "x\ny: z")]), "LF in a value"),
        (request(&[&field("host", "other")]), "Host unlike :authority"),
        (request(&[&field("host", "localhost"), &field("host", "other")]), "two Hosts"),
        (request_to(&[&field("host", "a"), &field("host", "b")]), "two Hosts, no :authority"),
        (request_to(&[]), "neither :authority nor Host"),
        (request_to(&[&field(":authority", "")]), "an empty :authority"),
        (request_to(&[&field("host", "")]), "an empty Host"),
        (request_to(&[&field(":authority", "user@localhost")]), "a user in :authority"),
        (request_to(&[&field("host", "user:secret@localhost")]), "a user in Host"),
        (request_for("GET", ""), "an empty :path"),
        (request_for("GET", "health"), ":path without a slash"),
        (request_for("GET", "?x"), ":path that is a query"),
        (request_for("GET", "#x"), ":path that is a fragment"),
        (request_for("GET", "/health#x"), ":path with a fragment"),
        (request_for("GET", "/health?x#y"), ":path with a query and a fragment"),
        (request_for("GET", "*"), ":path of * without OPTIONS"),
        (request_for("GET", "https://localhost/health"), ":path that is a URI"),
        (headers(&[&field(":method", "CONNECT"), &authority()]), "CONNECT without a port"),
        (
            headers(&[&field(":method", "CONNECT"), &field(":authority", "u@a:443")]),
            "a user in CONNECT",
        ),
        (headers(&[SCHEME, PATH, &authority()]), "no :method"),
    ] {
        let (_endpoint, connection) = raw(&server).await;
        let (mut send, mut receive) = asked(&connection, &bytes).await;
        let _ = send.finish();
        match timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap() {
            Err(ReadToEndError::Read(ReadError::Reset(code))) => {
                assert_eq!(code.into_inner(), MESSAGE_ERROR, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
        exchange(&connection).await;
    }
    assert_eq!(get(&neighbour, "/health").await, StatusCode::OK);
}

/// The requests are well-formed. The server must answer each with the expected text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_to_a_request_for_nothing_here() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let http = field(":scheme", "http");
    let other = field(":scheme", "ftp");
    let upper = field(":scheme", "HTTPS");
    for (bytes, expected, what) in [
        (headers(&[METHOD, &http, PATH, &authority()]), "only https\n", "http"),
        (headers(&[METHOD, &other, PATH, &authority()]), "only https\n", "ftp"),
        (headers(&[METHOD, &upper, PATH, &authority()]), "ok\n", "https in capitals"),
        (request_for("OPTIONS", "*"), "this server supports only GET and HEAD\n", "OPTIONS *"),
        (request_to(&[&field("host", "localhost")]), "ok\n", "Host for :authority"),
        (request(&[&field("host", "localhost")]), "ok\n", "Host like :authority"),
        (request_for("GET", "/health?x"), "ok\n", "a query"),
    ] {
        let (mut send, mut receive) = asked(&connection, &bytes).await;
        send.finish().unwrap();
        let answer = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap();
        assert!(answer.ends_with(expected.as_bytes()), "{what}: {answer:?}");
    }
}
