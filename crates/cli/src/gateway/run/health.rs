//! Conditions that are not as they should be: each is told once when it begins and once when it is
//! over, and shown by `status` in between.
//!
//! Whatever looks after a part of the gateway calls [`Health::set`] and [`Health::clear`], each as
//! often as it likes, under a name of its own.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use equic_gateway::{Condition, Level};
use serde_json::json;

use crate::output::Journal;

/// The conditions, by what they are about.
#[derive(Default)]
pub(super) struct Health {
    conditions: BTreeMap<String, Condition>,
}

impl Health {
    /// Notes that something is not as it should be. It is told once, and again when level or message change.
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

    /// Notes that something is as it should be. It is told if it was not until now.
    pub(super) fn clear(&mut self, journal: &Journal, about: &str) {
        if let Some(old) = self.conditions.remove(about) {
            let seconds = unix_ms().saturating_sub(old.since_ms) as f64 / 1e3;
            let lasted = equic_report::number::seconds(seconds);
            journal.entry(
                format_args!("{about}: well again after {lasted}"),
                || json!({ "event": "recovered", "about": about, "after_s": seconds }),
            );
        }
    }

    /// Drops a condition of something that the new configuration does not have: whether it is well is
    /// no longer looked at.
    pub(super) fn forget(&mut self, journal: &Journal, about: &str) {
        if self.conditions.remove(about).is_some() {
            journal.entry(
                format_args!("{about}: no longer configured"),
                || json!({ "event": "unconfigured", "about": about }),
            );
        }
    }

    /// Notes a message about something, or that there is nothing to say about it: [`Health::set`] or
    /// [`Health::clear`].
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

    /// Everything that is not as it should be, the worst first.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let mut all: Vec<Condition> = self.conditions.values().cloned().collect();
        all.sort_by_key(|condition| (std::cmp::Reverse(condition.level), condition.since_ms));
        all
    }
}

/// Milliseconds of Unix time.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
