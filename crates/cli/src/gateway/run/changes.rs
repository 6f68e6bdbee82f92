//! Reports changes of the gateway by any process: its settings, its lists, and the servers that
//! report connections to it.
//!
//! Other processes change a gateway by writing to its maps, and nothing notifies this process. So
//! this module compares the current state with the state at the last check. Lists may be long.
//! Therefore, each process that changes a list also increases a counter, and only the counters are
//! compared. Each process also writes an audit record of its changes ([`Control::audit`]).

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use equic_gateway::{Adaptive, Control, ListEvent, ListMark};
use nix::unistd::{Uid, User};
use serde_json::{Value, json};

use crate::output::Journal;

/// State of a gateway at the last check. The current state is compared with it.
pub(super) struct Changes {
    settings: BTreeMap<String, Value>,
    lists: ListMark,
    servers: BTreeMap<(u32, u32), String>,
    /// Number of the next audit record to read.
    audited: u64,
    /// State of adaptive Retry for each service that uses it, by service name.
    adaptive: BTreeMap<String, Adaptive>,
}

impl Changes {
    /// Records the current state of the gateway. Only later changes are reported.
    pub(super) fn new(control: &Control) -> Changes {
        Changes {
            settings: settings(control),
            lists: control.list_mark(),
            servers: servers(control).unwrap_or_default(),
            audited: control.audit(0).1,
            adaptive: adaptive(control),
        }
    }

    /// Reports how the gateway differs from its state at the last check.
    pub(super) fn look(&mut self, control: &Control, journal: &Journal, by: &str) {
        self.look_at_audit(control, journal);
        self.look_at_settings(control, journal, by);
        self.look_at_servers(control, journal);
        self.look_at_lists(control, journal);
        self.look_at_adaptive(control, journal);
    }

    /// Records the current lists without reporting changes, because this process made the changes
    /// and has already reported them.
    pub(super) fn know_lists(&mut self, control: &Control) {
        self.lists = control.list_mark();
    }

    /// Reports who changed what, as the audit records of other processes say.
    fn look_at_audit(&mut self, control: &Control, journal: &Journal) {
        let (entries, next) = control.audit(self.audited);
        let lost = next.saturating_sub(self.audited).saturating_sub(entries.len() as u64);
        self.audited = next;
        if lost > 0 {
            journal.warning(
                format_args!("{lost} changes by other processes were not reported, because they followed each other too fast"),
                || json!({ "event": "audit_lost", "changes": lost }),
            );
        }
        for entry in entries {
            let user = user(entry.login.unwrap_or(entry.uid));
            journal.entry(
                format_args!(
                    "{user} (user {}, process {} {}): {}",
                    entry.uid, entry.pid, entry.process, entry.what
                ),
                || {
                    let at = UNIX_EPOCH + Duration::from_millis(entry.time_ms);
                    json!({
                        "event": "audit", "user": user, "uid": entry.uid, "login": entry.login,
                        "pid": entry.pid, "process": entry.process, "what": entry.what,
                        "at": humantime::format_rfc3339_millis(at).to_string(),
                    })
                },
            );
        }
    }

    fn look_at_settings(&mut self, control: &Control, journal: &Journal, by: &str) {
        let now = settings(control);
        for (key, new) in &now {
            let Some(old) = self.settings.get(key).filter(|old| *old != new) else { continue };
            journal.entry(
                format_args!(
                    "{key} is now {}, and was {} before (changed by {by})",
                    shown(new),
                    shown(old)
                ),
                || json!({ "event": "set", "key": key, "old": old, "new": new, "by": by }),
            );
        }
        self.settings = now;
    }

    /// Reports which services began or ceased to require address validation. Also reports services
    /// that did both since the last check.
    fn look_at_adaptive(&mut self, control: &Control, journal: &Journal) {
        let now = adaptive(control);
        for (service, state) in &now {
            let Some(was) = self.adaptive.get(service) else { continue };
            let began = state.began != was.began;
            let tell = |asking: bool| {
                let what = if asking {
                    "now requires clients to validate their address, because too many connections are opened without validation"
                } else {
                    "no longer requires clients to validate their address"
                };
                journal.entry(
                    format_args!("service {service} {what}"),
                    || json!({ "event": "retry", "service": service, "asking": asking, "began": state.began }),
                );
            };
            if was.asking && (began || !state.asking) {
                tell(false);
            }
            if began {
                tell(true);
                if !state.asking {
                    tell(false);
                }
            }
        }
        self.adaptive = now;
    }

    fn look_at_servers(&mut self, control: &Control, journal: &Journal) {
        let Some(now) = servers(control) else { return };
        let tell = |event: &'static str, verb: &str, pid: u32, name: &str| {
            journal.entry(
                format_args!("server {name} (process {pid}) {verb}"),
                || json!({ "event": event, "name": name, "pid": pid }),
            );
        };
        for (key, server) in &now {
            if !self.servers.contains_key(key) {
                tell(
                    "server_joined",
                    "joined the gateway, and reports its connections",
                    key.1,
                    server,
                );
            }
        }
        for (key, server) in &self.servers {
            if !now.contains_key(key) {
                tell(
                    "server_left",
                    "left the gateway, and no longer reports connections",
                    key.1,
                    server,
                );
            }
        }
        self.servers = now;
    }

    fn look_at_lists(&mut self, control: &Control, journal: &Journal) {
        let changes = control.list_changes(&mut self.lists);
        let [denied, allowed, expired, forgotten] = changes.numbers;
        if changes.each.is_empty() && changes.numbers != [0; 4] {
            journal.entry(
                format_args!(
                    "prefixes on the deny and allow lists: {denied} denied, {allowed} allowed, {expired} expired, {forgotten} forgotten"
                ),
                || {
                    json!({
                        "event": "lists", "denied": denied, "allowed": allowed,
                        "expired": expired, "forgotten": forgotten,
                    })
                },
            );
        }
        for (prefix, event) in changes.each {
            let verb = match event {
                ListEvent::Denied => "denied",
                ListEvent::Allowed => "allowed",
                ListEvent::Expired => "expired",
                ListEvent::Forgotten => "forgotten",
            };
            journal.entry(
                format_args!("{verb}: {prefix}"),
                || json!({ "event": "list", "prefix": prefix, "what": verb }),
            );
        }
    }
}

/// Returns the name of a user, or the user ID as text if the user has no name.
fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the current value of every setting, by its key.
fn settings(control: &Control) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let gateway = serde_json::to_value(control.settings()).unwrap_or_default();
    for key in ["dry_run", "lease", "events"] {
        all.insert(format!("gateway.{key}"), gateway[key].clone());
    }
    for service in control.services().unwrap_or_default() {
        let Ok(Value::Object(keys)) = serde_json::to_value(&service) else { continue };
        for (key, value) in keys.into_iter().filter(|(key, _)| key != "name" && key != "group") {
            all.insert(format!("{}.{key}", service.name), value);
        }
    }
    all
}

/// Returns the state of adaptive Retry for each service that uses it, by service name.
fn adaptive(control: &Control) -> BTreeMap<String, Adaptive> {
    let states = control.adaptive();
    let names = control.service_names();
    names.into_iter().zip(states).filter_map(|(name, state)| Some((name, state?))).collect()
}

fn servers(control: &Control) -> Option<BTreeMap<(u32, u32), String>> {
    let servers = control.servers().ok()?;
    Some(servers.into_iter().map(|(slot, pid, name)| ((slot, pid), name)).collect())
}
