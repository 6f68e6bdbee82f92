//! The table of the settings of a service. One row defines all of a setting: its field in
//! [`ServiceConfig`], its key, type, default and range, its description, and how the XDP program
//! reads it. The reader of configuration files, `set`, `status`, metrics, the example file, the
//! reference page and the JSON Schema all use the table.
//!
//! To add a setting, add a row here, and use its value in the XDP program (`bpf/`) or in user space.
//! `make settings` writes the example file, which the reference page includes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Fragments, Listen, OverrideConfig, Policy, Retry, Versions};
use crate::abi;
use crate::quantity::{Rate, duration, rate_of_bytes};

use super::value::{SettingKind, SettingRange, SettingValue, Store};

/// One row of the table of settings.
#[derive(Debug)]
pub struct ServiceSetting {
    /// The setting.
    pub key: Key,
    /// Name in configuration files and in `set`.
    pub name: &'static str,
    /// Type of the value.
    pub kind: SettingKind,
    /// What the value counts or limits, such as `new connections per source`. Empty for flags and
    /// names.
    pub subject: &'static str,
    /// Values that are allowed, in addition to what the type requires.
    pub range: SettingRange,
    /// SettingValue in the example configuration, as in TOML. `None`: the example has the default.
    pub example: Option<&'static str>,
    /// Effect of the setting.
    pub effect: &'static str,
    /// First version of eQUIC that has the setting.
    pub since: &'static str,
    pub(crate) store: Store,
    pub(crate) get: fn(&ServiceConfig) -> SettingValue,
    pub(crate) set: fn(&mut ServiceConfig, SettingValue),
}

impl ServiceSetting {
    /// Returns the default value.
    pub fn default_value(&self) -> SettingValue {
        self.value_of(&ServiceConfig::default())
    }

    /// Returns the value that a service has.
    pub fn value_of(&self, service: &ServiceConfig) -> SettingValue {
        (self.get)(service)
    }

    /// Returns true if the value is a rate that limits packets or connections.
    pub fn is_rate_limit(&self) -> bool {
        matches!(self.kind, SettingKind::Rate | SettingKind::ByteRate)
    }
}

/// Settings of the gateway as a whole that can change while it runs.
#[derive(Debug)]
pub(crate) struct GatewaySetting {
    pub(crate) key: Key,
    pub(crate) kind: SettingKind,
    pub(crate) range: SettingRange,
    pub(crate) get: fn(&super::GatewayConfig) -> SettingValue,
    pub(crate) set: fn(&mut super::GatewayConfig, SettingValue),
}

/// Defines [`ServiceConfig`] with its defaults, the enum [`Key`], and [`SERVICE_SETTINGS`].
macro_rules! service_settings {
    ($(
        $(#[doc = $doc:literal])+
        $(#[serde($($serde:tt)+)])?
        $field:ident: $type:ty, $key:ident = $kind:ident {
            default: $default:expr,
            since: $since:literal,
            store: $store:expr,
            $(subject: $subject:literal,)?
            $(range: $range:expr,)?
            $(example: $example:literal,)?
        }
    )+) => {
        /// `[[service]]`: the addresses of a QUIC server, and its limits. All settings except
        /// `name`, `listen` and `group` can change while the gateway runs.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct ServiceConfig {
            /// The service's name in settings and reports; 1 to 31 letters, digits, `-`, `_`. The
            /// name `gateway` is reserved.
            pub name: String,
            /// Addresses and ports that the service listens at. There must be at least one.
            pub listen: Vec<Listen>,
            $( $(#[doc = $doc])+ $(#[serde($($serde)+)])? pub $field: $type, )+
            /// Services of the same group count a source's connections together. If it is `None`,
            /// the service counts separately.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub group: Option<String>,
            /// Users whose servers may join the service at the gateway's socket, by name or number.
            /// If it is empty, every user that may connect is allowed. A user of one service is
            /// allowed for all services in its group, because their connections are counted
            /// together.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub users: Vec<String>,
            /// `[[service.override]]`: limits for the sources in some prefixes.
            #[serde(rename = "override", skip_serializing_if = "Vec::is_empty")]
            pub overrides: Vec<OverrideConfig>,
        }

        impl Default for ServiceConfig {
            fn default() -> ServiceConfig {
                ServiceConfig {
                    name: String::new(),
                    listen: Vec::new(),
                    $($field: $default,)+
                    group: None,
                    users: Vec::new(),
                    overrides: Vec::new(),
                }
            }
        }

        /// A setting that can change while the gateway runs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Key {
            $( $(#[doc = $doc])+ $key, )+
            /// Time for which a server's counts remain valid after its last heartbeat. A setting of
            /// the gateway.
            Lease,
            /// Rate of drop events per CPU. A setting of the gateway.
            Events,
        }

        /// Every key with its name.
        pub(super) const KEYS: &[(Key, &str)] = &[
            $((Key::$key, stringify!($field)),)+
            (Key::Lease, "lease"),
            (Key::Events, "events"),
        ];

        /// The settings of a service that can change while the gateway runs, in the order of the
        /// example configuration.
        pub static SERVICE_SETTINGS: &[ServiceSetting] = &[$(
            ServiceSetting {
                key: Key::$key,
                name: stringify!($field),
                kind: SettingKind::$kind,
                subject: concat!("" $(, $subject)?),
                range: service_settings!(@range $($range)?),
                example: service_settings!(@example $($example)?),
                effect: concat!($($doc, "\n"),+),
                since: $since,
                store: $store,
                get: |service| SettingValue::$kind(service.$field),
                set: |service, value| {
                    if let SettingValue::$kind(new) = value {
                        service.$field = new;
                    }
                },
            },
        )+];
    };
    (@range) => { SettingRange::Any };
    (@range $range:expr) => { $range };
    (@example) => { None };
    (@example $example:literal) => { Some($example) };
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

service_settings! {
    /// The gateway judges packets to the service. If it is `false`, the gateway passes all of them.
    enabled: bool, Enabled = Flag {
        default: true,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_ENABLED),
    }
    /// Treatment of a source that has `max_connections` connections. `new`: the gateway drops
    /// packets that would open another connection, and open connections continue. `underway`: the
    /// same, and handshakes in progress count too. Use it for servers that cannot close surplus
    /// connections. `strict`: the gateway drops every packet of a source above its quota.
    policy: Policy, Policy = Policy {
        default: Policy::New,
        since: "0.1.0",
        store: Store::Byte(|service| &mut service.policy),
    }
    /// Maximum number of simultaneous connections per source; 0 means no quota. Needs a server that
    /// reports its connections (`equic serve --gateway`, libequic, or the Rust crate equic-gateway).
    max_connections: u32, MaxConnections = Number {
        default: 0,
        since: "0.1.0",
        store: Store::Word(|service| &mut service.max_connections),
        subject: "connections per source",
        example: "100",
    }
    /// Clients that must validate their address before they open a connection: `never`, `always`,
    /// or `adaptive` (only while connections are opened faster than `retry_above`). The gateway
    /// answers their first Initial with a Retry packet. The server must have the gateway's keys,
    /// which it can receive when it joins the gateway, or from the file `retry_keys`.
    retry: Retry, Retry = Retry {
        default: Retry::Never,
        since: "0.1.0",
        store: Store::Byte(|service| &mut service.retry),
    }
    /// Maximum rate of the packets that the gateway sends in the server's name. It applies
    /// separately to Retry, Version Negotiation and stateless reset. Above this rate, the gateway
    /// drops what it would have to answer, so new clients cannot connect. A flood of 10 Gbit/s has
    /// 990,000 Initials per second.
    answers_per_service: Rate, AnswersPerService = Rate {
        default: Rate::per_second(1_000_000, 1_000_000),
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.answers_per_service),
        subject: "packets of each kind sent in the server's name",
    }
    /// With `retry = "adaptive"`: rate of connections opened without a token, above which clients
    /// must validate their address. Choose it by the capacity of the server: a handshake takes
    /// about 0.3 ms of one CPU.
    retry_above: Rate, RetryAbove = Threshold {
        default: Rate::per_second(500, 500),
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.retry_above),
        subject: "new connections without a token",
        range: SettingRange::Burst { smallest: 2, why: "every client would exceed the rate", example: "`500/s` or `10/s burst 20`" },
    }
    /// With `retry = "adaptive"`: clients must still validate their address until the rate was
    /// below half of `retry_above` for this time.
    #[serde(with = "duration")]
    retry_hold: Duration, RetryHold = Duration {
        default: seconds(30),
        since: "0.1.0",
        store: Store::Nanos(|service| &mut service.retry_hold_ns),
        range: SettingRange::Duration(seconds(1), seconds(3_600)),
    }
    /// Maximum rate of new connections per source.
    new_per_source: Rate, NewPerSource = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.new_per_source),
        subject: "new connections per source",
        example: "20/s burst 40",
    }
    /// Maximum rate of new connections per IPv4 /32. The rates per prefix do not depend on
    /// `source_prefix_v4` and `source_prefix_v6`. They limit the owner of a network, who can use
    /// all its addresses.
    new_per_v4_32: Rate, NewPerV4Slash32 = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Prefix(abi::EQUIC_PREFIX_V4_32),
        subject: "new connections per IPv4 /32",
    }
    /// Maximum rate of new connections per IPv4 /24.
    new_per_v4_24: Rate, NewPerV4Slash24 = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Prefix(abi::EQUIC_PREFIX_V4_24),
        subject: "new connections per IPv4 /24",
        example: "100/s burst 400",
    }
    /// Maximum rate of new connections per IPv6 /64.
    new_per_v6_64: Rate, NewPerV6Slash64 = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Prefix(abi::EQUIC_PREFIX_V6_64),
        subject: "new connections per IPv6 /64",
    }
    /// Maximum rate of new connections per IPv6 /56.
    new_per_v6_56: Rate, NewPerV6Slash56 = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Prefix(abi::EQUIC_PREFIX_V6_56),
        subject: "new connections per IPv6 /56",
        example: "40/s burst 80",
    }
    /// Maximum rate of new connections per IPv6 /48.
    new_per_v6_48: Rate, NewPerV6Slash48 = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Prefix(abi::EQUIC_PREFIX_V6_48),
        subject: "new connections per IPv6 /48",
        example: "100/s burst 400",
    }
    /// Maximum rate of new connections per IPv6 /32.
    new_per_v6_32: Rate, NewPerV6Slash32 = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Prefix(abi::EQUIC_PREFIX_V6_32),
        subject: "new connections per IPv6 /32",
        example: "1000/s",
    }
    /// Maximum rate of new connections from all sources together.
    new_per_service: Rate, NewPerService = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.new_per_service),
        subject: "new connections in total",
        example: "5000/s",
    }
    /// Maximum rate of packets per source, including those of open connections.
    packets_per_source: Rate, PacketsPerSource = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.packets_per_source),
        subject: "packets per source",
    }
    /// Maximum rate of UDP payload bytes per source, including those of open connections.
    #[serde(serialize_with = "rate_of_bytes")]
    bytes_per_source: Rate, BytesPerSource = ByteRate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.bytes_per_source),
        subject: "bytes per source",
        range: SettingRange::Bytes { slowest: 64, smallest_burst: 1_500 },
    }
    /// Maximum rate of packets from all sources together that would otherwise pass, including those
    /// of open connections. Above this rate, every client loses packets. Use it as a last resort,
    /// for a host that cannot process more.
    packets_per_service: Rate, PacketsPerService = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.packets_per_service),
        subject: "packets in total",
    }
    /// Maximum rate of packets that open no connection, from all sources together that have no
    /// connection and no handshake in progress. Needs a server that reports its connections. Use it
    /// together with `check_ids`, because a client can send packets with a valid connection ID from
    /// any address.
    unproven_per_service: Rate, UnprovenPerService = Rate {
        default: Rate::OFF,
        since: "0.1.0",
        store: Store::Rate(|service| &mut service.unproven_per_service),
        subject: "packets of sources without a connection",
    }
    /// Maximum duration of a handshake after the gateway admitted it.
    #[serde(with = "duration")]
    handshake_timeout: Duration, HandshakeTimeout = Duration {
        default: seconds(10),
        since: "0.1.0",
        store: Store::Nanos(|service| &mut service.handshake_ns),
        range: SettingRange::Duration(Duration::from_millis(100), seconds(600)),
    }
    /// Treatment of IP fragments, which QUIC does not use. `pass`: the gateway judges the first
    /// fragment of a datagram and passes later ones. `follow`: later fragments get the verdict of
    /// the first one. `drop`: the gateway drops all fragments.
    fragments: Fragments, Fragments = Fragments {
        default: Fragments::Pass,
        since: "0.1.0",
        store: Store::Byte(|service| &mut service.fragments),
    }
    /// The gateway counts the packets of this service that it would drop, and drops none.
    dry_run: bool, DryRun = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_DRY_RUN),
    }
    /// The gateway drops packets whose Fixed Bit is zero. Leave it off if the server or its clients
    /// grease the Fixed Bit (RFC 9287).
    require_fixed_bit: bool, RequireFixedBit = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_REQUIRE_FIXED_BIT),
    }
    /// QUIC versions that the server supports: `1`, `2` or `1,2`. All others are unknown versions.
    versions: Versions, Versions = Versions {
        default: Versions::Both,
        since: "0.1.0",
        store: Store::Byte(|service| &mut service.versions),
    }
    /// The gateway drops packets with unknown versions, so the server does not answer them with
    /// Version Negotiation. It has no effect if `version_negotiation` is on.
    refuse_unknown_versions: bool, RefuseUnknownVersions = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_REFUSE_UNKNOWN_VERSIONS),
    }
    /// The gateway answers packets with unknown versions with Version Negotiation in the server's
    /// name, and drops them. `retry` other than `never` also turns this on. Set `versions` to what
    /// the server supports, because clients choose from that list.
    version_negotiation: bool, VersionNegotiation = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_VERSION_NEGOTIATION),
    }
    /// The port also opens connections as a client (a proxy). The gateway then passes Retry and
    /// Version Negotiation packets.
    also_client: bool, AlsoClient = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_ALSO_CLIENT),
    }
    /// The gateway drops packets of open connections if no server of the service issued their
    /// connection ID. Use it only if the servers make their connection IDs with the gateway's keys,
    /// as `equic serve` does. Otherwise clients cannot connect.
    check_ids: bool, CheckIds = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_CHECK_IDS),
    }
    /// If a server is dead, the gateway answers packets of its connections with stateless resets, so
    /// clients open new connections at once instead of after their idle timeout. Use it only if the
    /// servers make their connection IDs and reset tokens with the gateway's keys, as `equic serve`
    /// does.
    stateless_reset: bool, StatelessReset = Flag {
        default: false,
        since: "0.1.0",
        store: Store::Flag(abi::EQUIC_SERVICE_STATELESS_RESET),
    }
}

/// The settings of the gateway that can change while it runs.
pub(crate) static GATEWAY_SETTINGS: &[GatewaySetting] = &[
    GatewaySetting {
        key: Key::DryRun,
        kind: SettingKind::Flag,
        range: SettingRange::Any,
        get: |gateway| SettingValue::Flag(gateway.dry_run),
        set: |gateway, value| {
            if let SettingValue::Flag(new) = value {
                gateway.dry_run = new;
            }
        },
    },
    GatewaySetting {
        key: Key::Lease,
        kind: SettingKind::Duration,
        range: SettingRange::Duration(Duration::from_millis(100), seconds(60)),
        get: |gateway| SettingValue::Duration(gateway.lease),
        set: |gateway, value| {
            if let SettingValue::Duration(new) = value {
                gateway.lease = new;
            }
        },
    },
    GatewaySetting {
        key: Key::Events,
        kind: SettingKind::Rate,
        range: SettingRange::Any,
        get: |gateway| SettingValue::Rate(gateway.events),
        set: |gateway, value| {
            if let SettingValue::Rate(new) = value {
                gateway.events = new;
            }
        },
    },
];

/// Returns the table `[[service]]` of a configuration file with every setting of
/// [`SERVICE_SETTINGS`], its description as a comment, and its default. A setting whose default is
/// of little use in an example has another value, and the comment says so.
pub fn example_service() -> String {
    const WIDTH: usize = 98;
    let mut text = "[[service]]\n".to_owned();
    for setting in SERVICE_SETTINGS {
        let default = setting.default_value();
        let mut comment = setting.effect.replace('\n', " ");
        let range = setting.range.to_string();
        if !range.is_empty() {
            comment += &format!(" Allowed: {range}.");
        }
        let value = match setting.example {
            Some(example) => {
                comment += &format!(" (Example; the default is {}.)", default.toml());
                setting.kind.parse(example).map_or_else(|_| String::new(), SettingValue::toml)
            }
            None => default.toml(),
        };
        let mut line = "#".to_owned();
        for word in comment.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                text += &line;
                text.push('\n');
                line = "#".to_owned();
            }
            line.push(' ');
            line += word;
        }
        text += &format!("{line}\n{} = {value}\n", setting.name);
    }
    text
}
