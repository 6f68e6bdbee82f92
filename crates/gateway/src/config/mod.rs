//! The configuration of a gateway: TOML in, checked structures out.
//!
//! * [`Config`] and its parts are plain data: read them from a file with [`Config::parse`], or fill
//!   them in; `read.rs` reads the text, [`Config::validate`] checks what types cannot (`check.rs`);
//! * `ban.rs`: `[ban]`; `listfile.rs`: list files, an address or prefix a line; `origin.rs`: tables of
//!   autonomous systems and countries;
//! * `overrides.rs`: `[[service.override]]`;
//! * `types.rs`: listeners, prefixes, modes and policies, each readable from text;
//! * `keys.rs`: the settings that can change while the gateway runs (`set KEY=VALUE`), over the
//!   same parsers;
//! * errors (`problem.rs`) name the line, the key and what would be right, all of them at once.
#![forbid(unsafe_code)]

mod ban;
mod check;
mod convert;
mod keys;
mod listfile;
mod origin;
mod overrides;
mod problem;
mod read;
mod socket;
mod types;

use std::net::SocketAddr;
use std::path::Path;
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
pub use origin::ListFile;
pub use overrides::OverrideConfig;
pub(crate) use overrides::{overrides_from_abi, overrides_of};
pub use problem::{ConfigError, Problem};
pub use socket::SocketConfig;
pub use types::{Fragments, Listen, Mode, Policy, Proof, Retry, Versions, parse_prefix};
pub(crate) use types::{canonical_prefix, check_mapped};

/// A whole gateway.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Prefixes whose packets are dropped. In the file these four stand before the first `[table]`.
    #[serde(with = "types::prefixes")]
    pub deny: Vec<IpNet>,
    /// Prefixes exempt from quotas and rates.
    #[serde(with = "types::prefixes")]
    pub allow: Vec<IpNet>,
    /// Files with more prefixes to drop; relative to the configuration's folder.
    pub deny_files: Vec<ListFile>,
    /// Files with more prefixes to exempt.
    pub allow_files: Vec<ListFile>,
    /// Settings that hold for all services.
    pub gateway: GatewayConfig,
    /// Settings of the bans of refused sources; none: nobody is banned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanConfig>,
    /// The services, at least one; `[[service]]` in the file.
    #[serde(rename = "service")]
    pub services: Vec<ServiceConfig>,
}

/// `[gateway]`: what holds for all services. Sizes are numbers of entries and fixed once it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// The gateway's name in `status` and `--gateway`; 1 to 31 letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Interfaces that the program is attached to.
    pub interfaces: Vec<String>,
    /// The way in which the program is attached.
    pub mode: Mode,
    /// Start even where an interface is missing or taken, and attach to it when that is over. (What
    /// goes away while it runs is waited for in any case.)
    pub wait: bool,
    /// Count what would be dropped, drop nothing. Live.
    pub dry_run: bool,
    /// Leading bits of an IPv4 address that make a source; 8 to 32.
    pub source_prefix_v4: u8,
    /// Leading bits of an IPv6 address that make a source; 16 to 128.
    pub source_prefix_v6: u8,
    /// Sources whose rates and statistics are kept (LRU).
    pub sources: u32,
    /// Handshakes under way that are remembered (LRU).
    pub handshakes: u32,
    /// Sources with connections, per server process.
    pub ledger_sources: u32,
    /// Entries of the deny/allow list, per address family.
    pub acl_entries: u32,
    /// Time for which a server's counts hold after its last sign of life; 100ms to 1m. Live.
    #[serde(with = "duration")]
    pub lease: Duration,
    /// Drop events, per CPU; off: none, unlike rates that are limits. Live.
    pub events: Rate,
    /// Drop, rather than pass, packets whose UDP header the host may see and the gateway does not: with
    /// more VLAN tags or IPv6 extension headers than can be walked, first fragments that end before that
    /// header, IPv6 jumbograms.
    pub drop_deep_headers: bool,
    /// File to which the keys of Retry tokens are written, for servers to read; none: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_keys: Option<String>,
    /// File with the number of the last config rotation (no secret): a gateway that is started anew begins at the next, so
    /// that it takes no connection ID of before for a forged one; none: at a random one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation_file: Option<String>,
    /// Address at which `equic gateway run` answers Prometheus; none: nowhere.
    #[serde(with = "types::or_off")]
    pub metrics: Option<SocketAddr>,
    /// A directory in a BPF file system: links, program and maps are pinned there, and protection
    /// goes on when the process ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// `[gateway.socket]`: where servers without privileges join; none: nowhere.
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

/// `[[service]]`: where a QUIC server listens, and what it puts up with. All but `name`, `listen`
/// and `group` can change while the gateway runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceConfig {
    /// The service's name in settings and reports; 1 to 31 letters, digits, `-`, `_`. Not `gateway`.
    pub name: String,
    /// Addresses and ports that the service listens at, at least one.
    pub listen: Vec<Listen>,
    /// True if packets to the service are judged at all.
    pub enabled: bool,
    /// Treatment of a source that has reached `max_connections`.
    pub policy: Policy,
    /// Simultaneous connections per source; 0: no quota.
    pub max_connections: u32,
    /// Clients that have to prove their address first.
    pub retry: Retry,
    /// Answers of the gateway in the server's name, of each kind: Retry, Version Negotiation, stateless reset.
    pub answers_per_service: Rate,
    /// With `retry = "adaptive"`: connections that clients without proof open; with more than these they
    /// have to bring some.
    pub retry_above: Rate,
    /// Time for which proof is asked for after there were too many without; 1s to 1h.
    #[serde(with = "duration")]
    pub retry_hold: Duration,
    /// New connections per source.
    pub new_per_source: Rate,
    /// New connections per IPv4 /32.
    pub new_per_v4_32: Rate,
    /// New connections per IPv4 /24.
    pub new_per_v4_24: Rate,
    /// New connections per IPv6 /64.
    pub new_per_v6_64: Rate,
    /// New connections per IPv6 /56.
    pub new_per_v6_56: Rate,
    /// New connections per IPv6 /48.
    pub new_per_v6_48: Rate,
    /// New connections per IPv6 /32.
    pub new_per_v6_32: Rate,
    /// New connections of all sources together.
    pub new_per_service: Rate,
    /// Packets per source.
    pub packets_per_source: Rate,
    /// UDP payload bytes per source.
    #[serde(serialize_with = "rate_of_bytes")]
    pub bytes_per_source: Rate,
    /// Packets of all sources together that would pass, those of open connections too.
    pub packets_per_service: Rate,
    /// Packets that open no connection, of all sources together that have none and open none. Needs servers
    /// that count their connections.
    pub unproven_per_service: Rate,
    /// Longest time of a handshake that was let in; 100ms to 10m.
    #[serde(with = "duration")]
    pub handshake_timeout: Duration,
    /// Treatment of IP fragments.
    pub fragments: Fragments,
    /// Count what would be dropped, drop nothing.
    pub dry_run: bool,
    /// Drop packets whose Fixed Bit is zero (leave off if the server greases it, RFC 9287).
    pub require_fixed_bit: bool,
    /// Versions of QUIC that the server takes: the others are unknown ones.
    pub versions: Versions,
    /// Drop unknown versions (the server then cannot answer with Version Negotiation). Without effect if
    /// `version_negotiation` is on.
    pub refuse_unknown_versions: bool,
    /// Answer unknown versions with Version Negotiation in the server's name, which sees none of it. With `retry` other
    /// than `never` the gateway does so, too.
    pub version_negotiation: bool,
    /// The port dials out too: Retry and Version Negotiation packets are legitimate.
    pub also_client: bool,
    /// Drop packets of open connections whose connection ID no server of the service has made: for servers
    /// that make such IDs.
    pub check_ids: bool,
    /// Answer packets of connections whose server is dead with stateless resets: for servers that make their IDs
    /// with the gateway's keys, and give clients the tokens that belong to them.
    pub stateless_reset: bool,
    /// Services with the same group count a source's connections together; none: on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Users whose servers may count for it at the gateway's socket, by name or number; empty: all
    /// that may connect. Services of one group are counted together, so a user of one is of all.
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
            // More than 10 Gbit/s of Initials.
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
    /// Most bytes that a configuration file can have: far more than one with every list written out has.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// True if a service answers clients in its servers' name.
    pub fn answers(&self) -> bool {
        self.services.iter().any(|service| {
            service.retry != Retry::Never || service.version_negotiation || service.stateless_reset
        })
    }

    /// Reads a configuration and checks it.
    ///
    /// # Errors
    /// [`ConfigError::Problems`] with everything that is not TOML, not a key, not a value of its
    /// key, or out of range, each with line and column.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        match read::read(text) {
            (config, problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(ConfigError::problems(None, problems)),
        }
    }

    /// Reads a configuration file and checks it. Paths in it are relative to its folder. The list
    /// files are read by [`Config::listed`].
    ///
    /// # Errors
    /// As [`Config::parse`], with the file's name; or when it cannot be read.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = crate::file::read_regular_text(path, Config::MAX_BYTES)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let mut config = Config::parse(&text).map_err(|error| error.in_file(path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let state = config.ban.as_mut().and_then(|ban| ban.state.as_mut());
        let lists = config.deny_files.iter_mut().chain(&mut config.allow_files);
        let files =
            lists.flat_map(|list| std::iter::once(&mut list.file).chain(&mut list.locations));
        files.chain(state).for_each(|file| *file = folder.join(&file));
        Ok(config)
    }

    /// One service on any IPv4 and any IPv6 address, everything else by default.
    pub fn for_port(port: u16) -> Config {
        let service = ServiceConfig {
            name: "quic".to_owned(),
            listen: vec![Listen::Port(port)],
            ..ServiceConfig::default()
        };
        Config { services: vec![service], ..Config::default() }
    }

    /// Every key that a configuration file can have, sorted, with the tables that it is in: `deny`,
    /// `gateway.socket.path`, `service.override.prefixes`. Tables are keys too.
    pub fn keys() -> Vec<String> {
        read::keys()
    }

    /// Checks ranges, names and duplicates.
    ///
    /// # Errors
    /// Everything that does not hold, by its key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check::validate(self)
    }
}
