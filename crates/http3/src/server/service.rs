//! Answers requests with a tower service, such as a router of axum.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::watch;
use tower_service::Service;

use super::connection::Peer;
use super::request_body::{Link, News, RequestBody};
use super::respond::{self, Asked, Head, Outcome, Record, SendError, SendHalf};
use super::{Phase, RequestInfo};
use crate::message;

/// Any error of a service or of its response's content.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Content of a service's response.
pub(super) type ServiceBody = UnsyncBoxBody<Bytes, BoxError>;

type Answering = Pin<Box<dyn Future<Output = Result<Response<ServiceBody>, BoxError>> + Send>>;

/// A tower service of any type.
pub(super) trait Handler: Send + Sync {
    /// Begins to answer a request.
    fn call(&self, request: Request<RequestBody>) -> Answering;
}

/// Makes a [`Handler`] of a service. Each request gets a clone of the service, because a service
/// handles one request at a time.
pub(super) struct Cloned<S>(pub Mutex<S>);

impl<S, B> Handler for Cloned<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    fn call(&self, request: Request<RequestBody>) -> Answering {
        let mut service = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let response = service.call(request).await.map_err(Into::into)?;
            let bytes = |frame: http_body::Frame<B::Data>| {
                frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
            };
            Ok(response.map(|body| body.map_err(Into::into).map_frame(bytes).boxed_unsync()))
        })
    }
}

/// Response of a service.
pub(super) struct ServiceAnswer {
    pub head: Response<()>,
    /// `None` if the response has no content.
    pub body: Option<ServiceBody>,
    /// Length of the content, if it is known.
    pub length: Option<u64>,
}

/// Answers a request with a service.
pub(super) async fn run(
    handler: &dyn Handler,
    peer: &Peer,
    asked: &Asked,
    mut head: Head,
    record: &mut Record,
    mut phase: watch::Receiver<Phase>,
) -> Outcome {
    if let Err(outcome) = respond::begin(peer, &mut head.stream, asked, &mut phase).await {
        return outcome;
    }
    let (mut send, receive) = head.stream.split();
    let waits = expects_continue(head.request.headers());
    let (body, mut link) = RequestBody::new(receive, head.announced, waits);
    let method = head.request.method().clone();
    let mut request = head.request.map(|()| body);
    request.extensions_mut().insert(RequestInfo {
        peer: asked.address,
        connection: peer.number,
        request: asked.number,
        early: peer.is_early(),
    });
    let calling = handler.call(request);
    let answering = async {
        let answer = answer(calling, &mut link, &mut send, peer, &method).await?;
        record.status = answer.head.status();
        let sent = tokio::select! {
            // Polled first, so that a malformed request is not answered completely. After the
            // response has begun, 100 (Continue) is no longer permitted.
            biased;
            () = link.malformed() => Err(SendError::Malformed),
            sent = respond::send_frames(peer, &mut send, answer, &mut record.bytes) => sent,
        };
        // The response's content may have ended or failed because it has just read the request's.
        if link.is_malformed() {
            return Err(SendError::Malformed);
        }
        sent?;
        respond::finish(peer, &mut send).await
    };
    let sent = tokio::select! {
        sent = answering => sent,
        () = Phase::CutOff.begun(&mut phase) => Err(SendError::CutOff),
    };
    record.report(peer, asked, sent.is_ok());
    if let Err(error) = sent {
        tracing::debug!(address = %asked.address, %error, "the response ended early");
        send.stop_stream(error.code());
        if let Some((mut receive, _)) = link.into_unread() {
            receive.stop_sending(error.code());
        }
        return error.outcome();
    }
    // If the service has kept the content, it still reads it in a task of its own.
    let Some((mut receive, mut content)) = link.into_unread() else { return Outcome::Answered };
    tokio::select! {
        outcome = respond::end(peer, &mut receive, &mut content, &asked.admitted, phase.clone()) => outcome,
        () = Phase::CutOff.begun(&mut phase) => Outcome::Answered,
    }
}

/// Waits for the service's response. Sends 100 (Continue) if the service reads the content, and the
/// client waits for permission to send it.
async fn answer(
    mut calling: Answering,
    link: &mut Link,
    send: &mut SendHalf,
    peer: &Peer,
    method: &Method,
) -> Result<ServiceAnswer, SendError> {
    let id = respond::stream_id(send);
    loop {
        tokio::select! {
            biased;
            news = link.news() => match news {
                News::Malformed => return Err(SendError::Malformed),
                News::Wanted => respond::send_continue(peer, send).await?,
            },
            response = &mut calling => return Ok(match response {
                Ok(response) => checked(response, method),
                Err(error) => {
                    tracing::error!(%error, "the service failed");
                    error_answer()
                }
            }),
            stopped = poll_fn(|cx| peer.quic.poll_stopped(cx, id)) => {
                stopped?;
                return Err(SendError::Cancelled);
            }
        }
    }
}

/// Returns the response 500 without content.
fn error_answer() -> ServiceAnswer {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    head.headers_mut().insert(header::CONTENT_LENGTH, 0.into());
    ServiceAnswer { head, body: None, length: None }
}

/// Removes what a response in HTTP/3 must not have, and adds its length if it is known.
// RFC 9114 s.4.2 #3
fn checked(response: Response<ServiceBody>, method: &Method) -> ServiceAnswer {
    let (parts, body) = response.into_parts();
    let mut head = Response::from_parts(parts, ());
    message::remove_connection_fields(head.headers_mut());
    let status = head.status();
    if status.is_informational() {
        tracing::error!(%status, "the service answered with an interim status as its only one");
        return error_answer();
    }
    let length = match message::content_length(head.headers()) {
        Ok(length) => length,
        Err(_) => {
            tracing::error!("the service's response has an invalid Content-Length field");
            return error_answer();
        }
    };
    let tunnel = *method == Method::CONNECT && status.is_success();
    // RFC 9110 s.8.6: these responses have no Content-Length.
    let without = status == StatusCode::NO_CONTENT || tunnel;
    if without {
        head.headers_mut().remove(header::CONTENT_LENGTH);
    }
    let resets = status == StatusCode::RESET_CONTENT && !tunnel;
    if resets {
        // RFC 9110 s.15.3.6: this response has content of length 0.
        head.headers_mut().insert(header::CONTENT_LENGTH, 0.into());
    }
    let no_content = *method == Method::HEAD
        || resets
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if no_content {
        return ServiceAnswer { head, body: None, length: None };
    }
    let exact = body.size_hint().exact();
    if length.is_none()
        && !tunnel
        && let Some(exact) = exact
    {
        head.headers_mut().insert(header::CONTENT_LENGTH, exact.into());
    }
    let length = if tunnel { None } else { length.or(exact) };
    ServiceAnswer { head, body: Some(body), length }
}

/// Returns true if the client waits for 100 (Continue) before it sends content (RFC 9110
/// s.10.1.1).
fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
