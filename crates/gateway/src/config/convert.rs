//! Converts between the configuration and the structures of `bpf/abi.h`.

use std::ffi::c_char;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Config, Fragments, GatewayConfig, Policy, Retry, ServiceConfig, Versions};
use crate::abi;
use crate::quantity::Rate;

/// Returns the number of 8-slot buckets of a table for this many sources. The sources fill at most
/// 80 % of the slots.
pub(crate) fn buckets_for(sources: u32) -> u32 {
    let slots = u64::from(sources) * 5 / 4;
    u32::try_from(slots.div_ceil(abi::EQUIC_SLOTS.into()).next_power_of_two().max(2))
        .unwrap_or(1 << 31)
}

/// Returns an address in the form that the XDP program stores: IPv4 as ::ffff:a.b.c.d.
pub(crate) fn address_bytes(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// An address that a service listens at, in the form of an element or key of the XDP program's
/// maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// A port on every address of one family: an element of the map `ports`.
    Any { v4: bool, port: u16 },
    /// One address: a key of the map `listeners`.
    Exact(abi::equic_listener),
}

impl Listener {
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Listener::Exact(_))
    }

    pub(crate) fn of(addr: SocketAddr) -> Listener {
        let v4 = addr.ip().to_canonical().is_ipv4();
        if addr.ip().is_unspecified() {
            return Listener::Any { v4, port: addr.port() };
        }
        Listener::Exact(abi::equic_listener {
            addr: address_bytes(addr.ip()),
            port: addr.port().to_be(),
            family: if v4 { 4 } else { 6 },
            reserved: 0,
        })
    }
}

/// Returns the text as a C string field. The text is cut if it does not fit together with its NUL.
pub(crate) fn c_name<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    out
}

/// Returns the text of a C string field.
pub(crate) fn from_c_name(name: &[c_char]) -> String {
    let bytes: Vec<u8> = name.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Converts a duration to nanoseconds. Saturates.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A function that returns the field of the configuration to which a flag belongs.
type Field = fn(&mut ServiceConfig) -> &mut bool;

const FLAGS: [(u32, Field); 8] = [
    (abi::EQUIC_SERVICE_ENABLED, |s| &mut s.enabled),
    (abi::EQUIC_SERVICE_DRY_RUN, |s| &mut s.dry_run),
    (abi::EQUIC_SERVICE_REQUIRE_FIXED_BIT, |s| &mut s.require_fixed_bit),
    (abi::EQUIC_SERVICE_REFUSE_UNKNOWN_VERSIONS, |s| &mut s.refuse_unknown_versions),
    (abi::EQUIC_SERVICE_VERSION_NEGOTIATION, |s| &mut s.version_negotiation),
    (abi::EQUIC_SERVICE_ALSO_CLIENT, |s| &mut s.also_client),
    (abi::EQUIC_SERVICE_CHECK_IDS, |s| &mut s.check_ids),
    (abi::EQUIC_SERVICE_STATELESS_RESET, |s| &mut s.stateless_reset),
];

impl ServiceConfig {
    /// Returns the service's settings in the form that the XDP program uses, with the quota group
    /// `group`.
    pub(crate) fn to_abi(&self, group: u32) -> abi::equic_service {
        let mut copy = self.clone();
        let flags =
            FLAGS.iter().filter(|(_, field)| *field(&mut copy)).fold(0, |all, (bit, _)| all | bit);
        abi::equic_service {
            flags,
            group,
            max_connections: self.max_connections,
            policy: match self.policy {
                Policy::New => abi::EQUIC_POLICY_NEW,
                Policy::Strict => abi::EQUIC_POLICY_STRICT,
                Policy::Underway => abi::EQUIC_POLICY_UNDERWAY,
            } as u8,
            fragments: match self.fragments {
                Fragments::Pass => abi::EQUIC_FRAGMENTS_PASS,
                Fragments::Follow => abi::EQUIC_FRAGMENTS_FOLLOW,
                Fragments::Drop => abi::EQUIC_FRAGMENTS_DROP,
            } as u8,
            retry: match self.retry {
                Retry::Never => abi::EQUIC_RETRY_NEVER,
                Retry::Always => abi::EQUIC_RETRY_ALWAYS,
                Retry::Adaptive => abi::EQUIC_RETRY_ADAPTIVE,
            } as u8,
            versions: match self.versions {
                Versions::Both => abi::EQUIC_VERSIONS_1_AND_2,
                Versions::V1 => abi::EQUIC_VERSIONS_1,
                Versions::V2 => abi::EQUIC_VERSIONS_2,
            } as u8,
            answers_per_service: self.answers_per_service.to_abi(),
            retry_above: self.retry_above.to_abi(),
            retry_hold_ns: nanos(self.retry_hold),
            new_per_source: self.new_per_source.to_abi(),
            new_per_service: self.new_per_service.to_abi(),
            packets_per_source: self.packets_per_source.to_abi(),
            bytes_per_source: self.bytes_per_source.to_abi(),
            packets_per_service: self.packets_per_service.to_abi(),
            unproven_per_service: self.unproven_per_service.to_abi(),
            new_per_prefix: self.prefix_rates().map(Rate::to_abi),
            prefix_levels: levels_of(self.prefix_rates()),
            handshake_ns: nanos(self.handshake_timeout),
            name: c_name(&self.name),
            overrides: super::overrides::families(self),
        }
    }

    /// Returns the rates of new connections by prefix, in the order of `enum equic_prefix_level`.
    fn prefix_rates(&self) -> [Rate; abi::EQUIC_PREFIX_LEVELS as usize] {
        [
            self.new_per_v4_32,
            self.new_per_v4_24,
            self.new_per_v6_64,
            self.new_per_v6_56,
            self.new_per_v6_48,
            self.new_per_v6_32,
        ]
    }
}

/// Returns a bit mask of the prefix levels whose rate is enabled.
fn levels_of(rates: [Rate; abi::EQUIC_PREFIX_LEVELS as usize]) -> u32 {
    let on = rates.iter().enumerate().filter(|(_, rate)| !rate.is_off());
    on.fold(0, |levels, (level, _)| levels | 1 << level)
}

/// Returns the settings of a running service. The structure `equic_service` does not contain the
/// service's listeners, its overrides and the name of its group, so the result lacks these.
pub(crate) fn service_from_abi(service: &abi::equic_service) -> ServiceConfig {
    let [v4_32, v4_24, v6_64, v6_56, v6_48, v6_32] = service.new_per_prefix.map(Rate::from_abi);
    let mut config = ServiceConfig {
        name: from_c_name(&service.name),
        max_connections: service.max_connections,
        policy: match u32::from(service.policy) {
            abi::EQUIC_POLICY_STRICT => Policy::Strict,
            abi::EQUIC_POLICY_UNDERWAY => Policy::Underway,
            _ => Policy::New,
        },
        fragments: match u32::from(service.fragments) {
            abi::EQUIC_FRAGMENTS_FOLLOW => Fragments::Follow,
            abi::EQUIC_FRAGMENTS_DROP => Fragments::Drop,
            _ => Fragments::Pass,
        },
        retry: match u32::from(service.retry) {
            abi::EQUIC_RETRY_ALWAYS => Retry::Always,
            abi::EQUIC_RETRY_ADAPTIVE => Retry::Adaptive,
            _ => Retry::Never,
        },
        versions: match u32::from(service.versions) {
            abi::EQUIC_VERSIONS_1 => Versions::V1,
            abi::EQUIC_VERSIONS_2 => Versions::V2,
            _ => Versions::Both,
        },
        answers_per_service: Rate::from_abi(service.answers_per_service),
        retry_above: Rate::from_abi(service.retry_above),
        retry_hold: Duration::from_nanos(service.retry_hold_ns),
        new_per_source: Rate::from_abi(service.new_per_source),
        new_per_v4_32: v4_32,
        new_per_v4_24: v4_24,
        new_per_v6_64: v6_64,
        new_per_v6_56: v6_56,
        new_per_v6_48: v6_48,
        new_per_v6_32: v6_32,
        new_per_service: Rate::from_abi(service.new_per_service),
        packets_per_source: Rate::from_abi(service.packets_per_source),
        bytes_per_source: Rate::from_abi(service.bytes_per_source),
        packets_per_service: Rate::from_abi(service.packets_per_service),
        unproven_per_service: Rate::from_abi(service.unproven_per_service),
        handshake_timeout: Duration::from_nanos(service.handshake_ns),
        ..ServiceConfig::default()
    };
    for (bit, field) in FLAGS {
        *field(&mut config) = service.flags & bit != 0;
    }
    config
}

impl Config {
    /// Returns the quota group of each service. Its number is the index of the first service in the
    /// same group.
    pub(crate) fn groups(&self) -> Vec<u32> {
        let first =
            |group: &str| self.services.iter().position(|s| s.group.as_deref() == Some(group));
        self.services
            .iter()
            .enumerate()
            .map(|(index, service)| {
                service.group.as_deref().and_then(first).unwrap_or(index) as u32
            })
            .collect()
    }

    /// Returns every listener with the index of its service.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (Listener, u32)> {
        self.services.iter().enumerate().flat_map(|(index, service)| {
            let addresses = service.listen.iter().flat_map(|listen| listen.addresses());
            addresses.map(move |addr| (Listener::of(addr), index as u32))
        })
    }
}

impl GatewayConfig {
    /// Returns the options with which the XDP program is loaded.
    pub(crate) fn to_load(&self, seed: u64, ban: Option<&super::BanConfig>) -> abi::equic_load {
        let v4 = u32::MAX.checked_shl(32 - u32::from(self.source_prefix_v4)).unwrap_or(0);
        let v6 = u128::MAX
            .checked_shl(128 - u32::from(self.source_prefix_v6))
            .unwrap_or(0)
            .to_be_bytes();
        // The XDP program applies the mask to address bytes in memory, so these words are in memory
        // order.
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| v6[at + i]));
        abi::equic_load {
            seed,
            v6_mask: [word(0), word(8)],
            v4_mask: v4.to_be(),
            ledger_mask: buckets_for(self.ledger_sources) - 1,
            drop_deep_headers: self.drop_deep_headers.into(),
            counted_reasons: ban.map_or(0, super::BanConfig::mask),
            ..abi::equic_load::default()
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
