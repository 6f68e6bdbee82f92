//! 0-RTT: sending, and reading, before the handshake is complete (RFC 9001 s.4.6).

use std::future::poll_fn;

use crate::connection::{Connecting, Connection};
use crate::error::ConnectionError;

/// Outcome of the data that was sent before the end of the handshake (early data, 0-RTT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// There was no early data to decide on.
    None,
    /// The server took the early data.
    Accepted,
    /// The server did not: streams of before are gone ([`crate::ReadError::EarlyDataRejected`]), and
    /// what was asked for is to be asked again.
    Rejected,
}

impl Connecting {
    /// The connection before its handshake is complete.
    ///
    /// A client gets it if it has a session of that server to resume, both have 0-RTT on (see
    /// [`crate::ClientConfig`]), and nothing was answered yet; else it gets back what it had. What it
    /// sends now an attacker can record and have the server receive once more: only requests that may
    /// be carried out twice are to be sent (RFC 9001 s.9.2), and nobody else can be certain of it
    /// before [`Connection::handshake`] says [`EarlyData::Accepted`].
    ///
    /// A server always gets it: while [`Connection::is_early`] says so, what it reads may be such a
    /// repetition, and the client is not known to be who its certificate says.
    ///
    /// # Errors
    /// Not an error but the attempt, to be awaited: there is no session to resume.
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

    /// True if data sent or read now is early and may be received twice: see
    /// [`Connecting::into_0rtt`].
    pub fn is_early(&self) -> bool {
        self.cell().lock().connection.is_early()
    }

    /// Outcome of the early data as far as it is known by now, even if the connection is over.
    pub fn early_data(&self) -> EarlyData {
        self.cell().lock().early
    }

    /// Waits until the handshake is complete, and says what became of what was sent before that.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn handshake(&self) -> Result<EarlyData, ConnectionError> {
        poll_fn(|cx| {
            let mut state = self.cell().lock();
            state.poll_connected(cx).map_ok(|()| state.early)
        })
        .await
    }
}
