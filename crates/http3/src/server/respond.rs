//! Carries one request through, from its header fields to the end of its response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use equic_quic::WriteError;
use equic_wire::{StreamId, VarInt};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::{Method, Request};
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::{Answer, answer, too_early};
use super::body::CHUNK;
use super::connection::Peer;
use super::{Phase, RequestRecord};
use crate::binding;
use crate::message;

/// Bytes of responses that are made before a client's flow control lets them out, of all streams of a
/// connection: they are there when it does.
const AHEAD: u64 = 128 * 1024;

/// Time for which a file stays open while the client takes nothing.
const AT_HAND: Duration = Duration::from_millis(100);

/// Content of a request that is read, and thrown away, to see whether it is as long as announced.
const MAX_CONTENT: u64 = 64 * 1024;

type Resolver = RequestResolver<binding::QuicConnection, Bytes>;
type Stream = RequestStream<binding::BidiStream<Bytes>, Bytes>;

/// Result of handling a request.
pub(super) enum Outcome {
    Answered,
    /// The request was not HTTP/3, or did not come in time.
    Malformed,
    /// The client gave the request up.
    Cancelled,
    /// The client went away, or did not take the response.
    Abandoned,
}

pub(super) async fn run(
    peer: Arc<Peer>,
    address: SocketAddr,
    number: u64,
    resolver: Resolver,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let limits = &peer.context.limits;
    let resolved = tokio::select! {
        resolved = timeout(limits.stall_timeout, resolve(resolver)) => resolved,
        () = Phase::CutOff.begun(&mut phase) => return Outcome::Abandoned,
    };
    let (request, mut stream) = match resolved {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "no request");
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
        tracing::debug!(%address, "no response is taken");
        stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        let gave_up = matches!(ready, Ok(Err(WriteError::Stopped(_))));
        return if gave_up { Outcome::Cancelled } else { Outcome::Abandoned };
    }
    let answer = match too_early(peer.is_early(), request.method()) {
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
        tracing::debug!(%address, %error, "response cut short");
        stream.stop_stream(Code::H3_INTERNAL_ERROR);
    } else {
        peer.context.stats.0.requests.add(1);
    }
    // A body nobody asked for need not come (RFC 9114 s.4.1).
    stream.stop_sending(Code::H3_NO_ERROR);
    if let Some(log) = &peer.context.log {
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
        Ok(()) => Outcome::Answered,
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
    Malformed(&'static str),
}

/// The request, once it is known to be one.
async fn resolve(resolver: Resolver) -> Result<(Request<()>, Stream), NoRequest> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let checked =
        match (message::check_request(&request), message::content_length(request.headers())) {
            (Err(reason), _) | (_, Err(reason)) => Err(reason),
            // What there is more of is neither read nor wanted.
            (Ok(()), Ok(Some(length))) if length <= MAX_CONTENT => {
                let mut received = 0;
                while received <= length
                    && let Some(data) = stream.recv_data().await?
                {
                    received += data.remaining() as u64;
                }
                // RFC 9114 s.4.1.2.
                if received == length {
                    Ok(())
                } else {
                    Err("content of another length than announced")
                }
            }
            _ => Ok(()),
        };
    if let Err(reason) = checked {
        stream.stop_stream(Code::H3_MESSAGE_ERROR);
        stream.stop_sending(Code::H3_MESSAGE_ERROR);
        return Err(NoRequest::Malformed(reason));
    }
    Ok((request, stream))
}

/// True if the error means that the client gave the request up, in one direction or the other.
fn is_cancelled(error: &StreamError) -> bool {
    matches!(error, StreamError::RemoteTerminate { .. })
}

/// Waits until up to `want` bytes can be sent, and returns how many.
async fn sendable(peer: &Peer, stream: &Stream, want: u64, ahead: u64) -> Result<u64, WriteError> {
    let id = VarInt::new(stream.send_id().into_inner()).unwrap_or(VarInt::MAX);
    peer.quic.sendable(StreamId::from(id), want, ahead).await
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the server is shutting down")]
    CutOff,
    #[error("the client did not take it in time")]
    Stalled,
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Room(#[from] WriteError),
    #[error("the file became unreadable: {0}")]
    File(#[from] std::io::Error),
}

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
    in_time!(stream.send_response(answer.head));
    let mut left = if method == Method::HEAD { 0 } else { answer.body.left() };
    let mut body = answer.body;
    if left == 0 {
        body.rest();
    }
    while left > 0 {
        let want = left.min(CHUNK as u64);
        // Others want descriptors more.
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
