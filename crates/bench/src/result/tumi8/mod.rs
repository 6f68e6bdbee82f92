//! Reads the published raw data of "QUIC on the Highway"
//! (<https://github.com/tumi8/quic-10g-paper>), and computes the same statistics as for our own
//! runs. The user names a folder with a copy.
//!
//! Below `results/`, every run has a `result.json`, whose measurements list the goodput of each
//! repetition in Mbit/s. For each repetition, `SERVER_CLIENT/goodput/N/client/time.json` has the
//! client's start and end in nanoseconds, from which the authors computed the goodput. If this file
//! exists, the goodput is computed again and compared. Runs of one experiment and variant are
//! pooled, as in the paper.

mod layout;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use equic_report::stats::Sample;
use equic_report::stats::modes::{DipTest, halves};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ResultError;
use super::summarise::estimate;
use super::summary::{Estimate, Modes};

pub use table::{all, tables};

/// Version of the schema of [`Import`].
pub const IMPORT: &str = "equic.bench.tumi8/1";

/// Maximum depth of folders to search. The published data has eight levels.
const DEPTH: usize = 12;
/// Maximum size of a file to read, in bytes. The largest published file has a few kilobytes.
const LARGEST: u64 = 64 << 20;
/// Maximum p-value for which a sample counts as having two modes.
const TWO_MODES: f64 = 0.05;

/// Result of reading the published files, with statistics of each experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Import {
    /// Number of `result.json` files.
    pub files: usize,
    /// Number of repetitions with a goodput.
    pub repetitions: usize,
    /// Number of repetitions that agree with a `time.json`.
    pub confirmed: usize,
    /// Number of repetitions that contradict a `time.json`.
    pub contradicted: usize,
    /// Notes on files that could not be read.
    pub notes: Vec<String>,
    /// A row for each experiment, variant and pair.
    pub rows: Vec<Row>,
}

/// A pair of client and server in a variant of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the experiment: `baseline`, `offloading`, `crypto`, `rcvbuf`, `hardware`, ...
    pub experiment: String,
    /// Value of the setting that varies: `off`, `aes-noni`, `106496`.
    pub variant: String,
    /// The client's implementation.
    pub client: String,
    /// The server's implementation.
    pub server: String,
    /// Number of requested repetitions.
    pub asked: usize,
    /// Goodput in Mbit/s.
    pub goodput: Option<Estimate>,
    /// Two modes of the goodput, if it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
}

/// The fields of a published `result.json` that are used.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    server_node_name: String,
    #[serde(default)]
    client_node_name: String,
    measurements: Vec<Vec<Measurement>>,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
struct Measurement {
    server: String,
    client: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    filesize: f64,
    #[serde(default)]
    details: Value,
}

/// Contents of a published `time.json`: times in nanoseconds since 1970-01-01 UTC.
#[derive(Deserialize)]
struct Times {
    start: u64,
    end: u64,
}

type Key = (String, String, String, String);

/// Reads a copy of the repository, or its folder `results`. If a file cannot be read, the result
/// has a note about it.
///
/// # Errors
/// [`ResultError::Read`] if the folder cannot be read, [`ResultError::Samples`] if it has no
/// result.
pub fn read(dir: &Path) -> Result<Import, ResultError> {
    let results = dir.join("results");
    let root = if results.is_dir() { results } else { dir.to_owned() };
    let mut paths = Vec::new();
    find(&root, DEPTH, &mut paths)?;
    paths.sort();
    let mut pooled: BTreeMap<Key, (usize, Vec<f64>)> = BTreeMap::new();
    let mut import = Import {
        files: 0,
        repetitions: 0,
        confirmed: 0,
        contradicted: 0,
        notes: Vec::new(),
        rows: Vec::new(),
    };
    for path in &paths {
        match file(path) {
            Ok(file) => import.add(&root, path, &file, &mut pooled),
            Err(why) => import.notes.push(format!("{}: {why}", path.display())),
        }
    }
    if import.repetitions == 0 {
        let reason = match import.notes.first() {
            Some(note) => note.clone(),
            None => {
                format!(
                    "the folder contains no result.json: {}",
                    "give the folder of a copy of tumi8/quic-10g-paper"
                )
            }
        };
        return Err(ResultError::Samples { path: root, reason });
    }
    let mut dips = DipTest::new(1);
    import.rows = pooled
        .into_iter()
        .map(|((experiment, variant, client, server), (asked, values))| {
            let sample: Sample = values.into_iter().collect();
            let goodput = estimate(&sample);
            let modes = modes(&sample, &mut dips);
            Row { experiment, variant, client, server, asked, goodput, modes }
        })
        .collect();
    Ok(import)
}

fn modes(sample: &Sample, dips: &mut DipTest) -> Option<Modes> {
    let p = dips.test(sample)?.p;
    let halves = halves(sample).filter(|_| p < TWO_MODES)?;
    Some(Modes {
        p,
        low: halves.low,
        low_count: halves.low_count,
        high: halves.high,
        high_count: halves.high_count,
    })
}

impl Import {
    fn add(
        &mut self,
        root: &Path,
        path: &Path,
        file: &File,
        pooled: &mut BTreeMap<Key, (usize, Vec<f64>)>,
    ) {
        self.files += 1;
        let run = path.parent().unwrap_or(root);
        let place = run.strip_prefix(root).unwrap_or(run);
        let hosts = format!("{}-{}", file.server_node_name, file.client_node_name);
        let (experiment, variant) = layout::place(place, &hosts);
        let asked = file.args["repetitions"].as_u64().unwrap_or(0);
        for measurement in file.measurements.iter().flatten() {
            let Some(details) = measurement.details.as_array() else {
                let what = format!("{}_{}", measurement.server, measurement.client);
                self.notes.push(format!("{}: {what} was measured only once", path.display()));
                continue;
            };
            let values: Vec<f64> = details.iter().filter_map(Value::as_f64).collect();
            self.repetitions += values.len();
            self.check(run, measurement, &values);
            let name = |name: &str| layout::implementation(&experiment, name);
            let key = (
                experiment.clone(),
                variant.clone(),
                name(&measurement.client),
                name(&measurement.server),
            );
            let place = pooled.entry(key).or_default();
            place.0 += usize::try_from(asked).unwrap_or(0).max(values.len());
            place.1.extend(values);
        }
    }

    /// Computes the goodputs again from the clients' times. The lists omit failed repetitions, so
    /// an index in a list is not the number of a repetition. Each value must therefore match some
    /// repetition.
    fn check(&mut self, run: &Path, measurement: &Measurement, values: &[f64]) {
        // A name from a file must not lead to another folder.
        let pair = format!("{}_{}", measurement.server, measurement.client);
        if pair.contains(['/', '\\']) || measurement.name.contains(['/', '\\', '.']) {
            return;
        }
        let folder = run.join(pair).join(&measurement.name);
        let Ok(entries) = fs::read_dir(folder) else { return };
        let computed: BTreeSet<u64> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path().join("client/time.json");
                let Times { start, end } = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
                let seconds = end.checked_sub(start).filter(|time| *time > 0)? as f64 / 1e9;
                Some(rounded(measurement.filesize * 8.0 / seconds / 1e6))
            })
            .collect();
        if computed.is_empty() {
            return;
        }
        // The authors used seconds since 1970 as floating-point numbers, whose precision is a
        // fraction of a microsecond.
        let near = |value: f64| {
            let (value, slack) = (rounded(value), rounded(value * 1e-6) + 1);
            let range = value.saturating_sub(slack)..=value.saturating_add(slack);
            computed.range(range).next().is_some()
        };
        let confirmed = values.iter().filter(|value| near(**value)).count();
        self.confirmed += confirmed;
        self.contradicted += values.len() - confirmed;
    }
}

/// Returns bit/s as an integer. This is far more precise than the differences between repetitions.
fn rounded(megabits: f64) -> u64 {
    // The cast saturates: a negative or infinite value becomes 0 or the largest number. No other
    // value is close to these.
    (megabits * 1e6).round() as u64
}

fn file(path: &Path) -> Result<File, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > LARGEST {
        return Err(format!("the file is too large: {size} bytes"));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// Finds every `result.json` below a folder. Links are not followed. The folders below a result are
/// skipped, because they only have its logs.
fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), ResultError> {
    let wrong = |source| ResultError::Read { path: dir.to_owned(), source };
    let result = dir.join("result.json");
    if result.is_file() {
        found.push(result);
        return Ok(());
    }
    for entry in fs::read_dir(dir).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if depth > 0 && entry.file_type().map_err(wrong)?.is_dir() {
            find(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}
