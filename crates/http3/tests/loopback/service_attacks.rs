//! Tests of `Server::serve` and `Connection::send` with peers that cancel, lie or stop at any moment,
//! and with services that treat their request's content in unusual ways.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::{any, get, post};
use bytes::Bytes;
use equic_http3::client::Unprocessed;
use equic_http3::{
    Client, ClientConfig, ClientError, Limits, RequestBody, ServerConfig, Trust, binding,
};
use equic_quic::{self as quic, Endpoint, EndpointConfig};
use h3::error::Code;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use quinn::{ReadError, ReadToEndError, VarInt};
use rustls::pki_types::PrivateKeyDer;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, start_as, until};
use crate::foreign::{raw, raw_at, raw_server};
use crate::rules::{asked, field, headers};
use crate::service::{Peer, content_of, received, reset, start, start_with, url};

/// Status 200 of the static table.
const OK: &[u8] = &[0xd9];
const REQUEST_CANCELLED: u32 = 0x10c;
const REQUEST_REJECTED: u32 = 0x10b;

/// Counts the requests that a service has in hand.
#[derive(Clone, Default)]
struct InHand(Arc<AtomicUsize>);

struct Held(Arc<AtomicUsize>);

impl InHand {
    fn hold(&self) -> Held {
        self.0.fetch_add(1, Ordering::SeqCst);
        Held(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body of these frames, which come from a channel.
fn channel() -> (mpsc::Sender<Frame<Bytes>>, Body) {
    let (send, receive) = mpsc::channel(1);
    let frames = futures::stream::unfold(receive, |mut receive: mpsc::Receiver<_>| async move {
        receive.recv().await.map(|frame| (Ok::<_, Infallible>(frame), receive))
    });
    (send, Body::new(StreamBody::new(frames)))
}

fn piece(bytes: &'static [u8]) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(bytes))
}

/// A service reads malformed content while it sends its response, and passes on or hides the error.
/// The response must not end as if it were complete, and the request counts as malformed.
// RFC 9114 s.4.1.2 #2
#[tokio::test]
async fn service_response_that_reads_malformed_content_is_reset() {
    async fn passes(request: Request<RequestBody>) -> Response<Body> {
        Response::new(Body::new(request.into_body().map_frame(|frame| frame)))
    }
    async fn hides(request: Request<RequestBody>) -> Response<Body> {
        let mut content = request.into_body();
        let frames = futures::stream::poll_fn(move |cx| {
            use http_body::Body as _;
            let frame = std::task::ready!(std::pin::Pin::new(&mut content).poll_frame(cx));
            std::task::Poll::Ready(frame.and_then(Result::ok).map(Ok::<_, Infallible>))
        });
        Response::new(Body::new(StreamBody::new(frames)))
    }
    let service = tower::service_fn(|request: Request<RequestBody>| async {
        Ok::<_, Infallible>(match request.uri().path() {
            "/passes" => passes(request).await,
            _ => hides(request).await,
        })
    });
    let limits = Limits { max_malformed: 100, ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let server = start_as(config, |server, stop| server.serve(service, stop));
    let mut peer = Peer::of(&server).await;
    for path in ["/passes", "/hides"] {
        for (announced, sent) in [("5", 4), ("5", 6), ("0", 1)] {
            let request = Request::post(url(path)).header(header::CONTENT_LENGTH, announced);
            let mut stream = peer.begin(request).await;
            if announced == "5" {
                // The response has begun before the content shows that it is malformed.
                assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
                let _ = stream.send_data(Bytes::from(vec![0; sent])).await;
                let _ = stream.finish().await;
                let ended = content_of(&mut stream).await.unwrap_err();
                assert_eq!(reset(ended), Code::H3_MESSAGE_ERROR, "{path} {announced} {sent}");
                continue;
            }
            let _ = stream.send_data(Bytes::from(vec![0; sent])).await;
            let _ = stream.finish().await;
            let ended = match received(&mut stream).await {
                Ok(_) => content_of(&mut stream).await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(reset(ended), Code::H3_MESSAGE_ERROR, "{path} {announced} {sent}");
        }
    }
    drop(peer);
    let stats = server.stop().await;
    assert_eq!((stats.requests, stats.failed), (0, 6));
}

/// A service answers at once, and a task of its own reads the content afterwards.
#[tokio::test]
async fn service_task_reads_content_after_the_response() {
    let (report, mut reports) = mpsc::channel(1);
    let answer = move |request: Request<Body>| {
        let report = report.clone();
        tokio::spawn(async move {
            let read = to_bytes(request.into_body(), usize::MAX).await;
            report.send(read.map(|content| content.len()).ok()).await.unwrap();
        });
        async { "answered" }
    };
    let server = start(Router::new().route("/", post(answer)));
    let mut peer = Peer::of(&server).await;
    for length in [None, Some("3000000"), Some("2999999")] {
        let mut request = Request::post(url("/"));
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let mut stream = peer.begin(request).await;
        assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
        assert_eq!(content_of(&mut stream).await.unwrap(), b"answered");
        // Fails if the server stops the malformed content.
        let _ = stream.send_data(Bytes::from(vec![7; 3_000_000])).await;
        let _ = stream.finish().await;
        let read = timeout(PATIENCE, reports.recv()).await.unwrap().unwrap();
        assert_eq!(read, (length != Some("2999999")).then_some(3_000_000), "{length:?}");
    }
    // The client resets the content after it has the response.
    let mut stream = peer.begin(Request::post(url("/"))).await;
    received(&mut stream).await.unwrap();
    content_of(&mut stream).await.unwrap();
    stream.stop_stream(Code::H3_REQUEST_CANCELLED);
    assert_eq!(timeout(PATIENCE, reports.recv()).await.unwrap().unwrap(), None);
    drop(peer);
    assert_eq!(server.stop().await.requests, 4);
}

/// The client cancels requests at many moments. No request's task may remain, and the connection
/// works afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_ends_each_request_that_is_cancelled_at_any_moment() {
    let in_hand = InHand::default();
    let echo = |in_hand: InHand| {
        move |request: Request<Body>| {
            let held = in_hand.hold();
            async move {
                let content = request.into_body().map_frame(move |frame| {
                    let _ = &held;
                    frame
                });
                Response::new(Body::new(content))
            }
        }
    };
    let ignores = |in_hand: InHand| {
        move |request: Request<Body>| {
            let held = in_hand.hold();
            async move {
                drop(request);
                std::future::pending::<()>().await;
                drop(held);
            }
        }
    };
    let endless = |in_hand: InHand| {
        move || {
            let held = in_hand.hold();
            async move {
                let frames = futures::stream::unfold(held, |held| async move {
                    let frame = Frame::data(Bytes::from(vec![0; 10_000]));
                    Some((Ok::<_, Infallible>(frame), held))
                });
                Response::new(Body::new(StreamBody::new(frames)))
            }
        }
    };
    let server = start(
        Router::new()
            .route("/echo", post(echo(in_hand.clone())))
            .route("/ignores", post(ignores(in_hand.clone())))
            .route("/endless", post(endless(in_hand.clone())))
            .route("/well", get(|| async { "well" })),
    );
    let mut peer = Peer::of(&server).await;
    for turn in 0..60_usize {
        let path = ["/echo", "/ignores", "/endless"][turn % 3];
        let moment = turn / 3;
        let mut request = Request::post(url(path));
        if moment % 2 == 0 {
            request = request.header(header::EXPECT, "100-continue");
        }
        if moment % 5 == 0 {
            request = request.header(header::CONTENT_LENGTH, "100000");
        }
        let mut stream = peer.begin(request).await;
        // The number of things that the client does before it cancels.
        if moment > 3 {
            stream.send_data(Bytes::from(vec![0; 1 << (moment - 4)])).await.unwrap();
        }
        if moment > 12 && path != "/ignores" {
            received(&mut stream).await.unwrap();
        }
        // The client ends both directions in either order.
        if moment % 3 == 0 {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        }
        if moment % 3 != 1 || path == "/echo" {
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
    }
    let (_, content) = peer.exchange(Request::get(url("/well")), "").await;
    assert_eq!(content, b"well");
    until("all requests have ended", || in_hand.count() == 0).await;
    drop(peer);
    server.stop().await;
}

/// A client that resets only the content still gets the response of a service that does not need it.
#[tokio::test]
async fn service_answers_although_the_content_was_reset() {
    let (begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, wait) = (begun.clone(), release.clone());
    let hold = move |request: Request<Body>| {
        begins.notify_one();
        let wait = wait.clone();
        async move {
            wait.notified().await;
            drop(request);
            "late"
        }
    };
    let server = start(Router::new().route("/", post(hold)).route("/well", get(|| async {})));
    let mut peer = Peer::of(&server).await;
    let mut stream = peer.begin(Request::post(url("/"))).await;
    stream.send_data(Bytes::from_static(b"begun")).await.unwrap();
    // A reset may discard header fields that the server has not read.
    timeout(PATIENCE, begun.notified()).await.unwrap();
    stream.stop_stream(Code::H3_REQUEST_CANCELLED);
    peer.exchange(Request::get(url("/well")), "").await;
    release.notify_one();
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    assert_eq!(content_of(&mut stream).await.unwrap(), b"late");
    drop(peer);
    server.stop().await;
}

/// The server shuts down while services wait for content, or send content of unknown length. When
/// the grace period ends, every request fails, and no response ends as if it were complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_requests_that_are_cut_off_do_not_look_complete() {
    let in_hand = InHand::default();
    let waiting = in_hand.clone();
    let reads = move |request: Request<Body>| {
        let held = waiting.hold();
        async move {
            let read = to_bytes(request.into_body(), usize::MAX).await;
            drop(held);
            format!("{}", read.is_ok())
        }
    };
    let sending = in_hand.clone();
    let streams = move || {
        let held = sending.hold();
        async move {
            let frames = futures::stream::unfold((0, held), |(turn, held)| async move {
                if turn > 0 {
                    std::future::pending::<()>().await;
                }
                Some((Ok::<_, Infallible>(piece(b"begun")), (1, held)))
            });
            Response::new(Body::new(StreamBody::new(frames)))
        }
    };
    let limits = Limits { grace: Duration::from_millis(50), ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let router = Router::new().route("/reads", post(reads)).route("/streams", get(streams));
    let server = start_with(config, router);
    let mut peer = Peer::of(&server).await;
    let mut upload = peer.begin(Request::post(url("/reads"))).await;
    upload.send_data(Bytes::from(vec![0; 100_000])).await.unwrap();
    let mut download = peer.begin(Request::get(url("/streams"))).await;
    download.finish().await.unwrap();
    received(&mut download).await.unwrap();
    assert!(timeout(PATIENCE, download.recv_data()).await.unwrap().unwrap().is_some());
    until("both are in hand", || in_hand.count() == 2).await;
    let stopping = server.begin_stop();
    assert!(content_of(&mut download).await.is_err());
    assert!(received(&mut upload).await.is_err());
    let stats = timeout(PATIENCE, stopping).await.unwrap().unwrap().unwrap();
    assert_eq!((stats.requests, in_hand.count()), (0, 0));
}

/// An upload that is in progress when the server shuts down is completed in the grace period.
#[tokio::test]
async fn client_completes_an_upload_after_goaway() {
    let count = |content: Bytes| async move { content.len().to_string() };
    let limits = Limits { grace: PATIENCE, ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let server = start_with(config, Router::new().route("/", post(count)));
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    let (send, content) = channel();
    let sending = connection.clone();
    let response = tokio::spawn(async move {
        let request = Request::post("/").body(content).unwrap();
        sending.send(request).await.unwrap().body(100).await.unwrap()
    });
    send.send(piece(b"before")).await.unwrap();
    // The second piece is taken from the channel only after the first one was sent.
    send.send(piece(b", ")).await.unwrap();
    send.send(piece(b"and ")).await.unwrap();
    let stopping = server.begin_stop();
    until("GOAWAY has arrived", || !connection.is_open()).await;
    send.send(piece(b"after")).await.unwrap();
    drop(send);
    assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap(), "17");
    drop(connection);
    client.close().await;
    let stats = timeout(PATIENCE, stopping).await.unwrap().unwrap().unwrap();
    assert_eq!((stats.requests, stats.failed), (1, 0));
}

/// A service begins to read content of a request with Expect, and answers before the content
/// arrives. 100 (Continue) may precede the response, but must not follow it.
#[tokio::test]
async fn service_answers_before_the_content_that_it_has_asked_for() {
    async fn at_once(mut request: Request<Body>) -> &'static str {
        tokio::select! {
            biased;
            _ = request.body_mut().frame() => "content",
            () = std::future::ready(()) => "answer",
        }
    }
    async fn in_a_task(request: Request<Body>) -> &'static str {
        tokio::spawn(to_bytes(request.into_body(), usize::MAX));
        "answer"
    }
    async fn in_the_response(request: Request<Body>) -> Response<Body> {
        let mut content = request.into_body();
        let (send, body) = channel();
        tokio::spawn(async move {
            send.send(piece(b"answer")).await.unwrap();
            let _ = content.frame().await;
        });
        Response::new(body)
    }
    let server = start(
        Router::new()
            .route("/once", post(at_once))
            .route("/task", post(in_a_task))
            .route("/response", post(in_the_response)),
    );
    let mut peer = Peer::of(&server).await;
    for turn in 0..30 {
        let path = ["/once", "/task", "/response"][turn % 3];
        let request = Request::post(url(path)).header(header::EXPECT, "100-continue");
        let mut stream = peer.begin(request).await;
        let mut response = received(&mut stream).await.unwrap();
        if response.status() == StatusCode::CONTINUE {
            response = received(&mut stream).await.unwrap();
        }
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        if path == "/response" {
            stream.send_data(Bytes::from_static(b"x")).await.unwrap();
            stream.finish().await.unwrap();
        }
        assert_eq!(content_of(&mut stream).await.unwrap(), b"answer", "{path}");
        let trailers = timeout(PATIENCE, stream.recv_trailers()).await.unwrap().unwrap();
        assert_eq!(trailers, None, "{path}");
    }
    drop(peer);
    assert_eq!(server.stop().await.requests, 30);
}

/// Responses that must not have content have none, whatever the service returns.
#[tokio::test]
async fn service_content_of_responses_without_content_is_not_sent() {
    let router = Router::new()
        .route("/204", any(|| async { (StatusCode::NO_CONTENT, "content") }))
        .route("/205", any(|| async { (StatusCode::RESET_CONTENT, "content") }))
        .route("/304", any(|| async { (StatusCode::NOT_MODIFIED, "content") }))
        .route("/200", any(|| async { "content" }));
    let server = start(router);
    let mut peer = Peer::of(&server).await;
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    for method in [Method::GET, Method::HEAD, Method::POST] {
        for path in ["/204", "/205", "/304", "/200"] {
            if path == "/200" && method != Method::HEAD {
                continue;
            }
            let request = Request::builder().method(method.clone()).uri(url(path));
            let (response, content) = peer.exchange(request, "").await;
            let length = response.headers().get(header::CONTENT_LENGTH);
            assert!(content.is_empty(), "{method} {path}");
            assert!(path != "/204" || length.is_none(), "{method} {path}");
            assert!(path != "/205" || length.is_some_and(|length| length == "0"), "{method}");
            let request = Request::builder().method(method.clone()).uri(path);
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let mut response = connection.send(request).await.unwrap();
            assert_eq!(response.drain().await.unwrap(), 0, "{method} {path}");
        }
    }
    drop((peer, connection));
    client.close().await;
    assert_eq!(server.stop().await.failed, 0);
}

/// Requests whose framing is ambiguous are malformed, and the service never sees them.
#[tokio::test]
async fn service_never_sees_ambiguous_requests() {
    let in_hand = InHand::default();
    let seen = in_hand.clone();
    let count = move || {
        std::mem::forget(seen.hold());
        async {}
    };
    let limits = Limits { max_malformed: 1000, ..Limits::default() };
    let config = ServerConfig { limits, ..ServerConfig::new(loopback()) };
    let server = start_with(config, Router::new().fallback(any(count)));
    let (_endpoint, connection) = raw(&server).await;
    let post = |more: &[&[u8]]| crate::rules::request_of("POST", more);
    let length = |value: &str| field("content-length", value);
    for (request, what) in [
        (post(&[&length("5"), &length("5")]), "content-length twice"),
        (post(&[&length("5"), &length("6")]), "two lengths"),
        (post(&[&length("5, 5")]), "a list"),
        (post(&[&length("+5")]), "a sign"),
        (post(&[&length("")]), "an empty length"),
        (post(&[&field("transfer-encoding", "chunked")]), "transfer-encoding"),
        (post(&[&field("host", "a"), &field("host", "b")]), "host twice"),
        (post(&[&field("connection", "content-length")]), "connection"),
        (
            headers(&[&field(":method", "CONNECT"), &field(":authority", "localhost")]),
            "CONNECT without a port",
        ),
        (crate::rules::request_of("CONNECT", &[]), "CONNECT with a path"),
    ] {
        let bytes = [request, vec![0, 5, 1, 2, 3, 4, 5]].concat();
        let (mut send, mut receive) = asked(&connection, &bytes).await;
        let _ = send.finish();
        let ended = timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap();
        assert!(matches!(ended, Err(ReadToEndError::Read(ReadError::Reset(_)))), "{what}");
    }
    assert_eq!(in_hand.count(), 0);
    server.stop().await;
}

/// A request task that is dropped, such as by the end of the runtime, must not end its response as
/// if it were complete.
#[tokio::test]
async fn service_response_that_is_dropped_is_reset() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let settings = EndpointConfig::new(&provider).unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let sockets = Endpoint::bind(loopback(), 1, None).unwrap();
    let address = sockets[0].local_addr().unwrap();
    let server = Endpoint::new(settings, Some(quic::ServerConfig::new(tls)), sockets).unwrap();
    let release = Arc::new(Notify::new());
    let wait = release.clone();
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().accept().unwrap().await.unwrap();
        let transport = binding::QuicConnection::new(connection);
        let mut http = h3::server::Connection::<_, Bytes>::new(transport).await.unwrap();
        while let Ok(Some(resolver)) = http.accept().await {
            let wait = wait.clone();
            tokio::spawn(async move {
                let (_, mut stream) = resolver.resolve_request().await.unwrap();
                stream.send_response(Response::new(())).await.unwrap();
                stream.send_data(Bytes::from_static(b"begun")).await.unwrap();
                wait.notified().await;
            });
        }
    });
    let mut peer = Peer::on(raw_at(address, quinn::TransportConfig::default()).await).await;
    let mut stream = peer.begin(Request::get(url("/"))).await;
    stream.finish().await.unwrap();
    assert_eq!(received(&mut stream).await.unwrap().status(), StatusCode::OK);
    assert!(timeout(PATIENCE, stream.recv_data()).await.unwrap().unwrap().is_some());
    release.notify_one();
    let ended = content_of(&mut stream).await.unwrap_err();
    assert_eq!(reset(ended), Code::H3_REQUEST_CANCELLED);
    drop((stream, peer));
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}

/// A Content-Length that the application gives must match also if the content is empty. Trailers
/// are sent even without content.
#[tokio::test]
async fn client_checks_the_length_of_empty_content() {
    let read = |request: Request<Body>| async {
        let read = request.into_body().collect().await.map_err(|_| StatusCode::BAD_REQUEST)?;
        let trailers = read.trailers().map_or(0, HeaderMap::len);
        Ok::<_, StatusCode>(format!("{trailers} {}", read.to_bytes().len()))
    };
    let server = start(Router::new().route("/", post(read)));
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    let request = Request::post("/").header(header::CONTENT_LENGTH, "5");
    let failed = connection.send(request.body(String::new()).unwrap()).await.err();
    assert!(matches!(failed, Some(ClientError::Content { .. })), "{failed:?}");
    let trailers = HeaderMap::from_iter([(header::ETAG, "x".parse().unwrap())]);
    let content = Empty::<Bytes>::new().with_trailers(async { Some(Ok(trailers)) });
    let mut response = connection.send(Request::post("/").body(content).unwrap()).await.unwrap();
    assert_eq!(response.body(100).await.unwrap(), "1 0");
    client.close().await;
    assert_eq!(server.stop().await.requests, 1);
}

/// A response that always has data to read must not hold back the content of its request.
#[tokio::test]
async fn client_sends_content_while_the_response_never_pauses() {
    async fn endless(request: Request<Body>) -> Response<Body> {
        let reading = tokio::spawn(to_bytes(request.into_body(), usize::MAX));
        let frames = futures::stream::unfold(reading, |reading| async move {
            let more = Frame::data(Bytes::from(vec![0; 1000]));
            (!reading.is_finished()).then_some((Ok::<_, Infallible>(more), reading))
        });
        Response::new(Body::new(StreamBody::new(frames)))
    }
    let server = start(Router::new().route("/", post(endless)).route("/well", get(|| async {})));
    let client = server.client();
    let connection = client.connect(&server.url("/")).await.unwrap();
    let (send, content) = channel();
    let mut response = connection.send(Request::post("/").body(content).unwrap()).await.unwrap();
    let sending = tokio::spawn(async move {
        for _ in 0..10 {
            send.send(piece(b"content")).await.unwrap();
        }
    });
    let reading = async {
        while response.chunk().await.unwrap().is_some() {
            // More data of the response arrives than the client reads.
            if !sending.is_finished() {
                crate::common::get(&connection, "/well").await;
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap();
    timeout(PATIENCE, sending).await.unwrap().unwrap();
    drop(response);
    drop(connection);
    client.close().await;
    server.stop().await;
}

/// A server on quinn that writes raw bytes, and a client of it.
fn raw_pair() -> (quinn::Endpoint, Client, String) {
    let (endpoint, fingerprint) = raw_server();
    let url = format!("https://{}/", endpoint.local_addr().unwrap());
    let trust = Trust::Fingerprint(fingerprint);
    let config = ClientConfig { trust, bind: Some(loopback()), ..ClientConfig::default() };
    (endpoint, Client::new(config).unwrap(), url)
}

/// A complete response is used although the server stops the content with an error, before the
/// response or after it (RFC 9114 s.4.1). Without a response, the request fails.
// RFC 9114 s.4.1 #12
#[tokio::test]
async fn client_uses_a_response_to_a_request_that_was_stopped() {
    let (endpoint, client, url) = raw_pair();
    let stopped = Arc::new(Notify::new());
    let stop = stopped.clone();
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        // STOP_SENDING comes before the response, in the middle of it, and without it.
        for turn in 0..5 {
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            let code = VarInt::from_u32(REQUEST_CANCELLED);
            let response = [headers(&[OK]), vec![0, 5], b"whole".to_vec()].concat();
            let before = [0, 3, response.len() - 2][turn % 3];
            if turn < 3 {
                send.write_all(&response[..before]).await.unwrap();
                receive.stop(code).unwrap();
                // The client has reacted to STOP_SENDING before the rest of the response is sent.
                stop.notified().await;
                send.write_all(&response[before..]).await.unwrap();
                send.finish().unwrap();
            } else if turn == 3 {
                receive.stop(code).unwrap();
                send.reset(code).unwrap();
            } else {
                receive.stop(VarInt::from_u32(REQUEST_REJECTED)).unwrap();
                connection.closed().await;
            }
        }
    });
    let connection = client.connect(&url).await.unwrap();
    for turn in 0..5 {
        // The content never ends. It is dropped when the server stops the request.
        let held = Arc::new(());
        let seen = Arc::downgrade(&held);
        let frames = futures::stream::unfold(held, |held| async move {
            let frame = Frame::data(Bytes::from(vec![0; 1000]));
            Some((Ok::<_, Infallible>(frame), held))
        });
        let request = Request::post("/").body(StreamBody::new(frames)).unwrap();
        let on_stop = stopped.clone();
        let watching = tokio::spawn(async move {
            until("the content was dropped", || seen.strong_count() == 0).await;
            on_stop.notify_one();
        });
        let outcome =
            async { connection.send(request).await?.body(100).await.map(|body| body.to_vec()) };
        let outcome = timeout(PATIENCE, outcome).await.unwrap();
        match turn {
            0..3 => assert_eq!(outcome.unwrap(), b"whole", "{turn}"),
            3 => assert!(matches!(outcome, Err(ClientError::Http { .. })), "{outcome:?}"),
            _ => assert!(
                matches!(outcome, Err(ClientError::Unprocessed { why: Unprocessed::Rejected, .. })),
                "{outcome:?}"
            ),
        }
        timeout(PATIENCE, watching).await.unwrap().unwrap();
    }
    drop(connection);
    client.close().await;
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}

/// GOAWAY names a request whose content is being sent. The request fails as unprocessed, and its
/// stream is reset. Then a response that began before its upload ended is reset, which ends both.
#[tokio::test]
async fn client_ends_uploads_that_the_server_does_not_process() {
    let (endpoint, client, url) = raw_pair();
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let mut control = connection.open_uni().await.unwrap();
        control.write_all(&[0, 4, 0]).await.unwrap();
        let (mut send, mut first) = connection.accept_bi().await.unwrap();
        // The response begins, and is reset while the content is being sent.
        send.write_all(&headers(&[OK])).await.unwrap();
        let mut some = [0; 1000];
        first.read_exact(&mut some).await.unwrap();
        send.write_all(&[0, 5, 1]).await.unwrap();
        let (_send, mut second) = connection.accept_bi().await.unwrap();
        second.read_exact(&mut some).await.unwrap();
        control.write_all(&[7, 1, 4]).await.unwrap();
        let ended = async |receive: &mut quinn::RecvStream| loop {
            match receive.read(&mut [0; 1000]).await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(ReadError::Reset(code)) => return Some(code),
                Err(other) => panic!("{other}"),
            }
        };
        let cancelled = Some(VarInt::from_u32(REQUEST_CANCELLED));
        assert_eq!(ended(&mut second).await, cancelled);
        send.reset(VarInt::from_u32(0x102)).unwrap();
        assert_eq!(ended(&mut first).await, cancelled);
        connection
    });
    let connection = client.connect(&url).await.unwrap();
    let endless = || {
        let frames = futures::stream::unfold((), |()| async {
            let frame = Frame::data(Bytes::from(vec![0; 1000]));
            Some((Ok::<_, Infallible>(frame), ()))
        });
        Request::post("/").body(StreamBody::new(frames)).unwrap()
    };
    let mut response = timeout(PATIENCE, connection.send(endless())).await.unwrap().unwrap();
    assert_eq!(timeout(PATIENCE, response.chunk()).await.unwrap().unwrap().unwrap().len(), 1);
    let failed = timeout(PATIENCE, connection.send(endless())).await.unwrap().err();
    assert!(
        matches!(failed, Some(ClientError::Unprocessed { why: Unprocessed::GoingAway, .. })),
        "{failed:?}"
    );
    let failed = timeout(PATIENCE, response.chunk()).await.unwrap().err();
    assert!(matches!(failed, Some(ClientError::Http { .. })), "{failed:?}");
    drop(response);
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    drop(connection);
    client.close().await;
}
