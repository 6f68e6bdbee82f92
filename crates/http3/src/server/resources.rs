//! Answers a request with a resource of this server.

use std::time::Duration;

use h3::error::Code;
use http::header;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Phase;
use super::answer::{Answer, answer};
use super::connection::Peer;
use super::content::Content;
use super::respond::{self, Asked, Head, Outcome, Record, SendError, Stream};
use h3::error::StreamError;

/// Longest time for which the server waits for a request's announced content before it sends the
/// response.
const CONTENT: Duration = Duration::from_secs(1);

/// Answers a request. `refused` is the response to a request that gets no resource.
pub(super) async fn run(
    peer: &Peer,
    asked: &Asked,
    head: Head,
    refused: Option<Answer>,
    record: &mut Record,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    let Head { request, mut stream, announced } = head;
    let mut content = Content::new(announced);
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let limit = peer.context.limits.stall_timeout;
    let read = tokio::select! {
        read = timeout(limit, read(&mut content, &mut stream, expects_continue, CONTENT.min(limit))) => read,
        () = Phase::CutOff.begun(&mut phase) => return Outcome::Abandoned,
    };
    match read {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(address = %asked.address, %error, "request failed");
            let cancelled = respond::is_cancelled(&error);
            return if cancelled { Outcome::Cancelled } else { Outcome::Malformed };
        }
        Err(_) => return Outcome::Malformed,
    }
    if let Err(reason) = content.check() {
        // RFC 9114 s.4.1.2: the request is malformed.
        tracing::debug!(address = %asked.address, %reason, "request failed");
        respond::give_up(&mut stream, Code::H3_MESSAGE_ERROR);
        return Outcome::Malformed;
    }
    if let Err(outcome) = respond::begin(peer, &mut stream, asked, &mut phase).await {
        return outcome;
    }
    let answer = match refused {
        Some(refused) => refused,
        None => answer(peer, &request).await,
    };
    record.status = answer.head.status();
    let sent = tokio::select! {
        sent = respond::send(peer, &mut stream, request.method(), answer, &mut record.bytes) => sent,
        () = Phase::CutOff.begun(&mut phase) => Err(SendError::CutOff),
    };
    record.report(peer, asked, sent.is_ok());
    if let Err(error) = sent {
        tracing::debug!(address = %asked.address, %error, "the response ended early");
        respond::give_up(&mut stream, error.code());
        return error.outcome();
    }
    tokio::select! {
        outcome = respond::end(peer, &mut stream, &mut content, &asked.admitted, phase.clone()) => outcome,
        () = Phase::CutOff.begun(&mut phase) => Outcome::Answered,
    }
}

/// Reads the content that a request announces, for up to `limit`, and then what has arrived of the
/// rest. Does not wait if the client holds back the content until it gets 100 (Continue).
async fn read(
    content: &mut Content,
    stream: &mut Stream,
    expects_continue: bool,
    limit: Duration,
) -> Result<(), StreamError> {
    if content.is_expected() {
        // RFC 9110 s.10.1.1: no response depends on the content, so the server sends the final
        // response instead of 100 (Continue).
        let limit = if expects_continue { Duration::ZERO } else { limit };
        if let Ok(read) = timeout(limit, content.read(stream)).await {
            read?;
        }
    }
    match content.read_ready(stream).await {
        // A client may cancel the rest of its request, and still read the response.
        Err(error) if respond::is_cancelled(&error) && !content.is_expected() => Ok(()),
        read => read,
    }
}
