//! Applies all of a new configuration to a running gateway. If the configuration has an error,
//! applies nothing.

use equic_gateway::{
    BanConfig, Config, Control, GatewayConfig, Replaced, ServiceConfig, SocketConfig,
};

use crate::failure::{Failure, Result};

/// Returns the changed keys that take effect only after a restart of the gateway. Every key of
/// `[gateway]` is either compared here or listed as live, so that a new key cannot be forgotten.
fn needs_restart(old: &Config, new: &Config, control: &Control) -> Vec<String> {
    let (was, is) = (&old.gateway, &new.gateway);
    let GatewayConfig {
        name,
        // Live: `Interfaces` applies the change.
        interfaces: _,
        mode,
        wait,
        dry_run: _,
        source_prefix_v4,
        source_prefix_v6,
        sources,
        handshakes,
        ledger_sources,
        acl_entries,
        lease: _,
        poll_every,
        seccomp,
        events: _,
        drop_deep_headers,
        retry_keys,
        rotation_file,
        metrics,
        pin,
        socket,
    } = was;
    let mut keys: Vec<String> = [
        ("gateway.name", *name == is.name),
        ("gateway.mode", *mode == is.mode),
        ("gateway.wait", *wait == is.wait),
        ("gateway.source_prefix_v4", *source_prefix_v4 == is.source_prefix_v4),
        ("gateway.source_prefix_v6", *source_prefix_v6 == is.source_prefix_v6),
        ("gateway.sources", *sources == is.sources),
        ("gateway.handshakes", *handshakes == is.handshakes),
        ("gateway.ledger_sources", *ledger_sources == is.ledger_sources),
        ("gateway.acl_entries", *acl_entries == is.acl_entries),
        ("gateway.poll_every", *poll_every == is.poll_every),
        ("gateway.seccomp", *seccomp == is.seccomp),
        ("gateway.drop_deep_headers", *drop_deep_headers == is.drop_deep_headers),
        ("gateway.retry_keys", *retry_keys == is.retry_keys),
        ("gateway.rotation_file", *rotation_file == is.rotation_file),
        ("gateway.metrics", *metrics == is.metrics),
        ("gateway.pin", *pin == is.pin),
        (key_of_reasons(control), reasons_stay(new.ban.as_ref(), control)),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(key, _)| key.to_owned())
    .collect();
    keys.extend(socket_needs_restart(socket.as_ref(), is.socket.as_ref()));
    keys.extend(services_need_restart(&old.services, &new.services));
    keys
}

/// Returns the changed keys of `[gateway.socket]` that need a restart. The socket is created only
/// once, with the privileges that the process has at its start.
fn socket_needs_restart(was: Option<&SocketConfig>, is: Option<&SocketConfig>) -> Vec<String> {
    let (was, is) = match (was, is) {
        (None, None) => return Vec::new(),
        (Some(_), None) => return vec!["gateway.socket (removed)".to_owned()],
        (None, Some(_)) => return vec!["gateway.socket (new)".to_owned()],
        (Some(was), Some(is)) => (was, is),
    };
    let SocketConfig { path, owner, group, mode, users, max_servers, max_per_user } = was;
    [
        ("path", *path == is.path),
        ("owner", *owner == is.owner),
        ("group", *group == is.group),
        ("mode", *mode == is.mode),
        ("users", *users == is.users),
        ("max_servers", *max_servers == is.max_servers),
        ("max_per_user", *max_per_user == is.max_per_user),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(key, _)| format!("gateway.socket.{key}"))
    .collect()
}

fn services_need_restart(old: &[ServiceConfig], new: &[ServiceConfig]) -> Vec<String> {
    let mut keys = Vec::new();
    for service in old.iter().filter(|one| new.iter().all(|other| other.name != one.name)) {
        keys.push(format!("service.{} (removed)", service.name));
    }
    for service in new {
        let Some(other) = old.iter().find(|other| other.name == service.name) else {
            keys.push(format!("service.{} (new)", service.name));
            continue;
        };
        if other.group != service.group {
            keys.push(format!("service.{}.group", service.name));
        }
        // User names are looked up only at the start, and servers that have already joined keep
        // their access.
        if other.users != service.users {
            keys.push(format!("service.{}.users", service.name));
        }
    }
    keys
}

/// Returns the key that the error must name if the reasons for bans have changed.
fn key_of_reasons(control: &Control) -> &'static str {
    match control.counted_reasons().is_empty() {
        true => "ban (new; bans can only be turned on when the gateway starts)",
        false => "ban.reasons",
    }
}

/// Returns whether the loaded program already counts refusals for the reasons of this ban policy.
/// These reasons are fixed when the program is loaded.
fn reasons_stay(ban: Option<&BanConfig>, control: &Control) -> bool {
    let mut counted = control.counted_reasons();
    ban.is_none_or(|ban| {
        let mut reasons = ban.reasons.clone();
        reasons.sort();
        reasons.dedup();
        counted.sort();
        reasons == counted
    })
}

/// Replaces `old` by `new`. The caller applies interfaces and bans afterwards, because that cannot
/// fail. On an error nothing changes, and the error lists every reason.
pub(super) fn apply(old: &Config, new: &mut Config, control: &Control) -> Result<Replaced> {
    let keys = needs_restart(old, new, control);
    if !keys.is_empty() {
        let lines: Vec<String> = keys.iter().map(|key| format!("needs a restart: {key}")).collect();
        return Err(Failure::new(lines.join("\n")));
    }
    // The program identifies services by number. Find each service's number by its name, because
    // the order in the file may have changed.
    let place = |service: &ServiceConfig| old.services.iter().position(|s| s.name == service.name);
    new.services.sort_by_key(|service| place(service));
    Ok(control.reconfigure(new)?)
}
