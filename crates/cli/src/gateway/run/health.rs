//! Conditions of the gateway that need attention. Each is reported once when it begins and once
//! when it ends. In between, `equic gateway status` shows it.
//!
//! Each part of `gateway run` calls [`Health::set`] and [`Health::clear`] for its own subject.
//! Repeated calls have no effect.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use equic_gateway::{Condition, Level};
use serde_json::json;

use crate::output::Journal;

/// Conditions that need attention, by their subject.
#[derive(Default)]
pub(super) struct Health {
    conditions: BTreeMap<String, Condition>,
}

impl Health {
    /// Records that a subject needs attention. Reports this once, and again if the level or the
    /// message changes.
    pub(super) fn set(&mut self, journal: &Journal, about: &str, level: Level, message: &str) {
        let since_ms = match self.conditions.get(about) {
            Some(old) if old.message == message && old.level == level => return,
            Some(old) => old.since_ms,
            None => unix_ms(),
        };
        let condition =
            Condition { about: about.to_owned(), level, message: message.to_owned(), since_ms };
        journal.warning(
            format_args!("{about}: {message}"),
            || json!({ "event": "condition", "about": about, "severity": level, "what": message }),
        );
        self.conditions.insert(about.to_owned(), condition);
    }

    /// Records that a subject is in order. Reports this if the subject needed attention before.
    pub(super) fn clear(&mut self, journal: &Journal, about: &str) {
        if let Some(old) = self.conditions.remove(about) {
            let seconds = unix_ms().saturating_sub(old.since_ms) as f64 / 1e3;
            let lasted = equic_report::number::seconds(seconds);
            journal.entry(
                format_args!("{about}: the problem ended after {lasted}"),
                || json!({ "event": "recovered", "about": about, "after_s": seconds }),
            );
        }
    }

    /// Removes the condition of a subject that the new configuration does not contain, because
    /// nothing checks this subject any longer.
    pub(super) fn forget(&mut self, journal: &Journal, about: &str) {
        if self.conditions.remove(about).is_some() {
            journal.entry(
                format_args!("{about}: no longer in the configuration"),
                || json!({ "event": "unconfigured", "about": about }),
            );
        }
    }

    /// Calls [`Health::set`] if there is a message about a subject, otherwise [`Health::clear`].
    pub(super) fn note(
        &mut self,
        journal: &Journal,
        about: &str,
        level: Level,
        message: Option<&str>,
    ) {
        match message {
            Some(message) => self.set(journal, about, level, message),
            None => self.clear(journal, about),
        }
    }

    /// Returns all conditions that need attention, the worst first.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let mut all: Vec<Condition> = self.conditions.values().cloned().collect();
        all.sort_by_key(|condition| (std::cmp::Reverse(condition.level), condition.since_ms));
        all
    }
}

/// Returns the Unix time in milliseconds.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
