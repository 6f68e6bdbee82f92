//! Writes and reads the headers that the network stack would handle: Ethernet, IPv4 and UDP.

use std::net::Ipv4Addr;

/// Total size of the three headers in bytes.
pub(crate) const HEADERS: usize = 14 + 20 + 8;

/// Addresses of one end.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub mac: [u8; 6],
    pub address: Ipv4Addr,
    pub port: u16,
}

/// Writes the headers of a datagram of `length` bytes. The UDP checksum is 0 (no checksum), which
/// IPv4 permits and IPv6 does not.
pub(crate) fn write(frame: &mut [u8], from: End, to: End, length: usize) {
    frame[0..6].copy_from_slice(&to.mac);
    frame[6..12].copy_from_slice(&from.mac);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut frame[14..34];
    let total = (28 + length) as u16;
    // Version and length, TOS, total length, ID, "do not fragment", TTL, UDP, checksum.
    ip[0..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[4..12].copy_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip[12..16].copy_from_slice(&from.address.octets());
    ip[16..20].copy_from_slice(&to.address.octets());
    let checksum = checksum(ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp = &mut frame[34..42];
    udp[0..2].copy_from_slice(&from.port.to_be_bytes());
    udp[2..4].copy_from_slice(&to.port.to_be_bytes());
    udp[4..6].copy_from_slice(&((8 + length) as u16).to_be_bytes());
    udp[6..8].copy_from_slice(&[0, 0]);
}

/// Returns the payload of a frame. Returns `None` if the frame has no UDP datagram to this port.
pub(crate) fn read(frame: &[u8], port: u16) -> Option<&[u8]> {
    let (ethernet, ip) = frame.split_at_checked(14)?;
    let header = usize::from(ip.first()? & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    let is_udp = ethernet[12..14] == [0x08, 0x00] && ip[0] >> 4 == 4 && *ip.get(9)? == 17;
    let udp = ip.get(header..total)?;
    let to = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    if is_udp && to == port { udp.get(8..length) } else { None }
}

/// Returns the Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
