//! Parses the TOML text of a configuration and collects every problem, not only the first one.
//!
//! The module walks the TOML parser's tree itself, because the tree has the position of each value.
//! So it can report unknown keys, values of the wrong type and values out of range together. Syntax
//! errors are reported with them, because the parser continues after an error.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::check::{Complaint, Step, check};
use super::listfile::LONGEST;
use super::{
    BanConfig, Config, ConfigError, GatewayConfig, OverrideConfig, Problem, SERVICE_SETTINGS,
    ServiceConfig, SettingKind, SettingValue, SocketConfig, parse_prefix,
};
use crate::error::similar;
use crate::file::open_regular;
use crate::quantity::{Rate, parse_duration};

/// Reads one TOML table: `keys!(reader, table, path; "key" => place, how; ...)`. For each key, the
/// reader's method `how` parses the value into `place`. All other keys are reported as unknown.
macro_rules! keys {
    ($reader:expr, $table:expr, $at:expr; $($key:literal => $place:expr, $how:ident;)+) => {
        for (key, value) in $table.iter() {
            let name: &str = key.get_ref();
            match name {
                $($key => $reader.$how(&$at.key(name), value, &mut $place),)+
                _ => $reader.unknown(&$at, key, &[$($key),+]),
            }
        }
    };
}

const TOP: [&str; 7] = ["deny", "allow", "deny_files", "allow_files", "gateway", "service", "ban"];

/// Path of a value in a configuration. It is stored as text (`service.web.listen`) and as steps
/// from the root of the document.
#[derive(Clone)]
struct At {
    shown: String,
    steps: Vec<String>,
}

impl At {
    fn top() -> At {
        At { shown: String::new(), steps: Vec::new() }
    }

    fn key(&self, key: &str) -> At {
        let dot = if self.shown.is_empty() { "" } else { "." };
        let mut steps = self.steps.clone();
        steps.push(key.to_owned());
        At { shown: format!("{}{dot}{key}", self.shown), steps }
    }

    /// Returns the path of an element of this list. `name` is the element's name, if it has one.
    fn index(&self, index: usize, name: Option<&str>) -> At {
        let mut at = self.clone();
        at.steps.push(index.to_string());
        if let Some(name) = name {
            at.shown = format!("{}.{name}", self.shown);
        }
        at
    }
}

pub(super) struct Reader<'a> {
    text: &'a str,
    /// The valid keys of the tables in which an unknown key was found, such as
    /// `gateway.socket.path`.
    keys: BTreeSet<String>,
    /// Byte offsets in the text at which lines start.
    lines: Vec<usize>,
    problems: Vec<Problem>,
    /// Folder of the file, at which relative paths of list files start. If it is `None`, list files
    /// are not checked.
    folder: Option<&'a Path>,
    /// Paths of the values that could not be read. Other problems of these values are not reported.
    failed: HashSet<Vec<String>>,
}

/// Beginning of the message about an unknown key.
pub(super) const UNKNOWN: &str = "there is no such key";

/// Beginning of the message about a table that has a value instead.
pub(super) const A_TABLE: &str = "this key is a table";

/// Beginning of the message about a list that has another value instead.
pub(super) const A_LIST: &str = "this key takes a list";

/// Message of the TOML parser about a key that a table has twice. The error's span is that of the
/// second key.
const DUPLICATE: &str = "duplicate key";

/// Beginning of the TOML parser's messages about a table or list without its closing bracket. The
/// parser then misreads the text after it, so problems of its keys and values would be false.
const UNCLOSED: &str = "unclosed";

/// Parses a configuration. Returns the configuration as far as it could be read, and every problem.
/// If the text is a file in the folder `folder`, this includes list files that cannot be opened.
pub(super) fn read(text: &str, folder: Option<&Path>) -> (Config, Vec<Problem>) {
    let mut config = Config::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { folder, ..Reader::with_lines(text, &errors) };
    if errors.iter().any(|error| error.message().starts_with(UNCLOSED)) {
        return (config, reader.problems);
    }
    reader.config(document.get_ref(), &mut config);
    for complaint in check(&config) {
        // If there are syntax errors, the value may be present but not parsed, so it is not
        // reported as missing.
        if !complaint.missing || errors.is_empty() {
            reader.place(document.get_ref(), complaint);
        }
    }
    (config, reader.problems)
}

/// Reads the keys of a text into an existing configuration. Returns every problem of the text, but
/// does not check whether the values fit each other.
pub(super) fn read_onto(config: &mut Config, text: &str) -> Vec<Problem> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::with_lines(text, &errors);
    reader.config(document.get_ref(), config);
    reader.problems
}

/// A configuration file with every table. Each table has an unknown key, which makes the reader
/// collect the table's valid keys.
const ALL_TABLES: &str = "x = 0\n[gateway]\nx = 0\n[gateway.socket]\nx = 0\n\
                          [ban]\nx = 0\n[[service]]\nx = 0\n[[service.override]]\nx = 0\n";

/// Returns every key of a configuration file, as the reader knows them.
pub(super) fn keys() -> Vec<String> {
    let (document, _) = DeTable::parse_recoverable(ALL_TABLES);
    let mut reader = Reader::of(ALL_TABLES, vec![0]);
    reader.config(document.get_ref(), &mut Config::default());
    reader.keys.into_iter().collect()
}

impl Reader<'_> {
    fn of(text: &str, lines: Vec<usize>) -> Reader<'_> {
        let (keys, problems, failed) = (BTreeSet::new(), Vec::new(), HashSet::new());
        Reader { text, keys, lines, problems, folder: None, failed }
    }

    /// Returns a reader that has already recorded the syntax errors.
    fn with_lines<'t>(text: &'t str, errors: &[toml::de::Error]) -> Reader<'t> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let mut reader = Reader::of(text, lines);
        for error in errors {
            let span = error.span().unwrap_or_default();
            let key = text.get(span.clone()).and_then(|key| key.lines().next()).unwrap_or_default();
            let message = match error.message() {
                DUPLICATE if !key.is_empty() => format!("the key `{key}` is given twice"),
                other => other.to_owned(),
            };
            reader.complain(span.start, "", message);
        }
        reader
    }

    fn config(&mut self, table: &DeTable<'_>, config: &mut Config) {
        let top = At::top();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let at = top.key(name);
            match name {
                "deny" => self.prefixes(&at, value, &mut config.deny),
                "allow" => self.prefixes(&at, value, &mut config.allow),
                "deny_files" => self.list_files(&at, value, &mut config.deny_files),
                "allow_files" => self.list_files(&at, value, &mut config.allow_files),
                "gateway" => self.gateway(&at, value, &mut config.gateway),
                "ban" => self.ban(&at, value, &mut config.ban),
                "service" => config.services = self.services(&at, value),
                _ => self.unknown(&top, key, &TOP),
            }
        }
    }

    fn gateway(&mut self, at: &At, value: &Spanned<DeValue<'_>>, gateway: &mut GatewayConfig) {
        let Some(table) = self.table(at, value) else { return };
        keys!(self, table, at;
            "name" => gateway.name, plain;
            "interfaces" => gateway.interfaces, list;
            "mode" => gateway.mode, plain;
            "wait" => gateway.wait, plain;
            "dry_run" => gateway.dry_run, plain;
            "source_prefix_v4" => gateway.source_prefix_v4, plain;
            "source_prefix_v6" => gateway.source_prefix_v6, plain;
            "sources" => gateway.sources, plain;
            "handshakes" => gateway.handshakes, plain;
            "ledger_sources" => gateway.ledger_sources, plain;
            "acl_entries" => gateway.acl_entries, plain;
            "lease" => gateway.lease, duration;
            "poll_every" => gateway.poll_every, duration;
            "seccomp" => gateway.seccomp, plain;
            "events" => gateway.events, rate_of_units;
            "drop_deep_headers" => gateway.drop_deep_headers, plain;
            "retry_keys" => gateway.retry_keys, optional;
            "rotation_file" => gateway.rotation_file, optional;
            "metrics" => gateway.metrics, or_off;
            "pin" => gateway.pin, optional;
            "socket" => gateway.socket, socket;
        );
    }

    fn socket(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Option<SocketConfig>) {
        let mut socket = place.take().unwrap_or_default();
        let Some(table) = self.table(at, value) else { return };
        keys!(self, table, at;
            "path" => socket.path, plain;
            "owner" => socket.owner, optional;
            "group" => socket.group, optional;
            "mode" => socket.mode, plain;
            "users" => socket.users, list;
            "max_servers" => socket.max_servers, plain;
            "max_per_user" => socket.max_per_user, plain;
        );
        *place = Some(socket);
    }

    fn list_files(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Vec<PathBuf>) {
        const WRONG: &str = "this is not the path of a list file: the script `prefixes-of` makes list files from tables of networks and countries (docs/how-to/lists-and-bans.md)";
        let elements: Vec<_> = self.elements(at, value).collect();
        for (index, value) in elements {
            match value.get_ref() {
                DeValue::String(path) => {
                    let path: &Path = path.as_ref().as_ref();
                    self.check_list_file(&at.index(index, None), value, path);
                    place.push(path.to_owned());
                }
                _ => self.fail(&at.index(index, None), value, WRONG.to_owned()),
            }
        }
    }

    /// Reports a list file that cannot be opened.
    fn check_list_file(&mut self, at: &At, value: &Spanned<DeValue<'_>>, path: &Path) {
        let Some(folder) = self.folder else { return };
        let path = folder.join(path);
        let Err(source) = open_regular(&path, LONGEST) else { return };
        let error = ConfigError::Unreadable { path, source };
        // Reading the file later reports any other error.
        if error.is_permanent() {
            let message = format!("{error}: create the list file, or remove it from this list");
            self.fail(at, value, message);
        }
    }

    fn ban(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Option<BanConfig>) {
        let mut ban = place.take().unwrap_or_default();
        let mut state = ban.state.take();
        let Some(table) = self.table(at, value) else { return };
        keys!(self, table, at;
            "reasons" => ban.reasons, list;
            "proof" => ban.proof, plain;
            "times" => ban.times, plain;
            "within" => ban.within, duration;
            "for" => ban.first, duration;
            "growth" => ban.growth, plain;
            "max" => ban.max, duration;
            "forgive_after" => ban.forgive_after, duration;
            "sources" => ban.sources, plain;
            "dry_run" => ban.dry_run, plain;
            "state" => state, optional;
        );
        ban.state = state;
        *place = Some(ban);
    }

    fn services(&mut self, at: &At, value: &Spanned<DeValue<'_>>) -> Vec<ServiceConfig> {
        let DeValue::Array(list) = value.get_ref() else {
            self.fail(at, value, "write services as [[service]], with double brackets".to_owned());
            return Vec::new();
        };
        let mut services = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let name = match value.get_ref() {
                DeValue::Table(table) => match table.get("name").map(Spanned::get_ref) {
                    Some(DeValue::String(name)) => Some(name.as_ref()),
                    _ => None,
                },
                _ => None,
            };
            services.push(self.service(&at.index(index, name), value));
        }
        services
    }

    fn service(&mut self, at: &At, value: &Spanned<DeValue<'_>>) -> ServiceConfig {
        let mut service = ServiceConfig::default();
        let Some(table) = self.table(at, value) else { return service };
        for (key, value) in table {
            let name: &str = key.get_ref();
            let of_key = at.key(name);
            match name {
                "name" => self.plain(&of_key, value, &mut service.name),
                "listen" => self.list(&of_key, value, &mut service.listen),
                "group" => self.optional(&of_key, value, &mut service.group),
                "users" => self.list(&of_key, value, &mut service.users),
                "override" => self.overrides(&of_key, value, &mut service.overrides),
                _ => match SERVICE_SETTINGS.iter().find(|setting| setting.name == name) {
                    Some(setting) => {
                        if let Some(value) = self.setting(&of_key, value, setting.kind) {
                            (setting.set)(&mut service, value);
                        }
                    }
                    None => self.unknown(at, key, &service_keys()),
                },
            }
        }
        service
    }

    fn setting(
        &mut self,
        at: &At,
        value: &Spanned<DeValue<'_>>,
        kind: SettingKind,
    ) -> Option<SettingValue> {
        Some(match kind {
            SettingKind::Flag => SettingValue::Flag(self.one(at, value)?),
            SettingKind::Number => SettingValue::Number(self.one(at, value)?),
            SettingKind::Rate => SettingValue::Rate(self.rate(at, value, kind)?),
            SettingKind::ByteRate => SettingValue::ByteRate(self.rate(at, value, kind)?),
            SettingKind::Threshold => SettingValue::Threshold(self.rate(at, value, kind)?),
            SettingKind::Duration => SettingValue::Duration(self.time(at, value)?),
            SettingKind::Policy => SettingValue::Policy(self.one(at, value)?),
            SettingKind::Retry => SettingValue::Retry(self.one(at, value)?),
            SettingKind::Versions => SettingValue::Versions(self.one(at, value)?),
            SettingKind::Fragments => SettingValue::Fragments(self.one(at, value)?),
        })
    }

    /// Reads a rate of this kind.
    fn rate(&mut self, at: &At, value: &Spanned<DeValue<'_>>, kind: SettingKind) -> Option<Rate> {
        if matches!(value.get_ref(), DeValue::Integer(_) | DeValue::Float(_)) {
            let number = self.text.get(value.span()).unwrap_or("20");
            let unit = if kind == SettingKind::ByteRate { "MB/s" } else { "/s" };
            let message =
                format!("write a rate with its unit in quotes, such as \"{number}{unit}\"");
            self.fail(at, value, message);
            return None;
        }
        let text = self.one::<String>(at, value)?;
        match kind.parse(&text) {
            Ok(read) => read.rate(),
            Err(message) => {
                self.fail(at, value, message);
                None
            }
        }
    }

    fn rate_of_units(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Rate) {
        if let Some(read) = self.rate(at, value, SettingKind::Rate) {
            *place = read;
        }
    }

    fn optional_rate(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Option<Rate>) {
        *place = self.rate(at, value, SettingKind::Rate);
    }

    fn overrides(&mut self, at: &At, value: &Spanned<DeValue<'_>>, all: &mut Vec<OverrideConfig>) {
        let DeValue::Array(list) = value.get_ref() else {
            let message = "write overrides as [[service.override]], with double brackets";
            return self.fail(at, value, message.to_owned());
        };
        for (index, value) in list.iter().enumerate() {
            let at = at.index(index, None);
            let mut own = OverrideConfig::default();
            let Some(table) = self.table(&at, value) else { continue };
            keys!(self, table, at;
                "prefixes" => own.prefixes, prefixes;
                "max_connections" => own.max_connections, optional;
                "new_per_source" => own.new_per_source, optional_rate;
                "packets_per_source" => own.packets_per_source, optional_rate;
                "bytes_per_source" => own.bytes_per_source, optional;
            );
            all.push(own);
        }
    }

    fn table<'v, 'i>(
        &mut self,
        at: &At,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Option<&'v DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.fail(at, value, format!("{A_TABLE}: write [{}]", at.shown));
                None
            }
        }
    }

    fn one<T: for<'de> Deserialize<'de>>(
        &mut self,
        at: &At,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<T> {
        match T::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(read) => Some(read),
            Err(error) => {
                self.fail(at, value, for_people(error.message()));
                None
            }
        }
    }

    fn plain<T: for<'de> Deserialize<'de>>(
        &mut self,
        at: &At,
        value: &Spanned<DeValue<'_>>,
        place: &mut T,
    ) {
        if let Some(read) = self.one(at, value) {
            *place = read;
        }
    }

    fn optional<T: for<'de> Deserialize<'de>>(
        &mut self,
        at: &At,
        value: &Spanned<DeValue<'_>>,
        place: &mut Option<T>,
    ) {
        *place = self.one(at, value);
    }

    fn duration(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Duration) {
        if let Some(read) = self.time(at, value) {
            *place = read;
        }
    }

    fn time(&mut self, at: &At, value: &Spanned<DeValue<'_>>) -> Option<Duration> {
        let text = self.one::<String>(at, value)?;
        let read = parse_duration(&text);
        read.map_err(|error| self.fail(at, value, error.to_string())).ok()
    }

    fn or_off<T: std::str::FromStr>(
        &mut self,
        at: &At,
        value: &Spanned<DeValue<'_>>,
        place: &mut Option<T>,
    ) {
        match super::types::or_off::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(read) => *place = read,
            Err(error) => self.fail(at, value, for_people(error.message())),
        }
    }

    fn elements<'v, 'i>(
        &mut self,
        at: &At,
        value: &'v Spanned<DeValue<'i>>,
    ) -> impl Iterator<Item = (usize, &'v Spanned<DeValue<'i>>)> {
        let list = match value.get_ref() {
            DeValue::Array(list) => Some(list),
            _ => {
                self.fail(at, value, format!("{A_LIST}: write [...] around the value"));
                None
            }
        };
        list.into_iter().flat_map(|list| list.iter().enumerate())
    }

    fn list<T: for<'de> Deserialize<'de>>(
        &mut self,
        at: &At,
        value: &Spanned<DeValue<'_>>,
        place: &mut Vec<T>,
    ) {
        let before = self.failed.len();
        let elements: Vec<_> = self.elements(at, value).collect();
        let read: Vec<T> = elements
            .into_iter()
            .filter_map(|(index, value)| self.one(&at.index(index, None), value))
            .collect();
        // The list may be empty because none of its elements could be read, which is already
        // reported.
        if self.failed.len() > before {
            self.failed.insert(at.steps.clone());
        }
        *place = read;
    }

    fn prefixes(&mut self, at: &At, value: &Spanned<DeValue<'_>>, place: &mut Vec<ipnet::IpNet>) {
        let elements: Vec<_> = self.elements(at, value).collect();
        for (index, value) in elements {
            let at = at.index(index, None);
            let Some(text) = self.one::<String>(&at, value) else { continue };
            match parse_prefix(&text) {
                Ok(prefix) => place.push(prefix),
                Err(error) => self.fail(&at, value, error.to_string()),
            }
        }
    }

    fn unknown(&mut self, at: &At, key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str]) {
        let name = key.get_ref();
        self.keys.extend(known.iter().map(|key| at.key(key).shown));
        let near: Vec<String> =
            similar(name, known.iter().copied()).into_iter().map(|k| format!("`{k}`")).collect();
        let instead = NOT_IN_FILES.iter().find(|(key, _)| key == name);
        let message = match (instead, near.is_empty(), home_of(name, &at.shown)) {
            (Some((_, instead)), ..) => format!("{UNKNOWN}; {instead}"),
            (None, false, _) => format!("{UNKNOWN}; did you mean {}?", near.join(" or ")),
            (None, true, Some(home)) => format!("{UNKNOWN} here; it belongs to {home}"),
            (None, true, None) => format!("{UNKNOWN}; there are {}", known.join(", ")),
        };
        let shown = at.key(name).shown;
        self.complain(key.span().start, &shown, message);
    }

    fn fail(&mut self, at: &At, value: &Spanned<DeValue<'_>>, message: String) {
        self.failed.insert(at.steps.clone());
        self.complain(value.span().start, &at.shown, message);
    }

    fn complain(&mut self, offset: usize, key: &str, message: String) {
        let (line, column) = self.position(offset);
        self.problems.push(Problem { line, column, key: key.to_owned(), message });
    }

    /// Returns the line and column of a byte offset, both counted from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines[line - 1];
        let before = self.text.get(start..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// Records a problem at the position of its value, or of the innermost table in the text that
    /// contains it.
    fn place(&mut self, document: &DeTable<'_>, complaint: Complaint) {
        let (mut table, mut list) = (Some(document), None);
        let (mut found, mut walked) = (None, Vec::new());
        for step in &complaint.path {
            let next = match step {
                Step::Key(key) => table.and_then(|table| table.get(*key)),
                Step::Index(index) => {
                    list.and_then(|list: &toml::de::DeArray<'_>| list.get(*index))
                }
            };
            walked.push(match step {
                Step::Key(key) => (*key).to_owned(),
                Step::Index(index) => index.to_string(),
            });
            if self.failed.contains(&walked) {
                return;
            }
            let Some(next) = next else { break };
            found = Some(next.span().start);
            (table, list) = match next.get_ref() {
                DeValue::Table(inner) => (Some(inner), None),
                DeValue::Array(inner) => (None, Some(inner)),
                _ => (None, None),
            };
        }
        let (line, column) = found.map_or((0, 0), |offset| self.position(offset));
        let Complaint { key, message, .. } = complaint;
        self.problems.push(Problem { line, column, key, message });
    }
}

/// Keys that a reader may know from the options of `equic serve`, and what to use instead.
const NOT_IN_FILES: [(&str, &str); 2] = [
    ("retry_threshold", "use `equic serve --retry N`, or `retry` in a [[service]]"),
    ("user_quota", "use `max_connections` in a [[service]]"),
];

/// Returns the keys of the table `[[service]]`.
fn service_keys() -> Vec<&'static str> {
    let settings = SERVICE_SETTINGS.iter().map(|setting| setting.name);
    ["name", "listen"].into_iter().chain(settings).chain(["group", "users", "override"]).collect()
}

/// Returns the table to which the key `key` belongs. Returns `None` if that is the table `here`, in
/// which it was found, or if no table has such a key.
fn home_of(key: &str, here: &str) -> Option<&'static str> {
    let has = |value: Result<toml::Table, toml::ser::Error>| {
        value.is_ok_and(|table| table.contains_key(key))
    };
    let homes = [
        ("[gateway]", has(toml::Table::try_from(GatewayConfig::default()))),
        ("a [[service]]", has(toml::Table::try_from(ServiceConfig::default()))),
        ("[ban]", has(toml::Table::try_from(BanConfig::default()))),
        ("the top, before the first [table]", TOP.contains(&key) && !here.is_empty()),
    ];
    homes.into_iter().find(|(_, has)| *has).map(|(home, _)| home)
}

/// Replaces names of Rust types in a message with terms of the configuration.
fn for_people(message: &str) -> String {
    message
        .replace("expected u32", "expected a whole number from 0 to 4294967295")
        .replace("expected u8", "expected a whole number from 0 to 255")
        .replace("expected f64", "expected a number")
        .replace("a boolean", "true or false")
        .replace("path string", "a path")
}
