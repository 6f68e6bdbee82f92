//! Connection IDs: those we gave out and those the peer gave us (RFC 9000 s.5.1).
//!
//! * `source.rs`: [`IdSource`] makes ours: a [`ConnectionIdGenerator`] the IDs, a [`ResetKey`] their stateless reset tokens;
//! * `local.rs`: those that the peer may put on packets to us;
//! * `remote.rs`: those that we may put on packets to the peer.
//!
//! [`EndpointEvent`], here, is what an endpoint has to know of a connection's IDs.

mod local;
mod remote;
mod source;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use equic_wire::{ConnectionId, ResetToken};

use crate::rested::Seldom;

pub(crate) use local::LocalIds;
pub(crate) use remote::RemoteIds;
pub(crate) use source::{BlindToken, ID_LEN, IdSource, RESET_KEY_LEN, ResetKey};
pub use source::{ConnectionIdGenerator, RandomIds};

/// What an endpoint has to know of a connection: a change of its connection IDs or reset tokens, by
/// which the endpoint routes datagrams, or that its handshake is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointEvent {
    /// Packets may carry this ID.
    Issued(ConnectionId),
    /// Packets may not carry this ID any more.
    Retired(ConnectionId),
    /// A datagram that belongs to nobody and ends with this resets the connection.
    TokenLearned(ResetToken),
    /// A datagram that ends with this token does not reset the connection any more.
    TokenForgotten(ResetToken),
    /// A server's handshake is complete: the client receives at its address.
    HandshakeComplete,
}

/// Changes that wait for an endpoint: seldom any.
pub(crate) type Changes = Seldom<VecDeque<EndpointEvent>>;

/// Changes that wait for an endpoint; each turn of it leaves a few. Where there is none to ask for
/// them the oldest go.
const MAX_CHANGES: usize = 256;

pub(crate) fn note(changes: &mut Changes, change: EndpointEvent) {
    if changes.len() == MAX_CHANGES {
        changes.pop_front();
    }
    changes.push_back(change);
}

/// Error of the peer in its use of connection IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdError {
    /// More than we keep: CONNECTION_ID_LIMIT_ERROR.
    Limit,
    /// The peer's frame contradicts an earlier one or the connection's state: PROTOCOL_VIOLATION.
    Violation,
}

/// An ID to tell the peer of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewId {
    /// Its sequence number.
    pub sequence: u64,
    /// The ID.
    pub id: ConnectionId,
    /// For a stateless reset.
    pub token: ResetToken,
}
