//! Handles one request, from its header fields to the end of its response.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use equic_quic::WriteError;
use equic_wire::{StreamId, VarInt};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::{Method, Request, header};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::answer::{Answer, answer, fields_too_long, too_early};
use super::body::CHUNK;
use super::connection::{Peer, flight};
use super::content::{Content, Rest};
use super::date;
use super::{Phase, RequestRecord};
use crate::binding::{self, Requests, Violation};
use crate::message;

/// Bytes of responses that a connection prepares beyond the client's flow control limits, so that
/// they can be sent as soon as the limits rise.
const AHEAD: u64 = 128 * 1024;

/// Time for which the server keeps a file open while the client reads nothing.
const AT_HAND: Duration = Duration::from_millis(100);

/// Longest time for which the server waits for a request's announced content before it sends the
/// response.
const CONTENT: Duration = Duration::from_secs(1);

type Resolver = RequestResolver<binding::QuicConnection, Bytes>;
pub(super) type Stream = RequestStream<binding::BidiStream<Bytes>, Bytes>;

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

pub(super) async fn run(
    peer: Arc<Peer>,
    asked: Asked,
    resolver: Resolver,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let Asked { address, number, admitted } = asked;
    let limits = &peer.context.limits;
    let content_limit = CONTENT.min(limits.stall_timeout);
    let resolved = tokio::select! {
        resolved = timeout(limits.stall_timeout, resolve(resolver, content_limit)) => resolved,
        () = Phase::CutOff.begun(&mut phase) => return Outcome::Abandoned,
    };
    let (request, mut stream, mut content) = match resolved {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "request failed");
            return match error {
                NoRequest::Stream(error) if is_cancelled(&error) => Outcome::Cancelled,
                _ => Outcome::Malformed,
            };
        }
        Err(_) => return Outcome::Malformed,
    };
    let start = Instant::now();
    let ready = tokio::select! {
        ready = timeout(limits.stall_timeout, sendable(&peer, &stream, 1, 0)) => ready,
        () = Phase::CutOff.begun(&mut phase) => return Outcome::Abandoned,
    };
    if !matches!(ready, Ok(Ok(_))) {
        tracing::debug!(%address, "the client does not read the response");
        give_up(&mut stream, Code::H3_REQUEST_CANCELLED);
        let gave_up = matches!(ready, Ok(Err(WriteError::Stopped(_))));
        return if gave_up { Outcome::Cancelled } else { Outcome::Abandoned };
    }
    // If the header fields are too long, the request's method and path are unknown.
    let too_long = admitted.is_too_long(stream_id(&stream).as_varint().get());
    let answer = match too_early(peer.is_early(), request.method()) {
        _ if too_long => fields_too_long(),
        Some(answer) => answer,
        None => answer(&peer, &request).await,
    };
    let status = answer.head.status();
    let mut bytes = 0;
    let sent = tokio::select! {
        sent = send(&peer, &mut stream, request.method(), answer, &mut bytes) => sent,
        () = Phase::CutOff.begun(&mut phase) => Err(SendError::CutOff),
    };
    peer.context.stats.0.bytes.add(bytes);
    if let Err(error) = &sent {
        tracing::debug!(%address, %error, "the response ended early");
        give_up(&mut stream, error.code());
    } else if !too_long {
        peer.context.stats.0.requests.add(1);
    }
    if let Some(log) = peer.context.log.as_ref().filter(|_| !too_long) {
        log(&RequestRecord {
            peer: address,
            connection: peer.number,
            request: number,
            method: request.method().clone(),
            path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
            status,
            bytes,
            duration: start.elapsed(),
            complete: sent.is_ok(),
        });
    }
    match &sent {
        Ok(()) => tokio::select! {
            outcome = end(&peer, &mut stream, &mut content, &admitted, phase.clone()) => {
                if too_long { Outcome::Malformed } else { outcome }
            }
            () = Phase::CutOff.begun(&mut phase) => Outcome::Answered,
        },
        Err(SendError::Stream(error)) if is_cancelled(error) => Outcome::Cancelled,
        Err(SendError::Room(WriteError::Stopped(_))) => Outcome::Cancelled,
        Err(_) => Outcome::Abandoned,
    }
}

#[derive(Debug, thiserror::Error)]
enum NoRequest {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("malformed: {0}")]
    Malformed(Violation),
}

/// Ends a stream in both directions, because its request will not get a complete response.
fn give_up(stream: &mut Stream, code: Code) {
    stream.stop_stream(code);
    stream.stop_sending(code);
}

/// Returns the request when its header fields have arrived and are valid. If the request announces
/// content, waits for the content for up to `content_limit`. Does not wait if the client holds back
/// the content until it gets 100 (Continue).
async fn resolve(
    resolver: Resolver,
    content_limit: Duration,
) -> Result<(Request<()>, Stream, Content), NoRequest> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let checked =
        message::check_request(&request).and_then(|()| message::content_length(request.headers()));
    let checked = match checked {
        Ok(announced) => {
            let mut content = Content::new(announced);
            if content.is_expected() {
                // RFC 9110 s.10.1.1: no response depends on the content, so the server sends the
                // final response instead of 100 (Continue).
                let expects_continue = request.headers().contains_key(header::EXPECT);
                let limit = if expects_continue { Duration::ZERO } else { content_limit };
                if let Ok(read) = timeout(limit, content.read(&mut stream)).await {
                    read?;
                }
            }
            match content.read_ready(&mut stream).await {
                // A client may cancel the rest of its request, and still read the response.
                Err(error) if is_cancelled(&error) && !content.is_expected() => {}
                read => read?,
            }
            content.check().map(|()| content)
        }
        Err(reason) => Err(reason),
    };
    match checked {
        Ok(content) => Ok((request, stream, content)),
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
async fn end(
    peer: &Peer,
    stream: &mut Stream,
    content: &mut Content,
    admitted: &Requests,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let limit = peer.context.limits.stall_timeout;
    let id = stream_id(stream);
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
fn is_cancelled(error: &StreamError) -> bool {
    matches!(error, StreamError::RemoteTerminate { .. })
}

/// Waits until bytes of a response can be sent, and returns their number, which is at most `want`.
async fn sendable(peer: &Peer, stream: &Stream, want: u64, ahead: u64) -> Result<u64, WriteError> {
    peer.quic.sendable(stream_id(stream), want, ahead).await
}

fn stream_id(stream: &Stream) -> StreamId {
    StreamId::from(VarInt::new(stream.send_id().into_inner()).unwrap_or(VarInt::MAX))
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the server is shutting down")]
    CutOff,
    #[error("timed out: the client did not read the response")]
    Stalled,
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Room(#[from] WriteError),
    #[error("the file became unreadable: {0}")]
    File(#[from] std::io::Error),
}

impl SendError {
    /// Returns the code that resets the stream (RFC 9114 s.4.1.1, s.8.1).
    fn code(&self) -> Code {
        match self {
            SendError::File(_) => Code::H3_INTERNAL_ERROR,
            _ => Code::H3_REQUEST_CANCELLED,
        }
    }
}

// RFC 9114 s.4.1 #8
async fn send(
    peer: &Peer,
    stream: &mut Stream,
    method: &Method,
    answer: Answer,
    bytes: &mut u64,
) -> Result<(), SendError> {
    let limit = peer.context.limits.stall_timeout;
    macro_rules! in_time {
        ($step:expr) => {
            timeout(limit, $step).await.map_err(|_| SendError::Stalled)??
        };
    }
    let mut head = answer.head;
    if let Some(date) = date::now() {
        head.headers_mut().insert(header::DATE, date);
    }
    in_time!(stream.send_response(head));
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
                in_time!(sendable(peer, stream, want, AHEAD))
            }
        };
        let want = usize::try_from(room).map_or(CHUNK, |room| room.min(CHUNK));
        let chunk = in_time!(body.next(&peer.context, want));
        in_time!(stream.send_data(chunk));
        left -= want as u64;
        *bytes += want as u64;
    }
    in_time!(stream.finish());
    Ok(())
}
