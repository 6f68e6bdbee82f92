//! Parses a [`Scenario`]. Reports all mistakes at once.
//!
//! * `grid.rs`: many scenarios in one text;
//! * `table.rs`: tables and values, with their lines;
//! * `traces.rs`: files that a text refers to;
//! * `network.rs`, `link.rs`, `flows.rs`, `applications.rs`: the tables of a description.

mod applications;
mod flows;
mod grid;
mod link;
mod network;
mod table;
mod traces;

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::build::Place;
use crate::keys::{FLOW, TOP, TRAFFIC};
use crate::model::{Flow, Scenario, Traffic, TrafficKind};
use crate::problem::ScenarioError;
pub(crate) use flows::MAX_FLOWS;
pub use grid::{Axis, Grid};
pub(crate) use network::MAX_PAIRS;
use table::{Reader, Table, duration, numbers, text, whole};
pub use traces::TraceTexts;
use traces::Traces;

/// Default of the key `limit`.
const LIMIT: Duration = Duration::from_secs(10_000);

/// Largest number of runs of one scenario.
pub(crate) const MAX_SEEDS: u64 = 1_000_000;

impl Scenario {
    /// Parses a scenario description, and checks that it can be simulated: the network is valid,
    /// and all flows have routes. Paths of traces are relative to the current directory.
    ///
    /// # Errors
    /// Returns all mistakes, with their lines.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::parse_in(text, Path::new(""))
    }

    /// Like [`Scenario::parse`], with paths of traces relative to `folder`.
    ///
    /// # Errors
    /// The errors of [`Scenario::parse`].
    pub fn parse_in(text: &str, folder: &Path) -> Result<Scenario, ScenarioError> {
        let (document, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader::new(text, &Rc::new(RefCell::new(Traces::beside(folder))));
        for error in &errors {
            let offset = error.span().map_or(0, |span| span.start);
            reader.complain(offset, "", error.message());
        }
        if let Some(grid) = document.get_ref().get("grid") {
            reader.complain(
                grid.span().start,
                "grid",
                "this file describes a grid of scenarios: run it with `equic-lab sim sweep`",
            );
        }
        if !reader.is_clean() {
            return Err(ScenarioError::new(reader.into_problems()));
        }
        read(reader, document.get_ref())
    }

    /// Like [`Scenario::parse`], but reads a file. Paths of traces are relative to its directory.
    ///
    /// # Errors
    /// The errors of [`Scenario::parse`]. Also fails if the file cannot be read.
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Scenario::parse_in(&text, folder).map_err(|error| error.in_file(path))
    }
}

fn read(mut reader: Reader, document: &DeTable<'_>) -> Result<Scenario, ScenarioError> {
    let top = reader.table("", 0, document, &TOP);
    let network = network::network(&mut reader, &top);
    let flows = flows::flows(&mut reader, &top);
    let traffic = flows::traffic(&mut reader, &top);
    let limit = top.read(&mut reader, "limit", duration);
    if limit.is_some_and(|limit| limit.is_zero()) {
        top.complain(&mut reader, "limit", "a limit must be above 0 s");
    }
    // This check is made only if there are no other mistakes. Otherwise a size with an invalid
    // value would also be reported as missing.
    let endless = |flow: &Flow| flow.size.is_none() && flow.application.is_none();
    if reader.is_clean() && limit.is_none() && flows.iter().any(|(_, flow)| endless(flow)) {
        let message = "this key is missing, and a flow has no `size`, so the run would never end: set one of the two";
        top.complain(&mut reader, "limit", message);
    }
    let interval = top.read(&mut reader, "interval", duration);
    let interval = interval.unwrap_or(Duration::from_millis(100));
    if interval < Duration::from_micros(1) {
        top.complain(&mut reader, "interval", "an interval must be at least 1 us");
    }
    let description = top.read(&mut reader, "description", |value| Ok(text(value)?.into_owned()));
    let seeds = seeds(&mut reader, &top);
    let limit = limit.unwrap_or(LIMIT);
    if reader.is_clean() {
        late_flows(&mut reader, &top, limit, &flows);
        late_traffic(&mut reader, &top, limit, &traffic);
    }
    let Some(network) = network.filter(|_| reader.is_clean()) else {
        return Err(ScenarioError::new(reader.into_problems()));
    };
    let scenario = Scenario {
        description: description.unwrap_or_default(),
        seeds,
        limit,
        network,
        flows: flows.iter().map(|(_, flow)| flow.clone()).collect(),
        traffic: traffic.iter().map(|(_, traffic)| traffic.clone()).collect(),
        interval,
    };
    match Place::find(&scenario) {
        Ok(_) => Ok(scenario),
        Err(error) => {
            use crate::build::Whose;
            let (offset, key) = match error.whose {
                Whose::Network => {
                    (top.get("network").map_or(0, |value| value.span().start), "network")
                }
                Whose::Flow(index) => (flows[index].0, "flow"),
                Whose::Traffic(index) => (traffic[index].0, "traffic"),
            };
            reader.complain(offset, key, error.message);
            Err(ScenarioError::new(reader.into_problems()))
        }
    }
}

/// Records a mistake for each flow that has a connection starting after the end of the run.
fn late_flows(reader: &mut Reader, top: &Table<'_, '_>, limit: Duration, flows: &[(usize, Flow)]) {
    for (table, (_, flow)) in top.inners(reader, "flow", &FLOW).iter().zip(flows) {
        let others = u32::try_from(flow.count - 1).unwrap_or(u32::MAX);
        let last = flow.start.saturating_add(flow.stagger.saturating_mul(others));
        if last < limit {
            continue;
        }
        let key = if flow.start < limit { "stagger" } else { "start" };
        let which = if others > 0 { "the last connection of this flow" } else { "this flow" };
        let message = format!(
            "{which} would begin at {} s, but the run ends at {} s: increase `limit`, or choose an earlier start",
            last.as_secs_f64(),
            limit.as_secs_f64()
        );
        table.complain(reader, key, message);
    }
}

/// Records a mistake for background traffic that starts after the end of the run.
fn late_traffic(
    reader: &mut Reader,
    top: &Table<'_, '_>,
    limit: Duration,
    traffic: &[(usize, Traffic)],
) {
    for (table, (_, one)) in top.inners(reader, "traffic", &TRAFFIC).iter().zip(traffic) {
        let start = match &one.kind {
            TrafficKind::OnOff(config) => config.start,
            TrafficKind::ShortFlows(config) => config.start,
        };
        if start.elapsed() >= limit {
            let message = format!(
                "this traffic would begin at {} s, but the run ends at {} s: increase `limit`, or choose an earlier start",
                start.as_secs_f64(),
                limit.as_secs_f64()
            );
            table.complain(reader, "start", message);
        }
    }
}

fn seeds(reader: &mut Reader, top: &Table<'_, '_>) -> Vec<u64> {
    let read = top.read(reader, "seeds", |value| match value {
        DeValue::Array(_) => numbers(value),
        _ => whole(value).map(|count| (1..=count.min(MAX_SEEDS + 1)).collect()),
    });
    let seeds: Vec<u64> = read.unwrap_or_else(|| (1..=10).collect());
    let mut seen = HashSet::new();
    if let Some(twice) = seeds.iter().find(|seed| !seen.insert(**seed)) {
        top.complain(
            reader,
            "seeds",
            format!("the seed {twice} is listed twice: remove one of the entries"),
        );
    }
    if seeds.is_empty() || seeds.len() as u64 > MAX_SEEDS {
        top.complain(reader, "seeds", format!("a scenario must have 1 to {MAX_SEEDS} seeds"));
    }
    seeds
}
