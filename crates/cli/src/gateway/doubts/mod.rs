//! Warnings of `equic gateway check` about settings that are valid, but that the operator may not
//! have intended.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

use equic_gateway::{
    BanConfig, Config, Mode, NetworkInterface, Proof, Reason, Retry, loses_answers,
};

mod service;

/// Returns all warnings about a configuration.
pub(super) fn of(config: &Config) -> Vec<String> {
    let mut doubts = missing_interfaces(config);
    doubts.extend(interfaces_named_twice(config));
    doubts.extend(lost_answers(config));
    doubts.extend(unknown_names(config));
    doubts.extend(exposed(config));
    doubts.extend(config.ban.as_ref().and_then(|ban| forged_bans(config, ban)));
    for service in &config.services {
        doubts.extend(service::of(config, service));
    }
    doubts
}

/// Finds user and group names of the socket's access rules that do not exist. The gateway does not
/// start with such names.
fn unknown_names(config: &Config) -> Vec<String> {
    let Some(socket) = &config.gateway.socket else { return Vec::new() };
    let doubt = |key: &str, kind: &str, name: &str| {
        format!(
            "gateway.socket.{key}: there is no {kind} `{name}` on this machine, so the gateway will not start: create the {kind}, or correct the name"
        )
    };
    let mut doubts = Vec::new();
    for name in socket.users.iter().filter(|name| no_such_user(name)) {
        doubts.push(doubt("users", "user", name));
    }
    if let Some(name) = socket.owner.as_deref().filter(|name| no_such_user(name)) {
        doubts.push(doubt("owner", "user", name));
    }
    if let Some(name) = socket.group.as_deref().filter(|name| no_such_group(name)) {
        doubts.push(doubt("group", "group", name));
    }
    doubts
}

/// Finds settings of `[gateway]` that expose more than an operator may expect.
fn exposed(config: &Config) -> Vec<String> {
    let gateway = &config.gateway;
    let mut doubts = Vec::new();
    if !gateway.drop_deep_headers {
        let text = "gateway.drop_deep_headers: off. Packets whose UDP header the gateway does not find reach the host unchecked, so attackers can evade every limit with them";
        doubts.push(text.to_owned());
    }
    let anywhere = |metrics: &SocketAddr| metrics.ip().to_canonical().is_unspecified();
    if let Some(metrics) = gateway.metrics.filter(anywhere) {
        doubts.push(format!(
            "gateway.metrics: `{metrics}` means every address of this host, so anyone who can reach the host can read the metrics: use an address that only Prometheus can reach, for example 127.0.0.1"
        ));
    }
    let for_all = |mode: &str| u32::from_str_radix(mode, 8).is_ok_and(|mode| mode & 0o002 != 0);
    if let Some(socket) = gateway.socket.as_ref().filter(|socket| for_all(&socket.mode)) {
        let what = match socket.users.is_empty() {
            true => "can join the gateway and report connections from any address",
            false => "can connect to the socket, although only `users` can join the gateway",
        };
        doubts.push(format!(
            "gateway.socket.mode: with \"{}\", every user of this host {what}; to restrict access, set `mode = \"0660\"` and `group`",
            socket.mode
        ));
    }
    doubts
}

/// Warns if an attacker can cause bans with packets whose source addresses are forged.
fn forged_bans(config: &Config, ban: &BanConfig) -> Option<String> {
    let without = config.services.iter().filter(|service| service.retry == Retry::Never);
    let names: Vec<&str> = without.map(|service| service.name.as_str()).collect();
    if ban.proof != Proof::None || names.is_empty() {
        return None;
    }
    // These reasons affect only sources that hold connections, so only such addresses can be
    // banned.
    let of_quota = |reason: &Reason| matches!(reason, Reason::Quota | Reason::QuotaStrict);
    let victims = match ban.reasons.iter().all(of_quota) {
        true => "any address that is at its quota",
        false => "any address",
    };
    Some(format!(
        "ban.proof is \"none\", and `retry` of {} is \"never\", so an attacker can get {victims} banned with forged packets: set `proof = \"connection\"`, which counts only refusals of sources that hold a connection",
        names.join(", ")
    ))
}

fn missing_interfaces(config: &Config) -> Vec<String> {
    // If the kernel does not answer whether the interface exists, do not report it as missing.
    let missing = |name: &&String| matches!(NetworkInterface::by_name(name), Ok(None));
    let missing = config.gateway.interfaces.iter().filter(missing);
    let then = match config.gateway.wait {
        true => {
            "because of `wait = true`, the gateway starts, and protects the interface when it appears"
        }
        false => {
            "the gateway will not start. `ip link` lists the existing interfaces. With `wait = true`, the gateway starts, and protects the interface when it appears"
        }
    };
    let told = |name: &String| {
        format!("gateway.interfaces: there is no interface `{name}` on this machine now: {then}")
    };
    missing.map(told).collect()
}

/// Finds interfaces that are configured under more than one of their names.
fn interfaces_named_twice(config: &Config) -> Vec<String> {
    let mut known: BTreeMap<u32, &str> = BTreeMap::new();
    let mut doubts = Vec::new();
    for name in &config.gateway.interfaces {
        let Ok(Some(interface)) = NetworkInterface::by_name(name) else { continue };
        match known.entry(interface.index) {
            Entry::Vacant(free) => {
                free.insert(name);
            }
            Entry::Occupied(first) => doubts.push(format!(
                "gateway.interfaces: `{name}` and `{}` are two names of the same interface: remove one of them",
                first.get()
            )),
        }
    }
    doubts
}

/// Finds interfaces on which the gateway's answers to clients can get lost.
fn lost_answers(config: &Config) -> Vec<String> {
    let native = config.gateway.mode == Mode::Native && config.answers();
    let names = config.gateway.interfaces.iter().filter(|name| native && loses_answers(name));
    let told = |name: &String| {
        format!(
            "gateway.mode: the other end of the veth interface `{name}` receives the gateway's answers to \
             clients (retry, version_negotiation, stateless_reset) only if that end has an XDP program or GRO: set `mode = \"generic\"` or `\"auto\"`, with which it always receives them"
        )
    };
    names.map(told).collect()
}

fn no_such_user(name: &str) -> bool {
    name.parse::<u32>().is_err() && matches!(nix::unistd::User::from_name(name), Ok(None))
}

fn no_such_group(name: &str) -> bool {
    name.parse::<u32>().is_err() && matches!(nix::unistd::Group::from_name(name), Ok(None))
}
