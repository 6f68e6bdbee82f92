//! The content of a request, which this server reads and throws away.
//!
//! A request is malformed if its content has another length than it announces (RFC 9114 s.4.1.2). No
//! response depends on the content. So the server waits for it for a moment only, answers, and reads on:
//! the end of a request may come late.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Buf as _;
use h3::error::StreamError;

use super::respond::Stream;
use crate::binding::Requests;

/// Bytes of content that are read, and thrown away. No more are wanted.
const MAX: u64 = 64 * 1024;

/// What is known of a request's content.
pub(super) struct Content {
    /// Length that the request announces, or `None` if it announces none.
    announced: Option<u64>,
    received: u64,
    ended: bool,
}

/// Why reading the content has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// All of it has come, or the client has given up the rest.
    Over,
    /// The request turned out to be malformed.
    Malformed,
    /// More is on its way than the server reads.
    Unwanted,
}

impl Content {
    pub(super) fn new(announced: Option<u64>) -> Content {
        Content { announced, received: 0, ended: false }
    }

    /// Returns true if the request announces content that the server can compare with what comes.
    pub(super) fn is_expected(&self) -> bool {
        self.announced.is_some_and(|length| length <= MAX)
    }

    /// Reads until the announced content has come.
    pub(super) async fn read(&mut self, stream: &mut Stream) -> Result<(), StreamError> {
        while !self.ended && self.received < self.announced.unwrap_or(0) {
            match stream.recv_data().await? {
                Some(data) => self.received += data.remaining() as u64,
                None => self.ended = true,
            }
        }
        Ok(())
    }

    /// Reads what has come already, and waits for nothing. That includes trailers, which the binding
    /// checks.
    pub(super) async fn read_ready(&mut self, stream: &mut Stream) -> Result<(), StreamError> {
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

    /// Checks what has come so far (RFC 9114 s.4.1.2).
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self.announced {
            Some(length) if self.received > length || (self.ended && self.received < length) => {
                Err("content of another length than announced")
            }
            _ => Ok(()),
        }
    }

    /// Reads on until the request ends, or until it is certain that too much is still to come.
    pub(super) async fn rest(&mut self, stream: &mut Stream, requests: &Requests) -> Rest {
        let id = stream.id().into_inner();
        poll_fn(|cx| {
            while !self.ended {
                match stream.poll_recv_data(cx) {
                    Poll::Ready(Ok(Some(data))) => self.received += data.remaining() as u64,
                    Poll::Ready(Ok(None)) => self.ended = true,
                    // Errors of the binding, which finds requests malformed.
                    Poll::Ready(Err(StreamError::Undefined { .. })) => {
                        return Poll::Ready(Rest::Malformed);
                    }
                    // The client has reset the stream, or the connection is over.
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
