//! `[[service.override]]`: limits of a service for the sources in some prefixes.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Config, ServiceConfig, address_bytes, canonical_prefix, types};
use crate::abi;
use crate::quantity::Rate;

/// Limits of a service for the sources in some prefixes. If a limit is `None`, the service's limit
/// applies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct OverrideConfig {
    /// The prefixes, at least one. No prefix may be longer than the prefix that identifies a
    /// source.
    #[serde(with = "types::prefixes")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<super::schema::text::Prefix>"))]
    pub prefixes: Vec<IpNet>,
    /// Maximum number of simultaneous connections per source. 0 means no quota. If it is `None`,
    /// the service's quota applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Maximum rate of new connections per source. If it is `None`, the service's rate applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Rate"))]
    pub new_per_source: Option<Rate>,
    /// Maximum rate of packets per source. If it is `None`, the service's rate applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Rate"))]
    pub packets_per_source: Option<Rate>,
    /// Maximum rate of UDP payload bytes per source. If it is `None`, the service's rate applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::ByteRate"))]
    pub bytes_per_source: Option<Rate>,
}

impl OverrideConfig {
    fn limits_nothing(&self) -> bool {
        self.max_connections.is_none()
            && [self.new_per_source, self.packets_per_source, self.bytes_per_source]
                .iter()
                .all(Option::is_none)
    }

    /// Returns this override for one of its prefixes, in the form that the XDP program stores.
    fn to_abi(&self, service: u32, prefix: IpNet) -> abi::equic_override {
        let rate = |rate: Option<Rate>| rate.unwrap_or(Rate::OFF).to_abi();
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        let prefix = canonical_prefix(prefix.trunc());
        let length = prefix.prefix_len() + if prefix.addr().is_ipv4() { 96 } else { 0 };
        let sets = bit(self.max_connections.is_some(), abi::EQUIC_OVERRIDE_MAX_CONNECTIONS)
            | bit(self.new_per_source.is_some(), abi::EQUIC_OVERRIDE_NEW)
            | bit(self.packets_per_source.is_some(), abi::EQUIC_OVERRIDE_PACKETS)
            | bit(self.bytes_per_source.is_some(), abi::EQUIC_OVERRIDE_BYTES);
        abi::equic_override {
            addr: address_bytes(prefix.addr()),
            service,
            length,
            sets: sets as u8,
            max_connections: self.max_connections.unwrap_or(0),
            new_per_source: rate(self.new_per_source),
            packets_per_source: rate(self.packets_per_source),
            bytes_per_source: rate(self.bytes_per_source),
            ..abi::equic_override::default()
        }
    }

    /// Converts an occupied element of the XDP program's array of overrides to its limits. The
    /// result has no prefixes.
    fn from_abi(own: &abi::equic_override) -> OverrideConfig {
        let sets = |bit: u32| u32::from(own.sets) & bit != 0;
        OverrideConfig {
            prefixes: Vec::new(),
            max_connections: sets(abi::EQUIC_OVERRIDE_MAX_CONNECTIONS)
                .then_some(own.max_connections),
            new_per_source: sets(abi::EQUIC_OVERRIDE_NEW)
                .then(|| Rate::from_abi(own.new_per_source)),
            packets_per_source: sets(abi::EQUIC_OVERRIDE_PACKETS)
                .then(|| Rate::from_abi(own.packets_per_source)),
            bytes_per_source: sets(abi::EQUIC_OVERRIDE_BYTES)
                .then(|| Rate::from_abi(own.bytes_per_source)),
        }
    }
}

/// Returns the errors of a service's overrides, each with the override's index.
pub(super) fn check(config: &Config, service: &ServiceConfig) -> Vec<(usize, String)> {
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    let gateway = &config.gateway;
    for (number, own) in service.overrides.iter().enumerate() {
        let mut note = |message: String| all.push((number, message));
        if own.prefixes.is_empty() {
            note("the override applies to no source: write, for example, prefixes = [\"203.0.113.0/24\"]".to_owned());
        }
        if own.limits_nothing() {
            note(
                "the override sets no limit: write, for example, max_connections = 500".to_owned(),
            );
        }
        for prefix in own.prefixes.iter().map(|prefix| canonical_prefix(prefix.trunc())) {
            if let Err(why) = types::check_mapped(prefix) {
                note(format!("{prefix} is not {why}"));
            }
            let (longest, key) = match prefix {
                IpNet::V4(_) => (gateway.source_prefix_v4, "source_prefix_v4"),
                IpNet::V6(_) => (gateway.source_prefix_v6, "source_prefix_v6"),
            };
            if prefix.prefix_len() > longest {
                note(format!(
                    "{prefix} is smaller than a source, because all addresses of a /{longest} count as one source (gateway.{key}): write {}/{longest}",
                    cut(prefix, longest)
                ));
            }
            if seen.contains(&prefix) {
                note(format!("the prefix {prefix} is listed twice: remove one of the entries"));
            }
            seen.push(prefix);
        }
        if let Some(bytes) = own.bytes_per_source {
            let limits = ServiceConfig { bytes_per_source: bytes, ..ServiceConfig::default() };
            let wrong = super::check::check_limits(&limits).into_iter();
            wrong.for_each(|(key, message)| note(format!("{key}: {message}")));
        }
    }
    all
}

fn cut(prefix: IpNet, length: u8) -> IpAddr {
    IpNet::new(prefix.addr(), length).map_or(prefix.addr(), |net| net.trunc().addr())
}

/// Returns all overrides of these services in the form that the XDP program stores.
pub(crate) fn overrides_of(services: &[ServiceConfig]) -> Vec<abi::equic_override> {
    let each = services.iter().zip(0u32..).flat_map(|(service, index)| {
        let overrides = service.overrides.iter();
        overrides.flat_map(move |own| own.prefixes.iter().map(move |net| own.to_abi(index, *net)))
    });
    each.collect()
}

/// Returns the address families of the prefixes with overrides, in the form of
/// `equic_service.overrides`.
pub(super) fn families(service: &ServiceConfig) -> u32 {
    let prefixes = service.overrides.iter().flat_map(|own| &own.prefixes);
    prefixes.fold(0, |bits, net| bits | if canonical_prefix(*net).addr().is_ipv4() { 1 } else { 2 })
}

/// Returns the overrides of a service, selected from all elements of the XDP program's array.
/// Prefixes with the same limits are merged into one override.
pub(crate) fn overrides_from_abi(service: u32, all: &[abi::equic_override]) -> Vec<OverrideConfig> {
    let mut found: Vec<OverrideConfig> = Vec::new();
    for own in all.iter().filter(|own| own.sets != 0 && own.service == service) {
        let address = IpAddr::from(own.addr).to_canonical();
        let length = own.length - if address.is_ipv4() { 96 } else { 0 };
        let Ok(prefix) = IpNet::new(address, length) else { continue };
        let limits = OverrideConfig::from_abi(own);
        let same = |one: &&mut OverrideConfig| {
            OverrideConfig { prefixes: Vec::new(), ..(**one).clone() } == limits
        };
        match found.iter_mut().find(same) {
            Some(one) => one.prefixes.push(prefix),
            None => found.push(OverrideConfig { prefixes: vec![prefix], ..limits }),
        }
    }
    found
}
