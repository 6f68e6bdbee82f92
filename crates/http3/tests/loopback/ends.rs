//! Tests of how requests and connections end: late or missing content and FIN, GOAWAY, and streams
//! that must stay open.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Buf as _;
use equic_http3::{Client, ClientConfig, Limits, ServerConfig, Trust};
use equic_wire::Reader;
use http::{Request, StatusCode, header};
use quinn::{Connection, ReadError, ReadToEndError, RecvStream, SendStream, VarInt};
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, path, start, until};
use crate::foreign::{raw, raw_server, raw_with};
use crate::rules::{CONTROL, asked, closed, exchange, field, headers, opened, request_of};

const NO_ERROR: u64 = 0x100;
const CLOSED_CRITICAL: u64 = 0x104;
const REQUEST_REJECTED: u64 = 0x10b;

/// Reads a whole response, and returns the bytes of its frames.
pub(crate) async fn response(receive: &mut RecvStream) -> Vec<u8> {
    timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap().unwrap()
}

/// Returns the code of STOP_SENDING if it has arrived.
pub(crate) fn stopped(send: &SendStream) -> Option<u64> {
    let stopped = pin!(send.stopped());
    match stopped.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(code)) => code.map(VarInt::into_inner),
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => None,
    }
}

pub(crate) async fn until_stopped(send: &SendStream) -> Option<u64> {
    let code = timeout(PATIENCE, send.stopped()).await.unwrap().unwrap();
    code.map(VarInt::into_inner)
}

/// The client ends its request only after it has the whole response and has made two further
/// requests. If the server had sent STOP_SENDING, it would have arrived by then. The server must
/// not send it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fin_that_is_late_is_awaited() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let length = field("content-length", "3");
    for (before, after, what) in [
        (request_of("GET", &[]), vec![], "a GET"),
        (request_of("HEAD", &[]), vec![], "a HEAD"),
        (request_of("POST", &[]), vec![0, 3, 7, 7, 7], "content that comes after the response"),
        ([request_of("POST", &[]), vec![0, 3, 7]].concat(), vec![7, 7], "the rest of a frame"),
        ([request_of("POST", &[&length]), vec![0, 3, 7, 7, 7]].concat(), vec![], "all content"),
    ] {
        let (mut send, mut receive) = asked(&connection, &before).await;
        assert!(!response(&mut receive).await.is_empty(), "{what}");
        for _ in 0..2 {
            exchange(&connection).await;
            assert_eq!(stopped(&send), None, "{what}");
        }
        send.write_all(&after).await.unwrap();
        exchange(&connection).await;
        assert_eq!(stopped(&send), None, "{what}");
        send.finish().unwrap();
        assert_eq!(until_stopped(&send).await, None, "{what}");
    }
    assert_eq!(server.stop().await.failed, 0);
}

/// A client on h3 and quinn treats STOP_SENDING as a failure. It ends each request late. None of
/// its requests may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fin_that_is_late_costs_h3_clients_no_request() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let connection = h3_quinn::Connection::new(connection);
    let (mut driver, mut send) = h3::client::new(connection).await.unwrap();
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    let get = || Request::get("https://localhost/health").body(()).unwrap();
    let mut late = None;
    for _ in 0..50 {
        let mut stream = send.send_request(get()).await.unwrap();
        let response = timeout(PATIENCE, stream.recv_response()).await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = Vec::new();
        while let Some(mut data) = stream.recv_data().await.unwrap() {
            body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        assert_eq!(body, b"ok\n");
        // The previous request ends only now, after another request and its response.
        if let Some(mut before) = late.replace(stream) {
            finish(&mut before).await;
        }
    }
    finish(&mut late.unwrap()).await;
    drop(send);
    driving.await.unwrap();
    let stats = server.stop().await;
    assert_eq!((stats.requests, stats.failed), (50, 0));
}

async fn finish(
    stream: &mut h3::client::RequestStream<h3_quinn::BidiStream<bytes::Bytes>, bytes::Bytes>,
) {
    stream.finish().await.expect("the server wants the end of the request");
}

/// RFC 9114 s.4.1 #11: the server may send STOP_SENDING once the client has the complete response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_is_too_long_is_stopped_after_the_response() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let long = field("content-length", "100000000");
    let gib = [0, 0xc0, 0, 0, 0, 0x40, 0, 0, 0];
    for (bytes, what) in [
        ([request_of("POST", &[]), gib.to_vec(), vec![7; 1000]].concat(), "a frame of 1 GiB"),
        (request_of("POST", &[&long]), "an announcement"),
        (request_of("GET", &[&long]), "an announcement of a GET"),
    ] {
        let (send, mut receive) = asked(&connection, &bytes).await;
        assert!(!response(&mut receive).await.is_empty(), "{what}");
        assert_eq!(until_stopped(&send).await, Some(NO_ERROR), "{what}");
    }
    // The content consists of many small frames.
    let (mut send, mut receive) = asked(&connection, &request_of("POST", &[])).await;
    assert!(!response(&mut receive).await.is_empty());
    let frame = [&[0, 0x40, 100][..], &[7; 100]].concat();
    while send.write_all(&frame).await.is_ok() {}
    assert_eq!(until_stopped(&send).await, Some(NO_ERROR));
    exchange(&connection).await;
}

/// The server must answer a client that waits for 100 (Continue), and one whose content does not
/// arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expect_continue_is_answered_without_content() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let (five, more) = (field("content-length", "5"), field("content-length", "60000"));
    let expect = field("expect", "100-continue");
    let late = [0, 5, 1, 2, 3, 4, 5];
    let mut open = Vec::new();
    for (bytes, what) in [
        (request_of("POST", &[&expect, &five]), "content that is held back"),
        (request_of("GET", &[&expect, &five]), "content of a GET that is held back"),
        (request_of("POST", &[&expect]), "an unknown length"),
        (request_of("POST", &[&five]), "content without an expectation"),
        (request_of("POST", &[&more]), "more content"),
        ([request_of("POST", &[&five]), late[..4].to_vec()].concat(), "part of the content"),
    ] {
        let (send, mut receive) = asked(&connection, &bytes).await;
        assert!(!response(&mut receive).await.is_empty(), "{what}");
        open.push(send);
    }
    // The server must accept content that arrives late.
    let (mut send, mut receive) = asked(&connection, &request_of("POST", &[&expect, &five])).await;
    assert!(!response(&mut receive).await.is_empty());
    send.write_all(&late).await.unwrap();
    send.finish().unwrap();
    assert_eq!(until_stopped(&send).await, None);
    // If the content arrives with the request, its length must be the announced one.
    let wrong = [request_of("POST", &[&expect, &five]), vec![0, 4, 1, 2, 3, 4]].concat();
    let (mut send, mut receive) = asked(&connection, &wrong).await;
    let _ = send.finish();
    // There are two possible results. Either the server has read the whole request before it
    // answers, and resets the stream, or the response comes first.
    match timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap() {
        Ok(response) => assert!(!response.is_empty()),
        Err(ReadToEndError::Read(ReadError::Reset(code))) => assert_eq!(code.into_inner(), 0x10e),
        Err(other) => panic!("{other}"),
    }
}

/// RFC 9114 s.6.2.1, RFC 9204 s.4.2: a client sends STOP_SENDING for the server's control stream or
/// one of its QPACK streams. The server must close the connection.
// RFC 9114 s.6.2.1 #5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn critical_streams_of_the_server_must_not_be_stopped() {
    let server = start(ServerConfig::new(loopback()));
    for kind in [0, 2, 3] {
        let (_endpoint, connection) = raw(&server).await;
        exchange(&connection).await;
        stop_stream(&connection, kind).await;
        closed(&connection, CLOSED_CRITICAL, &format!("stream type {kind}")).await;
    }
}

/// A server sends STOP_SENDING for one of the client's critical streams. The client must close the
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn critical_streams_of_the_client_must_not_be_stopped() {
    let (endpoint, fingerprint) = raw_server();
    let address = endpoint.local_addr().unwrap();
    let trust = Trust::Fingerprint(fingerprint);
    let config = ClientConfig { trust, bind: Some(loopback()), ..ClientConfig::default() };
    let client = Client::new(config).unwrap();
    for kind in [0, 2, 3] {
        let connecting = async { endpoint.accept().await.unwrap().await.unwrap() };
        let url = format!("https://{address}/");
        let (theirs, ours) = tokio::join!(connecting, client.connect(&url));
        let _ours = ours.unwrap();
        stop_stream(&theirs, kind).await;
        closed(&theirs, CLOSED_CRITICAL, &format!("stream type {kind}")).await;
    }
}

/// Sends STOP_SENDING for the peer's stream of this type.
async fn stop_stream(connection: &Connection, kind: u8) {
    let mut others = Vec::new();
    loop {
        let mut stream = timeout(PATIENCE, connection.accept_uni()).await.unwrap().unwrap();
        let mut first = [0];
        timeout(PATIENCE, stream.read_exact(&mut first)).await.unwrap().unwrap();
        if first[0] == kind {
            stream.stop(VarInt::from_u32(0)).unwrap();
            return std::mem::forget(others);
        }
        others.push(stream);
    }
}

/// The server's control stream, and the bytes that were read from it but not yet parsed.
pub(crate) struct ControlStream(RecvStream, Vec<u8>);

impl ControlStream {
    pub(crate) async fn accept(connection: &Connection) -> ControlStream {
        loop {
            let mut stream = timeout(PATIENCE, connection.accept_uni()).await.unwrap().unwrap();
            let mut first = [1];
            timeout(PATIENCE, stream.read_exact(&mut first)).await.unwrap().unwrap();
            if first[0] == 0 {
                return ControlStream(stream, Vec::new());
            }
            // Dropping the stream would send STOP_SENDING.
            std::mem::forget(stream);
        }
    }

    /// Reads until the next GOAWAY, and returns its ID.
    pub(crate) async fn goaway(&mut self) -> u64 {
        loop {
            if let Some((frame, payload, length)) = frame(&self.1) {
                self.1.drain(..length);
                if frame == 7 {
                    return Reader::new(&payload).varint().unwrap().get();
                }
                continue;
            }
            let mut buffer = [0; 100];
            let read = timeout(PATIENCE, self.0.read(&mut buffer)).await.unwrap().unwrap();
            self.1.extend_from_slice(&buffer[..read.expect("the stream stays open")]);
        }
    }
}

/// Returns the first frame if it is complete: its type, its payload, and its length including its
/// header.
pub(crate) fn frame(bytes: &[u8]) -> Option<(u64, Vec<u8>, usize)> {
    let mut reader = Reader::new(bytes);
    let frame = reader.varint().ok()?.get();
    let length = reader.varint().ok()?.get() as usize;
    let payload = reader.bytes(length).ok()?.to_vec();
    Some((frame, payload, bytes.len() - reader.len()))
}

async fn rejected(connection: &Connection) {
    let (send, mut receive) = asked(connection, &request_of("GET", &[])).await;
    match timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap() {
        Err(ReadToEndError::Read(ReadError::Reset(code))) => {
            assert_eq!(code.into_inner(), REQUEST_REJECTED);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(until_stopped(&send).await, Some(REQUEST_REJECTED));
}

/// RFC 9114 s.5.2 #1 #2: the server must serve the requests below the ID in GOAWAY, and reject all
/// others.
// RFC 9114 s.4.1.1 #3, s.5.2 #5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_names_the_first_request_that_is_not_served() {
    let limits = Limits { grace: PATIENCE, stall_timeout: PATIENCE, ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(2000));
    let (_endpoint, connection) = raw_with(&server, transport).await;
    let mut control = ControlStream::accept(&connection).await;
    exchange(&connection).await;
    // This request stays in progress, because the client does not read more of its response.
    let path = [&[0x51, 14][..], b"/bytes/1000000"].concat();
    let authority = field(":authority", "localhost");
    let request = headers(&[&[0xd1], &[0xd7], &authority, &path]);
    let (mut send, mut slow) = asked(&connection, &request).await;
    send.finish().unwrap();
    let mut start = [0; 100];
    slow.read_exact(&mut start).await.unwrap();

    let stopping = server.begin_stop();
    assert_eq!(control.goaway().await, 8);
    for _ in 0..3 {
        rejected(&connection).await;
    }
    let rest = timeout(PATIENCE, slow.read_to_end(2_000_000)).await.unwrap().unwrap();
    assert!(rest.len() > 1_000_000 - 100, "the request below the ID is served");
    closed(&connection, NO_ERROR, "after the last response").await;
    let stats = timeout(PATIENCE, stopping).await.unwrap().unwrap().unwrap();
    assert_eq!((stats.requests, stats.failed), (2, 0));
}

// RFC 9114 s.3.2 #3, s.6.2.1 #1, s.7.2.4 #1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_without_requests_names_the_first_stream() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let mut control = ControlStream::accept(&connection).await;
    until("the connection is served", || server.stats.snapshot().open == 1).await;
    let stopping = server.begin_stop();
    assert_eq!(control.goaway().await, 0);
    closed(&connection, NO_ERROR, "nothing is under way").await;
    timeout(PATIENCE, stopping).await.unwrap().unwrap().unwrap();
}

/// A client sends GOAWAY. The server must answer with GOAWAY when it has answered all requests. The
/// ID in the server's GOAWAY must be that of the next request. `h3` would name the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_of_a_client_ends_the_connection_after_its_requests() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let mut control = ControlStream::accept(&connection).await;
    exchange(&connection).await;
    let (mut send, mut receive) = asked(&connection, &request_of("GET", &[])).await;
    response(&mut receive).await;
    // The client has not yet ended the request on stream 4.
    let _goaway = opened(&connection, &[CONTROL, &[7, 1, 0]].concat()).await;
    exchange(&connection).await;
    send.finish().unwrap();
    assert_eq!(control.goaway().await, 12);
    closed(&connection, NO_ERROR, "all is done").await;
    let stats = server.stop().await;
    assert_eq!((stats.requests, stats.failed), (3, 0));
}

/// Clients send many requests during a shutdown. The server must serve every request below the ID
/// of its GOAWAY.
// RFC 9114 s.4.1.1 #4, s.6.2.1 #4
// RFC 9204 s.4.2 #3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_under_load_loses_no_request_below_it() {
    let server = start(ServerConfig::new(loopback()));
    let mut clients = Vec::new();
    for _ in 0..4 {
        let (endpoint, connection) = raw(&server).await;
        clients.push(tokio::spawn(async move {
            let mut control = ControlStream::accept(&connection).await;
            let mut outcomes = Vec::new();
            while let Ok((mut send, mut receive)) = connection.open_bi().await {
                let id = u64::from(VarInt::from(send.id()));
                if send.write_all(&request_of("GET", &[])).await.is_err() {
                    break;
                }
                let _ = send.finish();
                let served = match receive.read_to_end(10_000).await {
                    Ok(answer) => answer.ends_with(b"ok\n"),
                    Err(_) => false,
                };
                outcomes.push((id, served));
                if !served {
                    break;
                }
            }
            let first = control.goaway().await;
            drop(endpoint);
            (first, outcomes)
        }));
    }
    until("many were served", || server.stats.snapshot().requests > 100).await;
    timeout(PATIENCE, server.begin_stop()).await.unwrap().unwrap().unwrap();
    for client in clients {
        let (first, outcomes) = timeout(PATIENCE, client).await.unwrap().unwrap();
        for (id, served) in outcomes {
            assert_eq!(served, id < first, "stream {id}, GOAWAY of {first}");
        }
    }
}

/// RFC 9110 s.6.6.1: responses have a Date field.
#[tokio::test]
async fn date_is_in_every_response() {
    let limits = Limits { shed_after: Duration::from_secs(1), ..Limits::default() };
    let server = start(ServerConfig { limits, ..ServerConfig::new(loopback()) });
    let connection = server.client().connect(&server.url("/")).await.unwrap();
    for (target, status) in
        [("/health", 200), ("/bytes/10", 200), ("/bytes/x", 400), ("/nothing", 404)]
    {
        let mut response = connection.get(&path(target)).await.unwrap();
        response.drain().await.unwrap();
        assert_eq!(response.status.as_u16(), status, "{target}");
        let date = response.headers[header::DATE].to_str().unwrap();
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{target}: {date}");
    }
}
