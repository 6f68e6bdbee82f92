//! Attempts to open a connection that the gateway has admitted: the table of handshakes (policy.md
//! section 2, step 16).

use super::config::{RetryPolicy, Service};
use super::frame::Datagram;
use super::quic::{ConnectionId, Opening};
use std::net::SocketAddr;

/// Number of Destination Connection IDs of an attempt: the client's choice and the server's. With a
/// Retry, there is one more (RFC 9000 s.7.2).
const IDS: usize = 2;
const IDS_WITH_TOKEN: usize = 3;
/// Maximum number of datagrams with an Initial in one attempt, and maximum number of datagrams with
/// 0-RTT.
const PACKETS: u32 = 64;
/// With adaptive Retry, the maximum number of datagrams with an Initial in an attempt whose address
/// is not validated.
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
    /// Number of datagrams with an Initial so far.
    packets: u32,
    /// Number of datagrams with 0-RTT so far.
    early: u32,
    /// True if the attempt was admitted because its token was valid.
    proved: bool,
    dcids: Vec<ConnectionId>,
}

impl Handshake {
    /// Returns an attempt that begins with a packet to this Destination Connection ID.
    pub(super) fn new(dcid: ConnectionId, packets: u64, proved: bool, now: u64) -> Handshake {
        Handshake { started_ns: now, packets: packets as u32, early: 0, proved, dcids: vec![dcid] }
    }

    fn is_fresh(&self, service: &Service, now: u64) -> bool {
        now.saturating_sub(self.started_ns) <= service.handshake_ns
    }

    /// Returns the number of datagrams with an Initial that the attempt may send.
    fn may_carry(&self, service: &Service, exempt: bool) -> u32 {
        match service.retry {
            _ if self.proved || exempt => PACKETS,
            RetryPolicy::Never => PACKETS,
            RetryPolicy::Adaptive => PACKETS_UNPROVED,
            RetryPolicy::Always => 0,
        }
    }

    /// Returns `true` if the attempt can still be in progress, and the packet's Destination
    /// Connection ID belongs to it or can be added to it.
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

    /// Returns `true` if an Initial belongs to the attempt. Stores the Destination Connection ID if
    /// there is room for it.
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

    /// Returns `true` if a datagram of 0-RTT belongs to the attempt.
    pub(super) fn takes_early(&mut self, packets: u64, service: &Service, now: u64) -> bool {
        let takes = self.is_fresh(service, now)
            && self.may_carry(service, false) > 0
            && self.early < PACKETS;
        self.early += u32::from(takes) * packets as u32;
        takes
    }
}
