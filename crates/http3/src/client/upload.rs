//! Sends the content of a request, while its response may already arrive.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use h3::client::RequestStream;
use h3::error::{Code, StreamError};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::binding;
use crate::message;

pub(super) type SendHalf = RequestStream<binding::SendStream<Bytes>, Bytes>;

/// Any error of a request's content.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Content of a request.
pub(super) struct Content {
    body: UnsyncBoxBody<Bytes, BoxError>,
    /// Value of Content-Length, if the request has it.
    length: Option<u64>,
}

impl Content {
    pub(super) fn new<B>(body: B, length: Option<u64>) -> Content
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let bytes =
            |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        Content { body: body.map_err(Into::into).map_frame(bytes).boxed_unsync(), length }
    }
}

/// Error of the content of a request.
pub(super) enum UploadError {
    Stream(StreamError),
    /// The application's content failed, or does not match Content-Length.
    Content(BoxError),
}

/// The sending half of a request's stream.
pub(super) enum Upload {
    /// The request has no content, and is complete.
    WithoutContent(SendHalf),
    /// The content is being sent. Dropping the future resets the stream.
    InProgress(Pin<Box<dyn Future<Output = Result<(), UploadError>> + Send>>),
    /// Sending the content has failed.
    Failed(UploadError),
    /// The content was sent, or its error was returned.
    Over,
}

impl Upload {
    pub(super) fn of(stream: SendHalf, content: Content) -> Upload {
        Upload::InProgress(Box::pin(upload(stream, content)))
    }

    /// Continues the upload. [`take_error`](Self::take_error) returns its error.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Upload::InProgress(sending) = self
            && let Poll::Ready(sent) = sending.as_mut().poll(cx)
        {
            *self = sent.map_or_else(Upload::Failed, |()| Upload::Over);
        }
    }

    /// Returns the error of an upload that has failed, once.
    pub(super) fn take_error(&mut self) -> Option<UploadError> {
        if !matches!(self, Upload::Failed(_)) {
            return None;
        }
        match std::mem::replace(self, Upload::Over) {
            Upload::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Continues the upload until it fails. Returns the error, and never returns if the upload does
    /// not fail.
    pub(super) async fn failed(&mut self) -> UploadError {
        poll_fn(|cx| {
            self.advance(cx);
            self.take_error().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Resets the stream, because the response is malformed.
    pub(super) fn reset(&mut self, code: Code) {
        if let Upload::WithoutContent(stream) = self {
            stream.stop_stream(code);
        }
        *self = Upload::Over;
    }
}

async fn upload(stream: SendHalf, content: Content) -> Result<(), UploadError> {
    let mut stream = Incomplete { stream, is_complete: false };
    let sent = stream.send(content).await;
    stream.is_complete = sent.is_ok();
    match sent {
        Err(UploadError::Stream(error)) if is_unwanted(&error) => Ok(()),
        sent => sent,
    }
}

/// Returns true if the error means that the server does not read the rest of the request, and may
/// still send a response. A complete response counts whatever the code of STOP_SENDING is. Without
/// a response, the receiving half of the stream fails.
// RFC 9114 s.4.1 #12
pub(super) fn is_unwanted(error: &StreamError) -> bool {
    matches!(
        error,
        StreamError::RemoteTerminate { code, .. } if *code != Code::H3_REQUEST_REJECTED
    )
}

/// A stream that is reset when it is dropped, unless the request is complete.
struct Incomplete {
    stream: SendHalf,
    is_complete: bool,
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        if !self.is_complete {
            self.stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
    }
}

impl Incomplete {
    async fn send(&mut self, content: Content) -> Result<(), UploadError> {
        let Content { mut body, length } = content;
        let (mut sent, mut trailers) = (0, None);
        while let Some(frame) = body.frame().await {
            match frame.map_err(UploadError::Content)?.into_data() {
                // Empty DATA frames would only cost the server work.
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    sent += data.len() as u64;
                    if length.is_some_and(|length| sent > length) {
                        return Err(wrong_length());
                    }
                    self.stream.send_data(data).await.map_err(UploadError::Stream)?;
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        if length.is_some_and(|length| sent != length) {
            return Err(wrong_length());
        }
        if let Some(trailers) = trailers {
            if let Err(violation) = message::check_fields(&trailers) {
                return Err(UploadError::Content(violation.to_string().into()));
            }
            self.stream.send_trailers(trailers).await.map_err(UploadError::Stream)?;
        }
        self.stream.finish().await.map_err(UploadError::Stream)
    }
}

fn wrong_length() -> UploadError {
    UploadError::Content("its length is not the value of Content-Length".into())
}
