//! Connection attempts that the gateway has admitted and that may still be in progress: the table
//! of handshakes (policy.md section 2, step 16).

use super::config::{RetryPolicy, Service};
use super::frame::Datagram;
use super::quic::{ConnectionId, Opening};
use std::net::SocketAddr;

/// Number of Destination Connection IDs that a client uses in one attempt: its own choice, and the
/// server's choice. After a Retry packet, there is one more (RFC 9000 s.7.2).
const IDS: usize = 2;
const IDS_WITH_TOKEN: usize = 3;
/// Maximum number of datagrams with an Initial packet in one attempt. The same maximum applies to
/// datagrams with a 0-RTT packet.
const PACKETS: u32 = 64;
/// Maximum number of datagrams with an Initial packet in one attempt, if the service uses adaptive
/// Retry and the client's address is not validated.
const PACKETS_UNPROVED: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HandshakeKey {
    client: SocketAddr,
    server: SocketAddr,
    service: usize,
    scid: ConnectionId,
}

impl HandshakeKey {
    pub(super) fn of(d: &Datagram<'_>, service: usize, scid: ConnectionId) -> HandshakeKey {
        let (client, server) = (SocketAddr::new(d.src, d.sport), SocketAddr::new(d.dst, d.dport));
        HandshakeKey { client, server, service, scid }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Handshake {
    started_ns: u64,
    /// Number of datagrams with an Initial packet that the attempt has sent so far.
    packets: u32,
    /// Number of datagrams with a 0-RTT packet that the attempt has sent so far.
    early: u32,
    /// True if the attempt was admitted because of a valid token.
    proved: bool,
    dcids: Vec<ConnectionId>,
}

impl Handshake {
    /// Creates an attempt that begins with `packets` datagrams to the Destination Connection ID
    /// `dcid`.
    pub(super) fn new(dcid: ConnectionId, packets: u64, proved: bool, now: u64) -> Handshake {
        Handshake { started_ns: now, packets: packets as u32, early: 0, proved, dcids: vec![dcid] }
    }

    fn is_fresh(&self, service: &Service, now: u64) -> bool {
        now.saturating_sub(self.started_ns) <= service.handshake_ns
    }

    /// Returns the maximum number of datagrams with an Initial packet that the attempt may send.
    fn may_carry(&self, service: &Service, exempt: bool) -> u32 {
        match service.retry {
            _ if self.proved || exempt => PACKETS,
            RetryPolicy::Never => PACKETS,
            RetryPolicy::Adaptive => PACKETS_UNPROVED,
            RetryPolicy::Always => 0,
        }
    }

    /// Returns `true` if a packet may belong to the attempt: the attempt may still be in progress,
    /// and it has the packet's Destination Connection ID or has room for it.
    pub(super) fn has_place(
        &self,
        opening: &Opening,
        service: &Service,
        exempt: bool,
        now: u64,
    ) -> bool {
        if !self.is_fresh(service, now) || self.packets >= self.may_carry(service, exempt) {
            return false;
        }
        let after_retry = opening.token_len > 0 && !self.proved;
        let room = if after_retry { IDS_WITH_TOKEN } else { IDS };
        self.dcids.contains(&opening.dcid) || self.dcids.len() < room
    }

    /// Returns `true` if an Initial packet belongs to the attempt. In this case, stores its
    /// Destination Connection ID if there is room.
    pub(super) fn takes(
        &mut self,
        opening: &Opening,
        packets: u64,
        service: &Service,
        exempt: bool,
        now: u64,
    ) -> bool {
        if !self.has_place(opening, service, exempt, now) {
            return false;
        }
        if !self.dcids.contains(&opening.dcid) {
            self.dcids.push(opening.dcid);
        }
        self.packets += packets as u32;
        true
    }

    /// Returns `true` if a datagram with a 0-RTT packet belongs to the attempt.
    pub(super) fn takes_early(&mut self, packets: u64, service: &Service, now: u64) -> bool {
        let takes = self.is_fresh(service, now)
            && self.may_carry(service, false) > 0
            && self.early < PACKETS;
        self.early += u32::from(takes) * packets as u32;
        takes
    }
}
