//! Command-line flags for settings of a gateway, and descriptions of a service's limits.

use clap::Args;
use equic_gateway::{
    Adaptive, Config, Policy, Rate, ReplacedValue, Retry, SERVICE_SETTINGS, ServiceConfig,
};
use equic_report::number;

use crate::failure::Result;

/// The limits of a gateway with one service that have flags. All others are set with `-o`.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Maximum number of simultaneous connections per source
    #[arg(long, value_name = "N")]
    max_connections: Option<u32>,
    /// Rate of new connections per source, such as `20/s burst 40`
    #[arg(long, value_name = "RATE")]
    new_per_source: Option<Rate>,
    /// Rate of new connections of all sources together
    #[arg(long, value_name = "RATE")]
    new_per_service: Option<Rate>,
    /// Rate of packets per source
    #[arg(long, value_name = "RATE")]
    packets_per_source: Option<Rate>,
}

impl Limits {
    /// Copies those limits that were given as flags to `service`.
    pub(crate) fn apply(&self, service: &mut ServiceConfig) {
        fn set<T: Copy>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(&mut service.max_connections, self.max_connections);
        set(&mut service.new_per_source, self.new_per_source);
        set(&mut service.new_per_service, self.new_per_service);
        set(&mut service.packets_per_source, self.packets_per_source);
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
    /// Applies the options, in their order. Returns the values that they replaced.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<Vec<ReplacedValue>> {
        let mut replaced = Vec::new();
        for option in &self.options {
            replaced.extend(config.set_option(option).map_err(|error| {
                crate::failure::Failure::usage(format!("-o {option}: {error}"))
            })?);
        }
        Ok(replaced)
    }
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
