//! The hooks that decide which clients may connect.
//!
//! The server calls them in this order:
//!
//! * [`Admission::incoming`] for every connection attempt, before the handshake, from one task. It
//!   must be quick and must not block.
//! * [`Admission::opened`] when the handshake is complete. The client's address is validated then,
//!   so it is not spoofed.
//! * [`Opened::moved`] when the client has migrated and its new address is validated (RFC 9000
//!   s.9.3). A packet with a forged source address does not cause this call.
//! * The [`Opened`] is dropped when the connection is closed by either side, times out, is reset,
//!   or fails.
//!
//! Addresses are canonical: an IPv4 client of a dual-stack socket is given as IPv4.

use std::net::SocketAddr;

/// Decides which connections a server accepts, and is notified when they open, migrate and close.
pub trait Admission: Send + Sync {
    /// Decides on a connection attempt, before the handshake. If the decision is
    /// [`Decision::Retry`] and the client answers the Retry, this method is called again. If it
    /// then returns `Retry` again, the client is accepted.
    fn incoming(&self, peer: SocketAddr) -> Decision;

    /// Admits a connection whose handshake is complete. The server drops the returned value when
    /// the connection is closed.
    ///
    /// # Errors
    /// [`Refused`] closes the connection with its application error.
    fn opened(&self, peer: SocketAddr) -> Result<Box<dyn Opened>, Refused>;
}

/// The admission's count of an open connection. It is dropped when the connection is closed.
pub trait Opened: Send {
    /// Reports that the client has migrated to another validated address (RFC 9000 s.9). It is
    /// called if the IP address or the port differs from that of the last call that returned `Ok`.
    ///
    /// # Errors
    /// [`Refused`] if the source of the new address already has too many connections. The
    /// connection then still counts toward its old address. The server calls the method once more
    /// after [`Limits::migration_settle`](super::Limits::migration_settle) if the client is still
    /// at the new address. If that call fails, too, the server closes the connection with the
    /// error.
    fn moved(&mut self, to: SocketAddr) -> Result<(), Refused>;
}

/// Decision on a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Starts the handshake.
    Accept,
    /// Answers with CONNECTION_CLOSE and the error CONNECTION_REFUSED (RFC 9000 s.20.1).
    Refuse,
    /// Sends no answer.
    Ignore,
    /// Answers with a Retry packet, so that the client validates its address first (RFC 9000
    /// s.8.1.2).
    Retry,
}

/// The error with which a connection is closed after its handshake or after a migration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection refused with application error {code:#x}: {reason}")]
pub struct Refused {
    /// Application error code. For HTTP/3, one of the codes of RFC 9114 s.8.1.
    pub code: u32,
    /// Reason phrase that is sent to the client. QUIC cuts it off after a few hundred bytes.
    pub reason: String,
}

impl Refused {
    /// Returns the error H3_EXCESSIVE_LOAD with a reason phrase.
    pub fn excessive_load(reason: impl Into<String>) -> Self {
        Self { code: crate::h3_code::EXCESSIVE_LOAD, reason: reason.into() }
    }
}

/// An admission that admits every connection and does not count connections.
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
