//! Configuration of a gateway: parses TOML into checked structures.
//!
//! * [`Config`] and its parts are plain data. Read them from a file with [`Config::parse`], or fill
//!   them in. `read.rs` reads the text. [`Config::validate`] checks what the types cannot express
//!   (`check.rs`);
//! * `ban.rs`: `[ban]`; `listfile.rs`: list files with one address or prefix per line;
//! * `overrides.rs`: `[[service.override]]`;
//! * `types.rs`: listeners, prefixes, modes and policies, and their text forms;
//! * `settings.rs`: the table of a service's settings. All other code uses this table;
//!   `value.rs`: their types, ranges and values, and their places in the XDP program's structures;
//!   `keys.rs`: `set KEY=VALUE`; `option.rs`: `-o KEY=VALUE`;
//! * `problem.rs`: errors. They name line, key and expected value, and report all problems at once.
#![forbid(unsafe_code)]

mod ban;
mod check;
mod convert;
mod keys;
mod listfile;
mod option;
mod overrides;
mod problem;
mod read;
#[cfg(feature = "schema")]
mod schema;
mod settings;
mod socket;
mod types;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::quantity::{Rate, duration};

pub use ban::BanConfig;
pub(crate) use convert::{
    Listener, address_bytes, buckets_for, c_name, from_c_name, nanos, service_from_abi,
};
pub use keys::{Change, Setting};
pub use listfile::{parse_list, read_list};
pub use option::{ConfigOption, ReplacedValue};
pub use overrides::OverrideConfig;
pub(crate) use overrides::{overrides_from_abi, overrides_of};
pub use problem::{ConfigError, Problem};
#[cfg(feature = "schema")]
pub use schema::config_schema;
pub use settings::{Key, SERVICE_SETTINGS, ServiceConfig, ServiceSetting, example_service};
pub use socket::SocketConfig;
pub use types::{Fragments, Listen, Mode, Policy, Proof, Retry, Versions, parse_prefix};
pub(crate) use types::{canonical_prefix, check_mapped};
pub(crate) use value::Store;
pub use value::{SettingKind, SettingRange, SettingValue};

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// The gateway's name in `status` and `--gateway`; 1 to 31 letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Interfaces to which the XDP program is attached.
    pub interfaces: Vec<String>,
    /// Mode in which the XDP program is attached.
    #[cfg_attr(feature = "schema", schemars(with = "schema::text::Mode"))]
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
    /// Number of sources with connections that each server process can count. The table has more
    /// slots than this, at least 5/4 as many, which `status` shows.
    pub ledger_sources: u32,
    /// Maximum number of entries on the deny and allow lists together, per address family.
    pub acl_entries: u32,
    /// Time for which a server's counts remain valid after its last heartbeat; 100ms to 1m. Can
    /// change while the gateway runs.
    #[serde(with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::text::Duration"))]
    pub lease: Duration,
    /// Interval at which `equic gateway run` polls interfaces, lists, servers and bans; 10ms to 1h.
    /// Changes of interfaces take effect at once.
    #[serde(with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::text::Duration"))]
    pub poll_every: Duration,
    /// Restrict the system calls that `equic gateway run` may make after its start.
    pub seccomp: bool,
    /// Rate of drop events per CPU. `off` means no events (for rates that are limits, it means no
    /// limit). Can change while the gateway runs.
    #[cfg_attr(feature = "schema", schemars(with = "schema::text::Rate"))]
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
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
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
            poll_every: Duration::from_millis(500),
            seccomp: true,
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

/// Returns the problem of a file that is not UTF-8, with the position of the first wrong byte.
fn not_utf8(bytes: &[u8], error: std::str::Utf8Error) -> Problem {
    let (before, rest) = bytes.split_at_checked(error.valid_up_to()).unwrap_or((bytes, &[]));
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let before = String::from_utf8_lossy(before);
    let column = before.get(start..).unwrap_or_default().chars().count() + 1;
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let byte = rest.first().copied().unwrap_or_default();
    let message = format!("the byte {byte:#04x} is not UTF-8: save the file in UTF-8");
    Problem { line, column, key: String::new(), message }
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
        match read::read(text, None) {
            (config, problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(ConfigError::problems(None, problems)),
        }
    }

    /// Reads a configuration file and checks it. Relative paths in it start at its folder.
    /// [`Config::listed`] reads the list files.
    ///
    /// # Errors
    /// Returns the errors of [`Config::parse`], with the file's name. Also fails if the file is not
    /// UTF-8, or if it or a list file cannot be opened. An error includes the bad lines of all list
    /// files.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let bytes = crate::file::read_regular(path, Config::MAX_BYTES)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let text = str::from_utf8(&bytes)
            .map_err(|error| ConfigError::problems(Some(path), vec![not_utf8(&bytes, error)]))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (mut config, mut problems) = read::read(text, Some(folder));
        let state = config.ban.as_mut().and_then(|ban| ban.state.as_mut());
        let lists = config.deny_files.iter_mut().chain(&mut config.allow_files);
        lists.chain(state).for_each(|file| *file = folder.join(&file));
        if problems.is_empty() {
            return Ok(config);
        }
        problems.extend(config.bad_list_lines());
        Err(ConfigError::problems(Some(path), problems))
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
