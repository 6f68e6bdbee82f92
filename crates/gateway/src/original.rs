//! Makes the copy of a gateway look up table entries in the original when a packet needs them. So
//! large tables need not be copied.
//!
//! The tables of sources, prefixes and handshakes can be large, but a packet needs only a few of
//! their entries. These are the entries of its source address, and the attempt with its Source
//! Connection ID. [`keys_of`] finds their keys, and [`Original::bring`] looks up each key once. If
//! a packet has headers that this module does not parse, all entries are copied. Examples are
//! fragments, IPv6 extension headers, and an Initial behind other packets.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::abi;
use crate::config::address_bytes;
use crate::ledger::membership::Membership;
use crate::maps::Maps;
use crate::prefix::Span;
use crate::sync::{Mutex, lock};
use crate::sys::map::Map;

/// The gateway from which a copy was made.
#[derive(Debug)]
pub(crate) struct Original {
    maps: Arc<Maps>,
    /// The copy's ledger, with the connection counts at the time of the copy.
    _counts: Option<Membership>,
    copied: Mutex<CopiedKeys>,
}

/// Keys that were already looked up. If `everything` is set, all entries were copied.
#[derive(Debug, Default)]
struct CopiedKeys {
    everything: bool,
    sources: HashSet<abi::equic_source>,
    prefixes: HashSet<abi::equic_prefix>,
    handshakes: HashSet<abi::equic_handshake_key>,
}

impl Original {
    pub(crate) fn new(maps: Arc<Maps>, counts: Option<Membership>) -> Original {
        Original { maps, _counts: counts, copied: Mutex::default() }
    }

    /// Copies the original gateway's state for the sender of this frame, unless it was already
    /// copied. Entries that were copied earlier stay as packets judged by the copy have changed
    /// them.
    pub(crate) fn bring(&self, copy: &Maps, frame: &[u8]) -> io::Result<()> {
        let mut copied = lock(&self.copied);
        let copied = &mut *copied;
        if copied.everything {
            return Ok(());
        }
        match keys_of(frame) {
            Keys::None => Ok(()),
            Keys::Of(sender) => {
                let services = copy.services.read();
                let named = services.iter().take_while(|service| service.name[0] != 0).count();
                for service in 0..named as u16 {
                    let source = sender.source(service, &self.maps.load);
                    bring(&self.maps.sources, &copy.sources, &mut copied.sources, source)?;
                    for prefix in sender.prefixes(service) {
                        bring(&self.maps.prefixes, &copy.prefixes, &mut copied.prefixes, prefix)?;
                    }
                    if let Some(key) = sender.attempt(service) {
                        let (from, to) = (&self.maps.handshakes, &copy.handshakes);
                        bring(from, to, &mut copied.handshakes, key)?;
                    }
                }
                Ok(())
            }
            Keys::Unclear => {
                bring_all(&self.maps.sources, &copy.sources, &copied.sources)?;
                bring_all(&self.maps.prefixes, &copy.prefixes, &copied.prefixes)?;
                bring_all(&self.maps.handshakes, &copy.handshakes, &copied.handshakes)?;
                copied.everything = true;
                Ok(())
            }
        }
    }
}

/// Copies one entry from the original gateway, unless its key was already looked up.
fn bring<K: abi::Pod + Eq + std::hash::Hash, V: abi::Pod>(
    from: &Map<K, V>,
    to: &Map<K, V>,
    copied: &mut HashSet<K>,
    key: K,
) -> io::Result<()> {
    if !copied.insert(key) {
        return Ok(());
    }
    match from.get(&key)? {
        Some(value) => to.put(&key, &value),
        None => Ok(()),
    }
}

/// Copies every entry of the original gateway whose key was not looked up yet.
fn bring_all<K: abi::Pod + Eq + std::hash::Hash, V: abi::Pod>(
    from: &Map<K, V>,
    to: &Map<K, V>,
    copied: &HashSet<K>,
) -> io::Result<()> {
    let entries = from.entries()?.into_iter().filter(|(key, _)| !copied.contains(key));
    let (keys, values): (Vec<K>, Vec<V>) = entries.unzip();
    to.put_many(&keys, &values).1
}

/// Keys of the table entries that the XDP program needs for a frame.
#[derive(Debug, PartialEq, Eq)]
enum Keys {
    /// The program needs no table entry, because the frame is not UDP.
    None,
    /// The program needs the table entries of one sender.
    Of(Sender),
    /// The needed entries are unknown, because this module does not parse the frame's headers.
    Unclear,
}

/// The sender of a UDP datagram, as the XDP program's tables identify it, and the destination of
/// the datagram.
#[derive(Debug, PartialEq, Eq)]
struct Sender {
    addr: [u8; 16],
    destination: [u8; 16],
    family: u8,
    /// Port of the sender in network byte order, as in the packet.
    port: [u8; 2],
    destination_port: [u8; 2],
    /// Source Connection ID of a long header. `None` for a short header, or if the frame ends
    /// before the end of the ID.
    scid: Option<abi::equic_cid>,
}

impl Sender {
    /// Returns the sender's key in the map `sources`: see `source_of` in classify.h.
    fn source(&self, service: u16, load: &abi::equic_load) -> abi::equic_source {
        let mut addr = self.addr;
        let mask = Span::of(addr).mask(load.v4_mask, load.v6_mask);
        addr.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
        abi::equic_source { addr, service: service.into(), reserved: 0 }
    }

    /// Returns the sender's keys in the map `prefixes`: see `within_prefixes` in prefixes.h.
    fn prefixes(&self, service: u16) -> impl Iterator<Item = abi::equic_prefix> {
        let lengths: &[u8] = match Span::of(self.addr) {
            Span::Prefix => &[64, 56, 48, 32],
            Span::Ipv4 => &[128, 120],
            Span::Whole => &[128],
        };
        lengths.iter().map(move |length| {
            let mut addr = self.addr;
            addr[usize::from(length / 8)..].fill(0);
            abi::equic_prefix { addr, service, length: *length, reserved: 0 }
        })
    }

    /// Returns the sender's key in the map `handshakes`: see `handshake_key` in attempts.h.
    fn attempt(&self, service: u16) -> Option<abi::equic_handshake_key> {
        Some(abi::equic_handshake_key {
            addr: self.addr,
            dst: self.destination,
            scid: self.scid?,
            port: u16::from_ne_bytes(self.port),
            dport: u16::from_ne_bytes(self.destination_port),
            service,
            family: self.family.into(),
        })
    }
}

const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;
const VLAN_TAGS: usize = 2;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
/// Next Header values of IPv6 packets that are certainly not UDP datagrams: TCP, ICMPv6, and "no
/// next header".
const OTHER_PAYLOADS: [u8; 3] = [6, 58, 59];
/// Mask of the flag More Fragments and the fragment offset.
const IPV4_FRAGMENT: u16 = 0x3fff;
/// Minimum size of a datagram that may have an Initial behind its first packet (RFC 9000 s.14.1).
const COALESCED_MIN: usize = 1200;

fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

fn keys_of(frame: &[u8]) -> Keys {
    let is_tag = |kind| kind == 0x8100 || kind == 0x88a8;
    let (Some(mut kind), mut at) = (word(frame, ETHERNET_LEN - 2), ETHERNET_LEN) else {
        return Keys::None;
    };
    for _ in 0..VLAN_TAGS {
        if is_tag(kind) {
            let Some(next) = word(frame, at + 2) else { return Keys::None };
            (kind, at) = (next, at + VLAN_LEN);
        }
    }
    let ip = frame.get(at..).unwrap_or_default();
    let keys = match kind {
        0x0800 => of_ipv4(ip),
        0x86dd => of_ipv6(ip),
        // The packet is not IP, or it has more VLAN tags than the XDP program parses. The program
        // needs no entries for it.
        _ => None,
    };
    keys.unwrap_or(Keys::None)
}

/// Finds the keys for an IPv4 packet. Returns `None` if the packet is too short for its headers, or
/// is not UDP.
fn of_ipv4(ip: &[u8]) -> Option<Keys> {
    let head = ip.first_chunk::<IPV4_LEN>()?;
    if head[9] != UDP {
        return None;
    }
    if u16::from_be_bytes([head[6], head[7]]) & IPV4_FRAGMENT != 0 {
        return Some(Keys::Unclear);
    }
    let from = Ipv4Addr::new(head[12], head[13], head[14], head[15]);
    let to = Ipv4Addr::new(head[16], head[17], head[18], head[19]);
    let header = usize::from(head[0] & 0x0f) * 4;
    of_udp(from.into(), to.into(), ip.get(header.max(IPV4_LEN)..)?)
}

/// Finds the keys for an IPv6 packet. Returns `None` in the same cases as [`of_ipv4`].
fn of_ipv6(ip: &[u8]) -> Option<Keys> {
    let (head, udp) = ip.split_first_chunk::<IPV6_LEN>()?;
    if OTHER_PAYLOADS.contains(&head[6]) {
        return None;
    }
    if head[6] != UDP {
        return Some(Keys::Unclear);
    }
    let (mut from, mut to) = ([0; 16], [0; 16]);
    from.copy_from_slice(&head[8..24]);
    to.copy_from_slice(&head[24..40]);
    // The addresses are not converted, because an IPv4-mapped address in an IPv6 header is a
    // different source from the IPv4 address.
    of_udp(Ipv6Addr::from(from).into(), Ipv6Addr::from(to).into(), udp)
}

/// Finds the keys for a UDP datagram. Returns `None` in the same cases as [`of_ipv4`].
fn of_udp(from: IpAddr, to: IpAddr, udp: &[u8]) -> Option<Keys> {
    let [a, b, c, d] = *udp.first_chunk::<4>()?;
    let (port, destination_port) = ([a, b], [c, d]);
    let payload = udp.get(UDP_LEN..).unwrap_or_default();
    if may_open_behind(payload) {
        return Some(Keys::Unclear);
    }
    let family = if from.is_ipv4() { 4 } else { 6 };
    Some(Keys::Of(Sender {
        addr: address_bytes(from),
        destination: address_bytes(to),
        family,
        port,
        destination_port,
        scid: scid_of(payload),
    }))
}

/// Returns true if the XDP program may search for an Initial behind the datagram's first packet. In
/// a datagram that violates RFC 9000 s.12.2, that Initial could have another Source Connection ID.
fn may_open_behind(payload: &[u8]) -> bool {
    let Some([first, version @ ..]) = payload.first_chunk::<5>() else { return false };
    let initial = match u32::from_be_bytes(*version) {
        1 => 0,
        0x6b33_43cf => 1,
        _ => return false,
    };
    first & 0x80 != 0 && first >> 4 & 3 != initial && payload.len() >= COALESCED_MIN
}

/// Returns the Source Connection ID of a long header (RFC 8999 s.5.1), cut to 20 bytes as in the
/// XDP program.
fn scid_of(payload: &[u8]) -> Option<abi::equic_cid> {
    let dcid_len = usize::from(*payload.get(5)?);
    if payload[0] & 0x80 == 0 {
        return None;
    }
    let (len, rest) = payload.get(6 + dcid_len..)?.split_first()?;
    let id = rest.get(..usize::from(*len))?;
    let mut cid = abi::equic_cid::default();
    let kept = id.len().min(cid.bytes.len());
    cid.bytes[..kept].copy_from_slice(&id[..kept]);
    cid.len = kept as u8;
    Some(cid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an Ethernet frame with VLAN tags and this payload.
    fn frame(tags: usize, kind: u16, rest: &[u8]) -> Vec<u8> {
        let tag = [0x81, 0x00, 0, 7];
        [vec![2; 12], tag.repeat(tags), kind.to_be_bytes().to_vec(), rest.to_vec()].concat()
    }

    fn ipv4(protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 20 + options];
        head[0] = 0x40 | (head.len() / 4) as u8;
        head[6..8].copy_from_slice(&fragment.to_be_bytes());
        head[9] = protocol;
        head[12..16].copy_from_slice(&[192, 0, 2, 1]);
        head[16..20].copy_from_slice(&[198, 51, 100, 7]);
        [head, payload.to_vec()].concat()
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut head = vec![0x60; 40];
        head[6] = next;
        head[8..24].copy_from_slice(&"2001:db8:1:203::4".parse::<Ipv6Addr>().unwrap().octets());
        [head, payload.to_vec()].concat()
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        [&[0x30, 0x39, 1, 187, 0, 0, 0, 0], payload].concat()
    }

    fn long(first: u8, version: u32, scid: &[u8], len: usize) -> Vec<u8> {
        let head = [vec![first], version.to_be_bytes().to_vec(), vec![2, 9, 9]].concat();
        let mut whole = [head, vec![scid.len() as u8], scid.to_vec()].concat();
        whole.resize(len, 0);
        whole
    }

    fn sender(frame: &[u8]) -> Sender {
        match keys_of(frame) {
            Keys::Of(sender) => sender,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sender_is_read_from_the_datagram() {
        for (tags, options) in [(0, 0), (1, 0), (2, 8)] {
            let initial = long(0xc0, 1, &[5; 4], 1200);
            let found = sender(&frame(tags, 0x0800, &ipv4(17, 0x4000, options, &udp(&initial))));
            assert_eq!(
                (found.family, found.port, found.addr[12..].to_vec()),
                (4, [0x30, 0x39], vec![192, 0, 2, 1])
            );
            assert_eq!(
                (found.destination_port, &found.destination[10..]),
                ([1, 187], &[255, 255, 198, 51, 100, 7][..])
            );
            let scid = found.scid.expect("a long header has one");
            assert_eq!((scid.len, &scid.bytes[..5]), (4, &[5, 5, 5, 5, 0][..]));
        }
        let found = sender(&frame(0, 0x86dd, &ipv6(17, &udp(&[0x40; 30]))));
        assert_eq!((found.family, found.scid), (6, None), "a short header names no attempt");
        let long_id = sender(&frame(0, 0x86dd, &ipv6(17, &udp(&long(0xc0, 9, &[5; 30], 1200)))));
        assert_eq!(long_id.scid.map(|id| id.len), Some(20));
        let cut = sender(&frame(0, 0x86dd, &ipv6(17, &udp(&long(0xc0, 9, &[5; 30], 20)))));
        assert_eq!(cut.scid, None);
    }

    #[test]
    fn sender_keys_match_the_xdp_program() {
        let load = abi::equic_load {
            v4_mask: u32::from_ne_bytes([255, 255, 255, 0]),
            v6_mask: [u64::MAX, 0],
            ..abi::equic_load::default()
        };
        let four = sender(&frame(0, 0x0800, &ipv4(17, 0, 0, &udp(&[]))));
        assert_eq!(four.source(3, &load).addr[10..], [255, 255, 192, 0, 2, 0]);
        assert_eq!(four.source(3, &load).service, 3);
        let lengths = |of: &Sender| of.prefixes(0).map(|p| p.length).collect::<Vec<_>>();
        assert_eq!(lengths(&four), [128, 120]);
        let six = sender(&frame(0, 0x86dd, &ipv6(17, &udp(&[]))));
        assert_eq!(six.source(0, &load).addr[4..], [0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(lengths(&six), [64, 56, 48, 32]);
        let shortest = six.prefixes(0).last().expect("there are four");
        assert_eq!(shortest.addr[..6], [0x20, 0x01, 0x0d, 0xb8, 0, 0]);
    }

    #[test]
    fn sender_keys_of_unparsed_headers_are_unclear() {
        let plain = udp(&[0x40; 30]);
        for (frame, expected) in [
            (frame(0, 0x0800, &ipv4(17, 0x2000, 0, &plain)), Keys::Unclear),
            (frame(0, 0x0800, &ipv4(17, 3, 0, &plain)), Keys::Unclear),
            (frame(0, 0x86dd, &ipv6(60, &plain)), Keys::Unclear),
            (frame(0, 0x86dd, &ipv6(44, &plain)), Keys::Unclear),
            (frame(0, 0x0800, &ipv4(17, 0, 0, &udp(&long(0xe0, 1, &[1], 1200)))), Keys::Unclear),
            (
                frame(0, 0x0800, &ipv4(17, 0, 0, &udp(&long(0xc0, 0x6b33_43cf, &[1], 1200)))),
                Keys::Unclear,
            ),
            (frame(0, 0x0800, &ipv4(6, 0, 0, &plain)), Keys::None),
            (frame(0, 0x86dd, &ipv6(58, &plain)), Keys::None),
            (frame(3, 0x0800, &ipv4(17, 0, 0, &plain)), Keys::None),
            (frame(0, 0x0806, &[0; 28]), Keys::None),
            (frame(0, 0x0800, &[0x45; 10]), Keys::None),
            (vec![0; 5], Keys::None),
        ] {
            assert_eq!(keys_of(&frame), expected, "{frame:02x?}");
        }
        // This datagram is smaller than 1200 bytes, so the XDP program does not search behind its
        // Handshake packet.
        assert!(matches!(
            keys_of(&frame(0, 0x0800, &ipv4(17, 0, 0, &udp(&long(0xe0, 1, &[1], 900))))),
            Keys::Of(_)
        ));
    }
}
