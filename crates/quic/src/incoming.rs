//! A client's attempt, to be decided on.

use std::future::{Future, IntoFuture};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use equic_transport::{AcceptError, DatagramMeta, StartError};

use crate::ServerConfig;
use crate::connection::{Connecting, Connection};
use crate::error::ConnectionError;
use crate::hooks::Begun;
use crate::socket::{IncomingQueue, Inner, Shared, Socket};
use crate::udp::Udp;

/// A client wants a connection, and nothing was done for it yet. Dropped, it is ignored.
pub struct Incoming {
    socket: Arc<Socket>,
    /// The attempt in the transport; none once it has been decided on.
    inner: Option<equic_transport::Incoming>,
    arrival: DatagramMeta,
}

impl Incoming {
    pub(crate) fn new(socket: Arc<Socket>, inner: equic_transport::Incoming) -> Incoming {
        Incoming { socket, arrival: inner.arrival(), inner: Some(inner) }
    }

    /// The client's address, as the socket sees it: an IPv4 client of a dual-stack socket has a
    /// mapped address.
    pub fn remote_address(&self) -> SocketAddr {
        self.arrival.remote
    }

    /// Our address that the client's datagram was sent to; none if the system did not tell.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.arrival.local
    }

    /// True if the client has proven that it receives at its address (RFC 9000 s.8.1).
    pub fn is_validated(&self) -> bool {
        self.inner.as_ref().is_some_and(equic_transport::Incoming::is_validated)
    }

    /// True if [`Incoming::retry`] can be used: no client is sent two Retry packets.
    pub fn may_retry(&self) -> bool {
        self.inner.as_ref().is_some_and(equic_transport::Incoming::may_retry)
    }

    /// Begins the handshake.
    ///
    /// # Errors
    /// [`AcceptError`]: the packet was damaged or forged, a transport setting of the server is out of range, or the
    /// endpoint accepts no clients (the client is refused then).
    pub fn accept(self) -> Result<Connecting, AcceptError> {
        self.begin(None)
    }

    /// As [`Incoming::accept`], with another configuration than the endpoint's for this connection.
    ///
    /// # Errors
    /// As [`Incoming::accept`].
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
        let cell = self.socket.add(&mut inner, handle, connection);
        cell.lock().token_due = shared.gives_tokens;
        drop(inner);
        Ok(Connecting::new(cell))
    }

    /// Asks the client to show that it receives at its address (RFC 9000 s.8.1.2), by a Retry packet;
    /// it comes again as another attempt then. Where [`Incoming::may_retry`] says no, it is ignored.
    pub fn retry(mut self) {
        let now = self.socket.now();
        self.answer(|inner, incoming, response| inner.endpoint.retry(now, incoming, response));
    }

    /// Tells the client that it is not wanted: CONNECTION_REFUSED.
    pub fn refuse(mut self) {
        self.answer(|inner, incoming, response| inner.endpoint.refuse(incoming, response));
    }

    /// Answers nothing.
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

    /// As [`Incoming::refuse`], by the task, which holds the socket.
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

/// A connection that was accepted by awaiting an [`Incoming`]. Dropped, it is given up.
pub struct IncomingFuture(Result<Connecting, Option<ConnectionError>>);

impl Future for IncomingFuture {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(connecting) => Pin::new(connecting).poll(cx),
            // Polled after it was ready.
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

/// Reason for which an application is given no attempt now.
pub(crate) enum NoAttempt {
    /// One waits, and other tasks have their turn first, that of the socket among them: what an attempt before it has made, a
    /// server's first flight, leaves before another is made, which is most of the work of a handshake.
    AfterOthers,
    /// None waits.
    NoneWaits,
    /// There will be no more.
    Closed,
}

impl IncomingQueue {
    /// The next attempt, and whether more wait.
    pub(crate) fn take(&mut self) -> Result<(Incoming, bool), NoAttempt> {
        if std::mem::take(&mut self.given) && !self.list.is_empty() {
            return Err(NoAttempt::AfterOthers);
        }
        match self.list.pop_front() {
            Some(incoming) => {
                self.given = true;
                Ok((incoming, !self.list.is_empty()))
            }
            None if self.closed => Err(NoAttempt::Closed),
            None => Err(NoAttempt::NoneWaits),
        }
    }
}

impl Shared {
    pub(crate) fn queue(&self) -> MutexGuard<'_, IncomingQueue> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an attempt where the application looks.
    /// Gives it back if nobody looks any more.
    pub(crate) fn offer(&self, incoming: Incoming) -> Option<Incoming> {
        let mut queue = self.queue();
        if queue.closed {
            return Some(incoming);
        }
        queue.list.push_back(incoming);
        None
    }
}
