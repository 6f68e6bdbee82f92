//! Packets with which the gateway answers in the name of a server (policy.md sections 8, 9 and 14).
//! The model computes them byte by byte in the simplest way, without tables. The XDP program must
//! send exactly the same bytes.

use super::address_bytes;
use super::config::TakenVersions;
use super::frame::Datagram;
use super::quic::{ConnectionId, Opening};
use equic_token::{KeyRing, RetryToken};
use equic_wire::KnownVersion;
use equic_wire::packet::LongInvariant;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

const ETHERTYPES_OF_TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const TTL: u8 = 64;
const UDP: u8 = 17;
/// Label at the start of the hash input from which the connection ID in a Retry packet is computed.
const ID_LABEL: u64 = 0x0044_4920_7952_5445;
const ID_LEN: usize = 8;

/// AES-128 of the block 0 and of the block (nonce, 00000001), computed with the keys and nonces of
/// RFC 9001 s.5.8 and RFC 9369 s.3.3.3. They replace the block cipher in the computation of the
/// Retry Integrity Tag.
const GCM_V1: [u128; 2] =
    [0x7295_6a45_4ffa_ff54_85a1_3a12_44d0_1d47, 0x555e_4b74_9355_6eea_af75_d35b_d7fb_a5d8];
const GCM_V2: [u128; 2] =
    [0x65f6_bee1_0d70_0eda_919c_5c69_78e4_7a5d, 0x4e90_1396_e3a9_359f_4535_b65e_5ad6_ae51];

/// Returns a frame with a Retry packet that answers an Initial packet at the time `now_ms`. Returns
/// `None` if no Retry packet can be made.
pub(super) fn retry(
    frame: &[u8],
    datagram: &Datagram<'_>,
    opening: &Opening,
    ring: &KeyRing,
    now_ms: u64,
) -> Option<Vec<u8>> {
    let version = opening.version.known()?;
    let client = SocketAddr::new(datagram.src, datagram.sport);
    let id = choose_id(ring, client, opening)?;
    let token = RetryToken::new(client, opening.dcid, id, now_ms).seal(ring).ok()?;
    let first = if version == KnownVersion::V2 { 0xc0 } else { 0xf0 };
    let mut packet = vec![first];
    packet.extend(opening.version.0.to_be_bytes());
    for id in [opening.scid, id] {
        packet.push(id.as_bytes().len() as u8);
        packet.extend(id.as_bytes());
    }
    packet.extend(token);
    packet.extend(integrity_tag(version, opening.dcid.as_bytes(), &packet));
    Some(answer(frame, datagram, &packet))
}

/// Returns a frame with a Version Negotiation packet that answers a packet of an unknown version.
pub(super) fn version_negotiation(
    frame: &[u8],
    datagram: &Datagram<'_>,
    versions: TakenVersions,
) -> Option<Vec<u8>> {
    let header = LongInvariant::parse(datagram.payload?.data).ok()?;
    let mut packet = vec![0xc0, 0, 0, 0, 0];
    for id in [header.scid, header.dcid] {
        packet.push(id.len() as u8);
        packet.extend(id);
    }
    let taken: &[u32] = match versions {
        TakenVersions::Both => &[1, 0x6b33_43cf],
        TakenVersions::V1 => &[1],
        TakenVersions::V2 => &[0x6b33_43cf],
    };
    packet.extend(taken.iter().flat_map(|version| version.to_be_bytes()));
    let byte = |at: usize| header.dcid.get(at).unwrap_or(&0) & 0xf0 | 0x0a;
    let mut reserved = [byte(0), byte(1), byte(2), byte(3)];
    if reserved == header.version.0.to_be_bytes() {
        reserved = reserved.map(|byte| byte ^ 0xf0);
    }
    packet.extend(reserved);
    Some(answer(frame, datagram, &packet))
}

/// Returns the connection ID that a Retry packet gives to the client. It is a hash of the client's
/// address and connection IDs, computed with a key of the ring.
fn choose_id(ring: &KeyRing, client: SocketAddr, opening: &Opening) -> Option<ConnectionId> {
    let epoch = usize::from(ring.epoch().number());
    let bytes = ring.to_bytes();
    let mut hasher = SipHasher24::new_with_key(bytes.get(16 + epoch * 16..)?.first_chunk()?);
    hasher.write(&ID_LABEL.to_le_bytes());
    hasher.write(&address_bytes(client.ip()));
    // The port is hashed in network byte order, as the packet carries it.
    let family = if client.is_ipv4() { 4 } else { 6 };
    let [high, low] = client.port().to_be_bytes();
    hasher.write(&[high, low, family, 0, 0, 0, 0, 0]);
    for id in [opening.dcid, opening.scid] {
        let mut padded = [0; 24];
        padded[..id.as_bytes().len()].copy_from_slice(id.as_bytes());
        padded[20] = id.as_bytes().len() as u8;
        hasher.write(&padded);
    }
    ConnectionId::new(&hasher.finish().to_le_bytes()[..ID_LEN]).ok()
}

/// Returns the Retry Integrity Tag (RFC 9001 s.5.8). It is the AES-128-GCM tag of an empty
/// plaintext, with the original connection ID and the packet as associated data.
fn integrity_tag(version: KnownVersion, original: &[u8], packet: &[u8]) -> [u8; 16] {
    let [h, mask] = if version == KnownVersion::V2 { GCM_V2 } else { GCM_V1 };
    let pseudo = [&[original.len() as u8], original, packet].concat();
    let mut sum = 0;
    for block in pseudo.chunks(16) {
        let mut padded = [0; 16];
        padded[..block.len()].copy_from_slice(block);
        sum = product(sum ^ u128::from_be_bytes(padded), h);
    }
    let lengths = (pseudo.len() as u128 * 8) << 64;
    (product(sum ^ lengths, h) ^ mask).to_be_bytes()
}

/// Multiplies in the finite field of GCM (NIST SP 800-38D s.6.3, algorithm 1). The highest bit is
/// the coefficient of x^0.
fn product(x: u128, y: u128) -> u128 {
    let (mut z, mut v) = (0, y);
    for bit in (0..128).rev() {
        if x >> bit & 1 == 1 {
            z ^= v;
        }
        v = if v & 1 == 1 { v >> 1 ^ 0xe1 << 120 } else { v >> 1 };
    }
    z
}

/// Returns a frame that carries `payload` back to the sender of `frame`, with the same VLAN tags.
pub(super) fn answer(frame: &[u8], datagram: &Datagram<'_>, payload: &[u8]) -> Vec<u8> {
    let mut out = [&frame[6..12], &frame[..6]].concat();
    let mut at = 12;
    while ETHERTYPES_OF_TAGS.iter().any(|tag| frame[at..at + 2] == *tag) {
        out.extend(&frame[at..at + 4]);
        at += 4;
    }
    out.extend(&frame[at..at + 2]);
    let (from, to) = (datagram.dst, datagram.src);
    let mut udp = Vec::new();
    udp.extend(datagram.dport.to_be_bytes());
    udp.extend(datagram.sport.to_be_bytes());
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let checksum = match checksum(&[&pseudo_header(from, to, udp.len()), &udp[..]].concat()) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    out.extend(ip_header(from, to, udp.len()));
    out.extend(udp);
    out
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

fn pseudo_header(from: IpAddr, to: IpAddr, length: usize) -> Vec<u8> {
    [octets(from), octets(to), vec![0, UDP], (length as u16).to_be_bytes().to_vec()].concat()
}

fn ip_header(from: IpAddr, to: IpAddr, length: usize) -> Vec<u8> {
    if from.is_ipv6() {
        let [high, low] = (length as u16).to_be_bytes();
        let fixed = vec![0x60, 0, 0, 0, high, low, UDP, TTL];
        return [fixed, octets(from), octets(to)].concat();
    }
    let [high, low] = (20 + length as u16).to_be_bytes();
    // The value 0x40 is the flag Don't Fragment.
    let fixed = vec![0x45, 0, high, low, 0, 0, 0x40, 0, TTL, UDP, 0, 0];
    let mut header = [fixed, octets(from), octets(to)].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the tags with the examples in RFC 9001 A.4 and RFC 9369 A.4.
    #[test]
    fn integrity_tags_match_the_rfcs() {
        let original = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let behind = *b"\x00\x08\xf0\x67\xa5\x50\x2a\x42\x62\xb5token";
        let v1 = [&[0xff, 0, 0, 0, 1], &behind[..]].concat();
        let v2 = [&[0xcf, 0x6b, 0x33, 0x43, 0xcf], &behind[..]].concat();
        let tag =
            |version, packet: &[u8]| u128::from_be_bytes(integrity_tag(version, &original, packet));
        assert_eq!(tag(KnownVersion::V1, &v1), 0x04a2_65ba_2eff_4d82_9058_fb3f_0f24_96ba);
        assert_eq!(tag(KnownVersion::V2, &v2), 0xc864_6ce8_bfe3_3952_d955_5436_65dc_c7b6);
    }
}
