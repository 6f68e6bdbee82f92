//! Opens and accepts the streams of a connection.

use std::future::poll_fn;
use std::task::{Context, Poll};

use equic_transport::StreamError;
use equic_wire::{Direction, StreamId};

use crate::connection::Connection;
use crate::error::{ConnectionError, WriteError};
use crate::receive::RecvStream;
use crate::send::{SendStream, why};
use crate::wakers::register;

impl Connection {
    /// Opens a bidirectional stream. Waits until the peer's limit on streams permits one more. The
    /// peer learns of the stream when the first data arrives.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Connection;
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// let (mut send, mut receive) = connection.open_bi().await?;
    /// send.write_all(b"request").await?;
    /// send.finish()?;
    /// let answer = receive.read_to_end(64 << 10).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        poll_fn(|cx| self.poll_open_bi(cx)).await
    }

    /// Opens a unidirectional stream. Waits until the peer's limit on streams permits one more.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Connection;
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut send = connection.open_uni().await?;
    /// send.write_all(b"a line of a log\n").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        poll_fn(|cx| self.poll_open_uni(cx)).await
    }

    /// Waits for the next bidirectional stream that the peer opens.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Connection;
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     let (mut send, mut receive) = connection.accept_bi().await?;
    ///     tokio::spawn(async move {
    ///         let Ok(request) = receive.read_to_end(64 << 10).await else { return };
    ///         // If the connection is lost, the next `accept_bi` returns the reason.
    ///         let _ = send.write_all(&request).await;
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        poll_fn(|cx| self.poll_accept_bi(cx)).await
    }

    /// Waits for the next unidirectional stream that the peer opens.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Connection;
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut receive = connection.accept_uni().await?;
    /// let message = receive.read_to_end(64 << 10).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        poll_fn(|cx| self.poll_accept_uni(cx)).await
    }

    /// Polls for a bidirectional stream: see [`Connection::open_bi`]. For manual implementations of
    /// `Future`.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub fn poll_open_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        self.poll_open(Direction::Bidirectional, cx).map_ok(|opened| self.both(opened))
    }

    /// Polls for a unidirectional stream: see [`Connection::open_uni`]. For manual implementations
    /// of `Future`.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub fn poll_open_uni(&self, cx: &mut Context<'_>) -> Poll<Result<SendStream, ConnectionError>> {
        self.poll_open(Direction::Unidirectional, cx)
            .map_ok(|(id, epoch)| SendStream::new(self.guard(), id, epoch))
    }

    /// Polls for a bidirectional stream of the peer: see [`Connection::accept_bi`]. For manual
    /// implementations of `Future`.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub fn poll_accept_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        self.poll_accept(Direction::Bidirectional, cx).map_ok(|opened| self.both(opened))
    }

    /// Polls for a unidirectional stream of the peer: see [`Connection::accept_uni`]. For manual
    /// implementations of `Future`.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub fn poll_accept_uni(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionError>> {
        self.poll_accept(Direction::Unidirectional, cx)
            .map_ok(|(id, epoch)| RecvStream::new(self.guard(), id, epoch))
    }

    fn both(&self, (id, epoch): (StreamId, u8)) -> (SendStream, RecvStream) {
        let send = SendStream::new(self.guard(), id, epoch);
        (send, RecvStream::new(self.guard(), id, epoch))
    }

    fn poll_open(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(StreamId, u8), ConnectionError>> {
        let mut state = self.shared().lock();
        let outcome = state.poll_open(direction, cx);
        match &outcome {
            Poll::Ready(Ok(id)) => {
                let halves = if direction == Direction::Bidirectional { 2 } else { 1 };
                state.streams.entry(*id).or_default().halves = halves;
            }
            // The connection sends a STREAMS_BLOCKED frame.
            Poll::Pending => self.shared().wake_driver(&mut state),
            Poll::Ready(Err(_)) => {}
        }
        outcome.map_ok(|id| (id, state.epoch))
    }

    fn poll_accept(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(StreamId, u8), ConnectionError>> {
        let mut state = self.shared().lock();
        let outcome = state.poll_accept(direction, cx);
        if let Poll::Ready(Ok(id)) = &outcome {
            let halves = if direction == Direction::Bidirectional { 2 } else { 1 };
            state.streams.entry(*id).or_default().halves = halves;
        }
        outcome.map_ok(|id| (id, state.epoch))
    }

    /// Waits until up to `want` bytes of a stream can be sent, and returns their number. It is for
    /// applications that produce or read data only when it can be sent. Only the task that writes
    /// on the stream may call it.
    ///
    /// At most `ahead` bytes, over all streams of the connection, may be ready before they can be
    /// sent. No connection gets more than its share of
    /// [`EndpointConfig::send_memory`](crate::EndpointConfig::send_memory).
    ///
    /// # Errors
    /// Returns a [`WriteError`] if no more data can be written.
    pub async fn sendable(&self, id: StreamId, want: u64, ahead: u64) -> Result<u64, WriteError> {
        poll_fn(|cx| {
            let conn = self.shared();
            let mut state = conn.lock();
            state.check(state.epoch, WriteError::EarlyDataRejected)?;
            let most = conn.driver.send_memory.share();
            match state.connection.streams().sendable(id, want, most, ahead) {
                Ok(count) => Poll::Ready(Ok(count)),
                Err(StreamError::Write(equic_transport::WriteError::Blocked)) => {
                    register(&mut state.streams.entry(id).or_default().writer, cx);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(why(&state, id, error))),
            }
        })
        .await
    }

    /// Polls for the end of a stream: see [`SendStream::stopped`]. For manual implementations of
    /// `Future` that do not hold the [`SendStream`], which must exist. Only the task that writes on
    /// the stream may call this, because one task is woken for each stream.
    ///
    /// # Errors
    /// Returns a [`WriteError`] if the connection is closed, or if no [`SendStream`] with this ID
    /// exists.
    pub fn poll_stopped(
        &self,
        cx: &Context<'_>,
        id: StreamId,
    ) -> Poll<Result<Option<u64>, WriteError>> {
        let mut state = self.shared().lock();
        let Some(stream) = state.streams.get(&id) else {
            return Poll::Ready(Err(WriteError::Closed));
        };
        if stream.finished || stream.stopped.is_some() {
            return Poll::Ready(Ok(stream.stopped));
        }
        state.check(state.epoch, WriteError::EarlyDataRejected)?;
        if let Some(stream) = state.streams.get_mut(&id) {
            register(&mut stream.writer, cx);
        }
        Poll::Pending
    }
}
