//! Rates of new connections for the address prefixes that contain a source (policy.md section 12).

use super::address_bytes;
use super::rate::Rate;
use std::net::{IpAddr, Ipv6Addr};

/// Rates of new connections, one for each prefix length. A rate applies to every prefix of its
/// length separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixRates {
    /// Rate for each IPv4 address.
    pub v4_32: Rate,
    /// Rate for each IPv4 /24.
    pub v4_24: Rate,
    /// Rate for each IPv6 /64.
    pub v6_64: Rate,
    /// Rate for each IPv6 /56.
    pub v6_56: Rate,
    /// Rate for each IPv6 /48.
    pub v6_48: Rate,
    /// Rate for each IPv6 /32.
    pub v6_32: Rate,
}

/// The part of an IPv6 address that identifies a client (policy.md section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Its prefix.
    Prefix,
    /// The last 32 bits, which are an IPv4 address, because the IPv6 address has NAT64's well-known
    /// prefix.
    Ipv4,
    /// The whole address.
    Whole,
}

impl Span {
    pub(super) fn of(addr: Ipv6Addr) -> Span {
        match addr.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, ..] => Span::Ipv4,
            [0x64, 0xff9b, 1, ..] | [0xfe80, 0, 0, 0, ..] => Span::Whole,
            _ => Span::Prefix,
        }
    }
}

/// An address prefix of sources of a service: the index of the service, the length of the prefix
/// (as part of 128 bits), and the prefix itself.
pub(super) type PrefixKey = (usize, u32, u128);

impl PrefixRates {
    /// Returns all prefixes that contain the address and for which the service has a rate, the
    /// longest first.
    pub(super) fn buckets(&self, service: usize, addr: IpAddr) -> Vec<(PrefixKey, Rate)> {
        let span = match addr {
            IpAddr::V4(_) => Span::Ipv4,
            IpAddr::V6(addr) => Span::of(addr),
        };
        let rates: &[(u32, Rate)] = match span {
            Span::Ipv4 => &[(96 + 32, self.v4_32), (96 + 24, self.v4_24)],
            Span::Prefix => {
                &[(64, self.v6_64), (56, self.v6_56), (48, self.v6_48), (32, self.v6_32)]
            }
            Span::Whole => &[(128, self.v6_64)],
        };
        let bits = u128::from_be_bytes(address_bytes(addr));
        let key = |length: u32| (service, length, bits >> (128 - length));
        let set = rates.iter().filter(|(_, rate)| *rate != Rate::OFF);
        set.map(|(length, rate)| (key(*length), *rate)).collect()
    }
}
