//! `KEY=VALUE` on the command line: one value of a configuration, which replaces that of the file.

use serde::Serialize;

use super::problem::Problem;
use super::{Config, ConfigError, Setting, read};
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

impl Config {
    /// Applies `KEY=VALUE`. The keys are those of [`Setting`] (`max_connections`,
    /// `web.max_connections`), and those of the tables `[gateway]`, `[gateway.socket]` and `[ban]`
    /// with the name of the table (`gateway.mode`, `ban.times`). Strings need no quotes. Lists are
    /// written as in TOML. The caller should then call [`Config::validate`].
    ///
    /// Returns each replaced value. A setting without the name of a service can replace several.
    ///
    /// # Errors
    /// Returns [`ConfigError::Invalid`] with the range if the value is invalid, and
    /// [`ConfigError::UnknownKey`] with similar keys if the key is unknown. Returns
    /// [`crate::Error::NoSuchService`] if no service has the name.
    pub fn set_option(&mut self, option: &str) -> crate::Result<Vec<ReplacedValue>> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let (key, value) = (key.trim(), value.trim());
        match Setting::parse_pair(option) {
            Ok(setting) => {
                let changes = self.set(&setting)?.into_iter();
                return Ok(changes
                    .map(|change| ReplacedValue {
                        key: match change.service {
                            Some(service) => format!("{service}.{}", change.key),
                            None => format!("gateway.{}", change.key),
                        },
                        old: Some(change.old_value.toml()),
                        new: change.new_value.toml(),
                    })
                    .collect());
            }
            Err(ConfigError::UnknownKey { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let path: Vec<&str> = key.split('.').collect();
        let [table @ .., name] = path.as_slice() else { return Err(unknown(key).into()) };
        if !matches!(table, ["gateway"] | ["gateway", "socket"] | ["ban"]) || !is_bare(name) {
            return Err(unknown(key).into());
        }
        let old = self.value_at(&path);
        self.set_in_table(&table.join("."), name, value).map_err(|problem| {
            match problem.message.starts_with(read::UNKNOWN) {
                true => unknown(key),
                false => ConfigError::Invalid { key: key.to_owned(), message: problem.message },
            }
        })?;
        let new = self.value_at(&path).unwrap_or_default();
        Ok(vec![ReplacedValue { key: key.to_owned(), old, new }])
    }

    /// Reads the value as TOML if it is, and otherwise as a string.
    fn set_in_table(&mut self, table: &str, name: &str, value: &str) -> Result<(), Problem> {
        let quoted = toml::Value::String(value.to_owned()).to_string();
        let texts = [value, &quoted].map(|value| format!("[{table}]\n{name} = {value}\n"));
        let mut first = None;
        for text in texts {
            let mut changed = self.clone();
            match read::read_onto(&mut changed, &text).into_iter().next() {
                None => {
                    *self = changed;
                    return Ok(());
                }
                // If the value is not TOML, only the second problem says what is expected.
                Some(problem) if toml::from_str::<toml::Table>(&text).is_ok() => {
                    first.get_or_insert(problem);
                }
                Some(_) => {}
            }
        }
        Err(first.unwrap_or_else(|| Problem::of(name, "this value cannot be read")))
    }

    /// Returns the value of a key as in a file, or `None` if it has none.
    fn value_at(&self, path: &[&str]) -> Option<String> {
        let table = toml::Table::try_from(self).ok()?;
        let (first, rest) = path.split_first()?;
        let first = table.get(*first)?;
        rest.iter().try_fold(first, |value, key| value.get(key)).map(ToString::to_string)
    }
}

/// Returns true if the text is a bare key of TOML.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
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
    ConfigError::UnknownKey { key: key.to_owned(), similar: near, known }
}
