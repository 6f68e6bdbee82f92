//! Command-line flags for the limits of a gateway with one service.

use std::time::Duration;

use clap::Args;
use equic_gateway::{
    Adaptive, Fragments, Policy, Rate, Retry, ServiceConfig, Versions, parse_duration,
};
use equic_report::number;

/// One flag for each key of `[[service]]` that sets a limit.
#[derive(Args)]
#[command(next_help_heading = "Limits of the service (in a file: docs/equic.example.toml)")]
pub(crate) struct Limits {
    /// How to treat a source at its quota: `new` and `underway` refuse new connections, `strict`
    /// drops all packets of a source above its quota
    #[arg(long)]
    policy: Option<Policy>,
    /// Maximum number of simultaneous connections per source
    #[arg(long, value_name = "N")]
    max_connections: Option<u32>,
    /// Rate of new connections per source, such as `20/s burst 40`
    #[arg(long, value_name = "RATE")]
    new_per_source: Option<Rate>,
    /// Rate of new connections per IPv4 /32
    #[arg(long, value_name = "RATE")]
    new_per_v4_32: Option<Rate>,
    /// Rate of new connections per IPv4 /24
    #[arg(long, value_name = "RATE")]
    new_per_v4_24: Option<Rate>,
    /// Rate of new connections per IPv6 /64
    #[arg(long, value_name = "RATE")]
    new_per_v6_64: Option<Rate>,
    /// Rate of new connections per IPv6 /56
    #[arg(long, value_name = "RATE")]
    new_per_v6_56: Option<Rate>,
    /// Rate of new connections per IPv6 /48
    #[arg(long, value_name = "RATE")]
    new_per_v6_48: Option<Rate>,
    /// Rate of new connections per IPv6 /32
    #[arg(long, value_name = "RATE")]
    new_per_v6_32: Option<Rate>,
    /// Rate of new connections of all sources together
    #[arg(long, value_name = "RATE")]
    new_per_service: Option<Rate>,
    /// Rate of the packets that the gateway sends in the server's name, for all sources together.
    /// It applies separately to Retry, Version Negotiation and stateless reset
    #[arg(long, value_name = "RATE")]
    answers_per_service: Option<Rate>,
    /// With `--retry adaptive`: if new connections without a token exceed this rate, clients must
    /// validate their address
    #[arg(long, value_name = "RATE")]
    retry_above: Option<Rate>,
    /// With `--retry adaptive`: for this time after the rate was too high, clients must still
    /// validate their address
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    retry_hold: Option<Duration>,
    /// Rate of packets per source
    #[arg(long, value_name = "RATE")]
    packets_per_source: Option<Rate>,
    /// Rate of UDP payload bytes per source, such as `10MB/s burst 1MB`
    #[arg(long, value_name = "RATE")]
    bytes_per_source: Option<Rate>,
    /// Rate of packets of all sources together, including packets of open connections
    #[arg(long, value_name = "RATE")]
    packets_per_service: Option<Rate>,
    /// Rate of packets that do not open a connection, of all sources without a connection together
    #[arg(long, value_name = "RATE")]
    unproven_per_service: Option<Rate>,
    /// Maximum duration of a handshake after its connection was admitted
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    handshake_timeout: Option<Duration>,
    /// Treatment of later IP fragments: `pass`, `follow` (treat them like the first fragment),
    /// or `drop`
    #[arg(long)]
    fragments: Option<Fragments>,
    /// Drop packets whose Fixed Bit is zero
    #[arg(long)]
    require_fixed_bit: bool,
    /// Versions of QUIC that the server supports: `1`, `2` or `1,2`
    #[arg(long, value_name = "VERSIONS")]
    versions: Option<Versions>,
    /// Drop packets of other QUIC versions
    #[arg(long)]
    refuse_unknown_versions: bool,
    /// Answer packets of other QUIC versions with Version Negotiation in the server's name
    #[arg(long)]
    version_negotiation: bool,
    /// Accept Retry and Version Negotiation packets, because this host also opens connections from
    /// this port
    #[arg(long)]
    also_client: bool,
    /// Drop packets to connection IDs that no server of the service issued. The servers must make
    /// their connection IDs with the gateway's keys
    #[arg(long)]
    check_ids: bool,
    /// Send stateless resets to clients of servers that have ended. The servers must make their
    /// connection IDs and reset tokens with the gateway's keys
    #[arg(long)]
    stateless_reset: bool,
}

impl Limits {
    /// Copies those limits that were given as flags to `service`.
    pub(crate) fn apply(&self, service: &mut ServiceConfig) {
        fn set<T: Copy>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(&mut service.policy, self.policy);
        set(&mut service.max_connections, self.max_connections);
        set(&mut service.new_per_source, self.new_per_source);
        set(&mut service.new_per_v4_32, self.new_per_v4_32);
        set(&mut service.new_per_v4_24, self.new_per_v4_24);
        set(&mut service.new_per_v6_64, self.new_per_v6_64);
        set(&mut service.new_per_v6_56, self.new_per_v6_56);
        set(&mut service.new_per_v6_48, self.new_per_v6_48);
        set(&mut service.new_per_v6_32, self.new_per_v6_32);
        set(&mut service.new_per_service, self.new_per_service);
        set(&mut service.answers_per_service, self.answers_per_service);
        set(&mut service.retry_above, self.retry_above);
        set(&mut service.retry_hold, self.retry_hold);
        set(&mut service.packets_per_source, self.packets_per_source);
        set(&mut service.bytes_per_source, self.bytes_per_source);
        set(&mut service.packets_per_service, self.packets_per_service);
        set(&mut service.unproven_per_service, self.unproven_per_service);
        set(&mut service.handshake_timeout, self.handshake_timeout);
        set(&mut service.fragments, self.fragments);
        service.require_fixed_bit |= self.require_fixed_bit;
        set(&mut service.versions, self.versions);
        service.refuse_unknown_versions |= self.refuse_unknown_versions;
        service.version_negotiation |= self.version_negotiation;
        service.also_client |= self.also_client;
        service.check_ids |= self.check_ids;
        service.stateless_reset |= self.stateless_reset;
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
    for (rate, what) in [
        (service.new_per_source, "new connections per source"),
        (service.new_per_v4_32, "new connections per IPv4 /32"),
        (service.new_per_v4_24, "new connections per IPv4 /24"),
        (service.new_per_v6_64, "new connections per IPv6 /64"),
        (service.new_per_v6_56, "new connections per IPv6 /56"),
        (service.new_per_v6_48, "new connections per IPv6 /48"),
        (service.new_per_v6_32, "new connections per IPv6 /32"),
        (service.new_per_service, "new connections in total"),
        (service.packets_per_source, "packets per source"),
        (service.packets_per_service, "packets in total"),
        (service.unproven_per_service, "packets of sources without a connection"),
    ] {
        if !rate.is_off() {
            parts.push(format!("{rate} {what}"));
        }
    }
    if !service.bytes_per_source.is_off() {
        parts.push(format!("{} bytes per source", service.bytes_per_source.of_bytes()));
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
