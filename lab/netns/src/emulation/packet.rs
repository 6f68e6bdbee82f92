//! The parts of IP headers that an emulation reads and modifies.

use equic_sim::Ecn;

/// Fields of an IP packet that the emulation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Source and destination port.
    pub(super) ports: (u16, u16),
    pub(super) ecn: Ecn,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Parses a packet. Returns `None` unless it is a complete TCP segment or UDP datagram directly
/// after its IP header.
pub(super) fn read(packet: &[u8]) -> Option<Header> {
    let (transport, ecn) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
            let known = matches!(*packet.get(9)?, TCP | UDP);
            if header < 20 || length != packet.len() || fragment != 0 || !known {
                return None;
            }
            (packet.get(header..)?, packet[1] & 3)
        }
        6 => {
            let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            let known = matches!(*packet.get(6)?, TCP | UDP);
            if length + 40 != packet.len() || !known {
                return None;
            }
            (packet.get(40..)?, packet[1] >> 4 & 3)
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes([*transport.get(at)?, *transport.get(at + 1)?]));
    let ecn = match ecn {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    };
    Some(Header { ports: (port(0)?, port(2)?), ecn })
}

/// Marks a packet that [`read`] has accepted as CE (RFC 3168 s.5).
pub(super) fn mark(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            // Update the checksum as RFC 1624 s.3 says: HC' = ~(~HC + ~m + m').
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(6) if packet.len() >= 40 => packet[1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an IPv4 header with its checksum, and a UDP header with the ports 1000 and 2000.
    fn v4(tos: u8) -> Vec<u8> {
        let mut packet = vec![
            0x45, tos, 0, 28, 0, 1, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 1, 1, 3, 232, 7,
            208, 0, 8, 0, 0,
        ];
        let sum = sum(&packet[..20]);
        packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
        packet
    }

    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    #[test]
    fn packet_ports_and_ecn_marks_are_read() {
        let header = read(&v4(2)).unwrap();
        assert_eq!(header, Header { ports: (1000, 2000), ecn: Ecn::Ect0 });
        let mut six = vec![0x60, 0x10, 0, 0, 0, 8, 17, 64];
        six.resize(48, 0);
        six[40..44].copy_from_slice(&[3, 232, 7, 208]);
        assert_eq!(read(&six), Some(Header { ports: (1000, 2000), ecn: Ecn::Ect1 }));
        mark(&mut six);
        assert_eq!(read(&six).unwrap().ecn, Ecn::Ce);
    }

    #[test]
    fn packet_that_is_marked_has_a_valid_checksum() {
        for tos in 0..=255 {
            let mut packet = v4(tos);
            mark(&mut packet);
            assert_eq!(read(&packet).unwrap().ecn, Ecn::Ce);
            assert_eq!(sum(&packet[..20]), 0xffff, "{tos}");
        }
    }

    #[test]
    fn packet_that_is_foreign_or_truncated_is_left_alone() {
        let whole = v4(0);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None);
        }
        let with = |at: usize, value: u8| {
            let mut packet = v4(0);
            packet[at] = value;
            read(&packet)
        };
        // Rejected: another IP version, a header that is too short, a fragment, and ICMP.
        assert!(
            [with(0, 0x55), with(0, 0x44), with(6, 0x20), with(9, 1)].iter().all(Option::is_none)
        );
        for length in 0..60 {
            mark(&mut vec![0x45; length]);
            mark(&mut vec![0x60; length]);
        }
    }
}
