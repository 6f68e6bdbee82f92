//! The receiving half of a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use equic_transport::{Pieces, ReadOutcome, StreamError, Streams};
use equic_wire::{StreamId, VarInt};
use tokio::io::{AsyncRead, ReadBuf};

use crate::error::{ReadError, ReadToEndError};
use crate::shared::Guard;
use crate::wakers::register;

/// Maximum number of bytes that are read at a time if the caller provides no buffer.
const CHUNK: usize = 16 * 1024;

/// The receiving half of a stream. If it is dropped before the end of the stream, the stream is
/// stopped with code 0 (STOP_SENDING).
pub struct RecvStream {
    guard: Arc<Guard>,
    id: StreamId,
    /// See [`crate::shared::State::epoch`].
    epoch: u8,
    end: Option<End>,
    /// Data that a dropped [`RecvStream::read_to_end`] had read. Every read returns it first.
    kept: Vec<u8>,
}

/// The reason why no more data arrives.
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

    /// Returns the stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Polls for data: see [`RecvStream::read`]. For manual implementations of `Future`. Returns
    /// the number of bytes, or 0 at the end of the stream.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if no more data can be read.
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

    /// Polls for data: see [`RecvStream::read_chunk`]. For manual implementations of `Future`.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if no more data can be read.
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

    /// Polls for data: see [`RecvStream::read_with`]. For manual implementations of `Future`.
    /// Returns the number of bytes, or 0 at the end of the stream.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if no more data can be read.
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
            // The connection is not locked during the calls, so `take` may use it.
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
        let conn = &self.guard.0;
        let mut state = conn.lock();
        state.check(self.epoch, ReadError::EarlyDataRejected)?;
        let outcome = read(state.connection.streams(), self.id);
        // The connection may now raise the peer's flow control limit.
        if state.connection.streams().has_control() {
            conn.wake_driver(&mut state);
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

    /// Reads into `buffer`, and waits if no data is available. Returns the number of bytes, or
    /// `None` at the end of the stream.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if no more data can be read.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::RecvStream;
    ///
    /// # async fn example(mut receive: RecvStream) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut buffer = [0; 4096];
    /// while let Some(count) = receive.read(&mut buffer).await? {
    ///     println!("{:?}", &buffer[..count]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let count = poll_fn(|cx| self.poll_read(cx, buffer)).await?;
        Ok((count > 0 || buffer.is_empty()).then_some(count))
    }

    /// Reads at most `limit` bytes without a copy: calls `take` with each slice of received data,
    /// in order. Waits if no data is available. Returns the number of bytes, or `None` at the end
    /// of the stream.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if no more data can be read.
    pub async fn read_with(
        &mut self,
        limit: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Option<usize>, ReadError> {
        let count = poll_fn(|cx| self.poll_read_with(cx, limit, &mut take)).await?;
        Ok((count > 0 || limit == 0).then_some(count))
    }

    /// Reads the next bytes, and waits if no data is available. Returns `None` at the end of the
    /// stream.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if no more data can be read.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::RecvStream;
    ///
    /// # async fn example(mut receive: RecvStream) -> Result<(), Box<dyn std::error::Error>> {
    /// while let Some(chunk) = receive.read_chunk().await? {
    ///     println!("{} bytes", chunk.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read_chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| self.poll_read_chunk(cx)).await
    }

    /// Reads to the end of the stream, at most `limit` bytes. If the future is dropped, the stream
    /// keeps what the future has read, and the next read of any kind returns that first.
    ///
    /// # Errors
    /// Returns [`ReadToEndError::TooLong`] if the peer sends more than `limit` bytes; the stream is
    /// then stopped with code 0. Returns [`ReadToEndError::Read`] if reading fails; other reads
    /// then still return what arrived before the error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{ReadToEndError, RecvStream};
    ///
    /// # async fn example(mut receive: RecvStream) -> Result<(), Box<dyn std::error::Error>> {
    /// match receive.read_to_end(64 << 10).await {
    ///     Ok(request) => println!("{} bytes", request.len()),
    ///     Err(ReadToEndError::TooLong(limit)) => println!("more than {limit} bytes"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
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

    /// Stops the stream with an application error code (STOP_SENDING). Unread data is discarded.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{RecvStream, VarInt};
    ///
    /// # async fn example(mut receive: RecvStream) -> Result<(), Box<dyn std::error::Error>> {
    /// let first = receive.read_chunk().await?;
    /// // The code has a meaning for the application only.
    /// receive.stop(VarInt::from_u32(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&mut self, code: VarInt) {
        self.kept = Vec::new();
        if self.end.is_some() {
            return;
        }
        self.end = Some(End::Stopped);
        let conn = &self.guard.0;
        let mut state = conn.lock();
        // If this thread is unwinding, a panic in the inconsistent state would abort the process.
        if conn.is_broken() {
            return conn.wake_driver(&mut state);
        }
        if state.is_open(self.epoch) && state.connection.streams().stop(self.id, code.get()).is_ok()
        {
            conn.wake_driver(&mut state);
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
