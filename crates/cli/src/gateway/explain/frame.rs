//! Builds the Ethernet frame around a QUIC packet.

use std::net::IpAddr;

use clap::ValueEnum;

/// Fragment of a datagram that a frame contains. If no fragment is selected, the frame contains the
/// whole datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fragment {
    /// The first fragment, which contains the ports.
    First,
    /// A later fragment, which arrives after the first.
    Later,
}

/// Addresses, ports and VLAN tags of a frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub sport: u16,
    pub dport: u16,
    pub vlans: Vec<u16>,
}

const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;
/// Identification field of the fragments. Any value works, because the field only has to be the
/// same in all fragments of a datagram.
const IDENTIFICATION: u16 = 0x6571;

impl Frame {
    /// Returns the frames to pass to the program, in order. The verdict on the last one is the
    /// result.
    ///
    /// The addresses must belong to one family, and the datagram must fit into 65,535 bytes.
    pub(super) fn build(&self, payload: &[u8], fragment: Option<Fragment>) -> Vec<Vec<u8>> {
        let mut udp = Vec::with_capacity(8 + payload.len());
        udp.extend(self.sport.to_be_bytes());
        udp.extend(self.dport.to_be_bytes());
        udp.extend(u16::try_from(8 + payload.len()).unwrap_or(u16::MAX).to_be_bytes());
        // The UDP checksum stays zero, because the frames never leave the machine and nothing
        // checks it.
        udp.extend([0, 0]);
        udp.extend(payload);
        let Some(fragment) = fragment else {
            return vec![self.packet(&udp, None)];
        };
        // Fragments start at multiples of 8 bytes. The first one contains at least the UDP header.
        let split = (udp.len() / 2).next_multiple_of(8).max(8);
        let split = if split >= udp.len() { udp.len() } else { split };
        let offset = u16::try_from(split / 8).unwrap_or(u16::MAX);
        let first = self.packet(&udp[..split], Some((0, true)));
        let later = self.packet(&udp[split..], Some((offset, false)));
        match fragment {
            Fragment::First => vec![first],
            Fragment::Later => vec![first, later],
        }
    }

    /// Builds an Ethernet frame that contains `data`. `fragment` gives the fragment's offset in
    /// units of 8 bytes, and whether more fragments follow.
    fn packet(&self, data: &[u8], fragment: Option<(u16, bool)>) -> Vec<u8> {
        // The destination and source addresses are locally administered.
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (index, tag) in self.vlans.iter().enumerate() {
            // If there are two tags, the outer one is a service tag (IEEE 802.1ad).
            let outer = index + 1 < self.vlans.len();
            bytes.extend(if outer { [0x88, 0xa8] } else { [0x81, 0x00] });
            bytes.extend(tag.to_be_bytes());
        }
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes.extend([0x08, 0x00]);
                let mut header = vec![0x45, 0];
                header.extend(u16::try_from(20 + data.len()).unwrap_or(u16::MAX).to_be_bytes());
                header.extend(IDENTIFICATION.to_be_bytes());
                let (offset, more) = fragment.unwrap_or((0, false));
                header.extend((offset | u16::from(more) << 13).to_be_bytes());
                header.extend([64, UDP, 0, 0]);
                header.extend(src.octets());
                header.extend(dst.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                bytes.extend(header);
            }
            (src, dst) => {
                let extension = if fragment.is_some() { 8 } else { 0 };
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                let length = u16::try_from(extension + data.len()).unwrap_or(u16::MAX);
                bytes.extend(length.to_be_bytes());
                bytes.extend([if fragment.is_some() { IPV6_FRAGMENT } else { UDP }, 64]);
                bytes.extend(octets(src));
                bytes.extend(octets(dst));
                if let Some((offset, more)) = fragment {
                    bytes.extend([UDP, 0]);
                    bytes.extend((offset << 3 | u16::from(more)).to_be_bytes());
                    bytes.extend(u32::from(IDENTIFICATION).to_be_bytes());
                }
            }
        }
        bytes.extend(data);
        // Pad to the minimum size of an Ethernet frame, without its checksum.
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }
}

fn octets(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Computes the checksum of an IPv4 header (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(src: &str, dst: &str, vlans: &[u16]) -> Frame {
        Frame {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            sport: 50_000,
            dport: 443,
            vlans: vlans.to_vec(),
        }
    }

    #[test]
    fn frame_headers_are_where_they_belong() {
        let v4 = &frame("192.0.2.1", "192.0.2.2", &[]).build(&[7; 100], None)[0];
        assert_eq!(v4.len(), 14 + 20 + 8 + 100);
        assert_eq!(v4[12..14], [8, 0]);
        assert_eq!(checksum(&v4[14..34]), 0);
        assert_eq!(v4[36..38], 443u16.to_be_bytes());
        let v6 = &frame("2001:db8::1", "2001:db8::2", &[7, 9]).build(&[7; 100], None)[0];
        assert_eq!(v6.len(), 14 + 8 + 40 + 8 + 100);
        assert_eq!(v6[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 0x86, 0xdd]);
        assert_eq!(v6[26..28], 108u16.to_be_bytes());
    }

    #[test]
    fn frame_fragments_are_two_halves() {
        for (src, dst, header) in
            [("192.0.2.1", "192.0.2.2", 34), ("2001:db8::1", "2001:db8::2", 62)]
        {
            let frames = frame(src, dst, &[]).build(&[7; 1200], Some(Fragment::Later));
            let [first, later] = frames.as_slice() else { panic!("{}", frames.len()) };
            assert_eq!(first.len() - header + later.len() - header, 1208);
            assert_eq!((first.len() - header) % 8, 0);
        }
        let v4 = frame("192.0.2.1", "192.0.2.2", &[]).build(&[7; 1200], Some(Fragment::Later));
        assert_eq!(v4[0][20..22], [0x20, 0]);
        assert_eq!(v4[1][20..22], (608u16 / 8).to_be_bytes());
    }
}
