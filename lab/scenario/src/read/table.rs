//! Reads the tables and values of a scenario description. A value can be read only by a key that
//! `keys.rs` lists. Mistakes are collected with their lines.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use equic_sim::Trace;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::traces::Traces;
use crate::keys::{Section, Values};
use crate::problem::{Problem, instead};
use crate::quantity;

/// A value with its position in the text.
pub(crate) type Value<'i> = Spanned<DeValue<'i>>;

/// Collects the mistakes in a text.
pub(crate) struct Reader {
    /// Offsets in the text at which its lines begin.
    lines: Vec<usize>,
    problems: Vec<Problem>,
    /// Traces that the text refers to. All cells of a grid share them.
    traces: Rc<RefCell<Traces>>,
}

impl Reader {
    pub(crate) fn new(text: &str, traces: &Rc<RefCell<Traces>>) -> Reader {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Reader { lines, problems: Vec::new(), traces: Rc::clone(traces) }
    }

    /// Returns the trace of this name, or a message that says what is wrong with it.
    pub(crate) fn trace(&self, name: &str) -> Result<Arc<Trace>, String> {
        self.traces.borrow_mut().find(name)
    }

    /// Returns the content of the plugin of this name, or a message that says what is wrong with
    /// it.
    pub(crate) fn bundle(&self, name: &str) -> Result<Arc<[u8]>, String> {
        self.traces.borrow_mut().bundle(name)
    }

    /// Records a mistake about a key. Its line is the one that contains this offset of the text.
    pub(crate) fn complain(&mut self, offset: usize, key: &str, message: impl Into<String>) {
        let line = self.lines.partition_point(|begin| *begin <= offset);
        self.problems.push(Problem { line, key: key.to_owned(), message: message.into() });
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Opens a table of this kind, and records a mistake for each unknown key.
    pub(crate) fn table<'v, 'i>(
        &mut self,
        shown: &str,
        offset: usize,
        table: &'v DeTable<'i>,
        section: &'static Section,
    ) -> Table<'v, 'i> {
        let known: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let message = format!("there is no such key; {}", instead(name, &known));
                self.complain(key.span().start, &join(shown, name), message);
            }
        }
        Table { shown: shown.to_owned(), offset, table, section }
    }
}

fn join(shown: &str, name: &str) -> String {
    if shown.is_empty() { name.to_owned() } else { format!("{shown}.{name}") }
}

/// A TOML table of the scenario description.
pub(crate) struct Table<'v, 'i> {
    /// Name of the table in messages.
    pub(crate) shown: String,
    /// Offset of the table in the text.
    pub(crate) offset: usize,
    table: &'v DeTable<'i>,
    section: &'static Section,
}

impl<'v, 'i> Table<'v, 'i> {
    /// Returns the value of a key, or `None` if the key is missing.
    pub(crate) fn get(&self, key: &'static str) -> Option<&'v Value<'i>> {
        debug_assert!(
            self.section.keys.iter().any(|known| known.name == key),
            "{key} is not among the keys of {}",
            self.section.name
        );
        self.table.get(key)
    }

    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn key(&self, key: &str) -> String {
        join(&self.shown, key)
    }

    /// Records a mistake about a key of this table, with the line of the key. If the key is
    /// missing, it has the line of the table.
    pub(crate) fn complain(
        &self,
        reader: &mut Reader,
        key: &'static str,
        message: impl Into<String>,
    ) {
        let offset = self.get(key).map_or(self.offset, |value| value.span().start);
        reader.complain(offset, &self.key(key), message);
    }

    /// Reads a value. Returns `None` if the key is missing. If the value is invalid, records a
    /// mistake and returns `None`.
    pub(crate) fn read<T>(
        &self,
        reader: &mut Reader,
        key: &'static str,
        how: impl FnOnce(&'v DeValue<'i>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.get(key)?;
        match how(value.get_ref()) {
            Ok(read) => Some(read),
            Err(message) => {
                self.complain(reader, key, message);
                None
            }
        }
    }

    /// Reads a mandatory value. If it is missing or invalid, records a mistake and returns `None`.
    pub(crate) fn need<T>(
        &self,
        reader: &mut Reader,
        key: &'static str,
        how: impl FnOnce(&'v DeValue<'i>) -> Result<T, String>,
    ) -> Option<T> {
        if !self.has(key) {
            self.complain(reader, key, "this key is missing");
        }
        self.read(reader, key, how)
    }

    /// Opens a table inside this table.
    pub(crate) fn inner(
        &self,
        reader: &mut Reader,
        key: &'static str,
        section: &'static Section,
    ) -> Option<Table<'v, 'i>> {
        let offset = self.get(key)?.span().start;
        let table = self.read(reader, key, table)?;
        Some(reader.table(&self.key(key), offset, table, section))
    }

    /// Opens the tables of a list inside this table.
    pub(crate) fn inners(
        &self,
        reader: &mut Reader,
        key: &'static str,
        section: &'static Section,
    ) -> Vec<Table<'v, 'i>> {
        let Some(list) = self.read(reader, key, list) else { return Vec::new() };
        let mut tables = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let shown = format!("{}[{}]", self.key(key), index + 1);
            let offset = value.span().start;
            match table(value.get_ref()) {
                Ok(table) => tables.push(reader.table(&shown, offset, table, section)),
                Err(message) => reader.complain(offset, &shown, message),
            }
        }
        tables
    }

    /// Returns the values that a key accepts, according to the list of keys.
    fn values(&self, key: &'static str) -> Option<Values> {
        self.section.keys.iter().find(|known| known.name == key).map(|known| known.values)
    }

    /// Reads a whole number. The list of keys defines its range. Returns `None` if the key is
    /// missing. If it has another value, records a mistake and returns `None`.
    pub(crate) fn whole(&self, reader: &mut Reader, key: &'static str) -> Option<u64> {
        let Some(Values::Whole(_, least, most)) = self.values(key) else {
            debug_assert!(false, "{key} of {} is not a whole number", self.section.name);
            return None;
        };
        self.read(reader, key, within(least, most))
    }

    /// Reads one of these names. They must be the names in the list of keys. Returns `None` if the
    /// key is missing. If it has another value, records a mistake and returns `None`.
    pub(crate) fn choice<T: Copy>(
        &self,
        reader: &mut Reader,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        debug_assert!(
            matches!(self.values(key), Some(Values::Choice(listed))
                if listed.iter().copied().eq(choices.iter().map(|(name, _)| *name))),
            "{key} of {}: the list of keys has other names",
            self.section.name
        );
        self.read(reader, key, |value| {
            let wanted = text(value)?;
            let found = choices.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, choice)| *choice).ok_or_else(|| {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                format!("there is no `{wanted}`; {}", instead(&wanted, &names))
            })
        })
    }
}

fn table<'v, 'i>(value: &'v DeValue<'i>) -> Result<&'v DeTable<'i>, String> {
    match value {
        DeValue::Table(table) => Ok(table),
        _ => Err("the value must be a table: write { ... }, or a section [...]".to_owned()),
    }
}

fn list<'v, 'i>(value: &'v DeValue<'i>) -> Result<&'v DeArray<'i>, String> {
    match value {
        DeValue::Array(list) => Ok(list),
        _ => Err("the value must be a list: write [...] around the value, or [[...]] for tables"
            .to_owned()),
    }
}

pub(crate) fn text<'v>(value: &'v DeValue<'_>) -> Result<Cow<'v, str>, String> {
    match value {
        DeValue::String(text) => Ok(Cow::Borrowed(text)),
        _ => Err("the value must be a text: write \"...\" around it".to_owned()),
    }
}

pub(crate) fn name(value: &DeValue<'_>) -> Result<String, String> {
    let text = text(value)?;
    let plain = |character: char| !character.is_control() && character != '"';
    if text.is_empty() || text.len() > 100 || !text.chars().all(plain) {
        return Err(
            "a name must have 1 to 100 bytes, without control characters and quotes".to_owned()
        );
    }
    Ok(text.into_owned())
}

pub(crate) fn names(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    list(value)?.iter().map(|value| name(value.get_ref())).collect()
}

pub(crate) fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    match value {
        DeValue::Boolean(value) => Ok(*value),
        _ => Err("the value must be true or false".to_owned()),
    }
}

pub(crate) fn whole(value: &DeValue<'_>) -> Result<u64, String> {
    match value {
        DeValue::Integer(value) => u64::from_str_radix(value.as_str(), value.radix())
            .map_err(|_| format!("`{value}` is not a number from 0 to {}", u64::MAX)),
        _ => Err("the value must be a whole number".to_owned()),
    }
}

/// Returns a function that accepts whole numbers from `least` to `most`.
fn within(least: u64, most: u64) -> impl Fn(&DeValue<'_>) -> Result<u64, String> {
    move |value| {
        let read = whole(value)?;
        let fits = (least..=most).contains(&read);
        fits.then_some(read).ok_or_else(|| format!("{read} is not from {least} to {most}"))
    }
}

pub(crate) fn number(value: &DeValue<'_>) -> Result<f64, String> {
    let read: Option<f64> = match value {
        DeValue::Integer(value) if value.radix() == 10 => value.as_str().parse().ok(),
        DeValue::Float(value) => value.as_str().parse().ok(),
        _ => None,
    };
    read.filter(|value| value.is_finite()).ok_or_else(|| "the value must be a number".to_owned())
}

pub(crate) fn probability(value: &DeValue<'_>) -> Result<f64, String> {
    let read = number(value)?;
    let possible = (0.0..=1.0).contains(&read);
    possible.then_some(read).ok_or_else(|| format!("{read} is not a probability from 0 to 1"))
}

pub(crate) fn rate(value: &DeValue<'_>) -> Result<u64, String> {
    let unit = "a rate needs a unit: write, for example, \"10 Mb/s\"";
    quantity::rate(&text(value).map_err(|_| unit.to_owned())?)
}

pub(crate) fn bytes(value: &DeValue<'_>) -> Result<u64, String> {
    let unit = "a size needs a unit: write, for example, \"10 MB\"";
    quantity::bytes(&text(value).map_err(|_| unit.to_owned())?)
}

pub(crate) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    let unit = "a time needs a unit: write, for example, \"50 ms\"";
    quantity::duration(&text(value).map_err(|_| unit.to_owned())?)
}

pub(crate) fn percent(value: &DeValue<'_>) -> Result<f64, String> {
    let unit = "a percentage needs the percent sign: write, for example, \"0.1 %\"";
    quantity::percent(&text(value).map_err(|_| unit.to_owned())?)
}

pub(crate) fn numbers(value: &DeValue<'_>) -> Result<Vec<u64>, String> {
    list(value)?.iter().map(|value| whole(value.get_ref())).collect()
}
