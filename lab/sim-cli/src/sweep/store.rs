//! The directory of a sweep. It contains all completed runs, so that none is lost if the sweep is
//! interrupted.
//!
//! * `grid.toml`: the grid. `traces.json`: the traces and plugins that the grid names, if there are
//!   any. `sweep.json`: which part of the sweep the directory has, and the release of eQUIC.
//! * `runs.jsonl`: a line for each completed run, in the order of completion. It is sorted when the
//!   sweep is complete.
//! * `rows.csv`, `rows.parquet`, `summary.csv`: the result, written when all runs are complete
//!   (`finish.rs`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use equic_scenario::command::Shard;
use equic_scenario::{Grid, TraceTexts};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The rows of each run. Runs are numbered from 0: first all seeds of the first cell, then those of
/// the second, and so on.
pub(crate) type Runs = BTreeMap<usize, Vec<String>>;

const GRID: &str = "grid.toml";
const TRACES: &str = "traces.json";
const ABOUT: &str = "sweep.json";
pub(crate) const RUNS: &str = "runs.jsonl";

/// The content of `sweep.json`, which describes the directory of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    schema: String,
    /// Release of eQUIC that made the runs. Another release may give other results.
    version: String,
    /// Number of the part of the sweep that is in this directory, from 1.
    pub(crate) shard: usize,
    /// Number of parts into which the sweep is divided.
    pub(crate) shards: usize,
    /// Number of runs of the whole sweep.
    pub(crate) runs: usize,
}

impl About {
    pub(crate) fn new(shard: Shard, runs: usize) -> About {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let schema = "equic.sim.sweep/1".to_owned();
        About { schema, version, shard: shard.index, shards: shard.count, runs }
    }

    /// Returns `true` if both directories have parts of the same sweep. The caller must compare the
    /// grids.
    pub(crate) fn is_part_of_the_same(&self, other: &About) -> bool {
        About { shard: other.shard, ..self.clone() } == *other
    }

    /// Returns `true` if a run belongs to the part in this directory.
    pub(crate) fn has(&self, run: usize) -> bool {
        run % self.shards == self.shard - 1
    }

    fn text(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    run: usize,
    rows: Vec<String>,
}

/// An open directory of a sweep, to which runs are added.
pub(crate) struct Store {
    path: PathBuf,
    runs: File,
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what} {}: {error}", path.display()))
}

impl Store {
    /// Creates the directory. If it already exists for the same grid and part, opens it, so that
    /// the sweep continues. Returns the runs that it already has.
    pub(crate) fn open(folder: &Path, grid: &Grid, about: &About) -> Result<(Store, Runs)> {
        std::fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
        let path = folder.join(GRID);
        if path.exists() {
            let (text, traces, there) = read_about(folder)?;
            if text != grid.text() || traces != *grid.traces() {
                return Err(Failure::new(format!(
                    "{} contains the results of another grid: use another directory",
                    folder.display()
                )));
            }
            if there != *about {
                return Err(Failure::new(format!(
                    "{} has part {}/{} of release {}, not part {}/{} of release {}: use another directory",
                    folder.display(),
                    there.shard,
                    there.shards,
                    there.version,
                    about.shard,
                    about.shards,
                    about.version
                )));
            }
        } else {
            equic_report::file::write(&folder.join(ABOUT), about.text()?.as_bytes())?;
            if !grid.traces().is_empty() {
                let traces = serde_json::to_vec(grid.traces())?;
                equic_report::file::write(&folder.join(TRACES), &traces)?;
            }
            // `grid.toml` is written last, so a directory that has this file is complete.
            equic_report::file::write(&path, grid.text().as_bytes())?;
        }
        let path = folder.join(RUNS);
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        let mut runs = options.open(&path).map_err(|error| failed("open", &path, &error))?;
        runs.try_lock().map_err(|_| {
            Failure::new(format!(
                "another process is writing to {}: wait until that process has ended",
                folder.display()
            ))
        })?;
        let there = recover(&path, &mut runs, about)?;
        Ok((Store { path, runs }, there))
    }

    /// Adds a run. It is not lost if the process is killed afterwards.
    pub(crate) fn add(&mut self, run: usize, rows: &[String]) -> Result {
        let mut text = serde_json::to_string(&Line { run, rows: rows.to_vec() })?;
        text.push('\n');
        self.runs.write_all(text.as_bytes()).map_err(|error| failed("write", &self.path, &error))
    }
}

/// Reads the runs in the file. Cuts off a last line that is incomplete.
fn recover(path: &Path, file: &mut File, about: &About) -> Result<Runs> {
    let told = |error: io::Error| failed("read", path, &error);
    if !file.metadata().map_err(told)?.is_file() {
        return Ok(Runs::new());
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(told)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        file.set_len(whole as u64).map_err(told)?;
    }
    parse(path, &text[..whole], about)
}

fn parse(path: &Path, text: &[u8], about: &About) -> Result<Runs> {
    let mut runs = Runs::new();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (number, line) in lines.enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        let line: Line = serde_json::from_slice(line).map_err(|error| {
            Failure::new(format!("{place}: this is not a line of a sweep: {error}"))
        })?;
        if !about.has(line.run) || line.run >= about.runs {
            return Err(Failure::new(format!(
                "{place}: run {} does not belong to this part",
                line.run
            )));
        }
        runs.insert(line.run, line.rows);
    }
    Ok(runs)
}

fn read_about(folder: &Path) -> Result<(String, TraceTexts, About)> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))
    };
    let about = read(ABOUT)?;
    let about = serde_json::from_str(&about).map_err(|error| {
        Failure::new(format!("{} is not a sweep: {ABOUT}: {error}", folder.display()))
    })?;
    let traces = match folder.join(TRACES).exists() {
        false => TraceTexts::new(),
        true => serde_json::from_str(&read(TRACES)?).map_err(|error| {
            Failure::new(format!("{} is not a sweep: {TRACES}: {error}", folder.display()))
        })?,
    };
    Ok((read(GRID)?, traces, about))
}

/// Reads a directory. Returns its grid, the content of `sweep.json`, and its runs.
pub(crate) fn read(folder: &Path) -> Result<(Grid, About, Runs)> {
    let (text, traces, about) = read_about(folder)?;
    let grid =
        Grid::parse_with(&text, traces).map_err(|error| error.in_file(&folder.join(GRID)))?;
    let path = folder.join(RUNS);
    let text = std::fs::read(&path).map_err(|error| failed("read", &path, &error))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let runs = parse(&path, &text[..whole], &about)?;
    let wanted = (0..about.runs).filter(|run| about.has(*run)).count();
    if runs.len() < wanted {
        return Err(Failure::new(format!(
            "{} contains only {} of {wanted} runs: complete this sweep first",
            folder.display(),
            runs.len()
        )));
    }
    Ok((grid, about, runs))
}

/// Returns the lines of `runs.jsonl` in the order of the runs.
pub(crate) fn sorted(runs: &Runs) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for (run, rows) in runs {
        serde_json::to_writer(&mut text, &Line { run: *run, rows: rows.clone() })?;
        text.push(b'\n');
    }
    Ok(text)
}
