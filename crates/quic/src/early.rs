//! 0-RTT: sends and receives data before the handshake is complete (RFC 9001 s.4.6).

use std::future::poll_fn;

use crate::connection::{Connecting, Connection};
use crate::error::ConnectionError;

/// The outcome of the early data (0-RTT), which is sent before the handshake is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// The client sent no early data, or its outcome is not known yet.
    None,
    /// The server accepted the early data.
    Accepted,
    /// The server rejected the early data. Streams that were opened before no longer exist
    /// ([`crate::ReadError::EarlyDataRejected`]). The application must repeat its requests.
    Rejected,
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
        let state = self.cell().lock();
        state.connection.side() == equic_wire::Side::Server || state.connection.is_early()
    }

    /// Returns `true` if data that is sent or read now is early data, which an attacker can replay:
    /// see [`Connecting::into_0rtt`].
    pub fn is_early(&self) -> bool {
        self.cell().lock().connection.is_early()
    }

    /// Returns the outcome of the early data as known now. It is also available after the
    /// connection is closed.
    pub fn early_data(&self) -> EarlyData {
        self.cell().lock().early
    }

    /// Waits until the handshake is complete, and returns the outcome of the early data.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn handshake(&self) -> Result<EarlyData, ConnectionError> {
        poll_fn(|cx| {
            let mut state = self.cell().lock();
            state.poll_connected(cx).map_ok(|()| state.early)
        })
        .await
    }
}
