//! Converts between the configuration and the structures of `bpf/abi.h`.

use std::ffi::c_char;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Config, GatewayConfig, SERVICE_SETTINGS, ServiceConfig};
use crate::abi;

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

impl ServiceConfig {
    /// Returns the service's settings in the form that the XDP program uses, with the quota group
    /// `group`.
    pub(crate) fn to_abi(&self, group: u32) -> abi::equic_service {
        let mut service = abi::equic_service {
            group,
            name: c_name(&self.name),
            overrides: super::overrides::families(self),
            ..abi::equic_service::default()
        };
        for setting in SERVICE_SETTINGS {
            setting.store.put(&mut service, (setting.get)(self));
        }
        service
    }
}

/// Returns the settings of a running service. The structure `equic_service` does not contain the
/// service's listeners, its overrides and the name of its group, so the result lacks these.
pub(crate) fn service_from_abi(service: &abi::equic_service) -> ServiceConfig {
    let mut config = ServiceConfig { name: from_c_name(&service.name), ..ServiceConfig::default() };
    for setting in SERVICE_SETTINGS {
        if let Some(value) = setting.store.take(setting.kind, service) {
            (setting.set)(&mut config, value);
        }
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
