//! The receiving half of a stream in the application's hands.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use equic_transport::{Pieces, ReadOutcome, StreamError, Streams};
use equic_wire::{StreamId, VarInt};
use tokio::io::{AsyncRead, ReadBuf};

use crate::cell::register;
use crate::connection::Guard;
use crate::error::{ReadError, ReadToEndError};

/// Bytes that are read at a time where the caller brings no buffer.
const CHUNK: usize = 16 * 1024;

/// Receives on a stream. Dropped before its end, the peer is asked to stop, with code 0.
pub struct RecvStream {
    guard: Arc<Guard>,
    id: StreamId,
    /// See [`crate::cell::State::epoch`].
    epoch: u8,
    end: Option<End>,
    /// Data that a [`RecvStream::read_to_end`] had read when it was dropped. Every read returns it first.
    kept: Vec<u8>,
}

/// Nothing more comes.
#[derive(Clone, Copy)]
enum End {
    Finished,
    Reset(u64),
    Stopped,
}

impl RecvStream {
    pub(crate) fn new(guard: Arc<Guard>, id: StreamId, epoch: u8) -> RecvStream {
        RecvStream { guard, id, epoch, end: None, kept: Vec::new() }
    }

    /// The stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// As [`RecvStream::read`], for those who implement a future themselves: how many bytes, 0 when
    /// all has been read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn poll_read(
        &mut self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, ReadError>> {
        if buffer.is_empty() && self.end.is_none() {
            return Poll::Ready(Ok(0));
        }
        if !self.kept.is_empty() {
            let count = buffer.len().min(self.kept.len());
            buffer[..count].copy_from_slice(&self.kept[..count]);
            self.kept.drain(..count);
            return Poll::Ready(Ok(count));
        }
        self.poll_with(cx, |streams, id| streams.read(id, buffer))
    }

    /// As [`RecvStream::read_chunk`], for those who implement a future themselves.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn poll_read_chunk(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        if !self.kept.is_empty() {
            return Poll::Ready(Ok(Some(Bytes::from(std::mem::take(&mut self.kept)))));
        }
        self.poll_new_chunk(cx)
    }

    fn poll_new_chunk(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        let mut chunk = Vec::new();
        let outcome = self.poll_with(cx, |streams, id| streams.read_to(id, &mut chunk, CHUNK));
        outcome.map_ok(|count| (count > 0).then(|| Bytes::from(chunk)))
    }

    /// As [`RecvStream::read_with`], for those who implement a future themselves; returns the number of bytes, 0 when all has
    /// been read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn poll_read_with(
        &mut self,
        cx: &Context<'_>,
        limit: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<usize, ReadError>> {
        if limit == 0 && self.end.is_none() {
            return Poll::Ready(Ok(0));
        }
        if !self.kept.is_empty() {
            let count = limit.min(self.kept.len());
            take(&self.kept[..count]);
            self.kept.drain(..count);
            return Poll::Ready(Ok(count));
        }
        let mut pieces = Pieces::default();
        let outcome = self.poll_with(cx, |streams, id| streams.read_pieces(id, limit, &mut pieces));
        if let Poll::Ready(Ok(1..)) = outcome {
            // The connection is not locked meanwhile: whoever looks at the data may use it.
            pieces.iter().for_each(take);
            self.guard.0.lock().connection.streams().take_back(&mut pieces);
        }
        outcome
    }

    fn poll_with(
        &mut self,
        cx: &Context<'_>,
        read: impl FnOnce(&mut Streams, StreamId) -> Result<ReadOutcome, StreamError>,
    ) -> Poll<Result<usize, ReadError>> {
        match self.end {
            Some(End::Finished) => return Poll::Ready(Ok(0)),
            Some(End::Reset(code)) => return Poll::Ready(Err(ReadError::Reset(code))),
            Some(End::Stopped) => return Poll::Ready(Err(ReadError::Closed)),
            None => {}
        }
        let cell = &self.guard.0;
        let mut state = cell.lock();
        state.check(self.epoch, ReadError::EarlyDataRejected)?;
        let outcome = read(state.connection.streams(), self.id);
        // The peer may be told of more room.
        if state.connection.streams().has_control() {
            cell.touch(&mut state);
        }
        match outcome {
            Ok(ReadOutcome::Bytes(count)) => Poll::Ready(Ok(count)),
            Ok(ReadOutcome::Blocked) => {
                register(&mut state.streams.entry(self.id).or_default().reader, cx);
                Poll::Pending
            }
            Ok(ReadOutcome::Finished) => {
                self.end = Some(End::Finished);
                Poll::Ready(Ok(0))
            }
            Ok(ReadOutcome::Reset(code)) => {
                self.end = Some(End::Reset(code));
                Poll::Ready(Err(ReadError::Reset(code)))
            }
            Err(_) => Poll::Ready(Err(ReadError::Closed)),
        }
    }

    /// Reads into `buffer`, waiting while there is nothing; how many bytes, none: all has been read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let count = poll_fn(|cx| self.poll_read(cx, buffer)).await?;
        Ok((count > 0 || buffer.is_empty()).then_some(count))
    }

    /// Reads at most `limit` bytes without a copy: calls `take` with one slice of received data after the other, in order. Returns
    /// the number of bytes; none: all has been read. Waits while there is nothing.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_with(
        &mut self,
        limit: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Option<usize>, ReadError> {
        let count = poll_fn(|cx| self.poll_read_with(cx, limit, &mut take)).await?;
        Ok((count > 0 || limit == 0).then_some(count))
    }

    /// The next bytes, as they came; none: all has been read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| self.poll_read_chunk(cx)).await
    }

    /// Reads all up to the end of the stream, at most `limit` bytes. If the future is dropped, the stream keeps what it
    /// has read, and the next read of any kind returns that first.
    ///
    /// # Errors
    /// [`ReadToEndError::TooLong`] if the peer sends more: the stream is stopped then, with code 0. After a
    /// [`ReadToEndError::Read`], the other reads still return what came before the error.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        loop {
            if self.kept.len() > limit {
                self.stop(VarInt::ZERO);
                return Err(ReadToEndError::TooLong(limit));
            }
            match poll_fn(|cx| self.poll_new_chunk(cx)).await? {
                Some(chunk) => self.kept.extend_from_slice(&chunk),
                None => return Ok(std::mem::take(&mut self.kept)),
            }
        }
    }

    /// Wants no more, and tells the peer why with an application error code.
    pub fn stop(&mut self, code: VarInt) {
        self.kept = Vec::new();
        if self.end.is_some() {
            return;
        }
        self.end = Some(End::Stopped);
        let cell = &self.guard.0;
        let mut state = cell.lock();
        // If this thread is unwinding, a panic in the inconsistent state would abort the process.
        if cell.is_broken() {
            return cell.touch(&mut state);
        }
        if state.is_open(self.epoch) && state.connection.streams().stop(self.id, code.get()).is_ok()
        {
            cell.touch(&mut state);
        }
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.stop(VarInt::ZERO);
        if !self.guard.0.is_broken() {
            self.guard.0.lock().drop_half(self.id, self.epoch);
        }
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.get_mut().poll_read(cx, buffer.initialize_unfilled());
        read.map_ok(|count| buffer.advance(count)).map_err(Into::into)
    }
}
