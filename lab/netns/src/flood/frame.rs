//! Ethernet frames with UDP datagrams, including checksums. Spoofed floods send them, and tests
//! pass them to [`RawSender`](super::RawSender).

use std::net::{IpAddr, SocketAddr};

/// Length of Ethernet, IPv6 and UDP headers: the maximum that [`Template::headers`] writes.
pub(super) const MAX_HEADERS: usize = 14 + 40 + 8;
const TTL: u8 = 64;
const UDP: u8 = 17;

/// Creates an Ethernet frame with one UDP datagram and valid IP and UDP checksums.
///
/// Returns `None` if the addresses are of different families, or if the payload does not fit into a
/// datagram.
pub fn udp_frame(
    source_mac: [u8; 6],
    target_mac: [u8; 6],
    source: SocketAddr,
    target: SocketAddr,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let mut headers = [0; MAX_HEADERS];
    let template = Template { source_mac, target_mac, target };
    let length = template.headers(&mut headers, source, 0, payload.len(), sum(payload))?;
    Some([&headers[..length], payload].concat())
}

/// Fields that all frames of a flood share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template {
    pub source_mac: [u8; 6],
    pub target_mac: [u8; 6],
    pub target: SocketAddr,
}

impl Template {
    /// Writes all headers for a payload of this length, whose [`sum`] is given. Returns the length
    /// of the headers, or `None` in the same cases as [`udp_frame`].
    pub(super) fn headers(
        &self,
        out: &mut [u8; MAX_HEADERS],
        source: SocketAddr,
        identification: u16,
        payload_length: usize,
        payload_sum: u32,
    ) -> Option<usize> {
        let udp_length = u16::try_from(payload_length + 8).ok()?;
        out[..6].copy_from_slice(&self.target_mac);
        out[6..12].copy_from_slice(&self.source_mac);
        let (ip_length, addresses) = match (source.ip(), self.target.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
                let header = &mut out[14..34];
                header.fill(0);
                header[0] = 0x45;
                header[2..4].copy_from_slice(&udp_length.checked_add(20)?.to_be_bytes());
                header[4..6].copy_from_slice(&identification.to_be_bytes());
                // Set Don't Fragment, as QUIC requires (RFC 9000 s.14).
                header[6] = 0x40;
                (header[8], header[9]) = (TTL, UDP);
                header[12..16].copy_from_slice(&from.octets());
                header[16..20].copy_from_slice(&to.octets());
                let checksum = finish(sum(header));
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                (20, sum(&header[12..20]))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                out[12..14].copy_from_slice(&0x86ddu16.to_be_bytes());
                let header = &mut out[14..54];
                header.fill(0);
                header[0] = 0x60;
                header[4..6].copy_from_slice(&udp_length.to_be_bytes());
                (header[6], header[7]) = (UDP, TTL);
                header[8..24].copy_from_slice(&from.octets());
                header[24..40].copy_from_slice(&to.octets());
                (40, sum(&header[8..40]))
            }
            _ => return None,
        };
        let at = 14 + ip_length;
        let header = &mut out[at..at + 8];
        header[..2].copy_from_slice(&source.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.target.port().to_be_bytes());
        header[4..6].copy_from_slice(&udp_length.to_be_bytes());
        header[6..].fill(0);
        let pseudo = addresses + u32::from(UDP) + u32::from(udp_length);
        // A checksum of zero would mean "no checksum" (RFC 768), so it is sent as 0xffff.
        let checksum = match finish(pseudo + sum(header) + payload_sum) {
            0 => 0xffff,
            other => other,
        };
        header[6..8].copy_from_slice(&checksum.to_be_bytes());
        Some(at + 8)
    }
}

/// Returns the sum of 16-bit words, with an odd last byte padded by zero (RFC 1071). `bytes` may
/// have at most 65,536 bytes, so that a few sums can be added without overflow.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let (words, odd) = bytes.as_chunks::<2>();
    let total: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let total = total + odd.first().map_or(0, |&byte| u32::from(byte) << 8);
    (total >> 16) + (total & 0xffff)
}

fn finish(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(source: &str, target: &str, payload: &[u8]) -> Option<Vec<u8>> {
        udp_frame([2; 6], [4; 6], source.parse().unwrap(), target.parse().unwrap(), payload)
    }

    #[test]
    fn frame_has_a_correct_ipv4_header() {
        // The sum was computed by hand: 4500 + 0020 + 4000 + 4011 + 0a4d + 0101 + 0a4d + 0001 =
        // dacd. The checksum is its complement.
        let frame = frame("10.77.1.1:1000", "10.77.0.1:443", b"abcd").unwrap();
        assert_eq!(frame[24..26], [0x25, 0x32]);
        assert_eq!(frame.len(), 14 + 20 + 8 + 4);
        assert_eq!(finish(sum(&frame[14..34])), 0, "a right header sums up to nothing");
        // If the length is odd, the last byte counts as the high byte of a word.
        assert_eq!(sum(b"abc"), sum(b"abc\0"));
    }

    #[test]
    fn frame_refuses_mixed_families_and_long_payloads() {
        assert!(frame("10.77.1.1:1", "[fd65:7175:6963::1]:1", b"").is_none());
        assert!(frame("[::1]:1", "10.77.0.1:1", b"").is_none());
        assert!(frame("10.77.1.1:1", "10.77.0.1:1", &[0; 65_507]).is_some());
        assert!(frame("10.77.1.1:1", "10.77.0.1:1", &[0; 65_508]).is_none());
        assert!(frame("[::1]:1", "[fd65:7175:6963::1]:1", &[0xff; 65_527]).is_some());
        assert!(frame("[::1]:1", "[fd65:7175:6963::1]:1", &[0; 65_528]).is_none());
    }
}
