//! Settings that can change while the gateway runs: `set KEY=VALUE`.
//!
//! A key of a service may have the service's name as prefix (`web.max_connections`). Without a
//! prefix, it applies to every service. The keys `lease` and `events` exist only for the gateway.
//! `dry_run` is the gateway's setting without a prefix, and the service's with one.

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use super::{ConfigError, GatewayConfig, Retry, ServiceConfig, check};
use crate::error::similar;
use crate::quantity::{Rate, format_duration, parse_duration, parse_size};

/// A change of a setting that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The service, or `None` for a setting of the gateway.
    pub service: Option<String>,
    /// Name of the changed setting.
    pub key: &'static str,
    /// Value before the change.
    pub old: String,
    /// Value after the change.
    pub new: String,
    /// Value before the change, in a form for use by programs.
    pub old_value: SettingValue,
    /// Value after the change, in a form for use by programs.
    pub new_value: SettingValue,
}

impl Change {
    /// Returns the change of a setting of the gateway.
    pub(crate) fn of_gateway(key: Key, old: &GatewayConfig, new: &GatewayConfig) -> Change {
        Change {
            service: None,
            key: key.name(),
            old: key.show_gateway(old),
            new: key.show_gateway(new),
            old_value: key.gateway_value(old),
            new_value: key.gateway_value(new),
        }
    }

    /// Returns the change of a setting of a service.
    pub(crate) fn of_service(key: Key, old: &ServiceConfig, new: &ServiceConfig) -> Change {
        Change {
            service: Some(old.name.clone()),
            key: key.name(),
            old: key.show(old),
            new: key.show(new),
            old_value: key.value(old),
            new_value: key.value(new),
        }
    }

    /// Returns the change as a line for the log.
    pub(crate) fn text(&self) -> String {
        let owner = self.service.as_deref().unwrap_or("gateway");
        format!("set {owner}.{}={} (was {})", self.key, self.new, self.old)
    }
}

/// A setting that can change while the gateway runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the configuration key of the same name")]
pub enum Key {
    Enabled,
    Policy,
    MaxConnections,
    Retry,
    AnswersPerService,
    RetryAbove,
    RetryHold,
    NewPerSource,
    NewPerV4Slash32,
    NewPerV4Slash24,
    NewPerV6Slash64,
    NewPerV6Slash56,
    NewPerV6Slash48,
    NewPerV6Slash32,
    NewPerService,
    PacketsPerSource,
    BytesPerSource,
    PacketsPerService,
    UnprovenPerService,
    HandshakeTimeout,
    Fragments,
    DryRun,
    RequireFixedBit,
    Versions,
    RefuseUnknownVersions,
    VersionNegotiation,
    AlsoClient,
    CheckIds,
    StatelessReset,
    Lease,
    Events,
}

const KEYS: [(Key, &str); 31] = [
    (Key::Enabled, "enabled"),
    (Key::Policy, "policy"),
    (Key::MaxConnections, "max_connections"),
    (Key::Retry, "retry"),
    (Key::AnswersPerService, "answers_per_service"),
    (Key::RetryAbove, "retry_above"),
    (Key::RetryHold, "retry_hold"),
    (Key::NewPerSource, "new_per_source"),
    (Key::NewPerV4Slash32, "new_per_v4_32"),
    (Key::NewPerV4Slash24, "new_per_v4_24"),
    (Key::NewPerV6Slash64, "new_per_v6_64"),
    (Key::NewPerV6Slash56, "new_per_v6_56"),
    (Key::NewPerV6Slash48, "new_per_v6_48"),
    (Key::NewPerV6Slash32, "new_per_v6_32"),
    (Key::NewPerService, "new_per_service"),
    (Key::PacketsPerSource, "packets_per_source"),
    (Key::BytesPerSource, "bytes_per_source"),
    (Key::PacketsPerService, "packets_per_service"),
    (Key::UnprovenPerService, "unproven_per_service"),
    (Key::HandshakeTimeout, "handshake_timeout"),
    (Key::Fragments, "fragments"),
    (Key::DryRun, "dry_run"),
    (Key::RequireFixedBit, "require_fixed_bit"),
    (Key::Versions, "versions"),
    (Key::RefuseUnknownVersions, "refuse_unknown_versions"),
    (Key::VersionNegotiation, "version_negotiation"),
    (Key::AlsoClient, "also_client"),
    (Key::CheckIds, "check_ids"),
    (Key::StatelessReset, "stateless_reset"),
    (Key::Lease, "lease"),
    (Key::Events, "events"),
];

impl Key {
    /// Returns every key.
    pub fn all() -> impl Iterator<Item = Key> {
        KEYS.into_iter().map(|(key, _)| key)
    }

    /// Returns the keys of the gateway. `dry_run` is also a key of services.
    pub(crate) fn of_gateways() -> impl Iterator<Item = Key> {
        Key::all().filter(|key| key.of_gateway_only() || *key == Key::DryRun)
    }

    /// Returns the key's name in the configuration.
    pub fn name(self) -> &'static str {
        KEYS[self as usize].1
    }

    /// Returns true if the setting exists only for the gateway.
    fn of_gateway_only(self) -> bool {
        matches!(self, Key::Lease | Key::Events)
    }

    /// Returns the service's value of this setting, as text.
    pub(crate) fn show(self, service: &ServiceConfig) -> String {
        match self {
            Key::Enabled => service.enabled.to_string(),
            Key::Policy => service.policy.to_string(),
            Key::MaxConnections => service.max_connections.to_string(),
            Key::Retry => service.retry.to_string(),
            Key::AnswersPerService => service.answers_per_service.to_string(),
            Key::RetryAbove => service.retry_above.to_string(),
            Key::RetryHold => format_duration(service.retry_hold),
            Key::NewPerSource => service.new_per_source.to_string(),
            Key::NewPerV4Slash32 => service.new_per_v4_32.to_string(),
            Key::NewPerV4Slash24 => service.new_per_v4_24.to_string(),
            Key::NewPerV6Slash64 => service.new_per_v6_64.to_string(),
            Key::NewPerV6Slash56 => service.new_per_v6_56.to_string(),
            Key::NewPerV6Slash48 => service.new_per_v6_48.to_string(),
            Key::NewPerV6Slash32 => service.new_per_v6_32.to_string(),
            Key::NewPerService => service.new_per_service.to_string(),
            Key::PacketsPerSource => service.packets_per_source.to_string(),
            Key::BytesPerSource => service.bytes_per_source.of_bytes().to_string(),
            Key::PacketsPerService => service.packets_per_service.to_string(),
            Key::UnprovenPerService => service.unproven_per_service.to_string(),
            Key::HandshakeTimeout => format_duration(service.handshake_timeout),
            Key::Fragments => service.fragments.to_string(),
            Key::DryRun => service.dry_run.to_string(),
            Key::RequireFixedBit => service.require_fixed_bit.to_string(),
            Key::Versions => service.versions.to_string(),
            Key::RefuseUnknownVersions => service.refuse_unknown_versions.to_string(),
            Key::VersionNegotiation => service.version_negotiation.to_string(),
            Key::AlsoClient => service.also_client.to_string(),
            Key::CheckIds => service.check_ids.to_string(),
            Key::StatelessReset => service.stateless_reset.to_string(),
            Key::Lease | Key::Events => String::new(),
        }
    }

    /// Returns the service's value of this setting, for programs.
    pub(crate) fn value(self, service: &ServiceConfig) -> SettingValue {
        match self {
            Key::Enabled => SettingValue::Flag(service.enabled),
            Key::MaxConnections => SettingValue::Number(service.max_connections.into()),
            Key::NewPerSource => service.new_per_source.into(),
            Key::NewPerV4Slash32 => service.new_per_v4_32.into(),
            Key::NewPerV4Slash24 => service.new_per_v4_24.into(),
            Key::NewPerV6Slash64 => service.new_per_v6_64.into(),
            Key::NewPerV6Slash56 => service.new_per_v6_56.into(),
            Key::NewPerV6Slash48 => service.new_per_v6_48.into(),
            Key::NewPerV6Slash32 => service.new_per_v6_32.into(),
            Key::NewPerService => service.new_per_service.into(),
            Key::AnswersPerService => service.answers_per_service.into(),
            Key::RetryAbove => service.retry_above.into(),
            Key::RetryHold => service.retry_hold.into(),
            Key::PacketsPerSource => service.packets_per_source.into(),
            Key::BytesPerSource => service.bytes_per_source.into(),
            Key::PacketsPerService => service.packets_per_service.into(),
            Key::UnprovenPerService => service.unproven_per_service.into(),
            Key::HandshakeTimeout => service.handshake_timeout.into(),
            Key::DryRun => SettingValue::Flag(service.dry_run),
            Key::RequireFixedBit => SettingValue::Flag(service.require_fixed_bit),
            Key::RefuseUnknownVersions => SettingValue::Flag(service.refuse_unknown_versions),
            Key::VersionNegotiation => SettingValue::Flag(service.version_negotiation),
            Key::AlsoClient => SettingValue::Flag(service.also_client),
            Key::CheckIds => SettingValue::Flag(service.check_ids),
            Key::StatelessReset => SettingValue::Flag(service.stateless_reset),
            Key::Policy
            | Key::Retry
            | Key::Fragments
            | Key::Versions
            | Key::Lease
            | Key::Events => SettingValue::Name(self.show(service)),
        }
    }

    /// Returns the gateway's value of this setting, for programs.
    pub(crate) fn gateway_value(self, gateway: &GatewayConfig) -> SettingValue {
        match self {
            Key::DryRun => SettingValue::Flag(gateway.dry_run),
            Key::Lease => gateway.lease.into(),
            Key::Events => gateway.events.into(),
            _ => SettingValue::Name(self.show_gateway(gateway)),
        }
    }

    /// Returns the gateway's value of this setting, as text.
    pub(crate) fn show_gateway(self, gateway: &GatewayConfig) -> String {
        match self {
            Key::DryRun => gateway.dry_run.to_string(),
            Key::Lease => format_duration(gateway.lease),
            Key::Events => gateway.events.to_string(),
            _ => String::new(),
        }
    }
}

/// The value of a setting, for use by programs. In JSON, it is the bare value without a tag.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// A switch: on or off.
    Flag(bool),
    /// A maximum number of connections. 0 means no limit.
    Number(u64),
    /// A name, such as that of a policy.
    Name(String),
    /// A time: `{"seconds": 2.5}`.
    Duration {
        /// The time in seconds.
        seconds: f64,
    },
    /// A rate: `{"per_second": 20.0, "burst": 40}`. If the rate is off: `{"per_second": null,
    /// "burst": null}`.
    Rate {
        /// Connections, packets or bytes per second, or `None` if the rate is off.
        per_second: Option<f64>,
        /// Number of connections, packets or bytes that may arrive at once, or `None` if the rate
        /// is off.
        burst: Option<u64>,
    },
}

impl From<Rate> for SettingValue {
    fn from(rate: Rate) -> SettingValue {
        let on = !rate.is_off();
        SettingValue::Rate {
            per_second: on.then(|| rate.units_per_second()),
            burst: on.then(|| rate.burst()),
        }
    }
}

impl From<Duration> for SettingValue {
    fn from(duration: Duration) -> SettingValue {
        SettingValue::Duration { seconds: duration.as_secs_f64() }
    }
}

/// `KEY=VALUE`, parsed but not applied yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The service to which the setting applies. `None` means the gateway or every service,
    /// depending on the key.
    pub service: Option<String>,
    /// The setting to change.
    pub key: Key,
    value: String,
}

impl Setting {
    /// Parses a key and checks the value.
    ///
    /// # Errors
    /// Returns [`ConfigError::UnknownKey`] with similar keys if the key is unknown, and
    /// [`ConfigError::Invalid`] with a description of valid values if the value is invalid.
    pub fn parse(key: &str, value: &str) -> Result<Setting, ConfigError> {
        let (service, name) = match key.trim().rsplit_once('.') {
            Some((service, name)) => (Some(service), name),
            None => (None, key.trim()),
        };
        let unknown = || ConfigError::UnknownKey {
            key: key.trim().to_owned(),
            similar: similar(name, KEYS.iter().map(|(_, name)| *name)),
            known: KEYS.iter().map(|(_, name)| (*name).to_owned()).collect(),
        };
        let (found, _) = KEYS.into_iter().find(|(_, known)| *known == name).ok_or_else(unknown)?;
        let for_gateway = service == Some("gateway");
        let gateways = Key::of_gateways().any(|key| key == found);
        if (for_gateway && !gateways)
            || (service.is_some() && !for_gateway && found.of_gateway_only())
        {
            return Err(unknown());
        }
        let service = service.filter(|_| !for_gateway).map(str::to_owned);
        let setting = Setting { service, key: found, value: value.trim().to_owned() };
        if setting.is_for_gateway() {
            setting.apply_gateway(&mut GatewayConfig::default())?;
        } else {
            setting.apply(&mut ServiceConfig::default())?;
        }
        Ok(setting)
    }

    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// Returns [`ConfigError::Invalid`] if there is no `=`, and the errors of [`Setting::parse`].
    pub fn parse_pair(text: &str) -> Result<Setting, ConfigError> {
        let (key, value) = text.split_once('=').ok_or_else(|| ConfigError::Invalid {
            key: text.trim().to_owned(),
            message: "write a setting as KEY=VALUE, for example max_connections=100".to_owned(),
        })?;
        Setting::parse(key, value)
    }

    /// Returns true if the setting applies to the gateway as a whole, not to its services.
    pub fn is_for_gateway(&self) -> bool {
        self.key.of_gateway_only() || (self.key == Key::DryRun && self.service.is_none())
    }

    /// Returns true if the setting turns Retry on, always or adaptively.
    pub fn asks_for_proof(&self) -> bool {
        self.key == Key::Retry && self.read::<Retry>().is_ok_and(|retry| retry != Retry::Never)
    }

    /// Returns true if the setting turns on `check_ids`.
    pub fn checks_ids(&self) -> bool {
        self.key == Key::CheckIds && self.flag().is_ok_and(|on| on)
    }

    /// Returns true if the setting limits packets from sources for which no server has counted a
    /// connection.
    pub fn limits_unproven(&self) -> bool {
        self.key == Key::UnprovenPerService && self.read::<Rate>().is_ok_and(|rate| !rate.is_off())
    }

    /// Returns true if the setting turns on stateless resets for dead servers.
    pub fn resets_for_the_dead(&self) -> bool {
        self.key == Key::StatelessReset && self.flag().is_ok_and(|on| on)
    }

    fn read<T: FromStr>(&self) -> Result<T, ConfigError>
    where
        T::Err: std::fmt::Display,
    {
        self.value.parse().map_err(|error: T::Err| self.invalid(error.to_string()))
    }

    fn invalid(&self, message: String) -> ConfigError {
        let key = match &self.service {
            Some(service) => format!("{service}.{}", self.key.name()),
            None => self.key.name().to_owned(),
        };
        ConfigError::Invalid { key, message }
    }

    fn flag(&self) -> Result<bool, ConfigError> {
        match self.value.as_str() {
            "true" | "on" | "yes" | "1" => Ok(true),
            "false" | "off" | "no" | "0" => Ok(false),
            other => Err(self.invalid(format!("`{other}` is not valid: write `true` or `false`"))),
        }
    }

    /// Applies the setting to a service.
    pub(crate) fn apply(&self, service: &mut ServiceConfig) -> Result<(), ConfigError> {
        match self.key {
            Key::Enabled => service.enabled = self.flag()?,
            Key::Policy => service.policy = self.read()?,
            Key::MaxConnections => {
                let number = if self.value == "off" { 0 } else { self.number()? };
                service.max_connections = number;
            }
            Key::Retry => service.retry = self.read()?,
            Key::AnswersPerService => service.answers_per_service = self.read()?,
            Key::RetryAbove => service.retry_above = self.read()?,
            Key::RetryHold => service.retry_hold = self.duration()?,
            Key::NewPerSource => service.new_per_source = self.read()?,
            Key::NewPerV4Slash32 => service.new_per_v4_32 = self.read()?,
            Key::NewPerV4Slash24 => service.new_per_v4_24 = self.read()?,
            Key::NewPerV6Slash64 => service.new_per_v6_64 = self.read()?,
            Key::NewPerV6Slash56 => service.new_per_v6_56 = self.read()?,
            Key::NewPerV6Slash48 => service.new_per_v6_48 = self.read()?,
            Key::NewPerV6Slash32 => service.new_per_v6_32 = self.read()?,
            Key::NewPerService => service.new_per_service = self.read()?,
            Key::PacketsPerSource => service.packets_per_source = self.read()?,
            Key::BytesPerSource => service.bytes_per_source = self.read()?,
            Key::PacketsPerService => service.packets_per_service = self.read()?,
            Key::UnprovenPerService => service.unproven_per_service = self.read()?,
            Key::HandshakeTimeout => service.handshake_timeout = self.duration()?,
            Key::Fragments => service.fragments = self.read()?,
            Key::DryRun => service.dry_run = self.flag()?,
            Key::RequireFixedBit => service.require_fixed_bit = self.flag()?,
            Key::Versions => service.versions = self.read()?,
            Key::RefuseUnknownVersions => service.refuse_unknown_versions = self.flag()?,
            Key::VersionNegotiation => service.version_negotiation = self.flag()?,
            Key::AlsoClient => service.also_client = self.flag()?,
            Key::CheckIds => service.check_ids = self.flag()?,
            Key::StatelessReset => service.stateless_reset = self.flag()?,
            Key::Lease | Key::Events => {}
        }
        match check::check_limits(service).into_iter().next() {
            None => Ok(()),
            Some((_, message)) => Err(self.invalid(message)),
        }
    }

    /// Applies the setting to the gateway.
    pub(crate) fn apply_gateway(&self, gateway: &mut GatewayConfig) -> Result<(), ConfigError> {
        match self.key {
            Key::DryRun => gateway.dry_run = self.flag()?,
            Key::Lease => {
                let lease = self.duration()?;
                check::check_lease(lease).map_err(|message| self.invalid(message))?;
                gateway.lease = lease;
            }
            Key::Events => gateway.events = self.read()?,
            _ => {}
        }
        Ok(())
    }

    fn duration(&self) -> Result<Duration, ConfigError> {
        parse_duration(&self.value).map_err(|error| self.invalid(error.to_string()))
    }

    fn number(&self) -> Result<u32, ConfigError> {
        let number = parse_size(&self.value).map_err(|e| self.invalid(e.to_string()))?;
        u32::try_from(number).map_err(|_| self.invalid(format!("{number} is over {}", u32::MAX)))
    }
}
