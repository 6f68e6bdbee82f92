//! Reading the configuration again: all of it, or nothing and why.

use equic_gateway::{
    BanConfig, Config, Control, Key, ListAction, Origin, Replaced, ServiceConfig, Setting,
};
use serde_json::Value;

use crate::failure::{Done, Failure};

/// Settings in which a configuration differs from another one so that the gateway has to be restarted.
fn needs_restart(old: &Config, new: &Config, control: &Control) -> Vec<String> {
    let (was, is) = (&old.gateway, &new.gateway);
    let mut keys: Vec<String> = [
        ("gateway.name", was.name == is.name),
        ("gateway.mode", was.mode == is.mode),
        ("gateway.source_prefix_v4", was.source_prefix_v4 == is.source_prefix_v4),
        ("gateway.source_prefix_v6", was.source_prefix_v6 == is.source_prefix_v6),
        ("gateway.sources", was.sources == is.sources),
        ("gateway.handshakes", was.handshakes == is.handshakes),
        ("gateway.ledger_sources", was.ledger_sources == is.ledger_sources),
        ("gateway.acl_entries", was.acl_entries == is.acl_entries),
        ("gateway.drop_deep_headers", was.drop_deep_headers == is.drop_deep_headers),
        ("gateway.retry_keys", was.retry_keys == is.retry_keys),
        ("gateway.rotation_file", was.rotation_file == is.rotation_file),
        ("ban.reasons", reasons_stay(new.ban.as_ref(), control)),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(key, _)| key.to_owned())
    .collect();
    for service in &old.services {
        if new.services.iter().all(|other| other.name != service.name) {
            keys.push(format!("service.{} (removed)", service.name));
        }
    }
    for service in &new.services {
        match old.services.iter().find(|other| other.name == service.name) {
            None => keys.push(format!("service.{} (new)", service.name)),
            Some(other) if other.group != service.group => {
                keys.push(format!("service.{}.group", service.name));
            }
            Some(_) => {}
        }
    }
    keys
}

/// The program counts what it was loaded to count.
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

/// Puts `new` in the place of `old`, but for interfaces and bans. On an error everything is as before;
/// every reason is told.
pub(super) fn apply(old: &Config, new: &mut Config, control: &Control) -> Done<Replaced> {
    let keys = needs_restart(old, new, control);
    if !keys.is_empty() {
        let lines: Vec<String> = keys.iter().map(|key| format!("needs a restart: {key}")).collect();
        return Err(Failure::new(lines.join("\n")));
    }
    // The program knows services by number: the order in the file may change.
    let place = |service: &ServiceConfig| old.services.iter().position(|s| s.name == service.name);
    new.services.sort_by_key(|service| place(service));
    let listed = new.listed()?;
    let settings = settings(new, control)?;
    if let Err(error) = control.set_overrides(&new.services) {
        // There is room for the old ones: they were there until now.
        control.set_overrides(&old.services)?;
        return Err(error.into());
    }
    control.listen(&new.services)?;
    let both = [ListAction::Deny, ListAction::Allow];
    let replaced = match control.replace(Origin::Config, &both, &listed) {
        Ok(replaced) => replaced,
        Err(error) => {
            // There is room for the old ones: they were there until now.
            control.set_overrides(&old.services)?;
            control.listen(&old.services)?;
            return Err(error.into());
        }
    };
    // Stores into memory: they have been checked, and cannot fail any more.
    for setting in &settings {
        control.apply(setting)?;
    }
    Ok(replaced)
}

/// Settings to change so that the gateway is as `new` says.
fn settings(new: &Config, control: &Control) -> Done<Vec<Setting>> {
    let as_object = |value: Result<Value, serde_json::Error>| match value {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(_) => Ok(serde_json::Map::new()),
        Err(error) => Err(Failure::from(error)),
    };
    let mut all = Vec::new();
    let mut compare = |owner: &str, live, wanted| -> Done {
        let (live, wanted) = (as_object(live)?, as_object(wanted)?);
        for key in Key::all().map(Key::name) {
            let Some(value) = wanted.get(key).filter(|value| live.get(key) != Some(*value)) else {
                continue;
            };
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            all.push(Setting::parse(&format!("{owner}.{key}"), &text)?);
        }
        Ok(())
    };
    let json = |service: &ServiceConfig| serde_json::to_value(service);
    compare(
        "gateway",
        serde_json::to_value(control.settings()),
        serde_json::to_value(&new.gateway),
    )?;
    for live in control.services()? {
        if let Some(service) = new.services.iter().find(|service| service.name == live.name) {
            compare(&live.name, json(&live), json(service))?;
        }
    }
    Ok(all)
}
