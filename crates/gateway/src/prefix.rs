//! Converts between prefixes and the address bytes that the XDP program stores.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::abi;
use crate::config::{address_bytes, canonical_prefix};

/// Returns the IP address for the 16 bytes that the XDP program stores. An IPv4-mapped address
/// becomes IPv4.
pub(crate) fn ip_of(addr: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(addr)).to_canonical()
}

/// The part of an address that identifies a client: see `span_of` in classify.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// The IPv6 prefix, of the configured length.
    Prefix,
    /// The IPv4 address in the last four bytes. This applies to IPv4, and to the well-known prefix
    /// of NAT64.
    Ipv4,
    /// The whole IPv6 address. This applies to prefixes that all clients share, such as fe80::/64.
    Whole,
}

impl Span {
    /// Returns the span of an address that the XDP program stores.
    pub(crate) fn of(addr: [u8; 16]) -> Span {
        match addr {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..]
            | [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, ..] => Span::Ipv4,
            [0, 0x64, 0xff, 0x9b, 0, 1, ..] | [0xfe, 0x80, 0, 0, 0, 0, 0, 0, ..] => Span::Whole,
            _ => Span::Prefix,
        }
    }

    /// Returns the mask that a gateway applies to addresses with this span.
    pub(crate) fn mask(self, v4_mask: u32, v6_mask: [u64; 2]) -> [u8; 16] {
        let mut mask = [0xff; 16];
        match self {
            Span::Prefix => {
                mask[..8].copy_from_slice(&v6_mask[0].to_ne_bytes());
                mask[8..].copy_from_slice(&v6_mask[1].to_ne_bytes());
            }
            Span::Ipv4 => mask[12..].copy_from_slice(&v4_mask.to_ne_bytes()),
            Span::Whole => {}
        }
        mask
    }
}

/// Returns a source as a prefix: `192.0.2.1` (a whole address), `192.0.2.0/24`, or `2001:db8::/64`.
pub(crate) fn source_prefix(addr: [u8; 16], load: &abi::equic_load) -> IpNet {
    let mask = Span::of(addr).mask(load.v4_mask, load.v6_mask);
    let ones = mask.iter().map(|byte| byte.leading_ones()).sum::<u32>() as u8;
    let ip = ip_of(addr);
    let len = if ip.is_ipv4() { ones - 96 } else { ones };
    IpNet::new(ip, len).unwrap_or_else(|_| IpNet::from(ip))
}

/// Returns [`source_prefix`] as text. A single address is written without its length.
pub(crate) fn source_text(addr: [u8; 16], load: &abi::equic_load) -> String {
    prefix_text(source_prefix(addr, load))
}

/// Returns a prefix as text. A single address is written without its length.
pub(crate) fn prefix_text(net: IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

/// A key of the trie `acl4` or `acl6`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AclKey {
    V4(abi::equic_acl4_key),
    V6(abi::equic_acl6_key),
}

impl AclKey {
    pub(crate) fn of(net: IpNet) -> AclKey {
        match canonical_prefix(net.trunc()) {
            IpNet::V4(net) => AclKey::V4(abi::equic_acl4_key {
                prefixlen: net.prefix_len().into(),
                addr: net.addr().octets(),
            }),
            IpNet::V6(net) => AclKey::V6(abi::equic_acl6_key {
                prefixlen: net.prefix_len().into(),
                addr: address_bytes(net.addr().into()),
            }),
        }
    }
}

pub(crate) fn net_of_v4(key: &abi::equic_acl4_key) -> Option<IpNet> {
    Ipv4Net::new(key.addr.into(), u8::try_from(key.prefixlen).ok()?).ok().map(IpNet::V4)
}

pub(crate) fn net_of_v6(key: &abi::equic_acl6_key) -> Option<IpNet> {
    Ipv6Net::new(key.addr.into(), u8::try_from(key.prefixlen).ok()?).ok().map(IpNet::V6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GatewayConfig, parse_prefix};

    #[test]
    fn prefix_of_a_source_prints_with_its_length() {
        let cases = [
            (32, 64, "192.0.2.1", "192.0.2.1"),
            (24, 64, "192.0.2.0", "192.0.2.0/24"),
            (32, 64, "2001:db8::", "2001:db8::/64"),
            (32, 128, "2001:db8::1", "2001:db8::1"),
            (32, 60, "2001:db8::", "2001:db8::/60"),
            (32, 64, "64:ff9b::c000:201", "64:ff9b::c000:201"),
            (24, 64, "64:ff9b::c000:200", "64:ff9b::c000:200/120"),
            (24, 64, "64:ff9b:1::1", "64:ff9b:1::1"),
            (24, 64, "fe80::1", "fe80::1"),
            (32, 64, "64:ff9b:2::", "64:ff9b:2::/64"),
            (32, 64, "fe80:1::", "fe80:1::/64"),
        ];
        for (v4, v6, ip, text) in cases {
            let gateway = GatewayConfig {
                source_prefix_v4: v4,
                source_prefix_v6: v6,
                ..GatewayConfig::default()
            };
            let addr = address_bytes(ip.parse().expect("an address"));
            assert_eq!(source_text(addr, &gateway.to_load(0, None)), text);
        }
    }

    #[test]
    fn prefix_round_trips_through_a_list_key() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0", "::1/128"]
        {
            let net = parse_prefix(text).expect("a prefix");
            let back = match AclKey::of(net) {
                AclKey::V4(key) => net_of_v4(&key),
                AclKey::V6(key) => net_of_v6(&key),
            };
            assert_eq!(back, Some(net), "{text}");
        }
        assert_eq!(net_of_v4(&abi::equic_acl4_key { prefixlen: 33, addr: [0; 4] }), None);
        let mapped = "::ffff:192.0.2.0/120".parse().expect("a prefix");
        assert!(matches!(AclKey::of(mapped), AclKey::V4(key) if key.prefixlen == 24));
    }
}
