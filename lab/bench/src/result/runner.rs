//! Writes `result.json` in the format of the QUIC Interop Runner, for its web page
//! (<https://github.com/quic-interop/quic-interop-runner>: `_export_results` in interop.py,
//! web/script.js).
//!
//! The page reads these fields: `start_time`, `end_time`, `log_dir`, `quic_version`, `clients`,
//! `servers`, `urls`, `tests` (by abbreviation), and `results` and `measurements`. The last two
//! have a list for each pair, ordered by client and then by server. The page ignores other fields,
//! such as `equic`, which contains eQUIC's summary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::show;
use super::summary::{Row, Summary};

/// Version of QUIC, as the Interop Runner names it.
const QUIC_VERSION: &str = "0x1";

/// The contents of `result.json`. It is generic in the extension, so that files of the Interop
/// Runner can be read, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunnerFile<E> {
    /// Start of the run in seconds since 1970-01-01 UTC.
    pub start_time: f64,
    /// End of the run in seconds since 1970-01-01 UTC.
    pub end_time: f64,
    /// Folder of this file and the logs, below `logs/quic/` of the web server: `log_dir/server_client/test`.
    pub log_dir: String,
    /// Names of the servers, which are the columns of the table.
    pub servers: Vec<String>,
    /// Names of the clients, which are the rows of the table.
    pub clients: Vec<String>,
    /// URL of each implementation's source or home page, by name.
    pub urls: BTreeMap<String, String>,
    /// Descriptions of tests and measurements, by abbreviation.
    pub tests: BTreeMap<String, Test>,
    /// The version of QUIC, as the Interop Runner names it.
    pub quic_version: String,
    /// Outcomes of the tests that measure nothing, for each pair.
    pub results: Vec<Vec<Outcome>>,
    /// Outcomes of the measurements, for each pair.
    pub measurements: Vec<Vec<RunnerMeasurement>>,
    /// eQUIC's extension, which the Interop Runner ignores.
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

/// Outcome of a test for one pair of client and server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Abbreviation.
    pub abbr: String,
    /// Name.
    pub name: String,
    /// Outcome of the test. Null if the test did not run.
    pub result: Option<TestResult>,
}

/// Outcome of a measurement for one pair of client and server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerMeasurement {
    /// Name of the measurement, which is the last part of the path of its logs.
    pub name: String,
    /// Abbreviation of the measurement. It has only letters and digits, because the page uses it in
    /// CSS selectors.
    pub abbr: String,
    /// Verdict on the measurement.
    pub result: TestResult,
    /// Mean and standard deviation, such as `9559 (± 12) kbps`. Empty if there is no figure.
    pub details: String,
}

/// Verdict on a test or measurement, from all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestResult {
    /// Every round has a figure.
    Succeeded,
    /// At least one round failed.
    Failed,
    /// The server or the client does not support the test.
    Unsupported,
}

/// Returns `result.json` for a summary.
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
            // The Interop Runner's page shows this text unchanged, so the text itself contains the
            // mark of a doubted clock.
            let mark = if row.clock_is_doubted() { show::CLOCK_DOUBTED } else { "" };
            let separator = if mark.is_empty() { "" } else { ", " };
            format!("{mean:.0} (\u{b1} {deviation:.0}) {unit}{separator}{mark}")
        }
        _ => String::new(),
    };
    RunnerMeasurement { name: row.key.workload.clone(), abbr: abbr.to_owned(), result, details }
}

/// Returns the unit and the factor of figures in the Interop Runner's page, which shows whole
/// numbers, and goodput in kbps.
fn unit(unit: &str) -> (&str, f64) {
    match unit {
        "bit/s" => ("kbps", 1e-3),
        "s" => ("\u{b5}s", 1e6),
        "1/s" => ("/s", 1.0),
        other => (other, 1.0),
    }
}

/// Gives each table a unique abbreviation. It is that of the Interop Runner if there is one for
/// this measurement.
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
