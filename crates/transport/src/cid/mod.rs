//! Connection IDs that this end and the peer have issued (RFC 9000 s.5.1).
//!
//! * `source.rs`: [`IdSource`] generates this end's IDs with a [`ConnectionIdGenerator`], and their
//!   stateless reset tokens with a [`ResetKey`];
//! * `local.rs`: the IDs that the peer may use in packets to this end;
//! * `remote.rs`: the IDs that this end may use in packets to the peer.
//!
//! An [`EndpointEvent`] reports each change to the endpoint, which finds the connection of a
//! datagram by its connection ID.

mod local;
mod remote;
mod source;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use equic_wire::{ConnectionId, ResetToken};

use crate::lazy::LazyBox;

pub(crate) use local::LocalIds;
pub(crate) use remote::RemoteIds;
pub(crate) use source::{BlindToken, ID_LEN, IdSource, RESET_KEY_LEN, ResetKey};
pub use source::{ConnectionIdGenerator, RandomIds};

/// A change in a connection that its endpoint must know.
///
/// The endpoint routes datagrams by connection IDs and reset tokens, so it must know when they
/// change. It must also know when a handshake completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// From now on, packets to the connection may carry this connection ID.
    Issued(ConnectionId),
    /// From now on, packets to the connection no longer carry this connection ID.
    Retired(ConnectionId),
    /// From now on, a datagram that belongs to no connection and ends with this reset token resets
    /// the connection.
    TokenLearned(ResetToken),
    /// From now on, a datagram that ends with this reset token no longer resets the connection.
    TokenForgotten(ResetToken),
    /// A server's handshake is complete, so the client's address is validated.
    HandshakeComplete,
}

/// Changes of a connection that wait to be reported to its endpoint. There are rarely any.
pub(crate) type Changes = LazyBox<VecDeque<EndpointEvent>>;

/// Largest number of changes of a connection that wait to be reported to its endpoint. Few
/// accumulate between two calls. If nothing reads the changes, because the connection has no
/// endpoint, the oldest are dropped.
const MAX_CHANGES: usize = 256;

pub(crate) fn note(changes: &mut Changes, change: EndpointEvent) {
    if changes.len() == MAX_CHANGES {
        changes.pop_front();
    }
    changes.push_back(change);
}

/// Content of a NEW_CONNECTION_ID frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewId {
    /// Sequence number of the connection ID.
    pub sequence: u64,
    /// The connection ID that the frame announces.
    pub id: ConnectionId,
    /// Stateless reset token of the connection ID.
    pub token: ResetToken,
}
