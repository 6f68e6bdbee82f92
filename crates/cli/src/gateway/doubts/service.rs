//! Warnings of `equic gateway check` about a service.

use equic_gateway::{Config, Policy, Rate, Retry, ServiceConfig};

use super::no_such_user;

/// Returns all warnings about a service.
pub(super) fn of(config: &Config, service: &ServiceConfig) -> Vec<String> {
    let mut doubts = of_servers(config, service);
    doubts.extend(of_forgery(service));
    doubts.extend(of_prefixes(service));
    for user in service.users.iter().filter(|user| no_such_user(user)) {
        doubts.push(("users", format!("there is no user `{user}` on this machine")));
    }
    let about = |(key, text): (&str, String)| format!("service.{}.{key}: {text}", service.name);
    let mut doubts: Vec<String> = doubts.into_iter().map(about).collect();
    if is_unlimited(service) {
        doubts.push(format!(
            "service.{}: the service has no limits, so the gateway drops only malformed packets and packets from denied sources: set, for example, `max_connections` or `new_per_source`",
            service.name
        ));
    }
    doubts
}

/// Returns whether no setting limits what clients of the service can do.
fn is_unlimited(service: &ServiceConfig) -> bool {
    let rates = [
        service.new_per_service,
        service.packets_per_source,
        service.bytes_per_source,
        service.packets_per_service,
        service.unproven_per_service,
    ];
    let asks = service.retry != Retry::Never || service.check_ids;
    service.max_connections == 0
        && limits_of_new(service).is_empty()
        && rates.iter().all(|rate| rate.is_off())
        && !asks
        && service.overrides.is_empty()
}

/// Finds rates for prefixes that are lower than the rate for a longer prefix within them.
fn of_prefixes(service: &ServiceConfig) -> Vec<(&'static str, String)> {
    // The rates, from the longest prefix to the shortest.
    let v4 = [("new_per_v4_32", service.new_per_v4_32), ("new_per_v4_24", service.new_per_v4_24)];
    let v6 = [
        ("new_per_v6_64", service.new_per_v6_64),
        ("new_per_v6_56", service.new_per_v6_56),
        ("new_per_v6_48", service.new_per_v6_48),
        ("new_per_v6_32", service.new_per_v6_32),
    ];
    let mut doubts = Vec::new();
    for family in [&v4[..], &v6[..]] {
        let on: Vec<_> = family.iter().filter(|(_, rate)| !rate.is_off()).collect();
        for (narrow, wide) in on.iter().zip(on.iter().skip(1)) {
            if wide.1.units_per_second() < narrow.1.units_per_second() {
                let text = format!(
                    "this rate is lower than `{}`, so clients in one narrow prefix can use up the rate of the whole wider prefix, and all others in the wider prefix are refused",
                    narrow.0
                );
                doubts.push((wide.0, text));
            }
        }
    }
    doubts
}

/// Finds settings that work only if the service's servers support them.
fn of_servers(config: &Config, service: &ServiceConfig) -> Vec<(&'static str, String)> {
    let mut doubts = Vec::new();
    let no_socket = config.gateway.socket.is_none();
    if service.max_connections > 0 && no_socket {
        let text = "a quota counts the connections that servers report, and without [gateway.socket] only servers with CAP_SYS_ADMIN can join: check with `equic gateway status` that a server has joined, because otherwise nothing is limited";
        doubts.push(("max_connections", text.to_owned()));
    }
    if !service.unproven_per_service.is_off() && no_socket {
        let text = "this rate applies to all connections that no server reports, and without [gateway.socket] only servers with CAP_SYS_ADMIN can join and report: check with `equic gateway status` that all servers have joined";
        doubts.push(("unproven_per_service", text.to_owned()));
    }
    let confined = config.services.iter().any(|service| !service.users.is_empty());
    if service.check_ids && (no_socket || confined) {
        let why = match no_socket {
            true => "without [gateway.socket] only servers with CAP_SYS_ADMIN can get the keys",
            false => "users who may serve only some of the services do not get the keys",
        };
        let text = format!(
            "clients of servers that do not make their connection IDs with the gateway's keys lose their connections, and {why}: check with `equic gateway status` that all servers have the keys"
        );
        doubts.push(("check_ids", text));
    }
    doubts
}

/// Finds limits that an attacker can evade with forged packets, or can use up so that other clients
/// are refused.
fn of_forgery(service: &ServiceConfig) -> Vec<(&'static str, String)> {
    let mut doubts = Vec::new();
    let by_source = limits_of_new(service);
    let guards = service.check_ids || !service.unproven_per_service.is_off();
    let asks = service.retry != Retry::Never;
    let passes_unknown = !asks && !service.version_negotiation && !service.refuse_unknown_versions;
    if passes_unknown && (guards || !by_source.is_empty()) {
        let text = format!(
            "the setting is off, so packets of unknown QUIC versions reach the server from any address, and {}: set `version_negotiation = true` to make the gateway answer them, or `refuse_unknown_versions = true` to drop them",
            bounds_of_unknown_versions(service)
        );
        doubts.push(("version_negotiation", text));
    }
    if !asks && !by_source.is_empty() {
        let text = format!(
            "the setting is \"never\", so an attacker can use up {} of an address with forged packets, and the gateway then refuses the clients at that address: if the server checks tokens, set `retry = \"adaptive\"`",
            by_source.join(", ")
        );
        doubts.push(("retry", text));
    }
    if service.retry == Retry::Adaptive && service.retry_above.is_off() {
        let text = "the setting is off, so the gateway never sends Retry packets for this service: set a rate, for example `500/s`";
        doubts.push(("retry_above", text.to_owned()));
    }
    if asks && service.also_client {
        let text = "with `retry`, connections that are opened from this port fail, because the gateway answers the remote servers' packets with Retry: use another port to open connections, or put the remote servers on the allow list";
        doubts.push(("also_client", text.to_owned()));
    }
    if service.check_ids && service.unproven_per_service.is_off() {
        let text = "a connection ID is valid from every address, so an attacker who has one can flood the server from forged addresses: set `unproven_per_service`, too, for example to \"1000/s\"";
        doubts.push(("check_ids", text.to_owned()));
    }
    doubts
}

/// Describes the limits on packets of unknown versions (docs/policy.md sections 9 and 11).
fn bounds_of_unknown_versions(service: &ServiceConfig) -> String {
    let bounds = [
        (service.new_per_source, "256 times `new_per_source`"),
        (service.new_per_service, "`new_per_service`"),
        (service.packets_per_service, "`packets_per_service`"),
    ];
    let on: Vec<&str> =
        bounds.into_iter().filter(|(rate, _)| !rate.is_off()).map(|(_, text)| text).collect();
    match on.as_slice() {
        [] => "no rate limits the number of these packets".to_owned(),
        [one] => format!("only {one} limits the number of these packets"),
        [first @ .., last] => {
            format!("only {} and {last} limit the number of these packets", first.join(", "))
        }
    }
}

/// Returns the keys of the limits that count each new connection against its source.
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
