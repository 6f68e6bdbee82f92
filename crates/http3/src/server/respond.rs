//! Handles one request, from its header fields to the end of its response. `resources` answers it
//! with a resource of this server, and `service` with the application's service.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use equic_quic::WriteError;
use equic_wire::{StreamId, VarInt};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::answer::{Answer, fields_too_long, too_early};
use super::body::CHUNK;
use super::connection::{Peer, flight};
use super::content::{Content, Rest};
use super::date;
use super::service::{BoxError, ServiceAnswer};
use super::{Phase, RequestRecord, resources, service};
use crate::binding::{self, Requests, Violation};
use crate::message;

/// Bytes of responses that a connection prepares beyond the client's flow control limits, so that
/// they can be sent as soon as the limits rise.
const AHEAD: u64 = 128 * 1024;

/// Time for which the server keeps a file open while the client reads nothing.
const AT_HAND: Duration = Duration::from_millis(100);

type Resolver = RequestResolver<binding::QuicConnection, Bytes>;
pub(super) type Stream = RequestStream<binding::BidiStream<Bytes>, Bytes>;
pub(super) type SendHalf = RequestStream<binding::SendStream<Bytes>, Bytes>;
pub(super) type ReceiveHalf = RequestStream<binding::RecvStream, Bytes>;

/// Result of handling a request.
pub(super) enum Outcome {
    Answered,
    /// The request was malformed, or did not arrive in time.
    Malformed,
    /// The client cancelled the request.
    Cancelled,
    /// The client disappeared, or did not read the response.
    Abandoned,
}

/// The data about a request that a connection has before the request's header fields are read.
pub(super) struct Asked {
    /// Address of the client when the request arrived.
    pub address: SocketAddr,
    /// Number of the request on its connection, from 1.
    pub number: u64,
    /// Handle to all requests of the connection.
    pub admitted: Requests,
}

/// The header fields of a request, which are not malformed.
pub(super) struct Head {
    pub request: Request<()>,
    pub stream: Stream,
    /// Value of Content-Length, if the request has it.
    pub announced: Option<u64>,
}

pub(super) async fn run(
    peer: Arc<Peer>,
    asked: Asked,
    resolver: Resolver,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let limit = peer.context.limits.stall_timeout;
    let resolved = tokio::select! {
        resolved = timeout(limit, resolve(resolver)) => resolved,
        () = Phase::CutOff.begun(&mut phase) => return Outcome::Abandoned,
    };
    let head = match resolved {
        Ok(Ok(head)) => head,
        Ok(Err(error)) => return error.outcome(asked.address),
        Err(_) => return Outcome::Malformed,
    };
    // If the header fields are too long, the request's method and path are unknown.
    let too_long = asked.admitted.is_too_long(stream_id(&head.stream).as_varint().get());
    let refused = match too_early(peer.is_early(), head.request.method()) {
        _ if too_long => Some(fields_too_long()),
        refused => refused,
    };
    let mut record = Record::new(&head.request, too_long);
    match &peer.handler {
        Some(handler) if refused.is_none() => {
            service::run(&**handler, &peer, &asked, head, &mut record, phase).await
        }
        _ => {
            let outcome = resources::run(&peer, &asked, head, refused, &mut record, phase).await;
            if too_long && matches!(outcome, Outcome::Answered) {
                return Outcome::Malformed;
            }
            outcome
        }
    }
}

/// Data about a request and its response, for the log and the counters.
pub(super) struct Record {
    start: Instant,
    method: Method,
    path: String,
    /// True if the request's header fields are too long. Such a request is neither logged nor
    /// counted as answered.
    too_long: bool,
    pub status: StatusCode,
    /// Number of body bytes that were passed to QUIC.
    pub bytes: u64,
}

impl Record {
    fn new(request: &Request<()>, too_long: bool) -> Record {
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        Record {
            start: Instant::now(),
            method: request.method().clone(),
            path,
            too_long,
            status: StatusCode::OK,
            bytes: 0,
        }
    }

    /// Counts and logs the response, after it was sent or has failed. `complete` is true if the
    /// whole response was passed to QUIC.
    pub(super) fn report(&self, peer: &Peer, asked: &Asked, complete: bool) {
        let counters = &peer.context.stats.0;
        counters.bytes.add(self.bytes);
        if self.too_long {
            return;
        }
        if complete {
            counters.requests.add(1);
        }
        if let Some(log) = &peer.context.log {
            log(&RequestRecord {
                peer: asked.address,
                connection: peer.number,
                request: asked.number,
                method: self.method.clone(),
                path: self.path.clone(),
                status: self.status,
                bytes: self.bytes,
                duration: self.start.elapsed(),
                complete,
            });
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum NoRequest {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("malformed: {0}")]
    Malformed(Violation),
}

impl NoRequest {
    /// Logs the error of a request from this address.
    fn outcome(self, address: SocketAddr) -> Outcome {
        tracing::debug!(%address, error = %self, "request failed");
        match self {
            NoRequest::Stream(error) if is_cancelled(&error) => Outcome::Cancelled,
            _ => Outcome::Malformed,
        }
    }
}

/// Ends a stream in both directions, because its request will not get a complete response.
pub(super) fn give_up(stream: &mut Stream, code: Code) {
    stream.stop_stream(code);
    stream.stop_sending(code);
}

/// Returns the request when its header fields have arrived and are valid.
async fn resolve(resolver: Resolver) -> Result<Head, NoRequest> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let checked =
        message::check_request(&request).and_then(|()| message::content_length(request.headers()));
    match checked {
        Ok(announced) => Ok(Head { request, stream, announced }),
        Err(reason) => {
            // RFC 9114 s.4.1.2: the request is malformed.
            give_up(&mut stream, Code::H3_MESSAGE_ERROR);
            Err(NoRequest::Malformed(reason))
        }
    }
}

/// Reads the rest of a request after its response was sent.
///
/// The end of the request may arrive much later than the rest of it, and some clients treat
/// STOP_SENDING as a failure of the request. So the server sends STOP_SENDING only for content that
/// it does not read (RFC 9114 s.4.1), and only when the client has the whole response.
pub(super) async fn end<S: h3::quic::RecvStream>(
    peer: &Peer,
    stream: &mut RequestStream<S, Bytes>,
    content: &mut Content,
    admitted: &Requests,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let limit = peer.context.limits.stall_timeout;
    let id = to_id(stream.id());
    let rest = content.rest(stream, admitted);
    let patience = async {
        tokio::select! {
            () = sleep(limit) => {}
            () = Phase::Draining.begun(&mut phase) => sleep(flight(&peer.quic).min(limit)).await,
        }
    };
    let rest = tokio::select! {
        rest = rest => rest,
        () = patience => Rest::Unwanted,
    };
    if rest == Rest::Malformed {
        // The binding has ended the stream in both directions.
        return Outcome::Malformed;
    }
    if content.check().is_err() {
        // The response is complete, so only the receiving half must be ended.
        stream.stop_sending(Code::H3_MESSAGE_ERROR);
        return Outcome::Malformed;
    }
    if rest == Rest::Unwanted {
        let delivered = poll_fn(|cx| peer.quic.poll_stopped(cx, id));
        let _ = timeout(limit, delivered).await;
    }
    // STOP_SENDING has no effect if the request has ended.
    stream.stop_sending(Code::H3_NO_ERROR);
    Outcome::Answered
}

/// Returns `true` if the error means that the client cancelled the request or stopped reading the
/// response.
pub(super) fn is_cancelled(error: &StreamError) -> bool {
    matches!(error, StreamError::RemoteTerminate { .. })
}

/// Waits until the client permits the first byte of the response. If it does not in time, ends the
/// stream and returns the outcome as the error.
pub(super) async fn begin(
    peer: &Peer,
    stream: &mut Stream,
    asked: &Asked,
    phase: &mut watch::Receiver<Phase>,
) -> Result<(), Outcome> {
    let limit = peer.context.limits.stall_timeout;
    let ready = tokio::select! {
        ready = timeout(limit, sendable(peer, stream, 1, 0)) => ready,
        () = Phase::CutOff.begun(phase) => return Err(Outcome::Abandoned),
    };
    if matches!(ready, Ok(Ok(_))) {
        return Ok(());
    }
    tracing::debug!(address = %asked.address, "the client does not read the response");
    give_up(stream, Code::H3_REQUEST_CANCELLED);
    let gave_up = matches!(ready, Ok(Err(WriteError::Stopped(_))));
    Err(if gave_up { Outcome::Cancelled } else { Outcome::Abandoned })
}

/// Waits until bytes of a response can be sent, and returns their number, which is at most `want`.
async fn sendable<S: h3::quic::SendStream<Bytes>>(
    peer: &Peer,
    stream: &RequestStream<S, Bytes>,
    want: u64,
    ahead: u64,
) -> Result<u64, WriteError> {
    peer.quic.sendable(stream_id(stream), want, ahead).await
}

pub(super) fn stream_id<S: h3::quic::SendStream<Bytes>>(
    stream: &RequestStream<S, Bytes>,
) -> StreamId {
    to_id(stream.send_id())
}

fn to_id(id: h3::quic::StreamId) -> StreamId {
    StreamId::from(VarInt::new(id.into_inner()).unwrap_or(VarInt::MAX))
}

/// Error of a response that could not be sent completely.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the server is shutting down")]
    CutOff,
    #[error("the request's content is malformed")]
    Malformed,
    #[error("the client cancelled the request")]
    Cancelled,
    #[error("timed out: the client did not read the response")]
    Stalled,
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Room(#[from] WriteError),
    #[error("the file became unreadable: {0}")]
    File(#[from] std::io::Error),
    #[error("the content of the service's response failed: {0}")]
    Content(BoxError),
    #[error("the content of the service's response does not match its Content-Length")]
    ContentLength,
}

impl SendError {
    /// Returns the code that resets the stream (RFC 9114 s.4.1.1, s.4.1.2, s.8.1).
    pub(super) fn code(&self) -> Code {
        match self {
            SendError::File(_) | SendError::Content(_) | SendError::ContentLength => {
                Code::H3_INTERNAL_ERROR
            }
            SendError::Malformed => Code::H3_MESSAGE_ERROR,
            _ => Code::H3_REQUEST_CANCELLED,
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self {
            SendError::Malformed => Outcome::Malformed,
            SendError::Cancelled | SendError::Room(WriteError::Stopped(_)) => Outcome::Cancelled,
            SendError::Stream(error) if is_cancelled(error) => Outcome::Cancelled,
            _ => Outcome::Abandoned,
        }
    }
}

/// Limits the time of a step that makes no progress if the client does not read the response.
macro_rules! in_time {
    ($peer:expr, $step:expr) => {
        timeout($peer.context.limits.stall_timeout, $step)
            .await
            .map_err(|_| SendError::Stalled)??
    };
}

/// Sends the header fields of a response, with a Date field if they have none.
async fn send_head<S: h3::quic::SendStream<Bytes>>(
    peer: &Peer,
    stream: &mut RequestStream<S, Bytes>,
    mut head: Response<()>,
) -> Result<(), SendError> {
    if let Some(date) = date::now() {
        head.headers_mut().entry(header::DATE).or_insert(date);
    }
    in_time!(peer, stream.send_response(head));
    Ok(())
}

// RFC 9114 s.4.1 #8
pub(super) async fn send(
    peer: &Peer,
    stream: &mut Stream,
    method: &Method,
    answer: Answer,
    bytes: &mut u64,
) -> Result<(), SendError> {
    let limit = peer.context.limits.stall_timeout;
    send_head(peer, stream, answer.head).await?;
    let mut left = if method == Method::HEAD { 0 } else { answer.body.left() };
    let mut body = answer.body;
    if left == 0 {
        body.rest();
    }
    while left > 0 {
        let want = left.min(CHUNK as u64);
        // If descriptors are scarce, close the file at once, because other requests need them more.
        let scarce = peer.context.open_files.available_permits() <= peer.context.max_open_files / 4;
        let at_hand = if scarce { Duration::ZERO } else { AT_HAND.min(limit) };
        let room = match timeout(at_hand, sendable(peer, stream, want, AHEAD)).await {
            Ok(room) => room?,
            Err(_) => {
                body.rest();
                in_time!(peer, sendable(peer, stream, want, AHEAD))
            }
        };
        let want = usize::try_from(room).map_or(CHUNK, |room| room.min(CHUNK));
        let chunk = in_time!(peer, body.next(&peer.context, want));
        in_time!(peer, stream.send_data(chunk));
        left -= want as u64;
        *bytes += want as u64;
    }
    in_time!(peer, stream.finish());
    Ok(())
}

/// Sends the response of a service, but does not end the stream. Only the client's part of each step
/// is limited in time, because a service may take long to produce content.
pub(super) async fn send_frames(
    peer: &Peer,
    stream: &mut SendHalf,
    answer: ServiceAnswer,
    bytes: &mut u64,
) -> Result<(), SendError> {
    let ServiceAnswer { head, body, length } = answer;
    send_head(peer, stream, head).await?;
    let id = stream_id(stream);
    let Some(mut body) = body else { return Ok(()) };
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            stopped = poll_fn(|cx| peer.quic.poll_stopped(cx, id)) => {
                stopped?;
                return Err(SendError::Cancelled);
            }
        };
        let Some(frame) = frame.transpose().map_err(SendError::Content)? else { break };
        let mut data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    message::remove_connection_fields(&mut trailers);
                    check_length(length, *bytes)?;
                    in_time!(peer, stream.send_trailers(trailers));
                }
                break;
            }
        };
        if length.is_some_and(|length| length - *bytes < data.len() as u64) {
            return Err(SendError::ContentLength);
        }
        while !data.is_empty() {
            let want = data.len().min(CHUNK) as u64;
            let room = in_time!(peer, sendable(peer, stream, want, AHEAD));
            let chunk = data.split_to(usize::try_from(room).unwrap_or(CHUNK).min(data.len()));
            *bytes += chunk.len() as u64;
            in_time!(peer, stream.send_data(chunk));
        }
    }
    check_length(length, *bytes)
}

/// Ends the stream of a complete response.
pub(super) async fn finish(peer: &Peer, stream: &mut SendHalf) -> Result<(), SendError> {
    in_time!(peer, stream.finish());
    Ok(())
}

/// Checks that complete content has the length that the header fields announced.
fn check_length(announced: Option<u64>, sent: u64) -> Result<(), SendError> {
    match announced {
        Some(length) if length != sent => Err(SendError::ContentLength),
        _ => Ok(()),
    }
}

/// Sends 100 (Continue).
pub(super) async fn send_continue(peer: &Peer, stream: &mut SendHalf) -> Result<(), SendError> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::CONTINUE;
    in_time!(peer, stream.send_response(head));
    Ok(())
}
