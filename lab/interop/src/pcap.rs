//! Writes the relay's records as a capture file for Wireshark: IP packets with generated UDP
//! headers.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use equic_netns::relay::{Record, Way};

/// LINKTYPE_RAW of the pcap format: packets begin with their IP header.
const LINKTYPE_RAW: u32 = 101;

/// Side of the connection at which a capture is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Writes the packets that one side sent, and the packets of the other side that arrived at it.
pub(crate) fn write(
    path: &Path,
    records: &[Record],
    side: Side,
    fronts: &[SocketAddr],
    server: SocketAddr,
) -> io::Result<()> {
    let mut packets: Vec<(Duration, Vec<u8>)> = Vec::new();
    for record in records {
        let own = (side == Side::Client) == (record.way == Way::ToServer);
        if !own && !record.fate.is_intact() {
            continue;
        }
        let at = if own { record.sent } else { record.arrived };
        let (client, server) = match side {
            Side::Client => (record.client, fronts.get(record.front).copied().unwrap_or(server)),
            Side::Server => (record.seen_as, server),
        };
        let (from, to) = match record.way {
            Way::ToServer => (client, server),
            Way::ToClient => (server, client),
        };
        packets.push((at, packet(from, to, record.ecn, &record.payload)));
    }
    packets.sort_by_key(|(at, _)| *at);
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    // This is the header of the pcap format, version 2.4, with microseconds.
    file.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    file.write_all(&[2, 0, 4, 0])?;
    for word in [0, 0, 65_535, LINKTYPE_RAW] {
        file.write_all(&word.to_le_bytes())?;
    }
    for (at, packet) in packets {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let seconds = u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        for word in [seconds, at.subsec_micros(), len, len] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&packet)?;
    }
    file.flush()
}

/// Returns an IP packet with a UDP datagram, without checksums.
fn packet(from: SocketAddr, to: SocketAddr, ecn: u8, payload: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(payload.len() + 8).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = Vec::with_capacity(payload.len() + 48);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let len = u16::try_from(payload.len() + 28).unwrap_or(u16::MAX).to_be_bytes();
            packet.extend([0x45, ecn & 3, len[0], len[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        (from, to) => {
            packet.extend([0x60, (ecn & 3) << 4, 0, 0, udp_len[0], udp_len[1], 17, 64]);
            for address in [from, to] {
                match address {
                    IpAddr::V4(v4) => packet.extend(v4.to_ipv6_mapped().octets()),
                    IpAddr::V6(v6) => packet.extend(v6.octets()),
                }
            }
        }
    }
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(udp_len);
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}
