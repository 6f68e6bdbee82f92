//! Counts the content of a request, and reads and discards what no one reads.
//!
//! A request is malformed if its content does not match its Content-Length (RFC 9114 s.4.1.2). No
//! response depends on the content, and the end of a request may arrive late. So the server waits
//! only for a moment, sends the response, and continues to read.

use std::future::poll_fn;
use std::task::Poll;

use bytes::{Buf as _, Bytes};
use h3::error::StreamError;
use h3::quic::RecvStream;
use h3::server::RequestStream;

use crate::binding::{Requests, Violation};

/// Largest number of content bytes that the server reads and discards. If there is more content,
/// the server asks the client to stop.
const MAX: u64 = 64 * 1024;

/// Progress of reading a request's content.
pub(super) struct Content {
    /// Value of Content-Length, if the request has it.
    announced: Option<u64>,
    received: u64,
    ended: bool,
}

/// The reason why reading the content has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// All content has arrived, or the client has cancelled the rest.
    Over,
    /// The content shows that the request is malformed.
    Malformed,
    /// The rest of the content is longer than the server is willing to read.
    Unwanted,
}

impl Content {
    pub(super) fn new(announced: Option<u64>) -> Content {
        Content { announced, received: 0, ended: false }
    }

    /// Returns `true` if the request announces content that is short enough for the server to read.
    /// The server can then compare the content with Content-Length.
    pub(super) fn is_expected(&self) -> bool {
        self.announced.is_some_and(|length| length <= MAX)
    }

    /// Reads until the announced content has arrived.
    pub(super) async fn read<S: RecvStream>(
        &mut self,
        stream: &mut RequestStream<S, Bytes>,
    ) -> Result<(), StreamError> {
        while !self.ended && self.received < self.announced.unwrap_or(0) {
            match stream.recv_data().await? {
                Some(data) => self.received += data.remaining() as u64,
                None => self.ended = true,
            }
        }
        Ok(())
    }

    /// Reads the content that has arrived, without waiting. This includes trailers, which the
    /// binding checks.
    pub(super) async fn read_ready<S: RecvStream>(
        &mut self,
        stream: &mut RequestStream<S, Bytes>,
    ) -> Result<(), StreamError> {
        poll_fn(|cx| {
            while !self.ended && self.received <= MAX {
                match stream.poll_recv_data(cx) {
                    Poll::Ready(Ok(Some(data))) => self.received += data.remaining() as u64,
                    Poll::Ready(Ok(None)) => self.ended = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Counts data that a service has read. `None` is the end of the content.
    pub(super) fn received(&mut self, bytes: Option<usize>) {
        match bytes {
            Some(bytes) => self.received += bytes as u64,
            None => self.ended = true,
        }
    }

    /// Returns the number of bytes that have not been read yet, if the request announced its length.
    pub(super) fn announced_left(&self) -> Option<u64> {
        self.announced.map(|length| length.saturating_sub(self.received))
    }

    /// Checks the content that has arrived so far (RFC 9114 s.4.1.2).
    pub(super) fn check(&self) -> Result<(), Violation> {
        match self.announced {
            Some(length) if self.received > length || (self.ended && self.received < length) => {
                Err(Violation::ContentMismatch)
            }
            _ => Ok(()),
        }
    }

    /// Reads until the request ends, or until it is certain that the rest is longer than the server
    /// reads.
    pub(super) async fn rest<S: RecvStream>(
        &mut self,
        stream: &mut RequestStream<S, Bytes>,
        requests: &Requests,
    ) -> Rest {
        let id = stream.id().into_inner();
        poll_fn(|cx| {
            while !self.ended {
                match stream.poll_recv_data(cx) {
                    Poll::Ready(Ok(Some(data))) => self.received += data.remaining() as u64,
                    Poll::Ready(Ok(None)) => self.ended = true,
                    // An error that the binding found: the request is malformed.
                    Poll::Ready(Err(StreamError::Undefined { .. })) => {
                        return Poll::Ready(Rest::Malformed);
                    }
                    // The client has reset the stream, or the connection is closed.
                    Poll::Ready(Err(_)) => return Poll::Ready(Rest::Over),
                    Poll::Pending => {
                        let coming = self.received.saturating_add(requests.content_left(id));
                        if coming.max(self.announced.unwrap_or(0)) > MAX {
                            return Poll::Ready(Rest::Unwanted);
                        }
                        return Poll::Pending;
                    }
                }
                if self.received > MAX {
                    return Poll::Ready(Rest::Unwanted);
                }
            }
            Poll::Ready(Rest::Over)
        })
        .await
    }
}
