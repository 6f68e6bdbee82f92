//! Grids: scenario descriptions that list several values for some keys. Each combination of values
//! is a separate scenario.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::{Reader, Value, text};
use super::traces::{TraceTexts, Traces};
use crate::model::Scenario;
use crate::problem::{Problem, ScenarioError};

/// Largest number of cells of a grid. A cell is one combination of the grid's values.
const MAX_CELLS: usize = 1_000_000;

/// A scenario with a table `[grid]`, which lists several values for some keys. Each combination of
/// these values is called a cell, and is a complete scenario.
#[derive(Clone, Debug)]
pub struct Grid {
    text: String,
    traces: TraceTexts,
    axes: Vec<Axis>,
    scenarios: Vec<Scenario>,
}

/// An axis of a grid: a key that varies, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The key that varies, such as `network.link.rate`, or a name for several keys that vary
    /// together.
    pub name: String,
    /// The values as written, or the names given to them.
    pub values: Vec<String>,
}

impl Grid {
    /// Reads a grid, and checks each of its cells, which are the combinations of its values. Paths
    /// of traces are relative to the current directory.
    ///
    /// # Errors
    /// Returns all mistakes with their lines. If a mistake occurs only in some cells, its message
    /// names the first of these cells.
    pub fn parse(text: &str) -> Result<Grid, ScenarioError> {
        Grid::read_all(text, Traces::beside(Path::new("")))
    }

    /// Like [`Grid::parse`], but takes the texts of all traces from `traces`.
    ///
    /// # Errors
    /// The errors of [`Grid::parse`]. Also fails if a trace is missing.
    pub fn parse_with(text: &str, traces: TraceTexts) -> Result<Grid, ScenarioError> {
        Grid::read_all(text, Traces::kept(traces))
    }

    fn read_all(text: &str, traces: Traces) -> Result<Grid, ScenarioError> {
        let traces = Rc::new(RefCell::new(traces));
        let (document, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader::new(text, &traces);
        for error in &errors {
            let offset = error.span().map_or(0, |span| span.start);
            reader.complain(offset, "", error.message());
        }
        let axes = axes(&mut reader, document.get_ref());
        if !reader.is_clean() {
            return Err(ScenarioError::new(reader.into_problems()));
        }
        drop(reader);
        let kept = TraceTexts::new();
        let mut grid = Grid { text: text.to_owned(), traces: kept, axes, scenarios: Vec::new() };
        let mut found: BTreeMap<Problem, String> = BTreeMap::new();
        let mut document = document.into_inner();
        let values = document.remove("grid");
        for cell in 0..grid.cells() {
            let reader = Reader::new(text, &traces);
            match grid.read(reader, &document, values.as_ref(), cell) {
                Ok(scenario) => grid.scenarios.push(scenario),
                Err(ScenarioError::Problems { problems, .. }) => {
                    for problem in problems {
                        found.entry(problem).or_insert_with(|| grid.labels(cell).join(", "));
                    }
                }
                Err(other) => return Err(other),
            }
        }
        if found.is_empty() {
            // Cannot fail: all readers are dropped, so this is the only reference.
            grid.traces =
                Rc::into_inner(traces).map(|it| it.into_inner().into_texts()).unwrap_or_default();
            return Ok(grid);
        }
        let problems = found.into_iter().map(|(problem, cell)| Problem {
            message: format!("{} (cell: {cell})", problem.message),
            ..problem
        });
        Err(ScenarioError::new(problems.collect()))
    }

    /// Like [`Grid::parse`], but reads a file. Paths of traces are relative to its directory.
    ///
    /// # Errors
    /// The errors of [`Grid::parse`]. Also fails if the file cannot be read.
    pub fn load(path: &Path) -> Result<Grid, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: path.to_owned(), source })?;
        let traces = Traces::beside(path.parent().unwrap_or(Path::new("")));
        Grid::read_all(&text, traces).map_err(|error| error.in_file(path))
    }

    /// Returns the TOML text of the grid.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the texts of the traces in the grid, by the names that the grid uses.
    pub fn traces(&self) -> &TraceTexts {
        &self.traces
    }

    /// Returns the axes of the grid: the keys that vary, in the order of the text. The last one
    /// varies fastest.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns the number of cells, which are the combinations of the grid's values.
    pub fn cells(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Returns the names of the values that a cell has, one for each axis.
    pub fn labels(&self, cell: usize) -> Vec<&str> {
        let chosen = self.chosen(cell);
        self.axes.iter().zip(chosen).map(|(axis, index)| axis.values[index].as_str()).collect()
    }

    /// Returns the scenarios of all cells, in order.
    pub fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// For each of these cells, returns the keys in its text, with their values as text. A key is,
    /// for example, `network.link.rate` or `flow.1.size`. The keys of the axes are included. A key
    /// that is not in the text has its default value, and is absent.
    pub fn written(&self, cells: impl IntoIterator<Item = usize>) -> Vec<BTreeMap<String, String>> {
        let mut document = DeTable::parse_recoverable(&self.text).0.into_inner();
        let values = document.remove("grid");
        let traces = Rc::new(RefCell::new(Traces::kept(self.traces.clone())));
        let keys = |cell| {
            let mut reader = Reader::new(&self.text, &traces);
            let mut keys = BTreeMap::new();
            let cell = self.insert(&mut reader, &document, values.as_ref(), cell);
            for (key, value) in &cell {
                flatten(key.get_ref(), value.get_ref(), &mut keys);
            }
            keys
        };
        cells.into_iter().map(keys).collect()
    }

    /// Reads the scenario of a cell.
    fn read<'i>(
        &self,
        mut reader: Reader,
        document: &DeTable<'i>,
        values: Option<&Value<'i>>,
        cell: usize,
    ) -> Result<Scenario, ScenarioError> {
        let document = self.insert(&mut reader, document, values, cell);
        super::read(reader, &document)
    }

    /// Returns the document of a cell: the text without `[grid]`, and with the cell's values
    /// inserted.
    fn insert<'i>(
        &self,
        reader: &mut Reader,
        document: &DeTable<'i>,
        values: Option<&Value<'i>>,
        cell: usize,
    ) -> DeTable<'i> {
        let mut document = document.clone();
        if let Some(DeValue::Table(grid)) = values.map(Spanned::get_ref) {
            for (axis, index) in self.axes.iter().zip(self.chosen(cell)) {
                let Some(DeValue::Array(values)) =
                    grid.get(axis.name.as_str()).map(Spanned::get_ref)
                else {
                    continue;
                };
                let Some(value) = values.get(index) else { continue };
                match value.get_ref() {
                    DeValue::Table(several) => {
                        let keys = several.iter().filter(|(key, _)| key.get_ref() != "name");
                        for (key, value) in keys {
                            put(reader, &mut document, key.get_ref(), value);
                        }
                    }
                    _ => put(reader, &mut document, &axis.name, value),
                }
            }
        }
        document
    }

    /// Returns the indices of the values that a cell has, one for each axis.
    fn chosen(&self, cell: usize) -> Vec<usize> {
        let mut rest = cell;
        let mut chosen: Vec<usize> = (self.axes.iter().rev())
            .map(|axis| {
                let index = rest % axis.values.len();
                rest /= axis.values.len();
                index
            })
            .collect();
        chosen.reverse();
        chosen
    }
}

fn axes(reader: &mut Reader, document: &DeTable<'_>) -> Vec<Axis> {
    let Some(grid) = document.get("grid") else {
        reader.complain(0, "grid", "this table is missing: write [grid] with the keys that vary");
        return Vec::new();
    };
    let DeValue::Table(table) = grid.get_ref() else {
        reader.complain(grid.span().start, "grid", "the key `grid` must be a table");
        return Vec::new();
    };
    let mut entries: Vec<_> = table.iter().collect();
    // The parser sorts keys by name, so this restores the order of the text.
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut axes = Vec::new();
    for (key, values) in entries {
        let (name, shown) = (key.get_ref().to_string(), format!("grid.{}", key.get_ref()));
        let list = match values.get_ref() {
            DeValue::Array(list) if !list.is_empty() => list,
            _ => {
                reader.complain(
                    values.span().start,
                    &shown,
                    "a key of the grid must have a list of values",
                );
                continue;
            }
        };
        let mut labels: Vec<String> = Vec::new();
        for value in list.iter() {
            match label(value) {
                Ok(label) if labels.contains(&label) => {
                    reader.complain(
                        value.span().start,
                        &shown,
                        format!("the value {label} is listed twice"),
                    );
                }
                Ok(label) => labels.push(label),
                Err(message) => reader.complain(value.span().start, &shown, message),
            }
        }
        axes.push(Axis { name, values: labels });
    }
    let cells =
        axes.iter().try_fold(1usize, |product, axis| product.checked_mul(axis.values.len()));
    if cells.is_none_or(|cells| cells > MAX_CELLS) {
        reader.complain(
            grid.span().start,
            "grid",
            format!("the grid has more than {MAX_CELLS} cells: remove some values"),
        );
    }
    axes
}

/// Returns the name of an axis's value.
fn label(value: &Value<'_>) -> Result<String, String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Table(table) => {
            let name = table.get("name").ok_or("values with several keys, which vary together, need a `name`")?;
            Ok(text(name.get_ref())?.into_owned())
        }
        _ => {
            Err("a value of the grid must be a text, a number, true or false, or a table of keys with a `name`"
                .to_owned())
        }
    }
}

/// Inserts a value at a key, such as `network.link.rate`. If the path leads through a list of
/// tables, the value is inserted into each of them. With a number in the path, as in
/// `flow.2.controller`, it is inserted only into the table with that number, counted from 1.
fn put<'i>(reader: &mut Reader, table: &mut DeTable<'i>, path: &str, value: &Value<'i>) {
    let Some((first, rest)) = path.split_once('.') else {
        let key = Spanned::new(value.span(), path.to_owned().into());
        table.insert(key, value.clone());
        return;
    };
    match table.get_mut(first).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(reader, inner, rest, value),
        Some(DeValue::Array(list)) => {
            let numbered = rest
                .split_once('.')
                .and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest)));
            let (only, rest) = numbered.map_or((None, rest), |(only, rest)| (Some(only), rest));
            if only.is_some_and(|only| only == 0 || only > list.len()) {
                let message = format!("{first} has entries from 1 to {}", list.len());
                return reader.complain(value.span().start, path, message);
            }
            let all = list.iter().enumerate().map(|(index, one)| {
                let mut one = one.clone();
                if let DeValue::Table(inner) = one.get_mut()
                    && only.is_none_or(|only| only == index + 1)
                {
                    put(reader, inner, rest, value);
                }
                one
            });
            *list = all.collect();
        }
        Some(_) => reader.complain(
            value.span().start,
            path,
            format!("the key {first} of the scenario is not a table"),
        ),
        None => {
            let mut inner = DeTable::new();
            put(reader, &mut inner, rest, value);
            let key = Spanned::new(value.span(), first.to_owned().into());
            table.insert(key, Spanned::new(value.span(), DeValue::Table(inner)));
        }
    }
}

/// Adds all keys below `path`, with their values as text. The entries of a list of tables are
/// numbered from 1.
fn flatten(path: &str, value: &DeValue<'_>, keys: &mut BTreeMap<String, String>) {
    match value {
        DeValue::Table(table) => {
            for (key, value) in table {
                flatten(&format!("{path}.{}", key.get_ref()), value.get_ref(), keys);
            }
        }
        DeValue::Array(list) if list.iter().any(|one| one.get_ref().is_table()) => {
            for (index, value) in list.iter().enumerate() {
                flatten(&format!("{path}.{}", index + 1), value.get_ref(), keys);
            }
        }
        other => {
            keys.insert(path.to_owned(), plain(other));
        }
    }
}

/// Returns a value as text.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(list) => {
            let all: Vec<String> = list.iter().map(|one| plain(one.get_ref())).collect();
            all.join(", ")
        }
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Table(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = r#"seeds = 2
        [network]
        topology = "simple"
        link = { rate = "1 Mb/s", delay = "10 ms" }
        [[flow]]
        size = "10 KB"
        [grid]
        "network.link.rate" = ["1 Mb/s", "2 Mb/s"]
        arm = [
            { name = "quic", "flow.protocol" = "quic" },
            { name = "tcp old", "flow.protocol" = "tcp", "flow.tcp.mss" = 536 },
        ]
        "network.link.mtu" = [1300, 1500, 9000]
    "#;

    #[test]
    fn grid_has_a_cell_for_every_combination() {
        let grid = Grid::parse(GRID).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = grid.axes().iter().map(|axis| axis.name.as_str()).collect();
        assert_eq!(names, ["network.link.rate", "arm", "network.link.mtu"]);
        assert_eq!(grid.cells(), 12);
        assert_eq!(grid.labels(0), ["1 Mb/s", "quic", "1300"]);
        assert_eq!(grid.labels(4), ["1 Mb/s", "tcp old", "1500"]);
        assert_eq!(grid.labels(11), ["2 Mb/s", "tcp old", "9000"]);
        assert_eq!(grid.scenarios().len(), 12);
        let cell = &grid.scenarios()[11];
        assert_eq!((cell.flows[0].name.as_str(), cell.flows[0].tcp.mss), ("tcp cubic", Some(536)));
        let crate::Topology::Simple(link) = &cell.network.topology else { panic!() };
        assert_eq!((link.there.mtu(), link.there.rate.mean()), (9_000, 2e6));
        let other = &grid.scenarios()[0];
        assert_eq!((other.flows[0].name.as_str(), other.flows[0].tcp.mss), ("quic cubic", None));
    }

    #[test]
    fn grid_cell_has_the_keys_that_its_text_sets() {
        let grid = Grid::parse(GRID).unwrap_or_else(|error| panic!("{error}"));
        let written = grid.written([0, 11]);
        let key = |cell: usize, key: &str| written[cell].get(key).map(String::as_str);
        assert_eq!(
            (key(0, "network.link.rate"), key(1, "network.link.rate")),
            (Some("1 Mb/s"), Some("2 Mb/s"))
        );
        assert_eq!((key(0, "flow.1.tcp.mss"), key(1, "flow.1.tcp.mss")), (None, Some("536")));
        assert_eq!(
            (key(0, "flow.1.size"), key(0, "network.link.mtu")),
            (Some("10 KB"), Some("1300"))
        );
        assert_eq!((key(0, "limit"), key(0, "grid")), (None, None));
        assert_eq!(written[0].len(), 7, "{written:?}");
    }

    #[test]
    fn grid_key_selects_a_flow_by_its_number() {
        let two = GRID.replace(
            "[grid]",
            "[[flow]]\nname = \"second\"\nsize = \"10 KB\"\n[grid]\n\"flow.2.controller\" = [\"bbr\"]",
        );
        let two = two.replace("\"flow.protocol\"", "\"flow.1.protocol\"");
        let two = two.replace("\"flow.tcp.mss\"", "\"flow.1.tcp.mss\"");
        let grid = Grid::parse(&two).unwrap_or_else(|error| panic!("{error}"));
        let cell = &grid.scenarios()[11];
        let names: Vec<&str> = cell.flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["tcp cubic", "second"]);
        assert_eq!(cell.flows[1].controller, crate::Controller::Bbr);
        assert_eq!(cell.flows[1].protocol, crate::Protocol::Quic);
        let beyond = two.replace("flow.2.controller", "flow.3.controller");
        let beyond = Grid::parse(&beyond).unwrap_err().to_string();
        assert!(beyond.contains("entries from 1 to 2"), "{beyond}");
    }

    #[test]
    fn grid_errors_name_line_and_cell() {
        let told = |text: &str| Grid::parse(text).unwrap_err().to_string();
        let small = told(&GRID.replace("1300, ", "1000, "));
        assert!(
            small.contains("needs an MTU of 1228 bytes")
                && small.contains("(cell: 1 Mb/s, quic, 1000)"),
            "{small}"
        );
        let unknown = told(&GRID.replace("network.link.mtu", "network.link.mtv"));
        assert!(
            unknown.starts_with("line 13: network.link.mtv") && unknown.contains("`mtu`"),
            "{unknown}"
        );
        let wrong = told(&GRID.replace("\"2 Mb/s\"", "\"0 Mb/s\""));
        assert!(
            wrong.starts_with("line 8: network.link.rate") && wrong.contains("cell: 0 Mb/s"),
            "{wrong}"
        );
        let twice = told(&GRID.replace("1300, ", "1500, "));
        assert!(twice.contains("the value 1500 is listed twice"), "{twice}");
        let unnamed = told(&GRID.replace("name = \"quic\", ", ""));
        assert!(unnamed.starts_with("line 10") && unnamed.contains("`name`"), "{unnamed}");
        assert!(told("seeds = 1").contains("[grid]"));
        let scenario = Scenario::parse(GRID).unwrap_err().to_string();
        assert!(scenario.contains("equic-lab sim sweep"), "{scenario}");
    }
}
