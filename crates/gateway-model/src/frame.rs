//! From an Ethernet frame to a UDP datagram (policy.md section 1).

use super::quic::Payload;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv6 extension headers that are walked; a packet with more is [`Frame::DeepHeaders`], as is one with
/// more than two VLAN tags.
pub const MAX_EXTENSION_HEADERS: usize = 16;

const MAX_VLAN_TAGS: usize = 2;
const ETHERNET_ADDRESSES_LEN: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const IPV4_MIN_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;

/// Key that tells the fragments of one datagram from those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// The Identification field, 16 bits in IPv4, 32 in IPv6.
    pub identification: u32,
    /// IPv4 Protocol, or Next Header of the IPv6 Fragment header.
    pub protocol: u8,
}

/// A fragment whose offset is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterFragment {
    /// The datagram it belongs to.
    pub key: FragmentKey,
    /// Bytes of the datagram it carries, by the IP length.
    pub length: usize,
}

/// A UDP datagram, or the first fragment of one.
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
    /// Set on a first fragment (offset 0, more fragments to come).
    pub first_fragment: Option<FragmentKey>,
    /// Bytes that the IP length leaves for UDP, its header included.
    pub ip_payload_len: usize,
    /// The UDP payload; `None` if the UDP length contradicts the IP length.
    pub payload: Option<Payload<'a>>,
}

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Nothing the gateway looks at.
    Foreign,
    /// Headers that are not walked to the end: more VLAN tags or IPv6 extension headers than the limits,
    /// or an IPv6 jumbogram.
    DeepHeaders,
    /// A fragment without ports.
    LaterFragment(LaterFragment),
    /// A UDP datagram.
    Datagram(Datagram<'a>),
}

/// Reads a frame that starts with its Ethernet header. Any bytes will do.
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

/// RFC 791 s.3.1. `rest` starts with the header and may end with padding.
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
    let key = FragmentKey { src, dst, identification, protocol };
    if flags_and_offset & 0x1fff != 0 {
        return Some(Frame::LaterFragment(LaterFragment { key, length: body.len() }));
    }
    let more_fragments = flags_and_offset & 0x2000 != 0;
    parse_udp(body, src, dst, more_fragments.then_some(key))
}

/// RFC 8200 s.3 and s.4. `rest` starts with the header and may end with padding.
fn parse_ipv6(rest: &[u8]) -> Option<Frame<'_>> {
    let header = rest.get(..IPV6_HEADER)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut body = rest.get(IPV6_HEADER..)?.get(..payload_len)?;
    let src = IpAddr::V6(Ipv6Addr::from(read_array::<16>(header, 8)?));
    let dst = IpAddr::V6(Ipv6Addr::from(read_array::<16>(header, 24)?));
    let mut next_header = header[6];
    // RFC 2675 s.3, or what pretends to be one.
    if payload_len == 0 && next_header == HOP_BY_HOP {
        return Some(Frame::DeepHeaders);
    }
    let mut first_fragment = None;
    let mut walked = 0;
    loop {
        if next_header == PROTOCOL_UDP {
            return parse_udp(body, src, dst, first_fragment);
        }
        if !is_extension_header(next_header) {
            return None;
        }
        if walked == MAX_EXTENSION_HEADERS {
            return Some(Frame::DeepHeaders);
        }
        walked += 1;
        let protocol = *body.first()?;
        let length = match next_header {
            51 => (usize::from(*body.get(1)?) + 2) * 4,
            44 => 8,
            _ => (usize::from(*body.get(1)?) + 1) * 8,
        };
        let extension = body.get(..length)?;
        body = body.get(length..)?;
        if next_header == 44 {
            let offset_and_more = u16::from_be_bytes([extension[2], extension[3]]);
            let identification = u32::from_be_bytes(read_array::<4>(extension, 4)?);
            let key = FragmentKey { src, dst, identification, protocol };
            if offset_and_more >> 3 != 0 {
                return Some(Frame::LaterFragment(LaterFragment { key, length: body.len() }));
            }
            // Without more fragments it is a whole packet (an atomic fragment, RFC 6946).
            if offset_and_more & 1 != 0 {
                first_fragment = Some(key);
            }
        }
        next_header = protocol;
    }
}

/// Hop-by-Hop, Routing, Fragment, AH, Destination Options, Mobility.
fn is_extension_header(next_header: u8) -> bool {
    matches!(next_header, 0 | 43 | 44 | 51 | 60 | 135)
}

/// RFC 768. `body` is what the IP length leaves. It is a first fragment if it has a key.
fn parse_udp(
    body: &[u8],
    src: IpAddr,
    dst: IpAddr,
    first_fragment: Option<FragmentKey>,
) -> Option<Frame<'_>> {
    let mut rest = body;
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
