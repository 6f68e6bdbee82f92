//! The application's interface to a connection.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use equic_transport::{DatagramError, Stats};
use equic_wire::{ConnectionId, Direction, KnownVersion, Side, StreamId, VarInt};

use crate::cell::Cell;
use crate::error::ConnectionError;
use crate::receive::RecvStream;
use crate::send::SendStream;

/// A connection whose handshake is in progress. This future resolves to a [`Connection`] when the
/// handshake is complete. Dropping it closes the connection.
pub struct Connecting(pub(crate) Option<Connection>);

impl Connecting {
    pub(crate) fn new(cell: Arc<Cell>) -> Connecting {
        Connecting(Some(Connection(Arc::new(Guard(cell)))))
    }

    /// Returns the peer's address, or `None` if this future has already returned its result.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.0.as_ref().map(Connection::remote_address)
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(connection) = &self.0 else {
            // This future was polled again after it had returned its result.
            return Poll::Ready(Err(ConnectionError::LocallyClosed));
        };
        let outcome = std::task::ready!(connection.cell().lock().poll_connected(cx));
        let connection = self.0.take();
        outcome?;
        Poll::Ready(connection.ok_or(ConnectionError::LocallyClosed))
    }
}

/// A connection. Clones refer to the same connection. When the last clone and the last of its
/// streams are dropped, the connection is closed with code 0. Data that was not sent by then is
/// lost.
#[derive(Clone)]
pub struct Connection(pub(crate) Arc<Guard>);

/// Closes the connection when the application has dropped all its handles.
pub(crate) struct Guard(pub(crate) Arc<Cell>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close(VarInt::ZERO, "");
    }
}

impl Connection {
    pub(crate) fn cell(&self) -> &Arc<Cell> {
        &self.0.0
    }

    /// Opens a bidirectional stream. Waits until the peer's limit on streams permits one more. The
    /// peer learns of the stream when the first data arrives.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        poll_fn(|cx| self.poll_open_bi(cx)).await
    }

    /// Opens a unidirectional stream. Waits until the peer's limit on streams permits one more.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        poll_fn(|cx| self.poll_open_uni(cx)).await
    }

    /// Waits for the next bidirectional stream that the peer opens.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        poll_fn(|cx| self.poll_accept_bi(cx)).await
    }

    /// Waits for the next unidirectional stream that the peer opens.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
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
            .map_ok(|(id, epoch)| SendStream::new(Arc::clone(&self.0), id, epoch))
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
            .map_ok(|(id, epoch)| RecvStream::new(Arc::clone(&self.0), id, epoch))
    }

    fn both(&self, (id, epoch): (StreamId, u8)) -> (SendStream, RecvStream) {
        let send = SendStream::new(Arc::clone(&self.0), id, epoch);
        (send, RecvStream::new(Arc::clone(&self.0), id, epoch))
    }

    fn poll_open(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(StreamId, u8), ConnectionError>> {
        let mut state = self.cell().lock();
        let outcome = state.poll_open(direction, cx);
        match &outcome {
            Poll::Ready(Ok(id)) => {
                let halves = if direction == Direction::Bidirectional { 2 } else { 1 };
                state.streams.entry(*id).or_default().halves = halves;
            }
            // The connection sends a STREAMS_BLOCKED frame.
            Poll::Pending => self.cell().touch(&mut state),
            Poll::Ready(Err(_)) => {}
        }
        outcome.map_ok(|id| (id, state.epoch))
    }

    fn poll_accept(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(StreamId, u8), ConnectionError>> {
        let mut state = self.cell().lock();
        let outcome = state.poll_accept(direction, cx);
        if let Poll::Ready(Ok(id)) = &outcome {
            let halves = if direction == Direction::Bidirectional { 2 } else { 1 };
            state.streams.entry(*id).or_default().halves = halves;
        }
        outcome.map_ok(|id| (id, state.epoch))
    }

    /// Sends a datagram (RFC 9221) in one packet, when congestion control permits. The datagram may
    /// be lost and is never retransmitted.
    ///
    /// # Errors
    /// Returns a [`DatagramError`] if the datagram was not queued.
    /// [`Connection::send_datagram_wait`] waits while the queue is full. If the data would be out
    /// of date by then, drop it instead.
    pub fn send_datagram(&self, data: impl Into<Bytes>) -> Result<(), DatagramError> {
        let mut state = self.cell().lock();
        let outcome = state.connection.send_datagram(data);
        // This is needed even if the datagram was too large, because the connection then probes for
        // a larger MTU.
        self.cell().touch(&mut state);
        outcome
    }

    /// Sends a datagram as [`Connection::send_datagram`] does, but waits while the queue is full.
    ///
    /// # Errors
    /// Returns a [`DatagramError`], but never [`DatagramError::Full`].
    pub async fn send_datagram_wait(&self, data: impl Into<Bytes>) -> Result<(), DatagramError> {
        let data = data.into();
        poll_fn(|cx| {
            let mut state = self.cell().lock();
            let outcome = state.poll_send_datagram(cx, &data);
            self.cell().touch(&mut state);
            outcome
        })
        .await
    }

    /// Waits for the next datagram of the peer. The connection buffers at most
    /// [`TransportConfig::datagram_receive_buffer`](crate::TransportConfig) bytes of datagrams.
    /// Beyond this limit, it drops the oldest.
    ///
    /// # Errors
    /// Returns an error if the connection is closed and no datagram is left.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        poll_fn(|cx| self.cell().lock().poll_datagram(cx)).await
    }

    /// Returns the maximum size in bytes of a datagram that [`Connection::send_datagram`] accepts
    /// now, or `None` if the peer does not accept datagrams. The size changes with the path's MTU.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.cell().lock().connection.max_datagram_size()
    }

    /// Closes the connection immediately, with an application error code and a reason for people.
    /// At most 256 bytes of the reason are sent. Data that the peer has not acknowledged may be
    /// lost.
    pub fn close(&self, code: VarInt, reason: &str) {
        self.cell().close(code, reason);
    }

    /// Waits until the connection is closed, and returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        let over = self.cell().lock().over();
        loop {
            let told = over.notified();
            tokio::pin!(told);
            // Register before the check, because the connection could be closed between the two.
            told.as_mut().enable();
            if let Some(error) = self.close_reason() {
                return error;
            }
            told.await;
        }
    }

    /// Returns the reason why the connection is closed, or `None` while it is open.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.cell().lock().closed.clone()
    }

    /// Returns whether this endpoint is the client or the server.
    pub fn side(&self) -> Side {
        self.cell().lock().connection.side()
    }

    /// Returns the address to which the connection sends now.
    ///
    /// On a server, a single packet that appears to come from another address changes it, before
    /// that address is validated (RFC 9000 s.9.3). An attacker can forge a packet's source address.
    /// Do not count or judge clients by this address: use [`Connection::validated_address`].
    pub fn remote_address(&self) -> SocketAddr {
        self.cell().lock().connection.remote_address()
    }

    /// Returns the last validated address of the peer: it was validated by a token, by the
    /// handshake, or by path validation (RFC 9000 s.8). Returns `None` before the first validation.
    /// On a server, it never returns `None` after [`Connection::handshake`] has succeeded.
    ///
    /// If the validation of a new address fails, this address does not change. With several paths,
    /// it is the address of the active path. Use this address to count connections.
    pub fn validated_address(&self) -> Option<SocketAddr> {
        self.cell().lock().connection.validated_address()
    }

    /// Waits until the last validated address of the peer is not `seen`, and returns that address.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn address_validated(
        &self,
        seen: Option<SocketAddr>,
    ) -> Result<SocketAddr, ConnectionError> {
        poll_fn(|cx| self.cell().lock().poll_validated(seen, cx)).await
    }

    /// Returns how many times the connection has changed to another address of the peer, validated
    /// or not (RFC 9000 s.9.3). Returns to an earlier address are counted, too.
    pub fn moves(&self) -> u64 {
        self.cell().lock().moves
    }

    /// Returns the original destination connection ID: the destination of the client's first
    /// Initial packet. Both ends know it, and logs use it as the name of the connection.
    pub fn original_dcid(&self) -> ConnectionId {
        self.cell().lock().connection.original_dcid()
    }

    /// Returns the current estimate of the round-trip time.
    pub fn rtt(&self) -> Duration {
        self.cell().lock().connection.rtt()
    }

    /// Returns the local address that the connection uses, or `None` if the system has not reported
    /// it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.cell().lock().connection.local_ip()
    }

    /// Returns the connection's counters and the state of its active path.
    pub fn stats(&self) -> Stats {
        self.cell().lock().connection.stats()
    }

    /// Returns the QUIC version in use. It may change until the handshake is complete.
    pub fn version(&self) -> KnownVersion {
        self.cell().lock().connection.version()
    }

    /// Returns the application protocol that TLS has negotiated (ALPN). Returns `None` without
    /// ALPN, or if it is not negotiated yet.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.cell().lock().connection.alpn().map(<[u8]>::to_vec)
    }

    /// Updates the keys (RFC 9001 s.6). Returns `false` if an update is not permitted yet. There is
    /// normally no need to call it: the connection updates its keys when they have protected half
    /// of the packets that they may protect.
    pub fn update_keys(&self) -> bool {
        self.cell().lock().connection.update_keys()
    }

    /// Sends a PING frame, which the peer must acknowledge.
    pub fn ping(&self) {
        let mut state = self.cell().lock();
        state.connection.ping();
        self.cell().touch(&mut state);
    }
}
