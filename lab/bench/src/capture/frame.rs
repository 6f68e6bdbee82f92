//! Parses Ethernet frames from a packet(7) socket, and splits frames that hold several datagrams.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// Size of a UDP header in bytes. `IPV6` is the size of an IPv6 header.
const UDP: usize = 8;
const IPV6: usize = 40;

/// Offsets and ports of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Offset of the IP header in the frame, in bytes.
    ip: usize,
    v6: bool,
    /// Offset of the UDP or TCP header in the frame, in bytes.
    transport: usize,
    udp: bool,
    source: u16,
    destination: u16,
}

impl Shape {
    /// Parses a frame with UDP or TCP over IP. Returns `None` for other frames, for fragments, and
    /// if the frame is too short for its headers.
    pub(super) fn of(frame: &[u8]) -> Option<Shape> {
        let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
        let (v6, ip) = match packet.net.as_ref()? {
            LaxNetSlice::Ipv4(ip) => (false, ip.header().slice()),
            LaxNetSlice::Ipv6(ip) => (true, ip.header().slice()),
            LaxNetSlice::Arp(_) => return None,
        };
        let (udp, header, source, destination) = match packet.transport.as_ref()? {
            TransportSlice::Udp(udp) => {
                (true, udp.slice(), udp.source_port(), udp.destination_port())
            }
            TransportSlice::Tcp(tcp) => {
                (false, tcp.slice(), tcp.source_port(), tcp.destination_port())
            }
            _ => return None,
        };
        // Each part is a slice of the frame, so the difference of the addresses is its offset.
        let at = |part: &[u8]| part.as_ptr().addr().checked_sub(frame.as_ptr().addr());
        Some(Shape { ip: at(ip)?, v6, transport: at(header)?, udp, source, destination })
    }

    /// Returns true if the frame is from or to one of these ports.
    pub(super) fn has_port(&self, ports: &[u16]) -> bool {
        ports.contains(&self.source) || ports.contains(&self.destination)
    }

    /// Splits a frame into frames of one datagram each, as they would be without segmentation
    /// offload. The kernel delivers several datagrams of `size` bytes as one frame. The length
    /// fields are corrected, but the checksums are not, as is usual with offloads.
    pub(super) fn segments(&self, frame: &[u8], size: usize) -> Vec<Vec<u8>> {
        let (headers, payload) = match frame.split_at_checked(self.transport + UDP) {
            Some(parts) if self.udp && size > 0 && parts.1.len() > size => parts,
            _ => return vec![frame.to_owned()],
        };
        let one = |payload: &[u8]| {
            let mut segment = [headers, payload].concat();
            let udp = UDP + payload.len();
            // The length field of IPv6 covers only the payload (RFC 8200 s.3). That of IPv4
            // includes the header (RFC 791 s.3.1).
            let behind = if self.v6 { self.ip + IPV6 } else { self.ip };
            let length = self.ip + if self.v6 { 4 } else { 2 };
            put(&mut segment, length, self.transport + udp - behind);
            put(&mut segment, self.transport + 4, udp);
            segment
        };
        payload.chunks(size).map(one).collect()
    }
}

/// Writes a length in network byte order into two bytes at `at`. The length of a datagram is at
/// most 65,535.
fn put(frame: &mut [u8], at: usize, value: usize) {
    let bytes = u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes();
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&bytes);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a frame with a UDP datagram from port 1000 to 2000.
    pub(crate) fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        let udp = u16::try_from(UDP + payload.len()).unwrap();
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(udp.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend([0; 32]);
        } else {
            // The IPv4 header has an option of four bytes.
            frame.extend([0x08, 0x00, 0x46, 0]);
            frame.extend((udp + 24).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame.extend([0; 12]);
        }
        frame.extend([0x03, 0xe8, 0x07, 0xd0]);
        frame.extend(udp.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn capture_frame_finds_the_udp_ports() {
        for v6 in [false, true] {
            let frame = datagram(v6, b"hello");
            let shape = Shape::of(&frame).unwrap();
            assert!(shape.has_port(&[2000]) && shape.has_port(&[7, 1000]), "{shape:?}");
            assert!(!shape.has_port(&[7]) && !shape.has_port(&[]));
            // Truncates the frame at any byte before the end of its UDP header.
            for length in 0..shape.transport + UDP {
                assert_eq!(Shape::of(&frame[..length]), None, "{length}");
            }
        }
        let mut fragment = datagram(false, b"x");
        fragment[21] = 1;
        assert_eq!(Shape::of(&fragment), None);
        let mut icmp = datagram(true, b"x");
        icmp[20] = 58;
        assert_eq!(Shape::of(&icmp), None);
        assert_eq!(Shape::of(&[0; 60]), None);
    }

    #[test]
    fn capture_frame_splits_coalesced_datagrams() {
        for v6 in [false, true] {
            let frame = datagram(v6, &[b"aaaa".as_slice(), b"bbbb", b"c"].concat());
            let segments = Shape::of(&frame).unwrap().segments(&frame, 4);
            let expected: Vec<Vec<u8>> =
                [b"aaaa".as_slice(), b"bbbb", b"c"].iter().map(|one| datagram(v6, one)).collect();
            assert_eq!(segments, expected);
            for size in [0, 9, 100] {
                assert_eq!(
                    Shape::of(&frame).unwrap().segments(&frame, size),
                    std::slice::from_ref(&frame)
                );
            }
        }
    }
}
