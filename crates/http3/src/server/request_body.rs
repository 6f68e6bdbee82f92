//! The content of a request that a service reads.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h3::error::{Code, StreamError};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::content::Content;
use super::respond::{ReceiveHalf, is_cancelled};

/// Content of a request, with its trailers. It is read while it arrives: the client can send at most
/// [`Limits::content_window`](super::Limits::content_window) bytes that were not read.
///
/// A service that drops it refuses the rest of the content. The client then gets STOP_SENDING
/// (H3_NO_ERROR) after the response.
pub struct RequestBody {
    /// `None` only after an error.
    receive: Option<ReceiveHalf>,
    content: Content,
    next: Next,
    unread: Option<oneshot::Sender<Result<Unread, Malformed>>>,
    wanted: Option<oneshot::Sender<()>>,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Data,
    Trailers,
    Nothing,
}

/// The receiving half of a stream, whose content the service has not read to its end.
pub(super) type Unread = (ReceiveHalf, Content);

/// The content shows that the request is malformed.
#[derive(Debug)]
pub(super) struct Malformed;

/// Error of a request's content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestBodyError {
    /// The content does not match the Content-Length field, or its frames or trailers are invalid
    /// (RFC 9114 s.4.1.2). The server resets the stream with H3_MESSAGE_ERROR, and the response of
    /// the service is discarded.
    #[error("the request is malformed")]
    Malformed,
    /// The client cancelled the request.
    #[error("the client cancelled the request")]
    Cancelled,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

impl RequestBody {
    /// Returns the content, and the link by which the request's task follows it. If
    /// `expects_continue` is true, the link reports when the service begins to read.
    pub(super) fn new(
        receive: ReceiveHalf,
        announced: Option<u64>,
        expects_continue: bool,
    ) -> (RequestBody, Link) {
        let (unread, unread_by) = oneshot::channel();
        let (wanted, wanted_by) = oneshot::channel();
        let body = RequestBody {
            receive: Some(receive),
            content: Content::new(announced),
            next: Next::Data,
            unread: Some(unread),
            wanted: expects_continue.then_some(wanted),
        };
        let link = Link {
            body: BodyState::InUse(unread_by),
            wanted: expects_continue.then_some(wanted_by),
        };
        (body, link)
    }

    fn fail(
        &mut self,
        error: RequestBodyError,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let receive = self.receive.take();
        if let RequestBodyError::Malformed = error {
            // RFC 9114 s.4.1.2: has no effect if the binding has already stopped the stream.
            if let Some(mut receive) = receive {
                receive.stop_sending(Code::H3_MESSAGE_ERROR);
            }
            if let Some(unread) = self.unread.take() {
                // Fails if the request's task has ended.
                let _ = unread.send(Err(Malformed));
            }
        }
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let body = &mut *self;
        let Some(receive) = &mut body.receive else { return Poll::Ready(None) };
        if let Some(wanted) = body.wanted.take() {
            // Fails if the request's task has ended.
            let _ = wanted.send(());
        }
        if body.next == Next::Data {
            let data = match ready!(receive.poll_recv_data(cx)) {
                Ok(Some(mut data)) => Some(data.copy_to_bytes(data.remaining())),
                Ok(None) => None,
                Err(error) => return body.fail(error.into()),
            };
            body.content.received(data.as_ref().map(Bytes::len));
            if body.content.check().is_err() {
                return body.fail(RequestBodyError::Malformed);
            }
            match data {
                Some(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                None => body.next = Next::Trailers,
            }
        }
        if body.next == Next::Nothing {
            return Poll::Ready(None);
        }
        let Some(receive) = &mut body.receive else { return Poll::Ready(None) };
        match ready!(receive.poll_recv_trailers(cx)) {
            Ok(trailers) => {
                body.next = Next::Nothing;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Err(error) => body.fail(error.into()),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.receive.is_none() || self.next == Next::Nothing
    }

    fn size_hint(&self) -> SizeHint {
        self.content.announced_left().map(SizeHint::with_exact).unwrap_or_default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(receive), Some(unread)) = (self.receive.take(), self.unread.take()) {
            // Fails if the request's task has ended. The receiving half then sends STOP_SENDING.
            let content = std::mem::replace(&mut self.content, Content::new(None));
            let _ = unread.send(Ok((receive, content)));
        }
    }
}

impl From<StreamError> for RequestBodyError {
    fn from(error: StreamError) -> RequestBodyError {
        match error {
            error if is_cancelled(&error) => RequestBodyError::Cancelled,
            StreamError::ConnectionError { .. } => RequestBodyError::Closed,
            _ => RequestBodyError::Malformed,
        }
    }
}

/// The connection of a request's task to the content that the service reads.
pub(super) struct Link {
    body: BodyState,
    wanted: Option<oneshot::Receiver<()>>,
}

/// News about the content of a request.
pub(super) enum News {
    /// The content shows that the request is malformed.
    Malformed,
    /// The service reads content for which the client waits for permission.
    Wanted,
}

enum BodyState {
    /// The service has the content.
    InUse(oneshot::Receiver<Result<Unread, Malformed>>),
    /// The service has dropped the content.
    Dropped(Unread),
    /// Reading the content has failed.
    Failed,
}

impl Link {
    /// Waits for news about the content.
    pub(super) async fn news(&mut self) -> News {
        poll_fn(|cx| {
            if let BodyState::InUse(body) = &mut self.body
                && let Poll::Ready(ended) = Pin::new(body).poll(cx)
            {
                let malformed = matches!(ended, Ok(Err(Malformed)));
                self.body = match ended {
                    Ok(Ok(unread)) => BodyState::Dropped(unread),
                    _ => BodyState::Failed,
                };
                if malformed {
                    return Poll::Ready(News::Malformed);
                }
            }
            if let Some(wanted) = &mut self.wanted
                && let Poll::Ready(wants) = Pin::new(wanted).poll(cx)
            {
                self.wanted = None;
                if wants.is_ok() {
                    return Poll::Ready(News::Wanted);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until the content shows that the request is malformed.
    pub(super) async fn malformed(&mut self) {
        while !matches!(self.news().await, News::Malformed) {}
    }

    /// Returns true if the content has just shown that the request is malformed. Returns false if
    /// [`news`](Self::news) or this function has already reported this.
    pub(super) fn is_malformed(&mut self) -> bool {
        let BodyState::InUse(body) = &mut self.body else { return false };
        let (state, malformed) = match body.try_recv() {
            Ok(Ok(unread)) => (BodyState::Dropped(unread), false),
            Ok(Err(Malformed)) => (BodyState::Failed, true),
            Err(TryRecvError::Closed) => (BodyState::Failed, false),
            Err(TryRecvError::Empty) => return false,
        };
        self.body = state;
        malformed
    }

    /// Returns the receiving half of the stream, if the service has dropped the content.
    pub(super) fn into_unread(self) -> Option<Unread> {
        match self.body {
            BodyState::InUse(mut body) => body.try_recv().ok()?.ok(),
            BodyState::Dropped(unread) => Some(unread),
            BodyState::Failed => None,
        }
    }
}
