//! Builds packet headers byte by byte, without any check that they make sense together.

use crate::chain::Flow;

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const MOBILITY: u8 = 135;

/// Link-layer addresses: that of the gateway's interface, and that of the other end of the link.
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

pub(crate) fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8], padding: usize) -> Vec<u8> {
    let mut frame = MACS.to_vec();
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame.resize(frame.len() + padding, 0);
    frame
}

/// Returns a UDP packet without a checksum, so that the kernel accepts any combination of its
/// fragments.
pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut udp = 1000_u16.to_be_bytes().to_vec();
    udp.extend(port.to_be_bytes());
    udp.extend((payload.len() as u16 + 8).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    udp
}

pub(crate) fn ipv4(
    flow: &Flow,
    protocol: u8,
    at: usize,
    more: bool,
    option_words: usize,
    payload: &[u8],
) -> Vec<u8> {
    let header = 20 + 4 * option_words;
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + payload.len()) as u16).to_be_bytes());
    packet.extend((flow.identification() as u16).to_be_bytes());
    packet.extend((u16::from(more) << 13 | (at / 8) as u16 & 0x1fff).to_be_bytes());
    let [.., high, low] = flow.number.to_be_bytes();
    packet.extend([64, protocol, 0, 0, 10, flow.network, high, low]);
    packet.extend([10, 0, 0, 1]);
    // The header is filled with IP options of type No-Operation.
    packet.resize(header, 1);
    packet.extend(payload);
    sum_ipv4(&mut packet);
    packet
}

/// Writes the checksum of an IPv4 header, if the packet contains the whole header.
pub(crate) fn sum_ipv4(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 15) * 4;
    if header < 20 || packet.len() < header {
        return;
    }
    packet[10..12].fill(0);
    let words = packet[..header].chunks_exact(2);
    let sum: u32 = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

pub(crate) fn ipv6(flow: &Flow, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    let [.., top, high, low] = flow.number.to_be_bytes();
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, flow.network, 0, top, high, low, 9]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend(payload);
    packet
}

/// Links IPv6 extension headers. Returns the number of the first header, and the bytes of all
/// headers. Each header is given by its number and by its content after the Next Header field.
/// `last` becomes the Next Header field of the last header.
pub(crate) fn linked(headers: &[(u8, Vec<u8>)], last: u8) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    for (index, (_, content)) in headers.iter().enumerate() {
        bytes.push(headers.get(index + 1).map_or(last, |(number, _)| *number));
        bytes.extend(content);
    }
    (headers.first().map_or(last, |(number, _)| *number), bytes)
}

/// Returns one unknown option that fills an extension header. The option's type tells receivers to
/// skip it. Padding options would not work, because Linux refuses long padding.
pub(crate) fn options_content(units: u8) -> Vec<u8> {
    let len = (usize::from(units) + 1) * 8 - 1;
    let mut content = vec![units, 0x1e, (len - 3) as u8];
    content.resize(len, 0);
    content
}

pub(crate) fn routing_content(units: u8, kind: u8, segments_left: u8) -> Vec<u8> {
    let mut content = vec![units, kind, segments_left];
    content.resize((usize::from(units) + 1) * 8 - 1, 0);
    content
}

pub(crate) fn fragment_content(offset_and_more: u16, identification: u32) -> Vec<u8> {
    let mut content = vec![0];
    content.extend(offset_and_more.to_be_bytes());
    content.extend(identification.to_be_bytes());
    content
}
