//! Reading a configuration and checking what its types cannot say.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::{Config, GatewayConfig, ServiceConfig};
use crate::abi;
use crate::quantity::format_duration;

/// Why a configuration, or a setting, does not hold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something in the file does not hold.
    #[error("{}: {error}", .path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        #[source]
        error: Box<ConfigError>,
    },
    /// Not TOML, not a key, or not a value of its key; the message has the line and shows it.
    #[error("{message}")]
    Syntax {
        /// Line, counted from 1; 0 when unknown.
        line: usize,
        /// Column, counted from 1; 0 when unknown.
        column: usize,
        /// The whole message, several lines.
        message: String,
    },
    /// A value that reads well and does not hold.
    #[error("{}`{key}`: {message}", at(.line, .column))]
    Invalid {
        /// The key, as `service.web.listen`.
        key: String,
        /// What is wrong and what would be right.
        message: String,
        /// Line, counted from 1; 0 when it did not come from a text.
        line: usize,
        /// Column, counted from 1; 0 when it did not come from a text.
        column: usize,
    },
    /// `set` with a key that does not exist.
    #[error("no setting `{key}`{}; settings that can change: {}", crate::error::did_you_mean(.similar), .known.join(", "))]
    UnknownKey {
        /// What was written.
        key: String,
        /// Similar keys.
        similar: Vec<String>,
        /// Every key.
        known: Vec<String>,
    },
}

fn at(line: &usize, column: &usize) -> String {
    if *line == 0 { String::new() } else { format!("line {line}, column {column}: ") }
}

/// A step from the document to a value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// A complaint before it has its place in the text.
struct Complaint<'a> {
    path: Vec<Step<'a>>,
    key: String,
    message: String,
}

impl From<Complaint<'_>> for ConfigError {
    fn from(complaint: Complaint<'_>) -> ConfigError {
        let Complaint { key, message, .. } = complaint;
        ConfigError::Invalid { key, message, line: 0, column: 0 }
    }
}

pub(super) fn parse(text: &str) -> Result<Config, ConfigError> {
    let config: Config = toml::from_str(text).map_err(|error| {
        let (line, column) = error.span().map_or((0, 0), |span| position(text, span.start));
        ConfigError::Syntax { line, column, message: error.to_string().trim_end().to_owned() }
    })?;
    check(&config).map_err(|complaint| {
        let (line, column) = locate(text, &complaint.path).unwrap_or((0, 0));
        let Complaint { key, message, .. } = complaint;
        ConfigError::Invalid { key, message, line, column }
    })?;
    Ok(config)
}

pub(super) fn validate(config: &Config) -> Result<(), ConfigError> {
    check(config).map_err(ConfigError::from)
}

/// Line and column of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// Where the value at `path` stands, or the nearest thing around it that is written out.
fn locate(text: &str, path: &[Step<'_>]) -> Option<(usize, usize)> {
    let document = DeTable::parse(text).ok()?;
    let (mut table, mut list) = (Some(document.get_ref()), None);
    let mut found = None;
    for step in path {
        let next = match step {
            Step::Key(key) => table.and_then(|table| table.get(*key)),
            Step::Index(index) => list.and_then(|list: &toml::de::DeArray<'_>| list.get(*index)),
        };
        let Some(next) = next else { break };
        found = Some(next.span().start);
        (table, list) = match next.get_ref() {
            DeValue::Table(inner) => (Some(inner), None),
            DeValue::Array(inner) => (None, Some(inner)),
            _ => (None, None),
        };
    }
    found.map(|offset| position(text, offset))
}

fn check(config: &Config) -> Result<(), Complaint<'static>> {
    check_gateway(&config.gateway)?;
    let known = abi::EQUIC_MAX_SERVICES as usize;
    if config.services.is_empty() || config.services.len() > known {
        return Err(Complaint {
            path: vec![Step::Key("service")],
            key: "service".to_owned(),
            message: format!(
                "{} services; a gateway has 1 to {known}: write a [[service]]",
                config.services.len()
            ),
        });
    }
    let mut names = HashMap::new();
    let mut listeners = HashMap::new();
    for (index, service) in config.services.iter().enumerate() {
        let complain = |key: &'static str, message: String| Complaint {
            path: vec![Step::Key("service"), Step::Index(index), Step::Key(key)],
            key: format!("service.{}.{key}", service.name),
            message,
        };
        check_service(service).map_err(|(key, message)| complain(key, message))?;
        if names.insert(service.name.as_str(), index).is_some() {
            return Err(complain("name", "two services have this name".to_owned()));
        }
        for listen in &service.listen {
            for addr in listen.addresses() {
                if let Some(other) = listeners.insert(addr, service.name.as_str()) {
                    return Err(complain(
                        "listen",
                        format!("{} is taken already, by `{other}`", shown(addr)),
                    ));
                }
            }
        }
    }
    for (index, net) in config.deny.iter().enumerate() {
        if config.allow.contains(net) {
            return Err(Complaint {
                path: vec![Step::Key("deny"), Step::Index(index)],
                key: "deny".to_owned(),
                message: format!("{net} is on both lists, `deny` and `allow`"),
            });
        }
    }
    Ok(())
}

fn shown(addr: SocketAddr) -> String {
    match (addr.ip().is_unspecified(), addr.is_ipv4()) {
        (true, true) => format!("any IPv4, port {}", addr.port()),
        (true, false) => format!("any IPv6, port {}", addr.port()),
        _ => addr.to_string(),
    }
}

fn check_gateway(gateway: &GatewayConfig) -> Result<(), Complaint<'static>> {
    let complain = |key: &'static str, message: String| Complaint {
        path: vec![Step::Key("gateway"), Step::Key(key)],
        key: format!("gateway.{key}"),
        message,
    };
    check_name(&gateway.name, true).map_err(|message| complain("name", message))?;
    let sizes = [
        ("sources", gateway.sources, 64..=1 << 24),
        ("handshakes", gateway.handshakes, 64..=1 << 24),
        ("ledger_sources", gateway.ledger_sources, 16..=1 << 22),
        ("acl_entries", gateway.acl_entries, 1..=1 << 22),
        ("source_prefix_v4", gateway.source_prefix_v4.into(), 8..=32),
        ("source_prefix_v6", gateway.source_prefix_v6.into(), 16..=128),
    ];
    for (key, value, allowed) in sizes {
        range(value, allowed, |v| v.to_string()).map_err(|message| complain(key, message))?;
    }
    check_lease(gateway.lease).map_err(|message| complain("lease", message))?;
    if let Some((key, message)) = gateway.socket.as_ref().and_then(|socket| socket.check().err()) {
        return Err(Complaint {
            path: vec![Step::Key("gateway"), Step::Key("socket"), Step::Key(key)],
            key: format!("gateway.socket.{key}"),
            message,
        });
    }
    if let Some(pin) = gateway.pin.as_ref().filter(|pin| !pin.starts_with('/') || pin.len() > 120) {
        let message = format!("`{pin}` is not an absolute path of at most 120 bytes");
        return Err(complain("pin", message));
    }
    for (index, name) in gateway.interfaces.iter().enumerate() {
        if name.is_empty() || name.len() > 15 || name.contains(['/', ' ', '\0']) {
            return Err(complain(
                "interfaces",
                format!("`{name}` is not the name of an interface"),
            ));
        }
        if gateway.interfaces[..index].contains(name) {
            return Err(complain("interfaces", format!("`{name}` is named twice")));
        }
    }
    Ok(())
}

pub(super) fn check_lease(lease: Duration) -> Result<(), String> {
    range(lease, Duration::from_millis(100)..=Duration::from_secs(60), |v| format_duration(*v))
}

pub(super) fn check_service(service: &ServiceConfig) -> Result<(), (&'static str, String)> {
    check_name(&service.name, false).map_err(|message| ("name", message))?;
    if service.listen.is_empty() {
        return Err((
            "listen",
            "a service listens somewhere: write for example listen = [\"443\"]".to_owned(),
        ));
    }
    check_limits(service)?;
    if let Some(group) = &service.group {
        check_name(group, false).map_err(|message| ("group", message))?;
    }
    Ok(())
}

/// What can change while the gateway runs.
pub(super) fn check_limits(service: &ServiceConfig) -> Result<(), (&'static str, String)> {
    let timeouts = Duration::from_millis(100)..=Duration::from_secs(600);
    range(service.handshake_timeout, timeouts, |v| format_duration(*v))
        .map_err(|message| ("handshake_timeout", message))?;
    let bytes = service.bytes_per_source;
    if !bytes.is_off() && bytes.burst() < LARGEST_USUAL_PACKET {
        let message = format!(
            "a burst of {} bytes would refuse every packet that is larger: write a burst of \
             {LARGEST_USUAL_PACKET} or more, for example `10MB/s burst 64KiB`",
            bytes.burst()
        );
        return Err(("bytes_per_source", message));
    }
    if !bytes.is_off() && bytes.units_per_second() < SLOWEST_BYTES {
        let message = format!("{bytes} is out of range: {SLOWEST_BYTES}/s or more");
        return Err(("bytes_per_source", message));
    }
    Ok(())
}

/// UDP payload of a full Ethernet frame, rounded up.
const LARGEST_USUAL_PACKET: u64 = 1_500;
/// Below, the program's 64-bit product of bytes and their cost could run over.
const SLOWEST_BYTES: f64 = 64.0;

fn check_name(name: &str, dots: bool) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || (dots && b == b'.');
    if name.is_empty() || name.len() > 31 || !name.bytes().all(fits) {
        let dot = if dots { ", `.`" } else { "" };
        return Err(format!("`{name}` is not a name: 1 to 31 letters, digits, `-`, `_`{dot}"));
    }
    if !dots && (name == "gateway" || name.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!(
            "`{name}` cannot be a service's name: it means something else in settings"
        ));
    }
    Ok(())
}

fn range<T: PartialOrd>(
    value: T,
    allowed: RangeInclusive<T>,
    show: impl Fn(&T) -> String,
) -> Result<(), String> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(out_of_range(show(&value), show(allowed.start()), show(allowed.end())))
}

fn out_of_range(value: impl Display, low: impl Display, high: impl Display) -> String {
    format!("{value} is out of range: {low} to {high}")
}
