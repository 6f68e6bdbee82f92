//! Connection IDs that a connection gives out, and what an endpoint has to know of them.

use std::net::SocketAddr;

use equic_wire::{ConnectionId, KnownVersion};

use super::Connection;
use crate::cid::EndpointEvent;

/// Facts that a server knows of a client's first Initial packet before opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstPacket {
    pub version: KnownVersion,
    /// Destination Connection ID of the client's very first packet, before any Retry.
    pub original: ConnectionId,
    /// Source Connection ID of the Retry packet that this one answers.
    pub retry: Option<ConnectionId>,
    /// Destination Connection ID of this packet: the Initial keys are made of it.
    pub sent_to: ConnectionId,
    /// Its Source Connection ID.
    pub client: ConnectionId,
    pub remote: SocketAddr,
    /// A token has shown that the client receives at `remote` (RFC 9000 s.8.1).
    pub validated: bool,
}

impl FirstPacket {
    /// Of a client that is new: to this ID, from that one.
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
    /// The oldest change of this connection's IDs that an endpoint has to know of, one change at a time. To be
    /// asked for after each call that lets time or packets in, and after [`Connection::poll_transmit`], before
    /// the datagram from it is sent.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.ids.poll_change()
    }

    /// Connection ID that the peer's first packets to this connection carry (RFC 9000 s.7.2).
    pub(crate) fn handshake_id(&self) -> ConnectionId {
        self.ids.scid()
    }

    /// Has the peer retire all connection IDs that it was given, for new ones of the endpoint's generator
    /// (RFC 9000 s.5.1.2): once the handshake is complete, and as soon as it owes no more than one set of those that were
    /// replaced before. To be followed by [`Connection::poll_transmit`].
    pub fn replace_connection_ids(&mut self) {
        self.ids.replace();
    }

    /// Gives the peer as many connection IDs as it keeps.
    pub(super) fn issue_ids(&mut self) {
        if self.handshake.is_complete() {
            self.ids.issue(&mut self.rng);
        }
    }
}
