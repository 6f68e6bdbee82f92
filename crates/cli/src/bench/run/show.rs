//! How far a run is, and a table of medians at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::time::Duration;

use equic_bench::plan::{Plan, Turn};
use equic_bench::{End, Key, Record};
use equic_report::number;
use equic_report::stats::Sample;
use equic_report::table::{Cell as Field, Column, Style, Table, Tone};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Done;
use crate::output;

/// What came of a cell over all rounds.
#[derive(Serialize)]
pub struct Cell<'a> {
    #[serde(flatten)]
    key: &'a Key,
    /// Rounds that gave a figure.
    measured: usize,
    /// Rounds that were run.
    rounds: usize,
    /// The median of the figures.
    median: Option<f64>,
    unit: Option<String>,
    /// Why it is not done.
    unsupported: Option<&'a str>,
    /// How often what went wrong.
    failures: BTreeMap<&'a str, usize>,
}

impl Cell<'_> {
    /// Whether there is a figure.
    pub const fn is_measured(&self) -> bool {
        self.measured > 0
    }
}

/// All cells; a round's last attempt is the one that counts.
pub fn cells<'a>(plan: &'a Plan, records: &'a [Record]) -> Vec<Cell<'a>> {
    let scored = records.iter().filter(|record| record.round >= 0);
    let last: BTreeMap<u64, &Record> = scored.map(|record| (record.sequence, record)).collect();
    let cell = |key: &'a Key| {
        let own: Vec<&Record> =
            last.values().copied().filter(|record| record.key == *key).collect();
        let mut values = Vec::new();
        let mut cell = Cell {
            key,
            measured: 0,
            rounds: own.len(),
            median: None,
            unit: None,
            unsupported: None,
            failures: BTreeMap::new(),
        };
        for record in own {
            match &record.end {
                End::Measured { figures } => {
                    values.push(figures.value);
                    cell.unit = Some(figures.unit.clone());
                }
                End::Unsupported { why } => cell.unsupported = Some(why),
                End::Failed { why, .. } => *cell.failures.entry(why).or_insert(0) += 1,
            }
        }
        cell.measured = values.len();
        cell.median = values.into_iter().collect::<Sample>().median();
        cell
    };
    plan.cells.keys.iter().map(cell).collect()
}

/// One table for each workload, protocol, path and point: clients down, servers across.
pub fn tables(cells: &[Cell<'_>]) -> Done {
    let group = |key: &Key| {
        (key.workload.clone(), key.protocol.clone(), key.path.clone(), key.point.clone())
    };
    let mut seen = Vec::new();
    for cell in cells {
        let this = group(cell.key);
        if seen.contains(&this) {
            continue;
        }
        let own: Vec<&Cell<'_>> = cells.iter().filter(|cell| group(cell.key) == this).collect();
        table(cell.key, &own)?;
        seen.push(this);
    }
    Ok(())
}

fn table(key: &Key, cells: &[&Cell<'_>]) -> Done {
    let servers: BTreeSet<&str> = cells.iter().map(|cell| cell.key.server.as_str()).collect();
    let clients: BTreeSet<&str> = cells.iter().map(|cell| cell.key.client.as_str()).collect();
    let unit = cells.iter().find_map(|cell| cell.unit.as_deref()).unwrap_or("");
    let (shown, factor, digits) = match unit {
        "bit/s" => ("Gbit/s", 1e-9, 3),
        "s" => ("ms", 1e3, 3),
        "B" => ("kB each", 1e-3, 1),
        other => (other, 1.0, 0),
    };
    let columns = std::iter::once(Column::text("client \\ server"))
        .chain(servers.iter().map(|server| Column::number(*server).unit(shown)));
    let mut table = Table::new(columns).title(title(key));
    for client in clients {
        let field = |server: &&str| {
            let found = cells.iter().find(|c| c.key.client == client && c.key.server == **server);
            let Some(cell) = found else { return Field::new("") };
            match cell.median {
                Some(median) => {
                    let whole = cell.measured == cell.rounds;
                    let tone = if whole { Tone::Normal } else { Tone::Bad };
                    let few = if whole {
                        String::new()
                    } else {
                        format!(" ({} of {})", cell.measured, cell.rounds)
                    };
                    Field::new(format!("{:.digits$}{few}", factor * median)).tone(tone)
                }
                None if cell.unsupported.is_some() => Field::new("does not").tone(Tone::Faint),
                None if cell.rounds == 0 => Field::new(number::MISSING),
                None => Field::new("failed").tone(Tone::Bad),
            }
        };
        table.row(std::iter::once(Field::new(client)).chain(servers.iter().map(field)));
    }
    output::text(format_args!("\n{}", table.render(Style::stdout())))
}

fn title(key: &Key) -> String {
    let point: String = key.point.iter().map(|(name, value)| format!(", {name}={value}")).collect();
    format!("{} by {} ({}{point}), medians", key.workload, key.protocol, key.path)
}

/// What is not done, and what went wrong.
pub fn failures(cells: &[Cell<'_>]) -> Done {
    for cell in cells {
        for (why, count) in &cell.failures {
            output::line(format_args!("failed: {}, {count} x: {why}", name(cell.key)))?;
        }
        if let Some(why) = cell.unsupported {
            output::line(format_args!("not done: {}: {why}", name(cell.key)))?;
        }
    }
    Ok(())
}

/// A bar on a terminal, a line for each attempt elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    pub fn new(plan: &Plan, quiet: bool) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let length = Some((plan.len() + plan.extra_turns().count()) as u64);
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
            // It is a constant, and the default looks fine too.
            if let Ok(style) =
                ProgressStyle::with_template("{bar:24} {pos}/{len} {eta:>4} left  {msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress { bar, quiet }
    }

    pub fn begin(&self, turn: &Turn<'_>, attempt: u32) {
        if let Some(bar) = &self.bar {
            // What was done before an interruption took no time now.
            if bar.position() == 0 && turn.sequence > 0 && attempt == 1 {
                bar.set_position(turn.sequence);
                bar.reset_eta();
            }
            bar.set_message(name(turn.key));
        }
    }

    pub fn ended(&self, record: &Record) -> Done {
        let came = match &record.end {
            End::Measured { figures } => {
                let noisy = if record.noise.too_much { ", disturbed: again" } else { "" };
                format!("{}{noisy}", number::si(figures.value, &figures.unit))
            }
            End::Unsupported { why } => format!("not done: {why}"),
            End::Failed { why, .. } => format!("failed: {why}"),
        };
        let round = match record.round {
            -1 => "warm-up".to_owned(),
            round => (round + 1).to_string(),
        };
        let line = format!("{round:>7} {:<48} {came}", name(&record.key));
        match &self.bar {
            Some(bar) => {
                if matches!(record.end, End::Failed { .. }) {
                    bar.println(line);
                }
                Ok(())
            }
            None if self.quiet => Ok(()),
            None => output::line(line),
        }
    }

    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn name(key: &Key) -> String {
    let point: String = key.point.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let Key { workload, path, client, server, .. } = key;
    format!("{client} from {server}, {workload} ({path}){point}")
}
