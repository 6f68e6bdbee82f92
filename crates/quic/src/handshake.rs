//! Connections in their handshake, and data that is sent before it is complete (0-RTT, RFC 9001
//! s.4.6).

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use equic_wire::Side;

use crate::connection::Connection;
use crate::early::EarlyData;
use crate::error::ConnectionError;
use crate::shared::SharedConnection;

/// A connection whose handshake is in progress. This future resolves to a [`Connection`] when the
/// handshake is complete. Dropping it closes the connection.
pub struct Connecting(pub(crate) Option<Connection>);

impl Connecting {
    pub(crate) fn new(shared: Arc<SharedConnection>) -> Connecting {
        Connecting(Some(Connection::new(shared)))
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
        let outcome = std::task::ready!(connection.shared().lock().poll_connected(cx));
        let connection = self.0.take();
        outcome?;
        Poll::Ready(connection.ok_or(ConnectionError::LocallyClosed))
    }
}

impl Connecting {
    /// Returns the connection before its handshake is complete.
    ///
    /// A client gets the connection if it can resume a session of that server, both ends have 0-RTT
    /// enabled (see [`crate::ClientConfig`]), and the server has not answered yet. An attacker can
    /// record and replay everything that the client sends now. Send only requests that are safe to
    /// repeat (RFC 9001 s.9.2). Early data counts as accepted only when [`Connection::handshake`]
    /// returns [`EarlyData::Accepted`].
    ///
    /// A server always gets the connection. While [`Connection::is_early`] returns `true`, the data
    /// that it reads may be a replay, and the client's certificate is not verified yet.
    ///
    /// # Errors
    /// Returns the unchanged `Connecting`, to be awaited, if the client cannot send early data.
    pub fn into_0rtt(mut self) -> Result<Connection, Connecting> {
        match self.0.take() {
            Some(connection) if connection.may_begin() => Ok(connection),
            connection => Err(Connecting(connection)),
        }
    }
}

impl Connection {
    fn may_begin(&self) -> bool {
        let state = self.shared().lock();
        state.connection.side() == Side::Server || state.connection.is_early()
    }

    /// Returns `true` if data that is sent or read now is early data, which an attacker can replay:
    /// see [`Connecting::into_0rtt`].
    pub fn is_early(&self) -> bool {
        self.shared().lock().connection.is_early()
    }

    /// Returns the outcome of the early data as known now. It is also available after the
    /// connection is closed.
    pub fn early_data(&self) -> EarlyData {
        self.shared().lock().early
    }

    /// Waits until the handshake is complete, and returns the outcome of the early data.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn handshake(&self) -> Result<EarlyData, ConnectionError> {
        poll_fn(|cx| {
            let mut state = self.shared().lock();
            state.poll_connected(cx).map_ok(|()| state.early)
        })
        .await
    }
}
