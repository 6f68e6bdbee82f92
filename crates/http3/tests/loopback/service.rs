//! Tests of `Server::serve` with a router of axum, and h3 over quinn as the client.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Extension;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use bytes::{Buf, Bytes};
use equic_http3::{ClientError, Limits, RequestBody, RequestInfo, ServerConfig};
use h3::error::{Code, StreamError};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::common::{PATIENCE, Running, loopback, start_as, until};
use crate::foreign::raw;
use crate::rules::asked;

pub(crate) type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;
pub(crate) type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

/// A connection of h3 over quinn.
pub(crate) struct Peer {
    pub(crate) send: Sender,
    _endpoint: quinn::Endpoint,
}

impl Peer {
    pub(crate) async fn of(server: &Running) -> Peer {
        Peer::on(raw(server).await).await
    }

    pub(crate) async fn on((endpoint, connection): (quinn::Endpoint, quinn::Connection)) -> Peer {
        let connection = h3_quinn::Connection::new(connection);
        let (mut driver, send) = h3::client::new(connection).await.unwrap();
        tokio::spawn(async move { driver.wait_idle().await });
        Peer { send, _endpoint: endpoint }
    }

    pub(crate) async fn begin(&mut self, request: http::request::Builder) -> Stream {
        self.send.send_request(request.body(()).unwrap()).await.unwrap()
    }

    /// Sends a request with this content, and returns the response with its content.
    pub(crate) async fn exchange(
        &mut self,
        request: http::request::Builder,
        content: impl Into<Bytes>,
    ) -> (Response<()>, Vec<u8>) {
        let mut stream = self.begin(request).await;
        stream.send_data(content.into()).await.unwrap();
        stream.finish().await.unwrap();
        let response = received(&mut stream).await.unwrap();
        (response, content_of(&mut stream).await.unwrap())
    }
}

pub(crate) async fn received(stream: &mut Stream) -> Result<Response<()>, StreamError> {
    timeout(PATIENCE, stream.recv_response()).await.unwrap()
}

pub(crate) async fn content_of(stream: &mut Stream) -> Result<Vec<u8>, StreamError> {
    let mut content = Vec::new();
    while let Some(mut data) = timeout(PATIENCE, stream.recv_data()).await.unwrap()? {
        content.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(content)
}

pub(crate) fn start(router: Router) -> Running {
    start_with(ServerConfig::new(loopback()), router)
}

pub(crate) fn start_with(config: ServerConfig, router: Router) -> Running {
    start_as(config, |server, stop| server.serve(router, stop))
}

pub(crate) fn url(path: &str) -> String {
    format!("https://localhost{path}")
}

/// Returns the code with which the server reset the stream.
pub(crate) fn reset(error: StreamError) -> Code {
    match error {
        StreamError::RemoteTerminate { code, .. } => code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn service_of_axum_answers_json() {
    #[derive(serde::Deserialize, serde::Serialize)]
    struct Sum {
        of: Vec<u32>,
    }
    let router = Router::new()
        .route("/", get(|| async { "front page" }))
        .route("/sum", post(|Json(sum): Json<Sum>| async move { Json(sum.of.iter().sum::<u32>()) }))
        .route(
            "/who",
            get(|Extension(info): Extension<RequestInfo>| async move {
                format!("{} {} {} {}", info.peer, info.connection, info.request, info.early)
            }),
        );
    let server = start(router);
    let mut peer = Peer::of(&server).await;
    let (response, content) = peer.exchange(Request::get(url("/")), "").await;
    assert_eq!((response.status(), &*content), (StatusCode::OK, &b"front page"[..]));
    assert_eq!(response.headers()[header::CONTENT_LENGTH], "10");
    assert!(response.headers().contains_key(header::DATE));
    let json = Request::post(url("/sum")).header(header::CONTENT_TYPE, "application/json");
    let (response, content) = peer.exchange(json, r#"{"of": [1, 2, 39]}"#).await;
    assert_eq!((response.status(), &*content), (StatusCode::OK, &b"42"[..]));
    let (_, content) = peer.exchange(Request::get(url("/who")), "").await;
    let who = String::from_utf8(content).unwrap();
    assert!(who.starts_with("127.0.0.1:") && who.ends_with(" 1 3 false"), "{who}");
    let (response, _) = peer.exchange(Request::get(url("/none")), "").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let (response, _) = peer.exchange(Request::put(url("/sum")), "x").await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let (response, content) = peer.exchange(Request::head(url("/")), "").await;
    assert_eq!(response.headers()[header::CONTENT_LENGTH], "10");
    assert!(content.is_empty());
    drop(peer);
    let stats = server.stop().await;
    assert_eq!((stats.requests, stats.failed), (6, 0));
}

/// Content passes through while the request is still open, in both directions, with trailers.
#[tokio::test]
async fn service_streams_content_and_trailers_in_both_directions() {
    async fn echo(request: Request<Body>) -> Response<Body> {
        let mut content = request.into_body();
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(frame) = content.frame().await {
                send.send(Ok::<_, Infallible>(frame.unwrap())).await.unwrap();
            }
        });
        let frames = futures::stream::unfold(receive, |mut receive| async move {
            receive.recv().await.map(|frame| (frame, receive))
        });
        Response::new(Body::new(StreamBody::new(frames)))
    }
    let server = start(Router::new().route("/echo", post(echo)));
    let mut peer = Peer::of(&server).await;
    let mut stream = peer.begin(Request::post(url("/echo"))).await;
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    for turn in 0..20_u8 {
        let sent = vec![turn; 100_000];
        stream.send_data(Bytes::from(sent.clone())).await.unwrap();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let mut data = timeout(PATIENCE, stream.recv_data()).await.unwrap().unwrap().unwrap();
            got.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        assert!(got == sent, "turn {turn}");
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "17".parse().unwrap());
    stream.send_trailers(trailers.clone()).await.unwrap();
    stream.finish().await.unwrap();
    assert!(content_of(&mut stream).await.unwrap().is_empty());
    let got = timeout(PATIENCE, stream.recv_trailers()).await.unwrap().unwrap();
    assert_eq!(got, Some(trailers));
    drop(peer);
    assert_eq!(server.stop().await.requests, 1);
}

/// The client of this crate sends content while the response arrives. Each piece is sent only after
/// the one before it has come back.
#[tokio::test]
async fn client_sends_content_while_the_response_arrives() {
    let echo = |request: Request<Body>| async { Response::new(request.into_body()) };
    let server = start(Router::new().route("/echo", post(echo)));
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    let (send, receive) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    let pieces = futures::stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|piece| (piece, receive))
    });
    let request = Request::post("/echo").body(StreamBody::new(pieces)).unwrap();
    let mut response = connection.send(request).await.unwrap();
    assert_eq!((response.status, response.announced()), (StatusCode::OK, None));
    for turn in 0..20_u8 {
        let sent = vec![turn; 100_000];
        send.send(Ok(Frame::data(sent.clone().into()))).await.unwrap();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            got.extend_from_slice(&response.chunk().await.unwrap().unwrap());
        }
        assert!(got == sent, "turn {turn}");
    }
    drop(send);
    assert_eq!(response.chunk().await.unwrap(), None);
    // Content of known length, and none.
    for content in ["known", ""] {
        let request = Request::post("/echo").body(content.to_owned()).unwrap();
        let mut response = connection.send(request).await.unwrap();
        assert_eq!(response.body(100).await.unwrap(), content);
    }
    client.close().await;
    assert_eq!(server.stop().await.requests, 3);
}

/// A request whose content fails, or has another length than announced, is cancelled.
#[tokio::test]
async fn client_cancels_a_request_whose_content_fails() {
    let read = |request: Request<Body>| async {
        to_bytes(request.into_body(), usize::MAX).await.map_err(|_| StatusCode::BAD_REQUEST)?;
        Ok::<_, StatusCode>("complete")
    };
    let server = start(Router::new().route("/", post(read)));
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    let failing = futures::stream::iter([
        Ok(Frame::data(Bytes::from_static(b"begun"))),
        Err(std::io::Error::other("a test")),
    ]);
    let request = Request::post("/").body(StreamBody::new(failing)).unwrap();
    let failed = connection.send(request).await.err();
    assert!(matches!(failed, Some(ClientError::Content { .. })), "{failed:?}");
    for length in ["4", "6"] {
        let request = Request::post("/").header(header::CONTENT_LENGTH, length);
        let failed = connection.send(request.body("12345".to_owned()).unwrap()).await.err();
        assert!(matches!(failed, Some(ClientError::Content { .. })), "{length}: {failed:?}");
    }
    let fields = [(header::CONNECTION, "close"), (header::CONTENT_LENGTH, "x")];
    for (name, value) in fields {
        let request = Request::post("/").header(name, value).body("12345".to_owned()).unwrap();
        let failed = connection.send(request).await.err();
        assert!(matches!(failed, Some(ClientError::Path { .. })), "{failed:?}");
    }
    let request = Request::post("/").body("well".to_owned()).unwrap();
    assert_eq!(connection.send(request).await.unwrap().body(100).await.unwrap(), "complete");
    client.close().await;
    // No cancelled request was answered with its content complete.
    assert_eq!(server.stop().await.requests, 1);
}

/// A server that answers before it has read the content stops the rest of it (RFC 9114 s.4.1).
#[tokio::test]
async fn client_gets_a_response_that_comes_before_the_content_was_sent() {
    let server = start(Router::new().route("/", post(|| async { StatusCode::PAYLOAD_TOO_LARGE })));
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    let content = Full::new(Bytes::from(vec![0; 10_000_000]));
    let request = Request::post("/").body(content).unwrap();
    let mut response = connection.send(request).await.unwrap();
    assert_eq!(response.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(response.drain().await.unwrap(), 0);
    client.close().await;
    server.stop().await;
}

/// More content than the limit of unread content arrives completely.
#[tokio::test]
async fn service_reads_content_above_the_window() {
    async fn count(request: Request<RequestBody>) -> Result<Response<String>, Infallible> {
        let content = request.into_body().collect().await.unwrap().to_bytes();
        Ok(Response::new(content.len().to_string()))
    }
    let limits = Limits { content_window: 20_000, ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let server = start_as(config, |server, stop| server.serve(tower::service_fn(count), stop));
    let mut peer = Peer::of(&server).await;
    let (_, content) = peer.exchange(Request::post(url("/")), vec![7; 5_000_000]).await;
    assert_eq!(content, b"5000000");
    drop(peer);
    server.stop().await;
}

/// A service that never reads holds back the client after `content_window` bytes.
#[tokio::test]
async fn service_that_does_not_read_limits_the_content() {
    let release = Arc::new(Notify::new());
    let wait = release.clone();
    let hold = move |request: Request<Body>| {
        let wait = wait.clone();
        async move {
            wait.notified().await;
            drop(request);
            "late"
        }
    };
    let limits = Limits { content_window: 50_000, ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let server =
        start_with(config, Router::new().route("/", post(hold)).route("/ping", get(|| async {})));
    let (_endpoint, connection) = raw(&server).await;
    let h3 = h3_quinn::Connection::new(connection.clone());
    let (mut driver, mut send) = h3::client::new(h3).await.unwrap();
    tokio::spawn(async move { driver.wait_idle().await });
    let mut other = send.clone();
    let mut stream = send.send_request(Request::post(url("/")).body(()).unwrap()).await.unwrap();
    stream.send_data(Bytes::from(vec![0; 40_000])).await.unwrap();
    let mut more = Box::pin(stream.send_data(Bytes::from(vec![0; 2_000_000])));
    // The connection works meanwhile. Without a limit, the content would arrive in these round trips.
    let pings = async {
        for _ in 0..20 {
            let mut ping =
                other.send_request(Request::get(url("/ping")).body(()).unwrap()).await.unwrap();
            ping.finish().await.unwrap();
            assert_eq!(received(&mut ping).await.unwrap().status(), StatusCode::OK);
            content_of(&mut ping).await.unwrap();
        }
    };
    tokio::select! {
        sent = &mut more => panic!("everything was sent: {sent:?}"),
        () = pings => {}
    }
    assert!(connection.stats().udp_tx.bytes < 200_000);
    release.notify_one();
    // The service drops the content, so the server sends STOP_SENDING.
    let stopped = timeout(PATIENCE, more).await.unwrap();
    assert_eq!(reset(stopped.unwrap_err()), Code::H3_NO_ERROR);
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    assert_eq!(content_of(&mut stream).await.unwrap(), b"late");
    server.stop().await;
}

#[tokio::test]
async fn service_sends_continue_when_it_reads() {
    let router = Router::new()
        .route("/read", post(|content: String| async move { content }))
        .route("/refuse", post(|| async { StatusCode::FORBIDDEN }));
    let server = start(router);
    let mut peer = Peer::of(&server).await;
    let expecting = |path| Request::post(url(path)).header(header::EXPECT, "100-continue");
    let mut stream = peer.begin(expecting("/read")).await;
    // The interim response comes before any content was sent.
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::CONTINUE);
    stream.send_data(Bytes::from_static(b"content")).await.unwrap();
    stream.finish().await.unwrap();
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    assert_eq!(content_of(&mut stream).await.unwrap(), b"content");
    let mut stream = peer.begin(expecting("/refuse")).await;
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::FORBIDDEN);
    drop(peer);
    server.stop().await;
}

/// A service that panics, before or after its response has begun, ends only its own request.
#[tokio::test]
async fn service_that_panics_ends_only_its_request() {
    async fn panics() -> &'static str {
        panic!("a test of panics")
    }
    // The second service panics after the client has received the beginning of its response.
    // Otherwise the reset could discard it.
    let arrived = Arc::new(Notify::new());
    let continues = arrived.clone();
    let panics_late = move || {
        let continues = continues.clone();
        async move {
            let frames = futures::stream::unfold(0, move |turn| {
                let continues = continues.clone();
                async move {
                    if turn == 0 {
                        let begun = Frame::data(Bytes::from_static(b"begun"));
                        return Some((Ok::<_, Infallible>(begun), 1));
                    }
                    continues.notified().await;
                    panic!("a test of panics")
                }
            });
            Response::new(Body::new(StreamBody::new(frames)))
        }
    };
    let router = Router::new()
        .route("/now", get(panics))
        .route("/late", get(panics_late))
        .route("/well", get(|| async { "well" }));
    let server = start(router);
    let mut peer = Peer::of(&server).await;
    let mut stream = peer.begin(Request::get(url("/now"))).await;
    stream.finish().await.unwrap();
    assert_eq!(reset(received(&mut stream).await.unwrap_err()), Code::H3_INTERNAL_ERROR);
    let mut stream = peer.begin(Request::get(url("/late"))).await;
    stream.finish().await.unwrap();
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    assert!(timeout(PATIENCE, stream.recv_data()).await.unwrap().unwrap().is_some());
    arrived.notify_one();
    assert_eq!(reset(content_of(&mut stream).await.unwrap_err()), Code::H3_INTERNAL_ERROR);
    let (response, content) = peer.exchange(Request::get(url("/well")), "").await;
    assert_eq!((response.status(), &*content), (StatusCode::OK, &b"well"[..]));
    drop(peer);
    let stats = server.stop().await;
    assert_eq!((stats.opened, stats.requests, stats.failed), (1, 1, 2));
}

/// Content that does not match Content-Length is a malformed request, whether the service reads it
/// or not (RFC 9114 s.4.1.2 #2).
#[tokio::test]
async fn service_gets_an_error_for_content_of_a_wrong_length() {
    let failed = Arc::new(AtomicUsize::new(0));
    let count = failed.clone();
    let read = move |request: Request<Body>| {
        let count = count.clone();
        async move {
            let read = to_bytes(request.into_body(), usize::MAX).await;
            count.fetch_add(usize::from(read.is_err()), Ordering::Relaxed);
            "answered all the same"
        }
    };
    let server = start(Router::new().route("/", post(read)));
    let mut peer = Peer::of(&server).await;
    for (announced, sent) in [("5", 4), ("5", 6), ("0", 1), ("1000000", 1)] {
        let request = Request::post(url("/")).header(header::CONTENT_LENGTH, announced);
        let mut stream = peer.begin(request).await;
        // Both fail if the server has already reset the stream.
        let _ = stream.send_data(Bytes::from(vec![0; sent])).await;
        let _ = stream.finish().await;
        let error = received(&mut stream).await.unwrap_err();
        assert_eq!(reset(error), Code::H3_MESSAGE_ERROR, "{announced} {sent}");
    }
    assert_eq!(failed.load(Ordering::Relaxed), 4);
    let (response, _) = peer.exchange(Request::post(url("/")), "well").await;
    assert_eq!(response.status(), StatusCode::OK);
    drop(peer);
    let stats = server.stop().await;
    assert_eq!((stats.requests, stats.failed), (1, 4));
}

/// The response's content is checked against its Content-Length, and its fields are corrected.
// RFC 9114 s.4.2 #3
#[tokio::test]
async fn service_response_is_checked() {
    fn with(name: &'static str, value: &'static str, content: &'static str) -> Response<Body> {
        let mut response = content.into_response();
        response.headers_mut().insert(name, value.parse().unwrap());
        response
    }
    let router = Router::new()
        .route("/short", get(|| async { with("content-length", "10", "short") }))
        .route("/long", get(|| async { with("content-length", "2", "long") }))
        .route("/wrong", get(|| async { with("content-length", "many", "x") }))
        .route("/http1", get(|| async { with("connection", "close", "x") }))
        .route("/interim", get(|| async { StatusCode::SWITCHING_PROTOCOLS }))
        .route("/none", any(|| async { (StatusCode::NO_CONTENT, "content") }));
    let server = start(router);
    let mut peer = Peer::of(&server).await;
    for path in ["/short", "/long"] {
        let mut stream = peer.begin(Request::get(url(path))).await;
        stream.finish().await.unwrap();
        let ended = match received(&mut stream).await {
            Ok(_) => content_of(&mut stream).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(reset(ended), Code::H3_INTERNAL_ERROR, "{path}");
    }
    for path in ["/wrong", "/interim"] {
        let (response, content) = peer.exchange(Request::get(url(path)), "").await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        assert!(content.is_empty());
    }
    let (response, content) = peer.exchange(Request::get(url("/http1")), "").await;
    assert!(!response.headers().contains_key(header::CONNECTION) && content == b"x");
    let (response, content) = peer.exchange(Request::get(url("/none")), "").await;
    assert!(!response.headers().contains_key(header::CONTENT_LENGTH) && content.is_empty());
    drop(peer);
    server.stop().await;
}

/// If the client cancels a request, the server drops the service's future or its content.
#[tokio::test]
async fn service_is_dropped_if_the_client_cancels() {
    struct Dropped(Arc<Notify>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (dropped, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_drop, on_begin) = (dropped.clone(), begun.clone());
    let (later, begins) = (dropped.clone(), begun.clone());
    let router = Router::new()
        .route(
            "/thinks",
            get(move || {
                let held = Dropped(on_drop.clone());
                on_begin.notify_one();
                async move {
                    std::future::pending::<()>().await;
                    drop(held);
                }
            }),
        )
        .route(
            "/streams",
            get(move || {
                let held = Dropped(later.clone());
                begins.notify_one();
                let frames = futures::stream::poll_fn(move |_| {
                    let _ = &held;
                    std::task::Poll::<Option<Result<Frame<Bytes>, Infallible>>>::Pending
                });
                async move { Response::new(Body::new(StreamBody::new(frames))) }
            }),
        );
    let server = start(router);
    let mut peer = Peer::of(&server).await;
    for path in ["/thinks", "/streams"] {
        let mut stream = peer.begin(Request::get(url(path))).await;
        stream.finish().await.unwrap();
        timeout(PATIENCE, begun.notified()).await.unwrap();
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        timeout(PATIENCE, dropped.notified()).await.unwrap();
    }
    // The connection ends during a request.
    let mut stream = peer.begin(Request::get(url("/thinks"))).await;
    stream.finish().await.unwrap();
    timeout(PATIENCE, begun.notified()).await.unwrap();
    drop((stream, peer));
    timeout(PATIENCE, dropped.notified()).await.unwrap();
    server.stop().await;
}

/// A service may take longer than the timeout for clients that make no progress. Requests without
/// header fields show that the timeout has passed: the server cancels them after it.
#[tokio::test]
async fn service_may_be_slow() {
    let limits = Limits { stall_timeout: Duration::from_millis(50), ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let (begun, continues) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waits = (begun.clone(), continues.clone());
    let slow = move || {
        let (begun, continues) = waits.clone();
        async move {
            begun.notify_one();
            continues.notified().await;
            let frames = futures::stream::once(async move {
                begun.notify_one();
                continues.notified().await;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"slow")))
            });
            Response::new(Body::new(StreamBody::new(frames)))
        }
    };
    let server = start_with(config, Router::new().route("/", get(slow)));
    let mut peer = Peer::of(&server).await;
    let mut stream = peer.begin(Request::get(url("/"))).await;
    stream.finish().await.unwrap();
    let (_endpoint, connection) = raw(&server).await;
    for cancelled in [1, 2] {
        timeout(PATIENCE, begun.notified()).await.unwrap();
        // The frame announces 100 bytes of header fields, and has none.
        let _stalled = asked(&connection, &[0x01, 0x40, 0x64]).await;
        until("a request is cancelled", || server.stats.snapshot().failed == cancelled).await;
        continues.notify_one();
    }
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    assert_eq!(content_of(&mut stream).await.unwrap(), b"slow");
    drop(peer);
    assert_eq!(server.stop().await.requests, 1);
}
