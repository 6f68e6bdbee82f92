//! A connection in the application's hands.

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

/// A connection whose handshake is under way. Awaited it becomes a [`Connection`]; dropped it is given
/// up.
pub struct Connecting(pub(crate) Option<Connection>);

impl Connecting {
    pub(crate) fn new(cell: Arc<Cell>) -> Connecting {
        Connecting(Some(Connection(Arc::new(Guard(cell)))))
    }

    /// The peer's address.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.0.as_ref().map(Connection::remote_address)
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(connection) = &self.0 else {
            // Polled after it was ready.
            return Poll::Ready(Err(ConnectionError::LocallyClosed));
        };
        let outcome = std::task::ready!(connection.cell().lock().poll_connected(cx));
        let connection = self.0.take();
        outcome?;
        Poll::Ready(connection.ok_or(ConnectionError::LocallyClosed))
    }
}

/// A connection; clones are the same one. When the last clone and the last of its streams is dropped it
/// is closed with code 0, and what is not sent by then is lost.
#[derive(Clone)]
pub struct Connection(pub(crate) Arc<Guard>);

/// Closes the connection when nobody holds it any more.
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

    /// Opens a stream of both directions; waits until the peer allows one more. The peer hears of it
    /// with the first data.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        poll_fn(|cx| self.poll_open_bi(cx)).await
    }

    /// Opens a stream for sending; waits until the peer allows one more.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        poll_fn(|cx| self.poll_open_uni(cx)).await
    }

    /// The next stream of both directions that the peer opens.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        poll_fn(|cx| self.poll_accept_bi(cx)).await
    }

    /// The next stream that the peer opens to send on.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        poll_fn(|cx| self.poll_accept_uni(cx)).await
    }

    /// As [`Connection::open_bi`], for those who implement a future themselves.
    ///
    /// # Errors
    /// The connection is over.
    pub fn poll_open_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        self.poll_open(Direction::Bidirectional, cx).map_ok(|opened| self.both(opened))
    }

    /// As [`Connection::open_uni`], for those who implement a future themselves.
    ///
    /// # Errors
    /// The connection is over.
    pub fn poll_open_uni(&self, cx: &mut Context<'_>) -> Poll<Result<SendStream, ConnectionError>> {
        self.poll_open(Direction::Unidirectional, cx)
            .map_ok(|(id, epoch)| SendStream::new(Arc::clone(&self.0), id, epoch))
    }

    /// As [`Connection::accept_bi`], for those who implement a future themselves.
    ///
    /// # Errors
    /// The connection is over.
    pub fn poll_accept_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        self.poll_accept(Direction::Bidirectional, cx).map_ok(|opened| self.both(opened))
    }

    /// As [`Connection::accept_uni`], for those who implement a future themselves.
    ///
    /// # Errors
    /// The connection is over.
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
            // The peer is told that more streams are wanted.
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

    /// Sends a datagram (RFC 9221): once, in one packet, when congestion control allows. It may be lost.
    ///
    /// # Errors
    /// [`DatagramError`]; it is not sent then. [`Connection::send_datagram_wait`] waits while there is no
    /// room; what is out of date by then is better dropped.
    pub fn send_datagram(&self, data: impl Into<Bytes>) -> Result<(), DatagramError> {
        let mut state = self.cell().lock();
        let outcome = state.connection.send_datagram(data);
        // Also if it was too large: the path is asked if it takes more.
        self.cell().touch(&mut state);
        outcome
    }

    /// As [`Connection::send_datagram`], waiting while too much waits for the network already.
    ///
    /// # Errors
    /// [`DatagramError`], but for [`DatagramError::Full`].
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

    /// The next datagram that the peer sent. So much of them is kept as
    /// [`TransportConfig::datagram_receive_buffer`](crate::TransportConfig) says, in bytes; beyond that
    /// the oldest are dropped.
    ///
    /// # Errors
    /// The connection is over, and no datagram is left.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        poll_fn(|cx| self.cell().lock().poll_datagram(cx)).await
    }

    /// The largest datagram that [`Connection::send_datagram`] takes now, in bytes; none: the peer takes
    /// none. It changes with the path.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.cell().lock().connection.max_datagram_size()
    }

    /// Closes the connection at once, with an application error code and a reason for people, of which
    /// 256 bytes are sent. What the peer has not acknowledged may be lost.
    pub fn close(&self, code: VarInt, reason: &str) {
        self.cell().close(code, reason);
    }

    /// Waits until it is over, and says why.
    pub async fn closed(&self) -> ConnectionError {
        let over = self.cell().lock().over();
        loop {
            let told = over.notified();
            tokio::pin!(told);
            // Before looking, or the end might come in between.
            told.as_mut().enable();
            if let Some(error) = self.close_reason() {
                return error;
            }
            told.await;
        }
    }

    /// Reason the connection is over; none while it is open.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.cell().lock().closed.clone()
    }

    /// Side of the connection that this endpoint is on.
    pub fn side(&self) -> Side {
        self.cell().lock().connection.side()
    }

    /// Returns the peer's address: the one that the connection sends to now.
    ///
    /// On a server, one packet that seems to come from another address changes it, before the address is validated (RFC
    /// 9000 s.9.3). The packet's source address may be forged, so do not count or judge clients by this address: use
    /// [`Connection::validated_address`].
    pub fn remote_address(&self) -> SocketAddr {
        self.cell().lock().connection.remote_address()
    }

    /// Returns the last address at which the peer proved that it receives: by a token, by its handshake or by answering a
    /// path validation (RFC 9000 s.8). Returns `None` before the first of these; on a server that is never so once
    /// [`Connection::handshake`] has returned.
    ///
    /// If the validation of a new address fails, this address does not change. With several paths it is the address of the
    /// active path. Count connections here.
    pub fn validated_address(&self) -> Option<SocketAddr> {
        self.cell().lock().connection.validated_address()
    }

    /// Waits until the peer has proved that it receives at another address than `seen`, and returns that address.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn address_validated(
        &self,
        seen: Option<SocketAddr>,
    ) -> Result<SocketAddr, ConnectionError> {
        poll_fn(|cx| self.cell().lock().poll_validated(seen, cx)).await
    }

    /// Returns how often the connection has changed to another address, validated or not (RFC 9000 s.9.3), including
    /// returns to the address before.
    pub fn moves(&self) -> u64 {
        self.cell().lock().moves
    }

    /// The first connection ID that the client sent to: a name of the connection that both ends know, and
    /// which is in logs.
    pub fn original_dcid(&self) -> ConnectionId {
        self.cell().lock().connection.original_dcid()
    }

    /// Round-trip time as it is estimated now.
    pub fn rtt(&self) -> Duration {
        self.cell().lock().connection.rtt()
    }

    /// Our address, if the system told which one datagrams came to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.cell().lock().connection.local_ip()
    }

    /// Counters of the connection, and what is known of its path.
    pub fn stats(&self) -> Stats {
        self.cell().lock().connection.stats()
    }

    /// The version of QUIC that it speaks; before the handshake is complete it may change.
    pub fn version(&self) -> KnownVersion {
        self.cell().lock().connection.version()
    }

    /// The protocol that TLS agreed on (ALPN).
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.cell().lock().connection.alpn().map(<[u8]>::to_vec)
    }

    /// Updates the keys (RFC 9001 s.6), if that is allowed yet; true if it was. Nobody need call it: it is
    /// done by itself when they have protected half of the packets that they may.
    pub fn update_keys(&self) -> bool {
        self.cell().lock().connection.update_keys()
    }

    /// Has the peer say that it is there.
    pub fn ping(&self) {
        let mut state = self.cell().lock();
        state.connection.ping();
        self.cell().touch(&mut state);
    }
}
