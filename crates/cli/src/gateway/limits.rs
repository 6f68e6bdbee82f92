//! Command-line flags for settings of a gateway, and descriptions of a service's limits.

use std::fmt::Display;

use clap::Args;
use equic_gateway::{
    Adaptive, Config, ConfigError, ConfigOption, Policy, Rate, ReplacedValue, Retry,
    SERVICE_SETTINGS, ServiceConfig, Setting,
};
use equic_report::number;

use crate::failure::{Failure, Result};

/// The limits of a gateway with one service that have flags. All others are set with `-o`.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Maximum number of simultaneous connections per source
    #[arg(long, value_name = "N", value_parser = limit("max_connections"))]
    max_connections: Option<Setting>,
    /// Rate of new connections per source, such as `20/s burst 40`
    #[arg(long, value_name = "RATE", value_parser = limit("new_per_source"))]
    new_per_source: Option<Setting>,
    /// Rate of new connections of all sources together
    #[arg(long, value_name = "RATE", value_parser = limit("new_per_service"))]
    new_per_service: Option<Setting>,
    /// Rate of packets per source
    #[arg(long, value_name = "RATE", value_parser = limit("packets_per_source"))]
    packets_per_source: Option<Setting>,
}

/// Returns a parser for the values of a setting.
fn limit(key: &'static str) -> impl Fn(&str) -> Result<Setting, ConfigError> + Clone {
    move |value| Setting::parse(key, value)
}

impl Limits {
    /// Returns the limits that were given as flags.
    fn given(&self) -> impl Iterator<Item = &Setting> {
        let Limits { max_connections, new_per_source, new_per_service, packets_per_source } = self;
        [max_connections, new_per_source, new_per_service, packets_per_source].into_iter().flatten()
    }

    /// Copies those limits that were given as flags to all services.
    pub(crate) fn apply(&self, config: &mut Config) -> Result {
        for setting in self.given() {
            config.set(setting)?;
        }
        Ok(())
    }

    /// Returns the keys of the limits that were given as flags, each with its flag.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (String, &'static str)> {
        self.given().map(|setting| {
            let key = setting.key.name();
            (format!("--{}", key.replace('_', "-")), key)
        })
    }
}

/// Values that replace those of the configuration file.
#[derive(Args)]
pub(crate) struct Options {
    /// Set one value of the configuration, such as policy=strict, web.retry=always or
    /// gateway.wait=true; may be given several times. It replaces the value in the file. `equic
    /// gateway settings` lists the settings of a service
    #[arg(short = 'o', long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

impl Options {
    /// Applies the options. `flags` are the other flags of the command that were given and set a
    /// value, each with its key. Returns the values that were replaced.
    pub(crate) fn apply(
        &self,
        config: &mut Config,
        flags: &[(String, &'static str)],
    ) -> Result<Vec<ReplacedValue>> {
        let wrong = |error: &dyn Display| Failure::usage(format!("option -o: {error}"));
        let mut options = Vec::new();
        for text in &self.options {
            let option = ConfigOption::parse(text).map_err(|error| wrong(&error))?;
            let same = |key: &str| option.key() == key || option.setting_of_services() == Some(key);
            if let Some((flag, _)) = flags.iter().find(|(_, key)| same(key)) {
                let key = option.key();
                return Err(wrong(&format_args!("`{key}`: {flag} sets this, too: remove one")));
            }
            options.push(option);
        }
        config.set_options(&options).map_err(|error| wrong(&error))
    }
}

/// Describes each value of the file that `-o` has changed.
pub(crate) fn replacements(replaced: &[ReplacedValue]) -> impl Iterator<Item = String> {
    let changed = replaced.iter().filter(|value| value.old.as_ref() != Some(&value.new));
    changed.map(|ReplacedValue { key, old, new }| {
        format!("-o: {key} = {new} replaces {}", old.as_deref().unwrap_or("no value"))
    })
}

/// Describes the state of a service's adaptive Retry, and the cause of that state, in a few words.
pub(crate) fn describe_adaptive(state: &Adaptive, above: Rate) -> String {
    let seconds = |ms: u64| number::seconds(ms as f64 / 1e3);
    if !state.asking {
        return format!(
            "Retry is inactive: clients need not validate their address (activations so far: {})",
            state.began
        );
    }
    format!(
        "Retry has been active for {}, because more than {above} new connections came without a token; it ends in {} if the rate stays below half of this limit",
        seconds(state.asking_for_ms),
        seconds(state.calm_in_ms),
    )
}

/// Describes the limits of a service in a few words.
pub(crate) fn describe(service: &ServiceConfig) -> String {
    let mut parts = Vec::new();
    if service.max_connections > 0 {
        let strict = if service.policy == Policy::Strict { " (strict)" } else { "" };
        parts.push(format!("{} connections per source{strict}", service.max_connections));
    }
    for setting in SERVICE_SETTINGS.iter().filter(|setting| setting.is_rate_limit()) {
        let value = setting.value_of(service);
        if value != setting.default_value() {
            parts.push(format!("{value} {}", setting.subject));
        }
    }
    match service.retry {
        Retry::Never => {}
        Retry::Always => parts.push("Retry for all clients".to_owned()),
        Retry::Adaptive => {
            parts.push(format!("Retry above {} new connections", service.retry_above))
        }
    }
    if service.version_negotiation {
        parts.push(format!("Version Negotiation for all but {}", service.versions));
    }
    if service.check_ids {
        parts.push("connection IDs are checked".to_owned());
    }
    if service.stateless_reset {
        parts.push("stateless resets for servers that have ended".to_owned());
    }
    let prefixes: usize = service.overrides.iter().map(|own| own.prefixes.len()).sum();
    if prefixes > 0 {
        let es = if prefixes == 1 { "" } else { "es" };
        parts.push(format!("other limits for {prefixes} prefix{es}"));
    }
    if parts.is_empty() {
        parts.push("no limits: only malformed packets are dropped".to_owned());
    }
    if service.dry_run {
        parts.push("dry run".to_owned());
    }
    if !service.enabled {
        parts.push("not enabled".to_owned());
    }
    parts.join(", ")
}
