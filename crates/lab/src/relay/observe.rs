//! Observations of datagrams without keys: types, versions, ECN marks, and how much a server sent
//! to an address before the client there had answered.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use equic_net::Fate;
use equic_wire::packet::{Datagram, LongKind, Packet, ParseOptions};
use serde::Serialize;

use super::Way;

/// A bound of the versions and clients that are told apart: who sends may choose them freely.
const MAX_KINDS: usize = 4096;

/// Type of a packet, as far as it can be seen without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// Of version 1 or 2.
    Initial,
    /// Of version 1 or 2.
    ZeroRtt,
    /// Of version 1 or 2.
    Handshake,
    /// Of version 1 or 2.
    Retry,
    /// A short header.
    OneRtt,
    /// The server's answer to a version it does not know.
    VersionNegotiation,
    /// A long header of another version.
    OtherVersion,
    /// Not QUIC, or cut short.
    Garbage,
}

/// Packets by what they are, and datagrams by what befell them, in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WayCounts {
    /// UDP datagrams.
    pub datagrams: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Packets in them, coalesced ones each.
    pub packets: BTreeMap<Observed, u64>,
    /// Number of datagrams by their fate on the link.
    pub fates: BTreeMap<&'static str, u64>,
    /// By the ECN bits: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Versions in long headers.
    pub versions: BTreeSet<u32>,
}

/// Counts of a relay, by direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// From the clients.
    pub to_server: WayCounts,
    /// From the server.
    pub to_client: WayCounts,
    /// Clients by address and port.
    pub clients: usize,
    /// Number of moves of all clients.
    pub rebindings: u64,
    /// The most that the server had sent to a client that had not answered by a Handshake packet yet,
    /// as a multiple of what had come from there (RFC 9000 s.8: at most 3).
    pub amplification: f64,
    /// Datagrams of clients beyond the relay's bound.
    pub refused: u64,
    /// Datagrams that the system did not take.
    pub unsent: u64,
    /// Datagrams that were relayed but not kept.
    pub not_kept: u64,
}

/// Counts while datagrams come by.
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

    /// RFC 9000 s.8.1: what the server has received counts, so only what arrived there.
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
        // Who begins with something else has come from elsewhere: that path is validated by frames that
        // nobody sees here.
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

/// Returns true if bytes behind the packets of a datagram only fill it, as some implementations do,
/// although they look like a packet with a short header: all bytes are the same. No packet is so, because
/// its bytes are encrypted.
pub fn is_filler(bytes: &[u8]) -> bool {
    bytes.windows(2).all(|pair| pair.first() == pair.last())
}

/// The packets of a datagram, with the version of long headers.
pub fn packets(datagram: &[u8]) -> impl Iterator<Item = (Observed, Option<u32>)> {
    // The IDs' length does not matter here: it only says where a short header's packet number is.
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
    fn filler_behind_packets_is_no_packet() {
        // A Handshake packet of version 1 without connection IDs, and 20 bytes in it.
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
