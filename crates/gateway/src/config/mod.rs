//! Configuration of a gateway: parses TOML into checked structures.
//!
//! * [`Config`] and its parts are plain data. Read them from a file with [`Config::parse`], or fill
//!   them in. `read.rs` reads the text. [`Config::validate`] checks what the types cannot express
//!   (`check.rs`);
//! * `ban.rs`: `[ban]`; `listfile.rs`: list files with one address or prefix per line;
//! * `overrides.rs`: `[[service.override]]`;
//! * `types.rs`: listeners, prefixes, modes and policies, and their text forms;
//! * `keys.rs`: the settings that can change while the gateway runs (`set KEY=VALUE`), with the
//!   same parsers;
//! * `problem.rs`: errors. They name line, key and expected value, and report all problems at once.
#![forbid(unsafe_code)]

mod ban;
mod check;
mod convert;
mod keys;
mod listfile;
mod overrides;
mod problem;
mod read;
mod socket;
mod types;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::quantity::{Rate, duration, rate_of_bytes};

pub use ban::BanConfig;
pub(crate) use convert::{
    Listener, address_bytes, buckets_for, c_name, from_c_name, nanos, service_from_abi,
};
pub use keys::{Change, Key, Setting, SettingValue};
pub use listfile::{parse_list, read_list};
pub use overrides::OverrideConfig;
pub(crate) use overrides::{overrides_from_abi, overrides_of};
pub use problem::{ConfigError, Problem};
pub use socket::SocketConfig;
pub use types::{Fragments, Listen, Mode, Policy, Proof, Retry, Versions, parse_prefix};
pub(crate) use types::{canonical_prefix, check_mapped};

/// The configuration of a gateway.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Prefixes whose packets are dropped. In a file, this key and the other list keys must precede
    /// the first `[table]`.
    #[serde(with = "types::prefixes")]
    pub deny: Vec<IpNet>,
    /// Prefixes that are exempt from quotas and rates.
    #[serde(with = "types::prefixes")]
    pub allow: Vec<IpNet>,
    /// Files with more prefixes to drop. Relative paths start at the folder of the configuration
    /// file.
    pub deny_files: Vec<PathBuf>,
    /// Files with more prefixes that are exempt from quotas and rates.
    pub allow_files: Vec<PathBuf>,
    /// Settings of the gateway as a whole.
    pub gateway: GatewayConfig,
    /// Settings of bans. `None` disables bans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanConfig>,
    /// The services, at least one; `[[service]]` in the file.
    #[serde(rename = "service")]
    pub services: Vec<ServiceConfig>,
}

/// `[gateway]`: settings of the gateway as a whole. Sizes are numbers of entries. They cannot
/// change while the gateway runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// The gateway's name in `status` and `--gateway`; 1 to 31 letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Interfaces to which the XDP program is attached.
    pub interfaces: Vec<String>,
    /// Mode in which the XDP program is attached.
    pub mode: Mode,
    /// Start even if an interface is missing or has another XDP program, and attach to it as soon
    /// as that is possible. (The gateway always waits for an interface that disappears while it
    /// runs.)
    pub wait: bool,
    /// Only count packets that would be dropped, and drop none. Can change while the gateway runs.
    pub dry_run: bool,
    /// Number of leading bits of an IPv4 address that identify a source; 8 to 32.
    pub source_prefix_v4: u8,
    /// Number of leading bits of an IPv6 address that identify a source; 16 to 128.
    pub source_prefix_v6: u8,
    /// Number of sources whose rates and statistics the gateway keeps. The least recently used
    /// source is evicted.
    pub sources: u32,
    /// Number of handshakes in progress that the gateway keeps. The least recently used one is
    /// evicted.
    pub handshakes: u32,
    /// Number of sources with connections that each server process can count.
    pub ledger_sources: u32,
    /// Maximum number of entries on the deny and allow lists together, per address family.
    pub acl_entries: u32,
    /// Time for which a server's counts remain valid after its last heartbeat; 100ms to 1m. Can
    /// change while the gateway runs.
    #[serde(with = "duration")]
    pub lease: Duration,
    /// Rate of drop events per CPU. `off` means no events (for rates that are limits, it means no
    /// limit). Can change while the gateway runs.
    pub events: Rate,
    /// Drop packets whose UDP header the host may be able to parse although the gateway cannot. By
    /// default, they pass. These are packets with too many VLAN tags or IPv6 extension headers,
    /// first fragments that end before the UDP header, and IPv6 jumbograms.
    pub drop_deep_headers: bool,
    /// File in which the gateway stores the keys of Retry tokens for the servers. If it is `None`,
    /// no file is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_keys: Option<String>,
    /// File with the number of the last key rotation, which is not a secret. A restarted gateway
    /// begins with the next rotation. Otherwise it might take older connection IDs for forged ones.
    /// If it is `None`, the gateway begins with a random rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation_file: Option<String>,
    /// Address at which `equic gateway run` serves Prometheus metrics. `None` disables them.
    #[serde(with = "types::or_off")]
    pub metrics: Option<SocketAddr>,
    /// A directory in a BPF file system. The gateway pins its links, program and maps there, so
    /// that the protection continues when the process ends. `None` disables pinning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// `[gateway.socket]`: the socket at which unprivileged servers join. If it is `None`, the
    /// gateway has no socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketConfig>,
}

impl Default for GatewayConfig {
    fn default() -> GatewayConfig {
        GatewayConfig {
            name: "equic".to_owned(),
            interfaces: Vec::new(),
            mode: Mode::Auto,
            wait: false,
            dry_run: false,
            source_prefix_v4: 32,
            source_prefix_v6: 64,
            sources: 65_536,
            handshakes: 65_536,
            ledger_sources: 65_536,
            acl_entries: 16_384,
            lease: Duration::from_secs(1),
            events: Rate::per_second(100, 100),
            drop_deep_headers: true,
            retry_keys: None,
            rotation_file: None,
            metrics: None,
            pin: None,
            socket: None,
        }
    }
}

/// `[[service]]`: the addresses of a QUIC server, and its limits. All settings except `name`,
/// `listen` and `group` can change while the gateway runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceConfig {
    /// The service's name in settings and reports; 1 to 31 letters, digits, `-`, `_`. The name
    /// `gateway` is reserved.
    pub name: String,
    /// Addresses and ports that the service listens at. There must be at least one.
    pub listen: Vec<Listen>,
    /// True if the gateway judges packets to the service. If false, it passes all of them.
    pub enabled: bool,
    /// Treatment of a source that has reached `max_connections`.
    pub policy: Policy,
    /// Maximum number of simultaneous connections per source. 0 means no quota.
    pub max_connections: u32,
    /// Condition under which clients must first validate their address with a Retry token.
    pub retry: Retry,
    /// Maximum rate of answers in the server's name. It applies separately to each kind: Retry,
    /// Version Negotiation, and stateless reset.
    pub answers_per_service: Rate,
    /// With `retry = "adaptive"`: rate of connections opened without a token. Above this rate,
    /// clients need a token.
    pub retry_above: Rate,
    /// Time for which Retry stays on after `retry_above` was exceeded; 1s to 1h.
    #[serde(with = "duration")]
    pub retry_hold: Duration,
    /// Maximum rate of new connections per source.
    pub new_per_source: Rate,
    /// Maximum rate of new connections per IPv4 /32.
    pub new_per_v4_32: Rate,
    /// Maximum rate of new connections per IPv4 /24.
    pub new_per_v4_24: Rate,
    /// Maximum rate of new connections per IPv6 /64.
    pub new_per_v6_64: Rate,
    /// Maximum rate of new connections per IPv6 /56.
    pub new_per_v6_56: Rate,
    /// Maximum rate of new connections per IPv6 /48.
    pub new_per_v6_48: Rate,
    /// Maximum rate of new connections per IPv6 /32.
    pub new_per_v6_32: Rate,
    /// Maximum rate of new connections from all sources together.
    pub new_per_service: Rate,
    /// Maximum rate of packets per source.
    pub packets_per_source: Rate,
    /// Maximum rate of UDP payload bytes per source.
    #[serde(serialize_with = "rate_of_bytes")]
    pub bytes_per_source: Rate,
    /// Maximum rate of packets from all sources together that would otherwise pass, including
    /// packets of open connections.
    pub packets_per_service: Rate,
    /// Maximum rate of packets that open no connection, from all unknown sources together. A source
    /// is unknown if it has no connection and no handshake in progress. Needs servers that count
    /// their connections.
    pub unproven_per_service: Rate,
    /// Maximum duration of an admitted handshake; 100ms to 10m.
    #[serde(with = "duration")]
    pub handshake_timeout: Duration,
    /// Treatment of IP fragments.
    pub fragments: Fragments,
    /// Only count packets that would be dropped, and drop none.
    pub dry_run: bool,
    /// Drop packets whose Fixed Bit is zero. Leave it off if the server greases the bit (RFC 9287).
    pub require_fixed_bit: bool,
    /// QUIC versions that the server accepts. All others are unknown versions.
    pub versions: Versions,
    /// Drop packets with unknown versions, so that the server does not receive them and cannot
    /// answer with Version Negotiation. Has no effect if `version_negotiation` is on.
    pub refuse_unknown_versions: bool,
    /// Send Version Negotiation packets in the server's name in answer to packets with unknown
    /// versions. The server does not receive these packets. `retry` other than `never` also turns
    /// this on.
    pub version_negotiation: bool,
    /// The port also opens connections as a client, so it legitimately receives Retry and Version
    /// Negotiation packets.
    pub also_client: bool,
    /// Drop packets of open connections whose connection ID was not issued by a server of the
    /// service. The servers must issue verifiable IDs.
    pub check_ids: bool,
    /// Send stateless resets in answer to packets of connections whose server is dead. The servers
    /// must make their connection IDs with the gateway's keys, and give clients the matching reset
    /// tokens.
    pub stateless_reset: bool,
    /// Services of the same group count a source's connections together. If it is `None`, the
    /// service counts separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Users whose servers may join the service at the gateway's socket, by name or number. If it
    /// is empty, every user that may connect is allowed. A user of one service is allowed for all
    /// services in its group, because their connections are counted together.
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
            enabled: true,
            policy: Policy::New,
            max_connections: 0,
            retry: Retry::Never,
            // This is enough to answer more than 10 Gbit/s of Initial packets.
            answers_per_service: Rate::per_second(1_000_000, 1_000_000),
            retry_above: Rate::per_second(500, 500),
            retry_hold: Duration::from_secs(30),
            new_per_source: Rate::OFF,
            new_per_v4_32: Rate::OFF,
            new_per_v4_24: Rate::OFF,
            new_per_v6_64: Rate::OFF,
            new_per_v6_56: Rate::OFF,
            new_per_v6_48: Rate::OFF,
            new_per_v6_32: Rate::OFF,
            new_per_service: Rate::OFF,
            packets_per_source: Rate::OFF,
            bytes_per_source: Rate::OFF,
            packets_per_service: Rate::OFF,
            unproven_per_service: Rate::OFF,
            handshake_timeout: Duration::from_secs(10),
            fragments: Fragments::Pass,
            dry_run: false,
            require_fixed_bit: false,
            versions: Versions::Both,
            refuse_unknown_versions: false,
            version_negotiation: false,
            also_client: false,
            check_ids: false,
            stateless_reset: false,
            group: None,
            users: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

impl Config {
    /// Maximum size of a configuration file in bytes. Real files are much smaller, even with all
    /// lists written out.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Returns true if a service lets the gateway send answers in its servers' name.
    pub fn answers(&self) -> bool {
        self.services.iter().any(|service| {
            service.retry != Retry::Never || service.version_negotiation || service.stateless_reset
        })
    }

    /// Parses a configuration and checks it.
    ///
    /// # Errors
    /// Returns [`ConfigError::Problems`] with every syntax error, unknown key, and invalid value,
    /// each with line and column.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        match read::read(text) {
            (config, problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(ConfigError::problems(None, problems)),
        }
    }

    /// Reads a configuration file and checks it. Relative paths in it start at its folder.
    /// [`Config::listed`] reads the list files.
    ///
    /// # Errors
    /// Returns the errors of [`Config::parse`], with the file's name. Also fails if the file cannot
    /// be read.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = crate::file::read_regular_text(path, Config::MAX_BYTES)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let mut config = Config::parse(&text).map_err(|error| error.in_file(path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let state = config.ban.as_mut().and_then(|ban| ban.state.as_mut());
        let lists = config.deny_files.iter_mut().chain(&mut config.allow_files);
        lists.chain(state).for_each(|file| *file = folder.join(&file));
        Ok(config)
    }

    /// Returns a configuration with one service on all IPv4 and IPv6 addresses, and with defaults
    /// for everything else.
    pub fn for_port(port: u16) -> Config {
        let service = ServiceConfig {
            name: "quic".to_owned(),
            listen: vec![Listen::Port(port)],
            ..ServiceConfig::default()
        };
        Config { services: vec![service], ..Config::default() }
    }

    /// Returns every key that a configuration file can have, sorted, with the names of its tables:
    /// `deny`, `gateway.socket.path`, `service.override.prefixes`. Tables are keys, too.
    pub fn keys() -> Vec<String> {
        read::keys()
    }

    /// Checks ranges, names and duplicates.
    ///
    /// # Errors
    /// Returns every problem, with its key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check::validate(self)
    }
}
