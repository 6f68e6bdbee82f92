//! `result.json` as the QUIC Interop Runner writes it, for its web page
//! (<https://github.com/quic-interop/quic-interop-runner>: `_export_results` in interop.py, web/script.js).
//!
//! Fields that the page reads: `start_time`, `end_time`, `log_dir`, `quic_version`, `clients`, `servers`, `urls`,
//! `tests` (by abbreviation), and `results` and `measurements`, lists of a list for each pair, client by
//! client and in it server by server. It does not look at other fields: ours is `equic`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::show;
use super::summary::{Row, Summary};

/// The version of QUIC that the Interop Runner names.
const QUIC_VERSION: &str = "0x1";

/// The file. Generic in the extension, so that what the Interop Runner wrote can be read too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunnerFile<E> {
    /// Seconds since 1970-01-01 UTC.
    pub start_time: f64,
    /// Seconds since 1970-01-01 UTC.
    pub end_time: f64,
    /// Folder of this file and the logs, below `logs/quic/` of the web server: `log_dir/server_client/test`.
    pub log_dir: String,
    /// Columns.
    pub servers: Vec<String>,
    /// Rows.
    pub clients: Vec<String>,
    /// Address of each implementation's source or home page, by name.
    pub urls: BTreeMap<String, String>,
    /// Tests and measurements, by abbreviation.
    pub tests: BTreeMap<String, Test>,
    /// The version of QUIC.
    pub quic_version: String,
    /// Tests that have no number, for each pair.
    pub results: Vec<Vec<Outcome>>,
    /// Measurements, for each pair.
    pub measurements: Vec<Vec<RunnerMeasurement>>,
    /// Data of our own, which the Interop Runner does not know.
    pub equic: E,
}

/// Description of a test or measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// Name of the test.
    pub name: String,
    /// Description of the test's purpose.
    pub desc: String,
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Abbreviation.
    pub abbr: String,
    /// Name.
    pub name: String,
    /// Outcome of the test; null: it was not run.
    pub result: Option<TestResult>,
}

/// Outcome of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerMeasurement {
    /// Name: the last part of the logs' path.
    pub name: String,
    /// Abbreviation; letters and digits, for the page makes CSS selectors of it.
    pub abbr: String,
    /// Verdict on the measurement.
    pub result: TestResult,
    /// `9559 (± 12) kbps`: mean and standard deviation; empty when there is none.
    pub details: String,
}

/// Verdict on a test or measurement over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestResult {
    /// Every round gave a figure.
    Succeeded,
    /// A round did not.
    Failed,
    /// An end does not do it.
    Unsupported,
}

/// The file of a run. `E` is [`Summary`] when it is written.
#[must_use]
pub fn runner_file(summary: &Summary) -> RunnerFile<&Summary> {
    let names = |name: fn(&Row) -> &String| {
        let mut names: Vec<String> = Vec::new();
        for row in &summary.rows {
            if !names.contains(name(row)) {
                names.push(name(row).clone());
            }
        }
        names.sort_by_key(|name| (name != crate::registry::OURS, name.clone()));
        names
    };
    let (clients, servers) = (names(|row| &row.key.client), names(|row| &row.key.server));
    let tables: Vec<(String, &[Row])> = abbreviated(summary.tables());
    let tests = tables.iter().filter_map(|(abbr, rows)| {
        let row = rows.first()?;
        let name = row.key.workload.clone();
        Some((abbr.clone(), Test { name, desc: show::place(&row.place()) }))
    });
    let mut measurements = Vec::new();
    for client in &clients {
        for server in &servers {
            let of = tables.iter().filter_map(|(abbr, rows)| {
                let row = rows
                    .iter()
                    .find(|row| row.key.client == *client && row.key.server == *server)?;
                Some(measurement(abbr, row))
            });
            measurements.push(of.collect());
        }
    }
    let url = |name: &String| {
        let about = summary.implementations.get(name);
        (name.clone(), about.map(|about| about.url.clone()).unwrap_or_default())
    };
    RunnerFile {
        start_time: summary.started,
        end_time: summary.ended,
        log_dir: summary.name.clone(),
        urls: clients.iter().chain(&servers).map(url).collect(),
        tests: tests.collect(),
        quic_version: QUIC_VERSION.to_owned(),
        results: vec![Vec::new(); clients.len() * servers.len()],
        measurements,
        servers,
        clients,
        equic: summary,
    }
}

fn measurement(abbr: &str, row: &Row) -> RunnerMeasurement {
    let result = if !row.faults.is_empty() {
        TestResult::Failed
    } else if row.value.is_some() {
        TestResult::Succeeded
    } else {
        TestResult::Unsupported
    };
    let details = match (result, row.value) {
        (TestResult::Succeeded, Some(value)) => {
            let (unit, factor) = unit(&row.unit);
            let (mean, deviation) = (value.mean * factor, value.deviation * factor);
            format!("{mean:.0} (\u{b1} {deviation:.0}) {unit}")
        }
        _ => String::new(),
    };
    RunnerMeasurement { name: row.key.workload.clone(), abbr: abbr.to_owned(), result, details }
}

/// The Interop Runner shows whole numbers, and goodput in kbps.
fn unit(unit: &str) -> (&str, f64) {
    match unit {
        "bit/s" => ("kbps", 1e-3),
        "s" => ("\u{b5}s", 1e6),
        "1/s" => ("/s", 1.0),
        other => (other, 1.0),
    }
}

/// Each table with an abbreviation of its own: the Interop Runner's where there is one.
fn abbreviated<'a>(tables: impl Iterator<Item = &'a [Row]>) -> Vec<(String, &'a [Row])> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let abbreviation = |workload: &str| match workload {
        "download" | "transfer" => "G",
        "upload" => "GU",
        "streams" => "GS",
        "connections" => "GC",
        "handshakes" => "HS",
        "resumed" => "HR",
        "requests" => "RQ",
        "ttfb" => "FB",
        "loaded" => "LL",
        "idle" => "ID",
        _ => "X",
    };
    tables
        .map(|rows| {
            let short = abbreviation(rows.first().map_or("", |row| &row.key.workload));
            let count = seen.entry(short).or_insert(0);
            *count += 1;
            let abbr = if *count == 1 { short.to_owned() } else { format!("{short}{count}") };
            (abbr, rows)
        })
        .collect()
}
