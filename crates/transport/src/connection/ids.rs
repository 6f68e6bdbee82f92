//! Connection IDs that both ends issue and retire, and changes that the endpoint must learn.

use std::net::SocketAddr;

use equic_wire::frame::NewConnectionId;
use equic_wire::{ConnectionId, KnownVersion, PathId};

use super::Connection;
use crate::Timestamp;
use crate::cid::EndpointEvent;
use crate::operation::Operation;

/// What a server reads from a client's first Initial packet before it opens the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstPacket {
    pub version: KnownVersion,
    /// Destination Connection ID of the client's very first packet, before any Retry.
    pub original: ConnectionId,
    /// Source Connection ID of the Retry packet that this packet answers.
    pub retry: Option<ConnectionId>,
    /// Destination Connection ID of this packet. The Initial keys are derived from it.
    pub sent_to: ConnectionId,
    /// Source Connection ID of this packet.
    pub client: ConnectionId,
    pub remote: SocketAddr,
    /// True if a token has validated the client's address `remote` (RFC 9000 s.8.1).
    pub validated: bool,
}

impl FirstPacket {
    /// Describes the first packet of a client without a token. `original` and `client` are its
    /// Destination and Source Connection ID.
    pub(crate) fn without_token(
        version: KnownVersion,
        original: ConnectionId,
        client: ConnectionId,
        remote: SocketAddr,
    ) -> FirstPacket {
        let (retry, validated) = (None, false);
        FirstPacket { version, original, retry, sent_to: original, client, remote, validated }
    }
}

impl Connection {
    /// Returns the oldest change of connection IDs that the endpoint has not seen, or `None`. Call
    /// it until it returns `None`, after each call that passes time or packets to the connection.
    /// After [`Connection::poll_transmit`], call it before the datagram is sent.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.ids.poll_change()
    }

    /// Returns our connection ID to which the peer's first packets are addressed (RFC 9000 s.7.2).
    pub(crate) fn handshake_id(&self) -> ConnectionId {
        self.ids.scid()
    }

    /// Makes the peer retire all connection IDs that it has, and issues new ones from the
    /// endpoint's generator (RFC 9000 s.5.1.2). This happens when the handshake is complete and the
    /// peer owes retirements of at most one earlier set. Call [`Connection::poll_transmit`] next.
    pub fn replace_connection_ids(&mut self) {
        self.ids.replace();
    }

    /// Issues as many connection IDs as the peer permits, if the handshake is complete.
    pub(super) fn issue_ids(&mut self) {
        if self.handshake.is_complete() {
            self.ids.issue(&mut self.rng);
        }
    }

    /// Processes a RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID frame.
    pub(super) fn on_retire_connection_id(
        &mut self,
        now: Timestamp,
        path: PathId,
        sequence: u64,
        dcid: ConnectionId,
    ) {
        self.notify(Operation::RetireConnectionId, sequence);
        let Some(local) = self.ids.local_of_mut(path) else { return };
        if let Err(violation) = local.on_retire(now, sequence, dcid) {
            self.fail(now, violation);
        }
    }

    /// Processes a NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID frame.
    pub(super) fn on_new_connection_id(
        &mut self,
        now: Timestamp,
        path: PathId,
        new: &NewConnectionId,
    ) {
        // IDs of an abandoned path would have to be retired at once.
        if self.multipath.as_ref().is_some_and(|paths| !paths.is_alive(path)) {
            return;
        }
        if let Err(violation) = self.take_new_id(path, new) {
            self.fail(now, violation);
        }
    }
}
