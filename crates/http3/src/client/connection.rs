//! A client's connection, and the responses that arrive on it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use equic_quic::{self as quic, ConnectionError, EarlyData};
use equic_wire::{KnownVersion, VarInt};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body;
use tokio::time::Instant;

use super::upload::{Content, Upload, UploadError, is_unwanted};
use super::{ClientError, Target, Unprocessed, in_time};
use crate::binding::{self, FrameLimits, Violation, Watch};
use crate::{h3_code, message};

/// Largest size of a response's header fields in bytes, counted as in RFC 9114 s.4.2.2.
const MAX_FIELD_SECTION: u64 = 64 * 1024;

/// The stream of a request: the half that receives the response, and the half that sends the rest of
/// the request.
struct Stream {
    receive: RequestStream<binding::RecvStream, Bytes>,
    upload: Upload,
}

impl Stream {
    /// Ends the stream in both directions because its response is malformed.
    fn give_up(&mut self) {
        self.receive.stop_sending(Code::H3_MESSAGE_ERROR);
        self.upload.reset(Code::H3_MESSAGE_ERROR);
    }

    /// Ends the stream if the error shows that the response is malformed. `h3` reports what it finds
    /// with a code. The binding reports a [`Violation`], and has ended the receiving half.
    fn give_up_after(&mut self, error: &StreamError) {
        match error {
            StreamError::StreamError { code, .. } if *code == Code::H3_MESSAGE_ERROR => {
                self.give_up();
            }
            StreamError::Undefined { .. } => self.upload.reset(Code::H3_MESSAGE_ERROR),
            _ => {}
        }
    }
}

/// An open connection. Clones share the same connection. It is closed when the last clone and the
/// last [`Response`] on it are dropped.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    send: SendRequest<binding::OpenStreams, Bytes>,
}

struct Shared {
    quic: quic::Connection,
    watch: Watch,
    target: Target,
    peer: SocketAddr,
    handshake: Duration,
    /// True if requests were sent before the handshake was complete (0-RTT).
    early: bool,
    timeout: Option<Duration>,
    /// True once the server has begun a response.
    answered: AtomicBool,
    /// True if the connection takes no further requests.
    retired: AtomicBool,
}

/// The ID of a request's stream. Other futures can read it while the request's future runs.
struct Sent(AtomicU64);

impl Sent {
    /// Marks a request without a stream. It is not a valid stream ID, because those have at most 62
    /// bits.
    const NEVER: u64 = u64::MAX;

    fn new() -> Sent {
        Sent(AtomicU64::new(Self::NEVER))
    }

    fn set(&self, stream: u64) {
        self.0.store(stream, Ordering::Relaxed);
    }

    /// Returns the stream's ID, or `None` until the request's header fields have been written.
    fn stream(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|stream| *stream != Self::NEVER)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.quic.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    }
}

impl Shared {
    /// Returns the cause of a stream's error. If the connection was closed, the cause is the reason
    /// for closing it.
    fn error(&self, error: &StreamError) -> ClientError {
        if let Some(violation) = self.watch.violation() {
            return self.http(violation.to_string());
        }
        match (self.quic.close_reason(), error) {
            (Some(source), _) if !matches!(source, ConnectionError::LocallyClosed) => {
                ClientError::Lost { peer: self.peer, source }
            }
            (_, StreamError::RemoteTerminate { code, .. }) => {
                self.http(format!("the server reset the stream ({code})"))
            }
            _ => {
                let reason = error.to_string();
                // `h3` has no error variant for violations that the binding found, and puts this
                // prefix in front of their text.
                self.http(reason.strip_prefix("Undefined error: ").unwrap_or(&reason).to_owned())
            }
        }
    }

    /// Returns the reason why the server cannot have processed a failed request, or `None` if the
    /// server may have processed it.
    // RFC 9114 s.5.4 #1, s.8 #1
    fn unprocessed(
        &self,
        error: &StreamError,
        stream: Option<u64>,
        method: &Method,
    ) -> Option<Unprocessed> {
        if self.watch.violation().is_some() {
            return None;
        }
        if self.early_data() == EarlyData::Rejected {
            return Some(Unprocessed::EarlyData);
        }
        if matches!(error, StreamError::RemoteTerminate { code, .. } if *code == Code::H3_REQUEST_REJECTED)
        {
            return Some(Unprocessed::Rejected);
        }
        let named = |limit| stream.is_none_or(|stream| stream >= limit);
        if self.watch.goaway().is_some_and(named) {
            return Some(Unprocessed::GoingAway);
        }
        // A server that closes a new connection without any response refuses the connection.
        if !self.answered.load(Ordering::Relaxed) {
            return None;
        }
        let closed = match self.quic.close_reason()? {
            ConnectionError::LocallyClosed => false,
            // RFC 9110 s.9.2.2: an idempotent request may be repeated if the connection ends first.
            ConnectionError::ApplicationClosed { code, .. } => {
                stream.is_none() || (method.is_idempotent() && code == u64::from(h3_code::NO_ERROR))
            }
            ConnectionError::Reset => stream.is_none() || method.is_idempotent(),
            _ => stream.is_none(),
        };
        closed.then_some(Unprocessed::Closed)
    }

    fn early_data(&self) -> EarlyData {
        if self.early { self.quic.early_data() } else { EarlyData::None }
    }

    fn failure(&self, error: &StreamError, stream: Option<u64>, method: &Method) -> ClientError {
        match self.unprocessed(error, stream, method) {
            Some(why) => ClientError::Unprocessed { peer: self.peer, why, times: 1 },
            None => self.error(error),
        }
    }

    /// Ends the stream of a malformed response (RFC 9114 s.4.1.2 #3), and returns the error.
    fn malformed(&self, stream: &mut Stream, violation: Violation) -> ClientError {
        stream.give_up();
        self.http(format!("malformed response: {violation}"))
    }

    fn http(&self, reason: String) -> ClientError {
        ClientError::Http { peer: self.peer, reason }
    }
}

impl Connection {
    /// Sets up HTTP/3 on a QUIC connection. `handshake` is the duration of the handshake, or `None`
    /// if the caller did not wait for it (0-RTT).
    // RFC 9114 s.7.2.4.2 #6 #7
    pub(super) async fn new(
        quic: quic::Connection,
        target: Target,
        peer: SocketAddr,
        handshake: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let limits =
            FrameLimits { field_section: MAX_FIELD_SECTION as usize, ..FrameLimits::default() };
        let transport = binding::QuicConnection::with_limits(quic.clone(), limits);
        let shared = Arc::new(Shared {
            quic,
            watch: transport.watch(),
            target,
            peer,
            handshake: handshake.unwrap_or_default(),
            early: handshake.is_none(),
            timeout,
            answered: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        });
        let mut builder = h3::client::builder();
        builder.max_field_section_size(MAX_FIELD_SECTION).send_grease(false);
        let start = Instant::now();
        let deadline = timeout.and_then(|limit| start.checked_add(limit));
        let (mut driver, send) = in_time(deadline, start, "handshake", async {
            builder.build::<_, _, Bytes>(transport).await.map_err(|error| {
                match shared.quic.close_reason() {
                    Some(source) => ClientError::Lost { peer, source },
                    None => ClientError::Http { peer, reason: error.to_string() },
                }
            })
        })
        .await?;
        // The task drives the connection. It ends when either side closes the connection.
        tokio::spawn(async move {
            let reason = driver.wait_idle().await;
            tracing::debug!(%peer, %reason, "connection closed");
        });
        Ok(Self { shared, send })
    }

    /// Sends a GET request, and returns when the header fields of the response have arrived. `path`
    /// is a path with an optional query, and must begin with a slash.
    ///
    /// # Errors
    /// Fails if the connection is closed, if the server breaks a rule of HTTP/3, or if no response
    /// arrives within [`super::ClientConfig::timeout`].
    pub async fn get(&self, path: &PathAndQuery) -> Result<Response, ClientError> {
        self.request(Method::GET, path).await
    }

    /// Like [`get`](Self::get), with any method. The request has no content.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get). After [`ClientError::Unprocessed`], the request may be
    /// sent again on another connection.
    pub async fn request(
        &self,
        method: Method,
        path: &PathAndQuery,
    ) -> Result<Response, ClientError> {
        let deadline = self.shared.timeout.and_then(|limit| Instant::now().checked_add(limit));
        self.request_until(method, path, deadline).await
    }

    /// Like [`request`](Self::request), with a deadline that the caller chooses. With `None`, the
    /// request has no deadline.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get).
    pub async fn request_until(
        &self,
        method: Method,
        path: &PathAndQuery,
        deadline: Option<Instant>,
    ) -> Result<Response, ClientError> {
        let wrong =
            |e: http::Error| ClientError::Path { path: path.to_string(), reason: e.to_string() };
        let uri = self.shared.target.uri(path).map_err(wrong)?;
        let request = Request::builder().method(method).uri(uri).body(()).map_err(wrong)?;
        self.begin(request, None, deadline).await
    }

    /// Sends a request with content, and returns when the header fields of the response have
    /// arrived. [`http_body_util`](https://docs.rs/http-body-util) has content of bytes (`Full`), and
    /// of a stream (`StreamBody`).
    ///
    /// The response may arrive before the content was sent. [`Response::chunk`] then continues to
    /// send the content, until the server does not need the rest.
    ///
    /// Of the request's URI, only the path and query are used. The client adds User-Agent, and
    /// Content-Length if the content's length is known. It waits for the end of the handshake before
    /// it sends a request with an unsafe method.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get); [`ClientError::Content`] if the content fails or does not
    /// match Content-Length; [`ClientError::Path`] if a header field is not permitted in HTTP/3 (RFC
    /// 9114 s.4.2).
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response, ClientError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let deadline = self.shared.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let wrong = |reason: String| ClientError::Path { path: path.to_string(), reason };
        parts.uri = self.shared.target.uri(&path).map_err(|error| wrong(error.to_string()))?;
        let announced = message::check_fields(&parts.headers)
            .and_then(|()| message::content_length(&parts.headers));
        let announced = announced.map_err(|violation| wrong(violation.to_string()))?;
        let exact = body.size_hint().exact();
        // RFC 9110 s.8.6: methods that usually have no content need no Content-Length of 0.
        let adds = exact.filter(|exact| *exact > 0 || !parts.method.is_safe());
        if let (None, Some(exact)) = (announced, adds) {
            parts.headers.insert(header::CONTENT_LENGTH, exact.into());
        }
        let length = announced.or(exact);
        // Content of length 0 may still have trailers.
        let has_content = !body.is_end_stream() || length.is_some_and(|length| length > 0);
        let content = has_content.then(|| Content::new(body, length));
        self.begin(Request::from_parts(parts, ()), content, deadline).await
    }

    /// Sends a request and its content, and returns when the header fields of the response have
    /// arrived.
    async fn begin(
        &self,
        mut request: Request<()>,
        content: Option<Content>,
        deadline: Option<Instant>,
    ) -> Result<Response, ClientError> {
        let start = Instant::now();
        let method = request.method().clone();
        let is_head = method == Method::HEAD;
        let own_name = HeaderValue::from_static(concat!("equic/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(header::USER_AGENT).or_insert(own_name);
        // RFC 8470 s.4: a client must not send an unsafe request in early data, because an attacker
        // can replay it.
        if !method.is_safe() {
            in_time(deadline, start, "handshake", async {
                let peer = self.shared.peer;
                let done = self.shared.quic.handshake().await;
                done.map_err(|source| ClientError::Handshake { peer, source })
            })
            .await?;
            // The server rejected the control stream together with the early data, so HTTP/3 does
            // not work on this connection.
            if self.shared.early_data() == EarlyData::Rejected {
                let (peer, why) = (self.shared.peer, Unprocessed::EarlyData);
                return Err(ClientError::Unprocessed { peer, why, times: 1 });
            }
        }
        let exchange = self.exchange(request, content, &method);
        let (head, mut stream) = in_time(deadline, start, "request", exchange).await?;
        self.shared.answered.store(true, Ordering::Relaxed);
        let (parts, ()) = head.into_parts();
        let checked = message::check_fields(&parts.headers)
            .and_then(|()| message::content_length(&parts.headers));
        let announced = match checked {
            Err(violation) => return Err(self.shared.malformed(&mut stream, violation)),
            // RFC 9110 s.6.4.1: these responses have no content, whatever Content-Length says.
            Ok(_) if is_head || matches!(parts.status.as_u16(), 204 | 304) => Some(0),
            Ok(announced) => announced,
        };
        Ok(Response {
            status: parts.status,
            headers: parts.headers,
            timing: Timing {
                handshake: self.shared.handshake,
                first_byte: start.elapsed(),
                total: None,
            },
            received: 0,
            announced,
            start,
            deadline,
            stream,
            connection: self.clone(),
        })
    }

    /// Sends a request and waits for the header fields of its final response.
    // RFC 9114 s.4.1 #6 #7
    async fn exchange(
        &self,
        request: Request<()>,
        content: Option<Content>,
        method: &Method,
    ) -> Result<(http::Response<()>, Stream), ClientError> {
        let (shared, sent) = (&self.shared, Sent::new());
        let mut send = self.send.clone();
        let failed = |error: StreamError| shared.failure(&error, sent.stream(), method);
        let exchange = async {
            let stream = send.send_request(request).await.map_err(failed)?;
            sent.set(stream.id().into_inner());
            let (mut rest, receive) = stream.split();
            let upload = match content {
                Some(content) => Upload::of(rest, content),
                None => {
                    match rest.finish().await {
                        Err(error) if is_unwanted(&error) => {}
                        finished => finished.map_err(failed)?,
                    }
                    Upload::WithoutContent(rest)
                }
            };
            let mut stream = Stream { receive, upload };
            // Interim responses precede the final one (RFC 9114 s.4.1). The binding limits their
            // number.
            loop {
                let head = tokio::select! {
                    biased;
                    head = stream.receive.recv_response() => head,
                    error = stream.upload.failed() => return Err(match error {
                        UploadError::Stream(error) => failed(error),
                        UploadError::Content(source) => ClientError::Content { source },
                    }),
                };
                let head = match head {
                    Ok(head) => head,
                    Err(error) => {
                        stream.give_up_after(&error);
                        return Err(failed(error));
                    }
                };
                if !head.status().is_informational() {
                    return Ok((head, stream));
                }
                if let Err(violation) = message::check_interim(&head) {
                    return Err(shared.malformed(&mut stream, violation));
                }
            }
        };
        tokio::select! {
            // The response is polled first, because a response that has arrived is valid even if
            // GOAWAY names its request.
            biased;
            outcome = exchange => outcome,
            () = shared.watch.goes_away(|| sent.stream()) => {
                let why = Unprocessed::GoingAway;
                Err(ClientError::Unprocessed { peer: shared.peer, why, times: 1 })
            }
        }
    }

    /// Returns the QUIC version of the connection.
    pub fn version(&self) -> KnownVersion {
        self.shared.quic.version()
    }

    /// Returns the server's address.
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// Returns whether the server has accepted the requests that were sent before the handshake was
    /// complete ([`super::ClientConfig::early_data`]).
    pub fn early_data(&self) -> EarlyData {
        self.shared.early_data()
    }

    /// Returns the duration of the handshake. It is zero if the connection did not wait for the
    /// handshake (0-RTT).
    pub fn handshake(&self) -> Duration {
        self.shared.handshake
    }

    /// Returns `true` if the connection still takes requests: it is not closed, the server has not
    /// sent GOAWAY, and the server has not rejected the connection's early data.
    pub fn is_open(&self) -> bool {
        self.shared.quic.close_reason().is_none()
            && self.shared.watch.goaway().is_none()
            && self.early_data() != EarlyData::Rejected
            && !self.shared.retired.load(Ordering::Relaxed)
    }

    /// Makes the connection take no further requests. Responses in progress continue.
    pub(super) fn retire(&self) {
        self.shared.retired.store(true, Ordering::Relaxed);
    }

    /// Returns true if the server has begun at least one response on this connection.
    pub(super) fn has_answered(&self) -> bool {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Waits until either side closes the connection, and returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        self.shared.quic.closed().await
    }

    /// Closes the connection at once with H3_NO_ERROR. Responses in progress fail.
    pub fn close(&self) {
        self.shared.quic.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    }

    /// Returns the current estimate of the round-trip time.
    pub fn rtt(&self) -> Duration {
        self.shared.quic.rtt()
    }

    /// Returns the open paths.
    pub fn paths(&self) -> Vec<quic::PathInfo> {
        self.shared.quic.paths()
    }

    /// Returns the counters of the QUIC connection.
    pub fn stats(&self) -> quic::Stats {
        self.shared.quic.stats()
    }
}

/// Durations of the phases of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Duration of the handshake of the request's connection. It is given even if an earlier
    /// request opened the connection.
    pub handshake: Duration,
    /// Time from sending the request to receiving the response's header fields.
    pub first_byte: Duration,
    /// Time from sending the request to the end of the body. `None` before the end has arrived.
    pub total: Option<Duration>,
}

/// A response: its status and header fields, and its body, which is read piece by piece.
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    timing: Timing,
    received: u64,
    announced: Option<u64>,
    start: Instant,
    deadline: Option<Instant>,
    stream: Stream,
    connection: Connection,
}

impl Response {
    /// Returns the next piece of the body, or `None` at its end.
    ///
    /// # Errors
    /// Fails on a timeout, if the connection or the stream is closed, if the length of the body is
    /// not the announced one, or if trailers are malformed.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        if self.timing.total.is_some() {
            return Ok(None);
        }
        let stream = &mut self.stream;
        let shared = &self.connection.shared;
        let data = in_time(self.deadline, self.start, "request", async {
            // The upload continues even if the response always has data to read. Data that has
            // arrived is returned before an error of the upload.
            let data = poll_fn(|cx| {
                stream.upload.advance(cx);
                match stream.receive.poll_recv_data(cx) {
                    Poll::Ready(data) => {
                        Poll::Ready(Ok(data
                            .map(|data| data.map(|mut data| data.copy_to_bytes(data.remaining())))))
                    }
                    Poll::Pending => match stream.upload.take_error() {
                        Some(error) => Poll::Ready(Err(error)),
                        None => Poll::Pending,
                    },
                }
            });
            let data = data.await.map_err(|error| match error {
                UploadError::Stream(error) => shared.error(&error),
                UploadError::Content(source) => ClientError::Content { source },
            })?;
            let data = data.map_err(|error| {
                stream.give_up_after(&error);
                shared.error(&error)
            })?;
            if data.is_none() {
                let trailers = stream.receive.recv_trailers().await.map_err(|error| {
                    stream.give_up_after(&error);
                    shared.error(&error)
                })?;
                let checked = trailers.as_ref().map_or(Ok(()), message::check_fields);
                checked.map_err(|violation| shared.malformed(stream, violation))?;
            }
            Ok(data)
        })
        .await?;
        self.received += data.as_ref().map_or(0, |data| data.len() as u64);
        let ended = data.is_none();
        match self.announced {
            Some(announced)
                if self.received > announced || (ended && self.received < announced) =>
            {
                // RFC 9114 s.4.1.2: the response is malformed.
                self.stream.give_up();
                return Err(ClientError::Length { received: self.received, announced });
            }
            _ => {}
        }
        if ended {
            self.timing.total = Some(self.start.elapsed());
        }
        Ok(data)
    }

    /// Reads the body to its end and discards it. Returns its length in bytes.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk).
    pub async fn drain(&mut self) -> Result<u64, ClientError> {
        while self.chunk().await?.is_some() {}
        Ok(self.received)
    }

    /// Reads the body into memory, up to `limit` bytes.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk). A body larger than `limit` is an error, too.
    pub async fn body(&mut self, limit: u64) -> Result<Bytes, ClientError> {
        let mut body = BytesMut::new();
        while let Some(data) = self.chunk().await? {
            if self.received > limit {
                return Err(ClientError::TooLarge { limit });
            }
            body.extend_from_slice(&data);
        }
        Ok(body.freeze())
    }

    /// Returns the number of body bytes received so far.
    pub fn bytes(&self) -> u64 {
        self.received
    }

    /// Returns the expected length of the body in bytes: the value of `content-length`, or 0 if the
    /// response cannot have content. Returns `None` if the length is unknown.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Returns the durations of the request and response so far. They are complete after the end of
    /// the body.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns the connection on which the response arrived.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}
