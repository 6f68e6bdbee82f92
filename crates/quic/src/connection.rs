//! The application's interface to a connection.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use equic_transport::{DatagramError, Stats};
use equic_wire::{ConnectionId, KnownVersion, Side, VarInt};

use crate::error::ConnectionError;
use crate::shared::{Guard, SharedConnection};

/// A connection. Clones refer to the same connection. When the last clone and the last of its
/// streams are dropped, the connection is closed with code 0. Data that was not sent by then is
/// lost.
#[derive(Clone)]
pub struct Connection(Arc<Guard>);

impl Connection {
    pub(crate) fn new(shared: Arc<SharedConnection>) -> Connection {
        Connection(Arc::new(Guard(shared)))
    }

    pub(crate) fn shared(&self) -> &Arc<SharedConnection> {
        &self.0.0
    }

    /// Returns the guard that keeps the connection open. Each stream has one.
    pub(crate) fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.0)
    }

    /// Sends a datagram (RFC 9221) in one packet, when congestion control permits. The datagram may
    /// be lost and is never retransmitted.
    ///
    /// # Errors
    /// Returns a [`DatagramError`] if the datagram was not queued.
    /// [`Connection::send_datagram_wait`] waits while the queue is full. If the data would be out
    /// of date by then, drop it instead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{Connection, DatagramError};
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// match connection.send_datagram(&b"position 3 4"[..]) {
    ///     Ok(()) => {}
    ///     // A newer position follows soon, so this one is dropped.
    ///     Err(DatagramError::Full) => {}
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_datagram(&self, data: impl Into<Bytes>) -> Result<(), DatagramError> {
        let mut state = self.shared().lock();
        let outcome = state.connection.send_datagram(data);
        // This is needed even if the datagram was too large, because the connection then probes for
        // a larger MTU.
        self.shared().wake_driver(&mut state);
        outcome
    }

    /// Sends a datagram as [`Connection::send_datagram`] does, but waits while the queue is full.
    ///
    /// # Errors
    /// Returns a [`DatagramError`], but never [`DatagramError::Full`].
    pub async fn send_datagram_wait(&self, data: impl Into<Bytes>) -> Result<(), DatagramError> {
        let data = data.into();
        poll_fn(|cx| {
            let mut state = self.shared().lock();
            let outcome = state.poll_send_datagram(cx, &data);
            self.shared().wake_driver(&mut state);
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
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Connection;
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     let datagram = connection.read_datagram().await?;
    ///     println!("{} bytes", datagram.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        poll_fn(|cx| self.shared().lock().poll_datagram(cx)).await
    }

    /// Returns the maximum size in bytes of a datagram that [`Connection::send_datagram`] accepts
    /// now, or `None` if the peer does not accept datagrams. The size changes with the path's MTU.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.shared().lock().connection.max_datagram_size()
    }

    /// Closes the connection immediately, with an application error code and a reason for people.
    /// At most 256 bytes of the reason are sent. Data that the peer has not acknowledged may be
    /// lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::{Connection, VarInt};
    ///
    /// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// connection.close(VarInt::from_u32(7), "the user has logged out");
    /// println!("{}", connection.closed().await);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self, code: VarInt, reason: &str) {
        self.shared().close(code, reason);
    }

    /// Waits until the connection is closed, and returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        let close_notify = self.shared().lock().close_notify();
        loop {
            let closed = close_notify.notified();
            tokio::pin!(closed);
            // Register before the check, because the connection could be closed between the two.
            closed.as_mut().enable();
            if let Some(error) = self.close_reason() {
                return error;
            }
            closed.await;
        }
    }

    /// Returns the reason why the connection is closed, or `None` while it is open.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.shared().lock().closed.clone()
    }

    /// Returns whether this endpoint is the client or the server.
    pub fn side(&self) -> Side {
        self.shared().lock().connection.side()
    }

    /// Returns the address to which the connection sends now.
    ///
    /// On a server, a single packet that appears to come from another address changes it, before
    /// that address is validated (RFC 9000 s.9.3). An attacker can forge a packet's source address.
    /// Do not count or judge clients by this address: use [`Connection::validated_address`].
    pub fn remote_address(&self) -> SocketAddr {
        self.shared().lock().connection.remote_address()
    }

    /// Returns the last validated address of the peer: it was validated by a token, by the
    /// handshake, or by path validation (RFC 9000 s.8). Returns `None` before the first validation.
    /// On a server, it never returns `None` after [`Connection::handshake`] has succeeded.
    ///
    /// If the validation of a new address fails, this address does not change. With several paths,
    /// it is the address of the active path. Use this address to count connections.
    pub fn validated_address(&self) -> Option<SocketAddr> {
        self.shared().lock().connection.validated_address()
    }

    /// Waits until the last validated address of the peer is not `seen`, and returns that address.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn address_validated(
        &self,
        seen: Option<SocketAddr>,
    ) -> Result<SocketAddr, ConnectionError> {
        poll_fn(|cx| self.shared().lock().poll_validated(seen, cx)).await
    }

    /// Returns how many times the connection has changed to another address of the peer, validated
    /// or not (RFC 9000 s.9.3). Returns to an earlier address are counted, too.
    pub fn moves(&self) -> u64 {
        self.shared().lock().moves
    }

    /// Returns the original destination connection ID: the destination of the client's first
    /// Initial packet. Both ends know it, and logs use it as the name of the connection.
    pub fn original_dcid(&self) -> ConnectionId {
        self.shared().lock().connection.original_dcid()
    }

    /// Returns the current estimate of the round-trip time.
    pub fn rtt(&self) -> Duration {
        self.shared().lock().connection.rtt()
    }

    /// Returns the local address that the connection uses, or `None` if the system has not reported
    /// it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.shared().lock().connection.local_ip()
    }

    /// Returns the connection's counters and the state of its active path.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use equic_quic::Connection;
    ///
    /// # fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// let stats = connection.stats();
    /// println!("{} datagrams sent", stats.datagrams_sent);
    /// println!("{} bytes in flight", stats.path.bytes_in_flight);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        self.shared().lock().connection.stats()
    }

    /// Returns the QUIC version in use. It may change until the handshake is complete.
    pub fn version(&self) -> KnownVersion {
        self.shared().lock().connection.version()
    }

    /// Returns the application protocol that TLS has negotiated (ALPN). Returns `None` without
    /// ALPN, or if it is not negotiated yet.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.shared().lock().connection.alpn().map(<[u8]>::to_vec)
    }

    /// Updates the keys (RFC 9001 s.6). Returns `false` if an update is not permitted yet. There is
    /// normally no need to call it: the connection updates its keys when they have protected half
    /// of the packets that they may protect.
    pub fn update_keys(&self) -> bool {
        self.shared().lock().connection.update_keys()
    }

    /// Sends a PING frame, which the peer must acknowledge.
    pub fn ping(&self) {
        let mut state = self.shared().lock();
        state.connection.ping();
        self.shared().wake_driver(&mut state);
    }
}
