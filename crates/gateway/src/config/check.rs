//! Checks the parts of a configuration that its types do not ensure: ranges, names, duplicates.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::settings::GATEWAY_SETTINGS;
use super::{
    BanConfig, Config, ConfigError, GatewayConfig, Problem, SERVICE_SETTINGS, ServiceConfig,
    ServiceSetting, SocketConfig, check_mapped, overrides_of,
};
use crate::abi;
use crate::quantity::format_duration;
use crate::reason::Reason;

/// One step on the path from the root of the configuration to one of its values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Key(&'static str),
    Index(usize),
}

/// An invalid value whose position in the configuration's text is not known yet.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) path: Vec<Step>,
    pub(super) key: String,
    pub(super) message: String,
    /// True if the problem is that a required value is missing.
    pub(super) missing: bool,
}

impl Complaint {
    fn new(path: Vec<Step>, key: String, message: String) -> Complaint {
        Complaint { path, key, message, missing: false }
    }
}

/// An invalid value: its key, and a description of what is wrong with it.
type Wrong = (&'static str, String);

pub(super) fn validate(config: &Config) -> Result<(), ConfigError> {
    let complaints = check(config);
    if complaints.is_empty() {
        return Ok(());
    }
    let problems = complaints.into_iter().map(|c| Problem::of(c.key, c.message)).collect();
    Err(ConfigError::problems(None, problems))
}

/// Returns all problems of the configuration.
pub(super) fn check(config: &Config) -> Vec<Complaint> {
    let mut all = Vec::new();
    for (key, message) in check_gateway(&config.gateway) {
        let path = vec![Step::Key("gateway"), Step::Key(key)];
        all.push(Complaint::new(path, format!("gateway.{key}"), message));
    }
    for (key, message) in config.gateway.socket.iter().flat_map(SocketConfig::check) {
        let path = vec![Step::Key("gateway"), Step::Key("socket"), Step::Key(key)];
        all.push(Complaint::new(path, format!("gateway.socket.{key}"), message));
    }
    for (key, message) in config.ban.iter().flat_map(check_ban) {
        let path = vec![Step::Key("ban"), Step::Key(key)];
        all.push(Complaint::new(path, format!("ban.{key}"), message));
    }
    let known = abi::EQUIC_MAX_SERVICES as usize;
    if config.services.is_empty() || config.services.len() > known {
        let message = format!(
            "there are {} services, but a gateway needs 1 to {known}: write one table [[service]] for each service",
            config.services.len()
        );
        let path = vec![Step::Key("service")];
        let missing = config.services.is_empty();
        all.push(Complaint { path, key: "service".to_owned(), message, missing });
    }
    check_services(&config.services, &mut all);
    check_overrides(config, &mut all);
    for (key, nets) in [("deny", &config.deny), ("allow", &config.allow)] {
        for (index, net) in nets.iter().enumerate() {
            if let Err(why) = check_mapped(*net) {
                let path = vec![Step::Key(key), Step::Index(index)];
                all.push(Complaint::new(path, key.to_owned(), format!("{net} is not {why}")));
            }
        }
    }
    for (index, net) in config.deny.iter().enumerate() {
        if config.allow.contains(net) {
            let path = vec![Step::Key("deny"), Step::Index(index)];
            let message = format!(
                "{net} is on both the deny list and the allow list: remove one of the entries"
            );
            all.push(Complaint::new(path, "deny".to_owned(), message));
        }
    }
    all
}

fn check_services(services: &[ServiceConfig], all: &mut Vec<Complaint>) {
    let mut names = HashMap::new();
    let mut listeners = HashMap::new();
    for (index, service) in services.iter().enumerate() {
        let shown = if service.name.is_empty() { index.to_string() } else { service.name.clone() };
        let mut complain = |key: &'static str, message: String, missing: bool| {
            let path = vec![Step::Key("service"), Step::Index(index), Step::Key(key)];
            all.push(Complaint { path, key: format!("service.{shown}.{key}"), message, missing });
        };
        for (key, message) in check_service(service) {
            let missing = (key == "name" && service.name.is_empty())
                || (key == "listen" && service.listen.is_empty());
            complain(key, message, missing);
        }
        if !service.name.is_empty() && names.insert(service.name.as_str(), index).is_some() {
            complain("name", "two services have this name".to_owned(), false);
        }
        for addr in service.listen.iter().flat_map(|listen| listen.addresses()) {
            if let Some(other) = listeners.insert(addr, service.name.as_str()) {
                complain(
                    "listen",
                    format!("service `{other}` already listens at {}", shown_addr(addr)),
                    false,
                );
            }
        }
    }
}

fn check_overrides(config: &Config, all: &mut Vec<Complaint>) {
    let room = abi::EQUIC_OVERRIDES as usize - 1;
    let prefixes = overrides_of(&config.services).len();
    for (index, service) in config.services.iter().enumerate() {
        let step = [Step::Key("service"), Step::Index(index), Step::Key("override")];
        let key = format!("service.{}.override", service.name);
        for (number, message) in super::overrides::check(config, service) {
            let path = [&step[..], &[Step::Index(number)]].concat();
            all.push(Complaint::new(path, key.clone(), message));
        }
        if prefixes > room && !service.overrides.is_empty() {
            let message = format!("{prefixes} prefixes of all services; there is room for {room}");
            all.push(Complaint::new(step.to_vec(), key, message));
            return;
        }
    }
}

fn shown_addr(addr: SocketAddr) -> String {
    match (addr.ip().is_unspecified(), addr.is_ipv4()) {
        (true, true) => format!("any IPv4, port {}", addr.port()),
        (true, false) => format!("any IPv6, port {}", addr.port()),
        _ => addr.to_string(),
    }
}

fn check_gateway(gateway: &GatewayConfig) -> Vec<Wrong> {
    let mut all = Vec::new();
    let mut note = |key, result: Result<(), String>| {
        if let Err(message) = result {
            all.push((key, message));
        }
    };
    note("name", check_name(&gateway.name, true));
    let sizes = [
        ("sources", gateway.sources, 64..=1 << 24),
        ("handshakes", gateway.handshakes, 64..=1 << 24),
        ("ledger_sources", gateway.ledger_sources, 16..=1 << 22),
        ("acl_entries", gateway.acl_entries, 1..=1 << 22),
        ("source_prefix_v4", gateway.source_prefix_v4.into(), 8..=32),
        ("source_prefix_v6", gateway.source_prefix_v6.into(), 16..=128),
    ];
    for (key, value, allowed) in sizes {
        note(key, range(value, allowed, |v| v.to_string()));
    }
    let polls = Duration::from_millis(10)..=Duration::from_secs(3_600);
    note("poll_every", range(gateway.poll_every, polls, |v| format_duration(*v)));
    for setting in GATEWAY_SETTINGS {
        for message in setting.range.check((setting.get)(gateway)) {
            note(setting.key.name(), Err(message));
        }
    }
    if let Some(pin) = gateway.pin.as_ref().filter(|pin| !pin.starts_with('/') || pin.len() > 120) {
        note(
            "pin",
            Err(format!("`{pin}` is not usable: write an absolute path of at most 120 bytes")),
        );
    }
    note("retry_keys", check_path(gateway.retry_keys.as_deref()));
    note("rotation_file", check_path(gateway.rotation_file.as_deref()));
    for (index, name) in gateway.interfaces.iter().enumerate() {
        // An interface's alternative name can have up to 127 bytes, which is longer than an
        // ordinary name.
        if name.is_empty() || name.len() > 127 || name.contains(['/', ' ', '\0']) {
            note("interfaces", Err(format!("`{name}` is not a valid name of a network interface")));
        }
        if gateway.interfaces[..index].contains(name) {
            note(
                "interfaces",
                Err(format!("the interface `{name}` is listed twice: remove one of the entries")),
            );
        }
    }
    all
}

/// Reasons of drops that the XDP program never charges to the packet's source.
const NEVER_COUNTED: [Reason; 10] = [
    Reason::BadToken,
    Reason::Batch,
    Reason::Coalesced,
    Reason::ForgedId,
    Reason::FirstFragment,
    Reason::RateAnswers,
    Reason::RateUnproven,
    Reason::SmallVersion,
    Reason::UnknownVersion,
    Reason::Unproved,
];

fn check_ban(ban: &BanConfig) -> Vec<Wrong> {
    const DAY: u64 = 86_400;
    let seconds = |low: u64, high: u64| Duration::from_secs(low)..=Duration::from_secs(high);
    let shown = |v: &Duration| format_duration(*v);
    let mut all = Vec::new();
    let mut note = |key, result: Result<(), String>| {
        if let Err(message) = result {
            all.push((key, message));
        }
    };
    note("times", range(ban.times, 1..=1_000_000_000, |v| v.to_string()));
    note("within", range(ban.within, seconds(1, DAY), shown));
    note("for", range(ban.first, seconds(1, 365 * DAY), shown));
    note("growth", range(ban.growth, 1.0..=100.0, |v| v.to_string()));
    note("max", range(ban.max, seconds(1, 365 * DAY), shown));
    if ban.max < ban.first {
        let message = format!(
            "{} is less than `for`, {}",
            format_duration(ban.max),
            format_duration(ban.first)
        );
        note("max", Err(message));
    }
    note("forgive_after", range(ban.forgive_after, seconds(1, 3_650 * DAY), shown));
    note("sources", range(ban.sources, 16..=1 << 24, |v| v.to_string()));
    let state = ban.state.as_ref().map(|state| state.to_string_lossy());
    note("state", check_path(state.as_deref()));
    if ban.reasons.is_empty() {
        note("reasons", Err("the list of reasons is empty, so no source is ever banned: add a reason, or remove the table [ban]".to_owned()));
    }
    for reason in &ban.reasons {
        if NEVER_COUNTED.contains(reason) {
            let message = format!(
                "`{reason}` never counts against a source, because the source's address is not \
                 validated"
            );
            note("reasons", Err(message));
        }
        if matches!(reason, Reason::RatePacketsService | Reason::RateNewPrefix) {
            note(
                "reasons",
                Err(format!(
                    "`{reason}` limits many sources together, so it cannot count towards the ban of a single source"
                )),
            );
        }
        if !reason.drops() || *reason == Reason::Denied {
            let what = if reason.drops() { "is the result of a ban" } else { "is not a refusal" };
            note("reasons", Err(format!("`{reason}` {what}, so it cannot count towards a ban")));
        }
    }
    all
}

fn check_service(service: &ServiceConfig) -> Vec<Wrong> {
    let mut all = Vec::new();
    if let Err(message) = check_name(&service.name, false) {
        all.push(("name", message));
    }
    if service.listen.is_empty() {
        let message =
            "a service needs a port or an address: write, for example, listen = [\"443\"]";
        all.push(("listen", message.to_owned()));
    }
    all.extend(check_limits(service));
    if let Some(Err(message)) = service.group.as_ref().map(|group| check_name(group, false)) {
        all.push(("group", message));
    }
    all
}

/// Checks the settings that can change while the gateway runs.
pub(super) fn check_limits(service: &ServiceConfig) -> Vec<Wrong> {
    let wrong = |setting: &'static ServiceSetting| {
        let messages = setting.range.check((setting.get)(service)).into_iter();
        messages.map(|message| (setting.name, message))
    };
    SERVICE_SETTINGS.iter().flat_map(wrong).collect()
}

fn check_name(name: &str, dots: bool) -> Result<(), String> {
    if name.is_empty() {
        return Err("the name is missing: write 1 to 31 letters, digits, `-`, `_`".to_owned());
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || (dots && b == b'.');
    if name.len() > 31 || !name.bytes().all(fits) {
        let dot = if dots { ", `.`" } else { "" };
        return Err(format!(
            "`{name}` is not a valid name: write 1 to 31 letters, digits, `-`, `_`{dot}"
        ));
    }
    if !dots && (name == "gateway" || name == "ban" || name.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!(
            "`{name}` cannot be a service's name, because this word has another meaning in settings: choose another name"
        ));
    }
    Ok(())
}

fn check_path(path: Option<&str>) -> Result<(), String> {
    match path {
        Some("") => Err("the path is empty: write a path, or remove the key".to_owned()),
        _ => Ok(()),
    }
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

pub(super) fn out_of_range(value: impl Display, low: impl Display, high: impl Display) -> String {
    format!("{value} is out of range: {low} to {high}")
}
