//! Settings that can change while the gateway runs: `set KEY=VALUE`.
//!
//! A key of a service may have the service's name as prefix (`web.max_connections`). Without a
//! prefix, it applies to every service. The keys `lease` and `events` exist only for the gateway.
//! `dry_run` is the gateway's setting without a prefix, and the service's with one.

use serde::Serialize;

use super::option::check_text;
use super::settings::{GATEWAY_SETTINGS, GatewaySetting, KEYS};
use super::{
    Config, ConfigError, GatewayConfig, Key, SERVICE_SETTINGS, ServiceConfig, ServiceSetting,
    SettingValue,
};
use crate::error::{Error, similar};

/// A change of a setting that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The service, or `None` for a setting of the gateway.
    pub service: Option<String>,
    /// Name of the changed setting.
    pub key: &'static str,
    /// SettingValue before the change, as text.
    pub old: String,
    /// SettingValue after the change, as text.
    pub new: String,
    /// SettingValue before the change.
    pub old_value: SettingValue,
    /// SettingValue after the change.
    pub new_value: SettingValue,
}

impl Change {
    fn of(
        service: Option<String>,
        key: Key,
        old_value: SettingValue,
        new_value: SettingValue,
    ) -> Change {
        let (old, new) = (old_value.to_string(), new_value.to_string());
        Change { service, key: key.name(), old, new, old_value, new_value }
    }

    /// Returns the change of a setting of the gateway.
    pub(crate) fn of_gateway(key: Key, old: &GatewayConfig, new: &GatewayConfig) -> Option<Change> {
        let get = key.of_gateway()?.get;
        Some(Change::of(None, key, get(old), get(new)))
    }

    /// Returns the change of a setting of a service.
    pub(crate) fn of_service(key: Key, old: &ServiceConfig, new: &ServiceConfig) -> Option<Change> {
        let get = key.of_service()?.get;
        Some(Change::of(Some(old.name.clone()), key, get(old), get(new)))
    }

    /// Returns the change as a line for the log.
    pub(crate) fn text(&self) -> String {
        let owner = self.service.as_deref().unwrap_or("gateway");
        format!("set {owner}.{}={} (was {})", self.key, self.new, self.old)
    }
}

impl Key {
    /// Returns every key.
    pub fn all() -> impl Iterator<Item = Key> {
        KEYS.iter().map(|(key, _)| *key)
    }

    /// Returns the keys of the gateway. `dry_run` is also a key of services.
    pub(crate) fn of_gateways() -> impl Iterator<Item = Key> {
        GATEWAY_SETTINGS.iter().map(|setting| setting.key)
    }

    /// Returns the key's name in the configuration.
    pub fn name(self) -> &'static str {
        KEYS[self as usize].1
    }

    /// Returns the row of the table of settings, or `None` for a setting of the gateway only.
    pub(crate) fn of_service(self) -> Option<&'static ServiceSetting> {
        SERVICE_SETTINGS.get(self as usize)
    }

    fn of_gateway(self) -> Option<&'static GatewaySetting> {
        GATEWAY_SETTINGS.iter().find(|setting| setting.key == self)
    }
}

/// `KEY=VALUE`, parsed and checked, but not applied yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The service to which the setting applies. `None` means the gateway or every service,
    /// depending on the key.
    pub service: Option<String>,
    /// The setting to change.
    pub key: Key,
    /// The new value.
    pub value: SettingValue,
}

impl Setting {
    /// Parses a key and a value, and checks the value's range.
    ///
    /// # Errors
    /// Returns [`ConfigError::UnknownKey`] with similar keys if the key is unknown, and
    /// [`ConfigError::Invalid`] with a description of valid values if the value is invalid.
    pub fn parse(key: &str, value: &str) -> Result<Setting, ConfigError> {
        check_text(key.trim(), value.trim())?;
        let (service, name) = match key.trim().rsplit_once('.') {
            Some((service, name)) => (Some(service), name),
            None => (None, key.trim()),
        };
        let unknown = || ConfigError::UnknownKey {
            key: key.trim().to_owned(),
            similar: similar(name, KEYS.iter().map(|(_, name)| *name)),
            known: KEYS.iter().map(|(_, name)| (*name).to_owned()).collect(),
        };
        let (found, _) = KEYS.iter().find(|(_, known)| *known == name).ok_or_else(unknown)?;
        let for_gateway = match service {
            Some(service) => service == "gateway",
            None => found.of_gateway().is_some(),
        };
        let (kind, range) = match (for_gateway, found.of_gateway(), found.of_service()) {
            (true, Some(setting), _) => (setting.kind, setting.range),
            (false, _, Some(setting)) => (setting.kind, setting.range),
            _ => return Err(unknown()),
        };
        let service = service.filter(|_| !for_gateway).map(str::to_owned);
        let invalid = |message| {
            let key = service.iter().map(String::as_str).chain([name]).collect::<Vec<_>>();
            ConfigError::Invalid { key: key.join("."), message }
        };
        let value = kind.parse(value).map_err(&invalid)?;
        match range.check(value).into_iter().next() {
            Some(message) => Err(invalid(message)),
            None => Ok(Setting { service, key: *found, value }),
        }
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
        self.service.is_none() && self.key.of_gateway().is_some()
    }

    /// Applies the setting to a service. Does nothing if the setting exists only for the gateway.
    pub(crate) fn apply(&self, service: &mut ServiceConfig) {
        if let Some(setting) = self.key.of_service() {
            (setting.set)(service, self.value);
        }
    }

    /// Applies the setting to the gateway. Does nothing if the setting exists only for services.
    pub(crate) fn apply_gateway(&self, gateway: &mut GatewayConfig) {
        if let Some(setting) = self.key.of_gateway() {
            (setting.set)(gateway, self.value);
        }
    }
}

impl Config {
    /// Changes a setting in a configuration, as [`Control::apply`](crate::Control::apply) does in a
    /// running gateway.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchService`] if no service has this name.
    pub fn set(&mut self, setting: &Setting) -> crate::Result<Vec<Change>> {
        let key = setting.key;
        if setting.is_for_gateway() {
            let old = self.gateway.clone();
            setting.apply_gateway(&mut self.gateway);
            return Ok(Change::of_gateway(key, &old, &self.gateway).into_iter().collect());
        }
        let meant = |service: &ServiceConfig| {
            setting.service.as_ref().is_none_or(|wanted| *wanted == service.name)
        };
        if let Some(wanted) = setting.service.as_ref().filter(|_| !self.services.iter().any(meant))
        {
            let names = self.services.iter().map(|service| service.name.clone()).collect();
            return Err(Error::no_such_service(wanted, names));
        }
        let mut changes = Vec::new();
        for service in self.services.iter_mut().filter(|service| meant(service)) {
            let old = service.clone();
            setting.apply(service);
            changes.extend(Change::of_service(key, &old, service));
        }
        Ok(changes)
    }
}
