//! The hooks that decide which clients may connect.
//!
//! The server calls them in this order:
//!
//! * [`Admission::incoming`] for every connection attempt, before the handshake, from one task. It must be quick and
//!   must not block.
//! * [`Admission::opened`] when the handshake is complete. The client's address is validated then, so it is not
//!   spoofed.
//! * [`Opened::moved`] when the client has migrated and its new address is validated (RFC 9000 s.9.3). A packet with a
//!   forged source address does not cause this call.
//! * The [`Opened`] is dropped when the connection is closed by either side, times out, is reset, or fails.
//!
//! Addresses are canonical: an IPv4 client of a dual-stack socket is given as IPv4.

use std::net::SocketAddr;

/// Decides which connections a server accepts, and is notified when they open, migrate and close.
pub trait Admission: Send + Sync {
    /// Called for each connection attempt, before the handshake. After [`Decision::Retry`] it is called again for a
    /// client that answers. A second `Retry` then accepts the client.
    fn incoming(&self, peer: SocketAddr) -> Decision;

    /// Called when a handshake is complete. The returned value lives as long as the connection.
    ///
    /// # Errors
    /// [`Refused`] closes the connection with the application error it holds.
    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused>;
}

/// One open connection; dropped when it is closed.
pub trait Opened: Send {
    /// The client's address has changed (RFC 9000 s.9), and the client has proved that it receives
    /// at the new one. Called when the IP address or the port differs from the one of the last call
    /// that returned `Ok`.
    ///
    /// # Errors
    /// [`Refused`] if the new address has no room: the connection still counts at the old one. The
    /// server asks once more after [`Limits::migration_settle`](super::Limits::migration_settle), if
    /// the client is still there, and then closes the connection with the error.
    fn moved(&mut self, to: SocketAddr) -> Result<(), Refused>;
}

/// Decision on a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Start the handshake.
    Accept,
    /// Answer with CONNECTION_CLOSE, CONNECTION_REFUSED (RFC 9000 s.20.1).
    Refuse,
    /// Answer nothing.
    Ignore,
    /// Answer with a Retry packet: the client has to prove its address first (RFC 9000 s.8.1.2).
    Retry,
}

/// Reason that a connection is closed after its handshake or after a migration, with the error code
/// for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection refused with application error {code:#x}: {reason}")]
pub struct Refused {
    /// Application error code; for HTTP/3 one of RFC 9114 s.8.1.
    pub code: u32,
    /// Reason phrase, sent to the client; at most a few hundred bytes arrive.
    pub reason: String,
}

impl Refused {
    /// H3_EXCESSIVE_LOAD with a reason phrase.
    pub fn excessive_load(reason: impl Into<String>) -> Self {
        Self { code: crate::h3_code::EXCESSIVE_LOAD, reason: reason.into() }
    }
}

/// Admits every connection and counts none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQuota;

struct Nobody;

impl Opened for Nobody {
    fn moved(&mut self, _to: SocketAddr) -> Result<(), Refused> {
        Ok(())
    }
}

impl Admission for NoQuota {
    fn incoming(&self, _peer: SocketAddr) -> Decision {
        Decision::Accept
    }

    fn opened(&self, _peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        Ok(Box::new(Nobody))
    }
}

impl<A: Admission + ?Sized> Admission for std::sync::Arc<A> {
    fn incoming(&self, peer: SocketAddr) -> Decision {
        (**self).incoming(peer)
    }

    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused> {
        (**self).opened(peer)
    }
}
