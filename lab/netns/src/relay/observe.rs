//! Observes datagrams without keys: packet types, versions, ECN marks, and the amplification factor
//! (see [`Counts::amplification`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use equic_net::Fate;
use equic_wire::packet::{Datagram, LongKind, Packet, ParseOptions};
use serde::Serialize;

use super::Way;

/// Maximum number of versions, and of clients, that are counted separately. A sender can choose
/// both freely, so this limits the memory.
const MAX_KINDS: usize = 4096;

/// Type of a packet, determined without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// Initial packet of version 1 or 2.
    Initial,
    /// 0-RTT packet of version 1 or 2.
    ZeroRtt,
    /// Handshake packet of version 1 or 2.
    Handshake,
    /// Retry packet of version 1 or 2.
    Retry,
    /// 1-RTT packet, which has a short header.
    OneRtt,
    /// Version Negotiation packet: the server's answer to an unknown version.
    VersionNegotiation,
    /// Packet with a long header of a version other than 1 and 2.
    OtherVersion,
    /// Not QUIC, or truncated.
    Garbage,
}

/// Counts of packets by type, and of datagrams by fate, in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WayCounts {
    /// UDP datagrams.
    pub datagrams: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Number of packets by type. Each packet of a datagram with coalesced packets counts.
    pub packets: BTreeMap<Observed, u64>,
    /// Number of datagrams by their fate on the link.
    pub fates: BTreeMap<&'static str, u64>,
    /// Number of datagrams by ECN bits: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Versions that occurred in long headers.
    pub versions: BTreeSet<u32>,
}

/// Counts of a relay, for both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Counts of datagrams from the clients to the server.
    pub to_server: WayCounts,
    /// Counts of datagrams from the server to the clients.
    pub to_client: WayCounts,
    /// Number of clients, distinguished by address and port.
    pub clients: usize,
    /// Number of address changes, over all clients.
    pub rebindings: u64,
    /// Largest amplification factor: bytes sent by the server to a client that has not sent a
    /// Handshake packet yet, divided by the bytes from that client (RFC 9000 s.8: at most 3).
    pub amplification: f64,
    /// Number of datagrams from clients that the relay dropped, because it has no socket left for a
    /// further client.
    pub refused: u64,
    /// Datagrams that the operating system did not accept.
    pub unsent: u64,
    /// Datagrams that were relayed but not kept.
    pub not_kept: u64,
}

/// Observations that are updated with each datagram.
#[derive(Debug, Default)]
pub(super) struct Observer {
    counts: Counts,
    clients: BTreeMap<SocketAddr, Unvalidated>,
}

#[derive(Debug, Default)]
struct Unvalidated {
    received: u64,
    sent: u64,
    validated: bool,
}

impl Observer {
    pub(super) fn saw(
        &mut self,
        way: Way,
        client: SocketAddr,
        fate: Fate,
        ecn: u8,
        content: &[u8],
    ) {
        let counts = match way {
            Way::ToServer => &mut self.counts.to_server,
            Way::ToClient => &mut self.counts.to_client,
        };
        counts.datagrams += 1;
        counts.bytes += content.len() as u64;
        if let Some(count) = counts.ecn.get_mut(usize::from(ecn & 3)) {
            *count += 1;
        }
        *counts.fates.entry(name(fate)).or_default() += 1;
        let (mut handshake, mut initial) = (false, false);
        for (observed, version) in packets(content) {
            handshake |= observed == Observed::Handshake;
            initial |= observed == Observed::Initial;
            *counts.packets.entry(observed).or_default() += 1;
            if let Some(version) = version.filter(|_| counts.versions.len() < MAX_KINDS) {
                counts.versions.insert(version);
            }
        }
        self.amplified(way, client, fate, (initial, handshake), content.len() as u64);
    }

    /// Updates the amplification factor. Only bytes that the server has received count (RFC 9000
    /// s.8.1).
    fn amplified(
        &mut self,
        way: Way,
        client: SocketAddr,
        fate: Fate,
        (initial, handshake): (bool, bool),
        len: u64,
    ) {
        if !self.clients.contains_key(&client) && self.clients.len() >= MAX_KINDS {
            return;
        }
        // A new client whose first packet is of another type has migrated. The server validates its
        // new path with frames that are not visible here, so no factor is computed.
        let entry = self
            .clients
            .entry(client)
            .or_insert_with(|| Unvalidated { validated: !initial, ..Unvalidated::default() });
        match way {
            Way::ToServer if !fate.arrived() => {}
            Way::ToServer => {
                entry.received += if fate == Fate::Duplicated { 2 * len } else { len };
                entry.validated |= handshake;
            }
            Way::ToClient if entry.validated => {}
            Way::ToClient => {
                entry.sent += len;
                let ratio = entry.sent as f64 / entry.received.max(1) as f64;
                self.counts.amplification = self.counts.amplification.max(ratio);
            }
        }
    }

    pub(super) fn refused(&mut self) {
        self.counts.refused += 1;
    }

    pub(super) fn unsent(&mut self) {
        self.counts.unsent += 1;
    }

    pub(super) fn not_kept(&mut self) {
        self.counts.not_kept += 1;
    }

    pub(super) fn moved(&mut self) {
        self.counts.rebindings += 1;
    }

    pub(super) fn finish(mut self) -> Counts {
        self.counts.clients = self.clients.len();
        self.counts
    }
}

/// Returns whether the bytes after the packets of a datagram are only padding, which some
/// implementations send. In padding, all bytes are the same, although the first looks like a short
/// header. A real packet is encrypted, so its bytes differ.
pub fn is_filler(bytes: &[u8]) -> bool {
    bytes.windows(2).all(|pair| pair.first() == pair.last())
}

/// Returns the types of all packets of a datagram. For long headers, also returns the version.
pub fn packets(datagram: &[u8]) -> impl Iterator<Item = (Observed, Option<u32>)> {
    // The length of connection IDs only affects the position of the packet number in short headers,
    // which is not used here.
    let options = ParseOptions { dcid_len: 0, greased_fixed_bit: true };
    let behind = Datagram::new(datagram, options).zip(0..).filter(|(packet, place)| {
        *place == 0 || !matches!(packet, Ok(Packet::Short(short)) if is_filler(short.bytes()))
    });
    behind.map(|(packet, _)| match packet {
        Ok(Packet::Long(long)) => {
            let observed = match long.kind() {
                LongKind::Initial { .. } => Observed::Initial,
                LongKind::ZeroRtt => Observed::ZeroRtt,
                LongKind::Handshake => Observed::Handshake,
            };
            (observed, Some(equic_wire::Version::from(long.version()).0))
        }
        Ok(Packet::Retry(retry)) => {
            (Observed::Retry, Some(equic_wire::Version::from(retry.version()).0))
        }
        Ok(Packet::Short(_)) => (Observed::OneRtt, None),
        Ok(Packet::VersionNegotiation(_)) => (Observed::VersionNegotiation, Some(0)),
        Ok(Packet::UnknownVersion(other)) => (Observed::OtherVersion, Some(other.version.0)),
        Err(_) => (Observed::Garbage, None),
    })
}

const fn name(fate: Fate) -> &'static str {
    match fate {
        Fate::Delivered => "delivered",
        Fate::Duplicated => "duplicated",
        Fate::Reordered => "reordered",
        Fate::Corrupted => "corrupted",
        Fate::Dropped => "dropped",
        Fate::QueueFull => "queue_full",
        Fate::TooLarge => "too_large",
        Fate::Unreachable => "unreachable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observer_counts_no_filler_behind_packets() {
        // A version 1 Handshake packet without connection IDs, and with 20 bytes of content.
        let handshake = [&[0xe0, 0, 0, 0, 1, 0, 0, 20][..], &[7; 20]].concat();
        let kinds = |more: &[u8]| {
            let datagram = [&handshake, more].concat();
            packets(&datagram).map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let mixed: Vec<u8> = (0..100).collect();
        assert_eq!(kinds(&[]), [Observed::Handshake]);
        assert_eq!(kinds(&[0; 1000]), [Observed::Handshake]);
        assert_eq!(kinds(&[0x40; 30]), [Observed::Handshake]);
        assert_eq!(kinds(&mixed), [Observed::Handshake, Observed::OneRtt]);
        assert_eq!(kinds(&handshake), [Observed::Handshake; 2]);
        let alone: Vec<_> = packets(&[0; 100]).map(|(kind, _)| kind).collect();
        assert_eq!(alone, [Observed::OneRtt]);
    }
}
