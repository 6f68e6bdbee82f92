//! The sending half of a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use equic_transport::{StreamError, Streams};
use equic_wire::{StreamId, VarInt};
use tokio::io::AsyncWrite;

use crate::error::WriteError;
use crate::shared::{Guard, State};
use crate::wakers::register;

/// The sending half of a stream. Dropping it finishes the stream: data that was written is still
/// sent. `AsyncWrite::poll_shutdown` finishes the stream, too.
pub struct SendStream {
    guard: Arc<Guard>,
    id: StreamId,
    /// See [`State::epoch`].
    epoch: u8,
    /// True if the stream was finished or reset.
    ended: bool,
}

impl SendStream {
    pub(crate) fn new(guard: Arc<Guard>, id: StreamId, epoch: u8) -> SendStream {
        SendStream { guard, id, epoch, ended: false }
    }

    /// Returns the stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    fn poll_with(
        &mut self,
        cx: &Context<'_>,
        write: impl FnOnce(&mut Streams, StreamId) -> Result<usize, StreamError>,
    ) -> Poll<Result<usize, WriteError>> {
        if self.ended {
            return Poll::Ready(Err(WriteError::Closed));
        }
        let conn = &self.guard.0;
        let mut state = conn.lock();
        state.check(self.epoch, WriteError::EarlyDataRejected)?;
        match write(state.connection.streams(), self.id) {
            Ok(count) => {
                if !state.removed {
                    state.count_buffered(&conn.driver.send_memory);
                }
                conn.wake_driver(&mut state);
                Poll::Ready(Ok(count))
            }
            Err(StreamError::Write(equic_transport::WriteError::Blocked)) => {
                register(&mut state.streams.entry(self.id).or_default().writer, cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(why(&state, self.id, error))),
        }
    }

    /// Polls for room and writes: see [`SendStream::write`]. For manual implementations of
    /// `Future`.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    pub fn poll_write(&mut self, cx: &Context<'_>, data: &[u8]) -> Poll<Result<usize, WriteError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_with(cx, |streams, id| streams.write(id, data))
    }

    /// Writes as [`SendStream::poll_write`] does, but without a copy. Removes the written bytes
    /// from `data`.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    pub fn poll_write_chunk(
        &mut self,
        cx: &Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_with(cx, |streams, id| streams.write_bytes(id, data))
    }

    /// Writes as [`SendStream::poll_write`] does, from a buffer that may have several chunks.
    /// Removes the written bytes from `data`.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    pub fn poll_write_buf(
        &mut self,
        cx: &Context<'_>,
        data: &mut impl Buf,
    ) -> Poll<Result<usize, WriteError>> {
        if !data.has_remaining() {
            return Poll::Ready(Ok(0));
        }
        self.poll_with(cx, |streams, id| {
            let mut written = 0;
            while data.has_remaining() {
                match streams.write(id, data.chunk()) {
                    Ok(count) => {
                        data.advance(count);
                        written += count;
                    }
                    // The next call returns the reason why the rest was not written.
                    Err(_) if written > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(written)
        })
    }

    /// Writes as much of `data` as there is room for, and waits while there is no room. Returns the
    /// number of bytes.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::SendStream;
    ///
    /// # async fn example(mut send: SendStream) -> Result<(), Box<dyn std::error::Error>> {
    /// let file = std::fs::read("movie")?;
    /// let mut rest = &file[..];
    /// while !rest.is_empty() {
    ///     let count = send.write(rest).await?;
    ///     rest = &rest[count..];
    ///     println!("{} bytes left", rest.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        poll_fn(|cx| self.poll_write(cx, data)).await
    }

    /// Writes all of `data`. If the future is dropped, a part of `data` may have been written.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{SendStream, WriteError};
    ///
    /// # async fn example(mut send: SendStream) -> Result<(), Box<dyn std::error::Error>> {
    /// match send.write_all(b"hello").await {
    ///     Err(WriteError::Stopped(code)) => println!("the peer reads no more: {code}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), WriteError> {
        while !data.is_empty() {
            let count = self.write(data).await?;
            data = &data[count..];
        }
        Ok(())
    }

    /// Writes all of `data` as [`SendStream::write_all`] does, but without a copy.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    pub async fn write_chunk(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            poll_fn(|cx| self.poll_write_chunk(cx, &mut data)).await?;
        }
        Ok(())
    }

    /// Finishes the stream: the peer sees its end after the last byte that was written. If the peer
    /// has stopped the stream, this does nothing, and [`SendStream::stopped`] returns the peer's
    /// code.
    ///
    /// # Errors
    /// Returns a [`WriteError`], for example [`WriteError::Closed`] if the stream was finished or
    /// reset before.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::SendStream;
    ///
    /// # async fn example(mut send: SendStream) -> Result<(), Box<dyn std::error::Error>> {
    /// send.write_all(b"the last bytes").await?;
    /// send.finish()?;
    /// // Wait until everything has arrived, before the connection is closed.
    /// if let Some(code) = send.stopped().await? {
    ///     println!("the peer did not read everything: {code}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if self.ended {
            return Err(WriteError::Closed);
        }
        let conn = &self.guard.0;
        let mut state = conn.lock();
        state.check(self.epoch, WriteError::EarlyDataRejected)?;
        if let Err(error) = state.connection.streams().finish(self.id) {
            match why(&state, self.id, error) {
                WriteError::Stopped(_) => {}
                error => return Err(error),
            }
        }
        self.ended = true;
        conn.wake_driver(&mut state);
        Ok(())
    }

    /// Resets the stream with an application error code (RESET_STREAM). Data that was written may
    /// not arrive.
    pub fn reset(&mut self, code: VarInt) {
        let conn = &self.guard.0;
        let mut state = conn.lock();
        self.ended = true;
        if state.is_open(self.epoch)
            && state.connection.streams().reset(self.id, code.get()).is_ok()
        {
            conn.wake_driver(&mut state);
        }
    }

    /// Waits until the peer has acknowledged all data and the end of the stream, or has stopped the
    /// stream. Returns `None` in the first case, and the peer's error code in the second.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if the connection is closed or the early data was rejected.
    pub async fn stopped(&mut self) -> Result<Option<u64>, WriteError> {
        poll_fn(|cx| {
            let mut state = self.guard.0.lock();
            if state.closed.is_none() {
                state.check(self.epoch, WriteError::EarlyDataRejected)?;
            }
            let stream = state.streams.entry(self.id).or_default();
            if stream.finished || stream.stopped.is_some() {
                return Poll::Ready(Ok(stream.stopped));
            }
            state.check(self.epoch, WriteError::EarlyDataRejected)?;
            register(&mut state.streams.entry(self.id).or_default().writer, cx);
            Poll::Pending
        })
        .await
    }

    /// Sets the stream's priority among the streams of its connection. Streams of a higher priority
    /// send first. Streams of the same priority take turns. Default: 0.
    ///
    /// # Errors
    /// Returns [`WriteError::Closed`] if all data was acknowledged or the stream was reset, and
    /// otherwise the errors of [`SendStream::write`].
    pub fn set_priority(&mut self, priority: i32) -> Result<(), WriteError> {
        let mut state = self.guard.0.lock();
        state.check(self.epoch, WriteError::EarlyDataRejected)?;
        let set = state.connection.streams().set_priority(self.id, priority);
        set.map_err(|error| why(&state, self.id, error))
    }

    /// Returns the stream's priority.
    ///
    /// # Errors
    /// Returns the errors of [`SendStream::set_priority`].
    pub fn priority(&self) -> Result<i32, WriteError> {
        let mut state = self.guard.0.lock();
        state.check(self.epoch, WriteError::EarlyDataRejected)?;
        let priority = state.connection.streams().priority(self.id);
        priority.map_err(|error| why(&state, self.id, error))
    }
}

/// Returns the error of a stream, given the transport's error.
pub(crate) fn why(state: &State, id: StreamId, error: StreamError) -> WriteError {
    let stopped = state.streams.get(&id).and_then(|stream| stream.stopped);
    match (error, stopped) {
        (StreamError::Write(equic_transport::WriteError::Stopped(code)), _) | (_, Some(code)) => {
            WriteError::Stopped(code)
        }
        _ => WriteError::Closed,
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let conn = &self.guard.0;
        let mut state = conn.lock();
        // If this thread is unwinding, a panic in the inconsistent state would abort the process.
        if conn.is_broken() {
            return conn.wake_driver(&mut state);
        }
        if !self.ended
            && state.is_open(self.epoch)
            && state.connection.streams().finish(self.id).is_ok()
        {
            conn.wake_driver(&mut state);
        }
        state.drop_half(self.id, self.epoch);
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write(cx, data).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Written data is sent without a flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        Poll::Ready(if this.ended { Ok(()) } else { this.finish().map_err(Into::into) })
    }
}
