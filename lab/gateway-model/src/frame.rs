//! Finds the UDP datagram in an Ethernet frame (policy.md section 1).

use super::quic::Payload;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of IPv6 extension headers that are parsed.
pub const MAX_EXTENSION_HEADERS: usize = 16;

const MAX_VLAN_TAGS: usize = 2;
const ETHERNET_ADDRESSES_LEN: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const IPV4_MIN_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const UDP_PORTS: usize = 4;

/// Identifies the IP datagram to which a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// The Identification field. It has 16 bits in IPv4, and 32 bits in IPv6.
    pub identification: u32,
    /// The Protocol field of an IPv4 packet. It is `None` for IPv6, where reassembly does not
    /// consider the protocol.
    pub protocol: Option<u8>,
}

/// An IP fragment whose offset is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterFragment {
    /// Identifies the IP datagram to which the fragment belongs.
    pub key: FragmentKey,
    /// Number of bytes of the datagram in this fragment, according to the length field of the IP
    /// header.
    pub length: usize,
}

/// A UDP datagram, or the first IP fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Set if this is a first fragment: its offset is 0, and other fragments follow.
    pub first_fragment: Option<FragmentKey>,
    /// Number of bytes that the IP packet has for UDP, including the UDP header, according to the
    /// length field of the IP header.
    pub ip_payload_len: usize,
    /// Number of datagrams for which this one is judged: more than 1 for the first datagram of a
    /// batch.
    pub datagrams: u64,
    /// Total number of UDP payload bytes in these datagrams.
    pub whole: usize,
    /// The UDP payload, or `None` if the UDP length contradicts the IP length.
    pub payload: Option<Payload<'a>>,
}

/// Content of an Ethernet frame, as far as the gateway parses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A packet that the gateway does not judge, because it is not UDP over IP.
    Foreign,
    /// A packet in which the host may find a UDP header that the gateway cannot find. The packet
    /// may have too many VLAN tags or IPv6 extension headers, or be an IPv6 jumbogram. The UDP
    /// header may also appear only after the reassembly of fragments.
    DeepHeaders,
    /// An IP fragment after the first one. It has no UDP header.
    LaterFragment(LaterFragment),
    /// A UDP datagram.
    Datagram(Datagram<'a>),
}

/// Parses a frame that starts with its Ethernet header. Accepts any bytes.
pub fn parse(frame: &[u8]) -> Frame<'_> {
    parse_ethernet(frame).unwrap_or(Frame::Foreign)
}

fn parse_ethernet(frame: &[u8]) -> Option<Frame<'_>> {
    let mut rest = frame.get(ETHERNET_ADDRESSES_LEN..)?;
    let mut ethertype = take_u16(&mut rest)?;
    let mut tags = 0;
    while ETHERTYPE_VLAN.contains(&ethertype) {
        tags += 1;
        if tags > MAX_VLAN_TAGS {
            return Some(Frame::DeepHeaders);
        }
        let _tag_control_information = take_u16(&mut rest)?;
        ethertype = take_u16(&mut rest)?;
    }
    match ethertype {
        ETHERTYPE_IPV4 => parse_ipv4(rest),
        ETHERTYPE_IPV6 => parse_ipv6(rest),
        _ => None,
    }
}

/// Parses an IPv4 packet (RFC 791 s.3.1). `rest` starts with the header and may end with padding.
fn parse_ipv4(rest: &[u8]) -> Option<Frame<'_>> {
    let header = rest.get(..IPV4_MIN_HEADER)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_len < IPV4_MIN_HEADER || total_len < header_len {
        return None;
    }
    let body = rest.get(..total_len)?.get(header_len..)?;
    let protocol = header[9];
    if protocol != PROTOCOL_UDP {
        return None;
    }
    let src = IpAddr::V4(Ipv4Addr::from(read_array::<4>(header, 12)?));
    let dst = IpAddr::V4(Ipv4Addr::from(read_array::<4>(header, 16)?));
    let flags_and_offset = u16::from_be_bytes([header[6], header[7]]);
    let identification = u32::from(u16::from_be_bytes([header[4], header[5]]));
    let key = FragmentKey { src, dst, identification, protocol: Some(protocol) };
    if flags_and_offset & 0x1fff != 0 {
        return Some(Frame::LaterFragment(LaterFragment { key, length: body.len() }));
    }
    let more_fragments = flags_and_offset & 0x2000 != 0;
    parse_udp(body, src, dst, more_fragments.then_some(key))
}

/// Parses an IPv6 packet (RFC 8200 s.3 and s.4). `rest` starts with the header and may end with
/// padding.
fn parse_ipv6(rest: &[u8]) -> Option<Frame<'_>> {
    let header = rest.get(..IPV6_HEADER)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let behind = rest.get(IPV6_HEADER..)?;
    let src = IpAddr::V6(Ipv6Addr::from(read_array::<16>(header, 8)?));
    let dst = IpAddr::V6(Ipv6Addr::from(read_array::<16>(header, 24)?));
    // This is a jumbogram (RFC 2675 s.3), or a packet that looks like one.
    if payload_len == 0 && header[6] == HOP_BY_HOP {
        return match walk_extensions(behind, header[6], src, dst) {
            Chain::Ends { next_header, .. } if next_header != PROTOCOL_UDP => None,
            _ => Some(Frame::DeepHeaders),
        };
    }
    match walk_extensions(behind.get(..payload_len)?, header[6], src, dst) {
        Chain::Ends { next_header: PROTOCOL_UDP, body, first_fragment } => {
            parse_udp(body, src, dst, first_fragment)
        }
        Chain::Ends { .. } | Chain::Broken => None,
        Chain::Hidden => Some(Frame::DeepHeaders),
        Chain::LaterFragment(fragment) => Some(Frame::LaterFragment(fragment)),
    }
}

/// Result of parsing a chain of IPv6 extension headers.
enum Chain<'a> {
    /// The chain ends with a header of another protocol. `body` has the bytes from that header on.
    Ends { next_header: u8, body: &'a [u8], first_fragment: Option<FragmentKey> },
    /// The packet is a later fragment, in which no further headers follow.
    LaterFragment(LaterFragment),
    /// A header extends beyond the end of the packet. No receiver accepts such a packet.
    Broken,
    /// There are more headers than the gateway parses, or further headers are in a later fragment.
    Hidden,
}

fn walk_extensions(mut body: &[u8], mut next_header: u8, src: IpAddr, dst: IpAddr) -> Chain<'_> {
    let mut first_fragment = None;
    for _ in 0..MAX_EXTENSION_HEADERS {
        if !is_extension_header(next_header) {
            return Chain::Ends { next_header, body, first_fragment };
        }
        let Some((extension, behind)) = split_extension(body, next_header) else {
            return if first_fragment.is_some() { Chain::Hidden } else { Chain::Broken };
        };
        body = behind;
        if next_header == FRAGMENT {
            let offset_and_more = u16::from_be_bytes([extension[2], extension[3]]);
            let identification =
                u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]);
            // The protocol is not part of the key: receivers ignore the Next Header field of later
            // fragments (RFC 8200 s.4.5).
            let key = FragmentKey { src, dst, identification, protocol: None };
            if offset_and_more >> 3 != 0 {
                return Chain::LaterFragment(LaterFragment { key, length: body.len() });
            }
            // If the offset is 0 and no fragments follow, this is a whole packet (an atomic
            // fragment, RFC 6946).
            if offset_and_more & 1 != 0 {
                first_fragment = Some(key);
            }
        }
        next_header = extension[0];
    }
    if is_extension_header(next_header) {
        Chain::Hidden
    } else {
        Chain::Ends { next_header, body, first_fragment }
    }
}

/// Splits off one extension header, of at least 8 bytes. Returns it and the bytes after it, or
/// `None` if the header extends beyond the packet.
fn split_extension(body: &[u8], number: u8) -> Option<(&[u8], &[u8])> {
    let units = usize::from(*body.get(1)?);
    let length = match number {
        AUTHENTICATION => (units + 2) * 4,
        FRAGMENT => 8,
        _ => (units + 1) * 8,
    };
    body.split_at_checked(length)
}

/// Returns `true` for the extension headers that the gateway parses: Hop-by-Hop Options, Routing,
/// Fragment, AH, Destination Options and Mobility.
fn is_extension_header(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | 43 | FRAGMENT | AUTHENTICATION | 60 | 135)
}

/// Parses a UDP header (RFC 768). `body` has all bytes that the IP packet has for UDP.
/// `first_fragment` is set if the packet is a first fragment.
fn parse_udp(
    body: &[u8],
    src: IpAddr,
    dst: IpAddr,
    first_fragment: Option<FragmentKey>,
) -> Option<Frame<'_>> {
    let mut rest = body;
    if body.len() < UDP_PORTS && first_fragment.is_some() {
        return Some(Frame::DeepHeaders);
    }
    let sport = take_u16(&mut rest)?;
    let dport = take_u16(&mut rest)?;
    let payload = udp_payload(body, first_fragment.is_some());
    let ip_payload_len = body.len();
    Some(Frame::Datagram(Datagram {
        src,
        dst,
        sport,
        dport,
        first_fragment,
        ip_payload_len,
        datagrams: 1,
        whole: payload.map_or(0, |payload| payload.data.len()),
        payload,
    }))
}

fn udp_payload(body: &[u8], is_first_fragment: bool) -> Option<Payload<'_>> {
    let data = body.get(UDP_HEADER..)?;
    let udp_len = usize::from(u16::from_be_bytes(read_array::<2>(body, 4)?));
    if udp_len > body.len() && !is_first_fragment {
        return None;
    }
    let length = udp_len.checked_sub(UDP_HEADER)?;
    Some(Payload { data: data.get(..length).unwrap_or(data), length })
}

fn read_array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let value = u16::from_be_bytes(read_array::<2>(rest, 0)?);
    *rest = rest.get(2..)?;
    Some(value)
}
