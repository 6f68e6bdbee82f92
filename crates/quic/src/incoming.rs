//! A client's connection attempt, which the application accepts or refuses.

use std::future::{Future, IntoFuture};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use equic_transport::{AcceptError, DatagramMeta, StartError};

use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::endpoint_shared::Begun;
use crate::error::ConnectionError;
use crate::handshake::Connecting;
use crate::socket::{Inner, Socket};
use crate::udp::Udp;

/// A client's connection attempt. The endpoint has no connection for it yet. Dropping this value
/// ignores the attempt.
pub struct Incoming {
    socket: Arc<Socket>,
    /// The attempt in the transport, or `None` once the application has decided on it.
    inner: Option<equic_transport::Incoming>,
    arrival: DatagramMeta,
}

impl Incoming {
    pub(crate) fn new(socket: Arc<Socket>, inner: equic_transport::Incoming) -> Incoming {
        Incoming { socket, arrival: inner.arrival(), inner: Some(inner) }
    }

    /// Returns the client's address in the form that the socket uses: a dual-stack socket reports
    /// the IPv4-mapped address of an IPv4 client.
    pub fn remote_address(&self) -> SocketAddr {
        self.arrival.remote
    }

    /// Returns the local address to which the client's datagram was sent, or `None` if the system
    /// did not report it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.arrival.local
    }

    /// Returns `true` if the client's address is validated (RFC 9000 s.8.1).
    pub fn is_validated(&self) -> bool {
        self.inner.as_ref().is_some_and(equic_transport::Incoming::is_validated)
    }

    /// Returns `true` if [`Incoming::retry`] can be used. A server sends a client at most one Retry
    /// packet.
    pub fn may_retry(&self) -> bool {
        self.inner.as_ref().is_some_and(equic_transport::Incoming::may_retry)
    }

    /// Accepts the attempt and starts the handshake.
    ///
    /// # Errors
    /// Returns an [`AcceptError`] in three cases:
    ///
    /// * The packet was corrupted or forged.
    /// * A transport setting of the server is out of range.
    /// * The endpoint accepts no clients. It then refuses the client.
    pub fn accept(self) -> Result<Connecting, AcceptError> {
        self.begin(None)
    }

    /// Accepts the attempt with another configuration than the endpoint's.
    ///
    /// # Errors
    /// Returns the errors of [`Incoming::accept`].
    pub fn accept_with(self, config: &ServerConfig) -> Result<Connecting, AcceptError> {
        self.begin(Some(config))
    }

    fn begin(mut self, config: Option<&ServerConfig>) -> Result<Connecting, AcceptError> {
        let incoming = self.inner.take().ok_or(AcceptError::NotServing)?;
        let now = self.socket.now();
        let mut inner = self.socket.lock();
        if inner.dead {
            return Err(AcceptError::NotServing);
        }
        if inner.closed || (config.is_none() && !inner.serving) {
            let mut response = Vec::new();
            if inner.endpoint.refuse(incoming, &mut response) {
                Socket::respond(&inner.udp, self.arrival, &response);
            }
            return Err(AcceptError::NotServing);
        }
        let invalid = match config {
            Some(config) => config.transport.validate().err(),
            None => inner.invalid.clone(),
        };
        if let Some(error) = invalid {
            inner.endpoint.ignore(incoming);
            return Err(AcceptError::Start(StartError::Setting(error)));
        }
        let shared = &self.socket.shared;
        let hooks = match config {
            Some(config) => config.prepare.clone(),
            None => inner.prepare.clone(),
        };
        let mut begun = Begun::default();
        let prepare = |connection: &mut _| begun = shared.begin(connection, hooks.as_ref(), now);
        let core = config.map(ServerConfig::core);
        let (handle, connection) = match core {
            Some(core) => inner.endpoint.accept_as(now, incoming, core, prepare)?,
            None => inner.endpoint.accept_with(now, incoming, prepare)?,
        };
        begun.release();
        let conn = self.socket.add(&mut inner, handle, connection);
        conn.lock().token_due = shared.gives_tokens;
        drop(inner);
        Ok(Connecting::new(conn))
    }

    /// Sends a Retry packet, to validate the client's address (RFC 9000 s.8.1.2). The client's
    /// answer is a new attempt. If [`Incoming::may_retry`] returns `false`, the attempt is ignored.
    pub fn retry(mut self) {
        let now = self.socket.now();
        self.answer(|inner, incoming, response| inner.endpoint.retry(now, incoming, response));
    }

    /// Refuses the attempt with the error code CONNECTION_REFUSED.
    pub fn refuse(mut self) {
        self.answer(|inner, incoming, response| inner.endpoint.refuse(incoming, response));
    }

    /// Ignores the attempt. The client gets no answer.
    pub fn ignore(self) {
        drop(self);
    }

    fn answer(
        &mut self,
        decide: impl FnOnce(&mut Inner, equic_transport::Incoming, &mut Vec<u8>) -> bool,
    ) {
        let Some(incoming) = self.inner.take() else { return };
        let mut response = Vec::new();
        let mut inner = self.socket.lock();
        if decide(&mut inner, incoming, &mut response) {
            Socket::respond(&inner.udp, self.arrival, &response);
        }
    }

    /// Refuses the attempt. For the socket's task, which has already locked the socket.
    pub(crate) fn refuse_in(mut self, inner: &mut Inner, udp: &Udp) {
        let Some(incoming) = self.inner.take() else { return };
        let mut response = Vec::new();
        if inner.endpoint.refuse(incoming, &mut response) {
            Socket::respond(udp, self.arrival, &response);
        }
    }
}

impl IntoFuture for Incoming {
    type Output = Result<Connection, ConnectionError>;
    type IntoFuture = IncomingFuture;

    /// [Accepts](Incoming::accept) the attempt and waits until the handshake is complete.
    fn into_future(self) -> IncomingFuture {
        IncomingFuture(self.accept().map_err(ConnectionError::from).map_err(Some))
    }
}

/// A future that accepts an [`Incoming`] and resolves to the [`Connection`]. Dropping it closes the
/// connection.
pub struct IncomingFuture(Result<Connecting, Option<ConnectionError>>);

impl Future for IncomingFuture {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(connecting) => Pin::new(connecting).poll(cx),
            // This future was polled again after it had returned its result.
            Err(error) => Poll::Ready(Err(error.take().unwrap_or(ConnectionError::LocallyClosed))),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(incoming) = self.inner.take() {
            self.socket.lock().endpoint.ignore(incoming);
        }
    }
}
