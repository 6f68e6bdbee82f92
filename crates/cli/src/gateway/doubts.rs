//! Warnings of `equic gateway check`: settings that are valid, and yet may not be what the operator means.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use equic_gateway::{
    Config, Mode, NetworkInterface, Policy, Rate, Retry, ServiceConfig, loses_answers,
};

/// Every warning about a configuration.
pub(super) fn of(config: &Config) -> Vec<String> {
    let mut doubts = missing_interfaces(config);
    doubts.extend(interfaces_named_twice(config));
    doubts.extend(lost_answers(config));
    doubts.extend(unknown_names(config));
    for service in &config.services {
        let about = |key: &str, text: String| format!("service.{}.{key}: {text}", service.name);
        doubts.extend(of_servers(config, service).into_iter().map(|(key, text)| about(key, text)));
        doubts.extend(of_forgery(service).into_iter().map(|(key, text)| about(key, text)));
        for user in service.users.iter().filter(|user| no_such_user(user)) {
            doubts.push(about("users", format!("there is no user `{user}` here")));
        }
    }
    doubts
}

/// Users and groups of the socket that do not exist. The gateway does not start with them.
fn unknown_names(config: &Config) -> Vec<String> {
    let Some(socket) = &config.gateway.socket else { return Vec::new() };
    let doubt = |key: &str, kind: &str, name: &str| {
        format!(
            "gateway.socket.{key}: there is no {kind} `{name}` here, and the gateway does not start \
             until there is"
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

fn missing_interfaces(config: &Config) -> Vec<String> {
    // An interface is not missing where the kernel cannot be asked.
    let missing = |name: &&String| matches!(NetworkInterface::by_name(name), Ok(None));
    let missing = config.gateway.interfaces.iter().filter(missing);
    let then = match config.gateway.wait {
        true => "with `wait` the gateway starts, and protects it when it comes",
        false => {
            "the gateway will not start until it is there (`wait = true` lets it start, and \
             protects the interface when it comes); `ip link` lists those there are"
        }
    };
    let told = |name: &String| {
        format!("gateway.interfaces: there is no interface `{name}` here now: {then}")
    };
    missing.map(told).collect()
}

/// Interfaces that are configured under several of their names.
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
                "gateway.interfaces: `{name}` and `{}` are two names of one interface: configure it by one \
                 name only",
                first.get()
            )),
        }
    }
    doubts
}

/// Interfaces on which answers to clients can get lost.
fn lost_answers(config: &Config) -> Vec<String> {
    let native = config.gateway.mode == Mode::Native && config.answers();
    let names = config.gateway.interfaces.iter().filter(|name| native && loses_answers(name));
    let told = |name: &String| {
        format!(
            "gateway.mode: the other end of the veth interface `{name}` receives the gateway's answers to \
             clients (retry, version_negotiation, stateless_reset) only if it has an XDP program or GRO: \
             `mode = \"generic\"`, or `\"auto\"`, answers in any case"
        )
    };
    names.map(told).collect()
}

/// Settings that need something of the servers.
fn of_servers(config: &Config, service: &ServiceConfig) -> Vec<(&'static str, String)> {
    let mut doubts = Vec::new();
    let no_socket = config.gateway.socket.is_none();
    if service.max_connections > 0 && no_socket {
        let text = "a quota counts what servers tell, and without [gateway.socket] only servers with \
                    CAP_SYS_ADMIN can join: check with `equic gateway status` that one does, or nothing is \
                    limited";
        doubts.push(("max_connections", text.to_owned()));
    }
    if !service.unproven_per_service.is_off() && no_socket {
        let text = "it knows who is connected from servers, and without [gateway.socket] only servers with \
                    CAP_SYS_ADMIN can join: check with `equic gateway status` that all do, or the \
                    connections of the others share this rate";
        doubts.push(("unproven_per_service", text.to_owned()));
    }
    let confined = config.services.iter().any(|service| !service.users.is_empty());
    if service.check_ids && (no_socket || confined) {
        let why = match no_socket {
            true => "without [gateway.socket] only servers with CAP_SYS_ADMIN can take them",
            false => "users who may serve only some of the services are not given them",
        };
        let text = format!(
            "clients of servers that do not make their connection IDs with the gateway's keys are cut off, \
             and {why}: check with `equic gateway status` that all do"
        );
        doubts.push(("check_ids", text));
    }
    doubts
}

/// Settings that forged packets evade, or use up for others.
fn of_forgery(service: &ServiceConfig) -> Vec<(&'static str, String)> {
    let mut doubts = Vec::new();
    let by_source = limits_of_new(service);
    let guards = service.check_ids || !service.unproven_per_service.is_off();
    let asks = service.retry != Retry::Never;
    let passes_unknown = !asks && !service.version_negotiation && !service.refuse_unknown_versions;
    if passes_unknown && (guards || !by_source.is_empty()) {
        let text = format!(
            "off, so packets of versions that the gateway does not know reach the server from any address, \
             and {}: `version_negotiation = true` has the gateway answer them, \
             `refuse_unknown_versions = true` drops them",
            bounds_of_unknown_versions(service)
        );
        doubts.push(("version_negotiation", text));
    }
    if !asks && !by_source.is_empty() {
        let text = format!(
            "\"never\", so anybody can use up {} of an address with packets forged in its name, and its \
             clients are refused: if the server checks tokens, `retry = \"adaptive\"` asks for proof while \
             many come",
            by_source.join(", ")
        );
        doubts.push(("retry", text));
    }
    if service.retry == Retry::Adaptive && service.retry_above.is_off() {
        let text = "off, so the service never asks for proof: write a rate, for example `500/s`";
        doubts.push(("retry_above", text.to_owned()));
    }
    if asks && service.also_client {
        let text = "with `retry`, what servers answer to connections that this port dials is asked for \
                    proof, and such connections fail: dial from another port, or allow those servers";
        doubts.push(("also_client", text.to_owned()));
    }
    if service.check_ids && service.unproven_per_service.is_off() {
        let text = "a connection ID is valid from every address, so whoever has one can flood the server from \
                    forged addresses: set `unproven_per_service`, too, for example to \"1000/s\"";
        doubts.push(("check_ids", text.to_owned()));
    }
    doubts
}

/// Limits of packets of unknown versions, in words (docs/policy.md sections 9 and 11).
fn bounds_of_unknown_versions(service: &ServiceConfig) -> String {
    let bounds = [
        (service.new_per_source, "256 times `new_per_source`"),
        (service.new_per_service, "`new_per_service`"),
        (service.packets_per_service, "`packets_per_service`"),
    ];
    let on: Vec<&str> =
        bounds.into_iter().filter(|(rate, _)| !rate.is_off()).map(|(_, text)| text).collect();
    match on.as_slice() {
        [] => "no rate limits how many".to_owned(),
        [one] => format!("only {one} limits how many"),
        [first @ .., last] => format!("only {} and {last} limit how many", first.join(", ")),
    }
}

/// Limits that each opening is charged to in the name of its source.
fn limits_of_new(service: &ServiceConfig) -> Vec<&'static str> {
    let underway = service.policy == Policy::Underway && service.max_connections > 0;
    let rates: [(&'static str, Rate); 7] = [
        ("new_per_source", service.new_per_source),
        ("new_per_v4_32", service.new_per_v4_32),
        ("new_per_v4_24", service.new_per_v4_24),
        ("new_per_v6_64", service.new_per_v6_64),
        ("new_per_v6_56", service.new_per_v6_56),
        ("new_per_v6_48", service.new_per_v6_48),
        ("new_per_v6_32", service.new_per_v6_32),
    ];
    let on = rates.into_iter().filter(|(_, rate)| !rate.is_off()).map(|(key, _)| key);
    on.chain(underway.then_some("max_connections")).collect()
}

fn no_such_user(name: &str) -> bool {
    name.parse::<u32>().is_err() && matches!(nix::unistd::User::from_name(name), Ok(None))
}

fn no_such_group(name: &str) -> bool {
    name.parse::<u32>().is_err() && matches!(nix::unistd::Group::from_name(name), Ok(None))
}
