//! Ends a client's connection if ICMP reports that the server is unreachable. `unreachable.rs` says
//! which reports count.
//!
//! The kernel reports errors (IP_RECVERR) only while a client's connection has received no
//! datagram. Errors that wait take room in the receive buffer, and an error makes the next call
//! that sends fail, whatever its destination.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use equic_transport::Handle;

use crate::error::ConnectionError;
use crate::socket::{Inner, Socket};
use crate::udp::Udp;
use crate::unreachable::{Unreachable, is_lasting, unmapped};

/// Maximum number of errors that are read before the task continues.
const MAX_ERRORS: usize = 64;

/// Waits until the kernel reports an error.
type ErrorReady = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// Watches a socket for ICMP errors.
#[derive(Default)]
pub(crate) struct IcmpWatch {
    /// Waits for the next error. `None` if no connection needs the errors.
    ready: Option<ErrorReady>,
}

impl Inner {
    /// Adds a new client's connection to those that ICMP errors can end.
    pub(crate) fn heed_errors(&mut self, handle: Handle) {
        if self.unanswered.is_empty() {
            self.udp.report_errors(true);
        }
        self.unanswered.push(handle);
    }

    /// Returns `true` if the connection with this handle is open and has received no datagram.
    fn is_unanswered(&self, handle: Handle) -> bool {
        self.connections.get(handle.0).and_then(Option::as_ref).is_some_and(|conn| {
            let state = conn.lock();
            state.closed.is_none() && state.connection.stats().datagrams_received == 0
        })
    }

    /// Removes the connections that have received a datagram or were closed. With the last one,
    /// disables the reports of ICMP errors.
    fn forget_answered(&mut self) {
        let mut unanswered = std::mem::take(&mut self.unanswered);
        unanswered.retain(|handle| self.is_unanswered(*handle));
        self.unanswered = unanswered;
        if self.unanswered.is_empty() {
            self.udp.report_errors(false);
        }
    }
}

impl IcmpWatch {
    /// Reads ICMP errors about clients' first packets, and ends the connections that they concern.
    /// Returns `true` if there may be more errors.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Socket,
        udp: &Arc<Udp>,
        inner: &mut Inner,
    ) -> bool {
        inner.forget_answered();
        if inner.unanswered.is_empty() {
            self.ready = None;
            return false;
        }
        let ready = self.ready.get_or_insert_with(|| {
            let udp = Arc::clone(udp);
            Box::pin(async move { udp.errors_ready().await })
        });
        match ready.as_mut().poll(cx) {
            Poll::Pending => return false,
            Poll::Ready(_) => self.ready = None,
        }
        for _ in 0..MAX_ERRORS {
            match udp.read_error() {
                Ok(Some(error)) => end_unreachable(&error, socket, inner),
                // The error is not about reachability.
                Ok(None) => {}
                Err(none) if none.kind() == io::ErrorKind::WouldBlock => break,
                // Errors cannot be read. QUIC's timers then detect that the peer is unreachable.
                Err(_) => {
                    inner.unanswered.clear();
                    inner.udp.report_errors(false);
                    break;
                }
            }
        }
        true
    }
}

/// Ends client connections whose first packets this machine refuses to send, because it has no
/// route or its firewall forbids it. A remote attacker cannot cause that. `failed` has the
/// destinations to which this machine refused to send.
pub(crate) fn end_unsendable(
    failed: Vec<(SocketAddr, io::ErrorKind)>,
    socket: &Socket,
    inner: &mut Inner,
) {
    for (to, kind) in failed {
        if !is_lasting(kind) {
            continue;
        }
        let to = unmapped(to);
        let concerned = inner.unanswered.iter().copied().filter(|handle| {
            let conn = inner.connections.get(handle.0).and_then(Option::as_ref);
            conn.is_some_and(|conn| {
                let connection = &conn.lock().connection;
                connection.stats().datagrams_received == 0
                    && unmapped(connection.remote_address()) == to
            })
        });
        for handle in concerned.collect::<Vec<_>>() {
            end(handle, kind, socket, inner);
        }
    }
}

fn end_unreachable(error: &Unreachable, socket: &Socket, inner: &mut Inner) {
    let concerned = inner.unanswered.iter().copied().find(|handle| {
        let conn = inner.connections.get(handle.0).and_then(Option::as_ref);
        conn.is_some_and(|conn| error.concerns(&conn.lock().connection))
    });
    if let Some(handle) = concerned {
        end(handle, error.kind, socket, inner);
    }
}

fn end(handle: Handle, kind: io::ErrorKind, socket: &Socket, inner: &mut Inner) {
    let Some(conn) = inner.remove(handle) else { return };
    let mut state = conn.lock();
    tracing::debug!(to = %state.connection.remote_address(), ?kind, "unreachable");
    // The connection ends without a CONNECTION_CLOSE frame, because the peer does not exist.
    inner.retire(&mut state, &socket.shared.send_memory);
    state.on_closed(ConnectionError::Unreachable(kind));
    drop(state);
    socket.shared.gone.notify_waiters();
}
