//! `KEY=VALUE` on the command line, and in the options of the bindings: one value of a
//! configuration, which replaces that of the file.

use std::collections::HashSet;

use serde::Serialize;

use super::problem::Problem;
use super::{Config, ConfigError, Key, Setting, read};
use crate::error::similar;

/// A value of a configuration that an option has replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplacedValue {
    /// The key as in a file, with the table or the service: `gateway.mode`, `web.max_connections`.
    pub key: String,
    /// Value before, as in a file; `None` if the key had no value.
    pub old: Option<String>,
    /// Value after, as in a file.
    pub new: String,
}

/// Maximum length of a key and its value in bytes. Errors repeat both, so they stay short, too.
const LONGEST: usize = 4096;

/// Keys that a configuration file has outside of `[gateway]` and `[ban]`, and that are not settings.
const ONLY_IN_FILES: [&str; 8] =
    ["listen", "group", "users", "override", "deny", "allow", "deny_files", "allow_files"];

/// `KEY=VALUE`, parsed, but not applied yet. The value of a setting is already checked.
///
/// The keys are those of [`Setting`] (`max_connections`, `web.max_connections`), and those of the
/// tables `[gateway]`, `[gateway.socket]` and `[ban]` with the name of the table (`gateway.mode`,
/// `ban.times`). Strings need no quotes. Lists are written as in TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOption {
    key: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Setting(Setting),
    /// The value of a key of a table, which ends before the last dot of the key.
    InTable(String),
}

impl ConfigOption {
    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// Returns [`ConfigError::UnknownKey`] with similar keys if the key is unknown, and otherwise
    /// [`ConfigError::Invalid`] with what is valid.
    pub fn parse(text: &str) -> Result<ConfigOption, ConfigError> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (key.trim(), value.trim());
        let invalid = |message| ConfigError::Invalid { key: shown(key), message };
        check_text(key, value)?;
        if key.is_empty() {
            let message = "the key is missing: write KEY=VALUE, for example max_connections=100";
            return Err(invalid(message.to_owned()));
        }
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        let is_table = matches!(table, "gateway" | "gateway.socket" | "ban");
        let is_setting = Key::of_gateways().any(|key| table == "gateway" && key.name() == name);
        if is_table && !is_setting {
            if !is_bare(name) {
                return Err(unknown(key));
            }
            return Ok(ConfigOption { key: key.to_owned(), what: What::InTable(value.to_owned()) });
        }
        match Setting::parse_pair(text) {
            Ok(setting) => {
                let owner = match &setting.service {
                    Some(service) => format!("{service}."),
                    None if setting.is_for_gateway() => "gateway.".to_owned(),
                    None => String::new(),
                };
                let key = format!("{owner}{}", setting.key.name());
                return Ok(ConfigOption { key, what: What::Setting(setting) });
            }
            Err(ConfigError::UnknownKey { .. }) => {}
            Err(error) => return Err(error),
        }
        if ONLY_IN_FILES.contains(&name) || (name == "name" && !table.is_empty()) {
            let message = "an option cannot set this key: set it in a configuration file";
            return Err(invalid(message.to_owned()));
        }
        Err(unknown(key))
    }

    /// Returns the key with its table or service, such as `gateway.mode` or `web.policy`. The key of
    /// a setting of all services is only its name, such as `policy`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the name of the setting, if the option sets one of a service.
    pub fn setting_of_services(&self) -> Option<&'static str> {
        match &self.what {
            What::Setting(setting) if !setting.is_for_gateway() => Some(setting.key.name()),
            _ => None,
        }
    }

    fn is_for_all_services(&self) -> bool {
        matches!(&self.what, What::Setting(Setting { service: None, .. }))
    }
}

impl Config {
    /// Applies options. A setting of one service takes precedence over the same setting of all
    /// services, in whatever order they are given. The caller should then call
    /// [`Config::validate`].
    ///
    /// Returns each replaced value. A setting without the name of a service can replace several.
    ///
    /// # Errors
    /// Returns [`ConfigError::Invalid`] if a key is given twice or a value is invalid, and
    /// [`ConfigError::UnknownKey`] with similar keys if a key is unknown. Returns
    /// [`crate::Error::NoSuchService`] if no service has the name.
    pub fn set_options(&mut self, options: &[ConfigOption]) -> crate::Result<Vec<ReplacedValue>> {
        let mut keys = HashSet::new();
        if let Some(twice) = options.iter().find(|option| !keys.insert(option.key())) {
            let message = "the key is given twice: remove one of the values".to_owned();
            return Err(ConfigError::Invalid { key: twice.key.clone(), message }.into());
        }
        let mut replaced = Vec::new();
        let (all, one): (Vec<_>, Vec<_>) =
            options.iter().partition(|option| option.is_for_all_services());
        for option in all.into_iter().chain(one) {
            match &option.what {
                What::Setting(setting) => {
                    replaced.extend(self.set(setting)?.into_iter().map(|change| ReplacedValue {
                        key: match change.service {
                            Some(service) => format!("{service}.{}", change.key),
                            None => format!("gateway.{}", change.key),
                        },
                        old: Some(change.old_value.toml()),
                        new: change.new_value.toml(),
                    }));
                }
                What::InTable(value) => replaced.push(self.set_in_table(&option.key, value)?),
            }
        }
        Ok(replaced)
    }

    /// Sets a key of a table. Reads the value as TOML if it is, and otherwise as a string.
    fn set_in_table(&mut self, key: &str, value: &str) -> Result<ReplacedValue, ConfigError> {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        let path: Vec<&str> = key.split('.').collect();
        let old = self.value_at(&path);
        let quoted = toml::Value::String(value.to_owned());
        let mut first = None;
        for value in toml_value(value).into_iter().chain([quoted]) {
            let mut changed = self.clone();
            let text = format!("[{table}]\n{name} = {value}\n");
            match read::read_onto(&mut changed, &text).into_iter().next() {
                None => {
                    *self = changed;
                    let new = self.value_at(&path).unwrap_or_default();
                    return Ok(ReplacedValue { key: key.to_owned(), old, new });
                }
                Some(problem) => first.get_or_insert(problem),
            };
        }
        let Problem { message, .. } = first.unwrap_or_else(|| Problem::of(key, ""));
        if message.starts_with(read::UNKNOWN) {
            return Err(unknown(key));
        }
        let message = if message.starts_with(read::A_TABLE) {
            format!("{}: set one of its keys, such as {key}.path", read::A_TABLE)
        } else if message.starts_with(read::A_LIST) {
            format!("{}: write, for example, {key}=[\"a\", \"b\"]", read::A_LIST)
        } else {
            message
        };
        Err(ConfigError::Invalid { key: key.to_owned(), message })
    }

    /// Returns the value of a key as in a file, or `None` if it has none.
    fn value_at(&self, path: &[&str]) -> Option<String> {
        let table = toml::Table::try_from(self).ok()?;
        let (first, rest) = path.split_first()?;
        let first = table.get(*first)?;
        rest.iter().try_fold(first, |value, key| value.get(key)).map(ToString::to_string)
    }
}

/// Parses a value of TOML. Returns `None` for any other text, and for a value with a comment behind
/// it, such as `1 # 2`.
fn toml_value(text: &str) -> Option<toml::Value> {
    let read = |text: String| toml::from_str::<toml::Table>(&text).ok()?.remove("x");
    let value = read(format!("x = {text}"))?;
    // A comment would contain the closing bracket.
    let list = read(format!("x = [{text}]"))?;
    (list.as_array()?.as_slice() == std::slice::from_ref(&value)).then_some(value)
}

/// Checks that an error can repeat a key and a value.
pub(super) fn check_text(key: &str, value: &str) -> Result<(), ConfigError> {
    let length = key.len() + value.len();
    let message = if length > LONGEST {
        format!(
            "the key and its value have {length} bytes, but at most {LONGEST} are allowed: write long values into a configuration file"
        )
    } else if key.contains(char::is_control) || value.contains(char::is_control) {
        "the key or its value has a control character: write it in one line, without tabs"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(ConfigError::Invalid { key: shown(key), message })
}

/// Returns true if the text is a bare key of TOML.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Returns the beginning of a key for an error.
fn shown(key: &str) -> String {
    const LENGTH: usize = 64;
    match key.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}

/// Returns the error for an unknown key, with similar ones: those with the same last part, such as
/// `gateway.mode` for `mode`, or else those that are spelled alike.
fn unknown(key: &str) -> ConfigError {
    let settings = super::settings::KEYS.iter().map(|(_, name)| (*name).to_owned());
    let tables = Config::keys().into_iter().filter(|key| {
        let depth = key.split('.').count();
        (key.starts_with("gateway.") && (depth > 2 || key != "gateway.socket"))
            || key.starts_with("ban.")
    });
    let known: Vec<String> = settings.chain(tables).collect();
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let mut near: Vec<String> =
        known.iter().filter(|one| last(one) == last(key)).cloned().collect();
    if near.is_empty() {
        near = similar(key, known.iter().map(String::as_str));
    }
    if near.is_empty() {
        near = similar(&last(key), known.iter().map(String::as_str));
    }
    ConfigError::UnknownKey { key: shown(key), similar: near, known }
}

#[cfg(test)]
#[path = "option_tests.rs"]
mod tests;
