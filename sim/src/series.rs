//! Files of one run: time series as CSV and JSON, plots as SVG and PNG, logs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum as _;
use equic_report::csv;
use equic_report::plot::{Axis, LinePlot, PlotError, Series as Line, Svg};
use equic_scenario::Scenario;
use equic_scenario::command::{Plotted, Run};
use equic_scenario::play::{
    FileHeader, FlowPoint, JsonSeq, Logs, MakeLogs, QlogSink, Series, record,
};
use serde::Serialize;

use crate::failure::{Done, Failure};

/// The most lines of a plot: more cannot be told apart.
const MOST_LINES: usize = 8;

/// Makes directories, and sees whether plots can be made: before hours are spent.
pub(crate) fn prepare(args: &Run) -> Done {
    for folder in [&args.out, &args.qlog_dir].into_iter().flatten() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    }
    if args.out.is_some() || args.plot.is_some() {
        equic_report::plot::check_fonts()?;
    }
    Ok(())
}

/// Plays the first seed once more and writes its time series, plots and logs.
pub(crate) fn write(args: &Run, scenario: &Scenario) -> Done {
    let Some(seed) = scenario.seeds.first() else { return Ok(()) };
    let failures = Arc::new(Mutex::new(Vec::new()));
    let folder = args.qlog_dir.clone().unwrap_or_default();
    let logs = |flow: &str, copy: usize| logs(&folder, flow, copy, &failures);
    let wanted: Option<&MakeLogs<'_>> = if args.qlog_dir.is_some() { Some(&logs) } else { None };
    let (_, series) = record(scenario, *seed, wanted)?;
    if let Some(failure) = failures.lock().unwrap_or_else(PoisonError::into_inner).first() {
        return Err(Failure::new(String::clone(failure)));
    }
    if let Some(file) = &args.plot {
        write_plot(file, args.plot_of, *seed, &series)?;
    }
    match &args.out {
        Some(folder) => write_series(folder, *seed, &series),
        None => Ok(()),
    }
}

/// Logs of a connection: `FLOW-COPY_client.sqlog` and `FLOW-COPY_server.sqlog`.
fn logs(folder: &Path, flow: &str, copy: usize, failures: &Arc<Mutex<Vec<String>>>) -> Logs {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let name: String = flow.chars().map(plain).collect();
    let (folder, failures) = (folder.to_owned(), Arc::clone(failures));
    Logs::new(move |header: &FileHeader| {
        let side = format!("{:?}", header.vantage).to_lowercase();
        let path = folder.join(format!("{name}-{copy}_{side}.sqlog"));
        let failures = Arc::clone(&failures);
        match File::create(&path) {
            Ok(file) => Box::new(Log {
                path,
                log: Some(JsonSeq::new(BufWriter::new(file), header)),
                failures,
            }),
            Err(error) => {
                note(&failures, format!("cannot write {}: {error}", path.display()));
                Box::new(Log { path, log: None, failures })
            }
        }
    })
}

fn note(failures: &Mutex<Vec<String>>, failure: String) {
    failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
}

/// A log that tells when it could not be written to its end.
struct Log {
    path: PathBuf,
    log: Option<JsonSeq<BufWriter<File>>>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl QlogSink for Log {
    fn event(&mut self, event: &equic_scenario::play::QlogEvent<'_>) {
        if let Some(log) = &mut self.log {
            log.event(event);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let Some(log) = self.log.take() else { return };
        let failed = log.error().map(ToString::to_string);
        let flushed = log.into_inner().into_inner().err().map(|error| error.to_string());
        if let Some(error) = failed.or(flushed) {
            note(&self.failures, format!("cannot write {}: {error}", self.path.display()));
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    seed: u64,
    #[serde(flatten)]
    series: &'a Series,
}

fn write_series(folder: &Path, seed: u64, series: &Series) -> Done {
    csv::write(folder.join("flows.csv"), &series.flows)?;
    csv::write(folder.join("ports.csv"), &series.ports)?;
    if !series.paths.is_empty() {
        csv::write(folder.join("paths.csv"), &series.paths)?;
    }
    let shares = series.shares();
    csv::write(folder.join("shares.csv"), &shares)?;
    write_applications(folder, seed, series)?;
    let json = serde_json::to_vec(&Document { schema: "equic.sim.series/1", seed, series })?;
    equic_report::file::write(&folder.join("series.json"), &json)?;
    for what in Plotted::value_variants() {
        let name = what.to_possible_value().map(|value| value.get_name().to_owned());
        save(folder, &name.unwrap_or_default(), plot_of(series, *what, seed))?;
    }
    Ok(())
}

/// Draws one plot into one file, SVG or PNG by its ending.
fn write_plot(file: &Path, what: Plotted, seed: u64, series: &Series) -> Done {
    let svg = match plot_of(series, what, seed) {
        Err(PlotError::Empty(_)) => {
            return Err(Failure::new(format!(
                "{} stays unwritten: there is nothing to plot of seed {seed}",
                file.display()
            )));
        }
        drawn => drawn?,
    };
    match file.extension() {
        Some(ending) if ending == "png" => Ok(svg.write_png(file, 1.5)?),
        _ => Ok(svg.write_svg(file)?),
    }
}

/// The plot of a value over time.
fn plot_of(series: &Series, what: Plotted, seed: u64) -> Result<Svg, PlotError> {
    if let Some((title, unit, value)) = of_flows(what) {
        let point = |one: &FlowPoint| (format!("{} {}", one.flow, one.copy), one.time, value(one));
        return lines(title, unit, seed, series.flows.iter().map(point));
    }
    if what == Plotted::Shares {
        let shares = series.shares();
        let points = shares.iter().map(|one| (one.protocol.to_owned(), one.time, one.share));
        return lines("share of the goodput", "", seed, points);
    }
    let ports = series.ports.iter();
    let points = ports.map(|one| (one.port.clone(), one.time, Some(one.packets as f64)));
    lines("packets in the queue", "", seed, points)
}

type Value = fn(&FlowPoint) -> Option<f64>;

/// Title, unit and value of what connections have.
fn of_flows(what: Plotted) -> Option<(&'static str, &'static str, Value)> {
    Some(match what {
        Plotted::Goodput => ("goodput", "bit/s", |one| Some(one.goodput)),
        Plotted::Window => ("congestion window", "B", |one| Some(one.window as f64)),
        Plotted::Threshold => {
            ("slow start threshold", "B", |one| one.slow_start_threshold.map(|it| it as f64))
        }
        Plotted::InFlight => ("bytes in flight", "B", |one| Some(one.in_flight as f64)),
        Plotted::Rtt => ("smoothed round-trip time", "s", |one| Some(one.rtt)),
        Plotted::Pacing => {
            ("pacing rate", "bit/s", |one| Some(one.pacing_rate).filter(|rate| *rate < 1e12))
        }
        Plotted::Queue | Plotted::Shares => return None,
    })
}

/// What applications had, if there is one that is not a transfer.
fn write_applications(folder: &Path, seed: u64, series: &Series) -> Done {
    if !series.units.is_empty() {
        csv::write(folder.join("units.csv"), &series.units)?;
        let units = series.units.iter();
        let points = units.map(|one| {
            (format!("{} {}", one.flow, one.copy), one.began + one.took, Some(one.took))
        });
        save(folder, "units", lines("time of each unit", "s", seed, points))?;
    }
    if !series.playing.is_empty() {
        csv::write(folder.join("playing.csv"), &series.playing)?;
        let playing = series.playing.iter();
        let points =
            playing.map(|one| (format!("{} {}", one.flow, one.copy), one.time, Some(one.buffered)));
        save(folder, "playing", lines("playing time in the buffer", "s", seed, points))?;
    }
    Ok(())
}

/// A plot of values over time: line, time, value.
fn lines(
    title: &str,
    unit: &str,
    seed: u64,
    points: impl Iterator<Item = (String, f64, Option<f64>)>,
) -> Result<Svg, PlotError> {
    let mut order = Vec::new();
    let mut by_name: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, time, value) in points {
        if !by_name.contains_key(&name) {
            order.push(name.clone());
        }
        by_name.entry(name).or_default().push((time, value.unwrap_or(f64::NAN)));
    }
    let shown = if order.len() > MOST_LINES {
        format!("seed {seed}; the first {MOST_LINES} of {}", order.len())
    } else {
        format!("seed {seed}")
    };
    let mut plot = LinePlot::new(title, Axis::new("virtual time", "s"), Axis::new(title, unit))
        .subtitle(shown);
    for name in order.into_iter().take(MOST_LINES) {
        let points = by_name.remove(&name).unwrap_or_default();
        plot = plot.series(Line::new(name, points));
    }
    plot.draw()
}

/// Writes a plot as SVG and PNG, unless there is no value to draw, as for a threshold that was never set.
fn save(folder: &Path, name: &str, plot: Result<Svg, PlotError>) -> Done {
    let svg = match plot {
        Err(PlotError::Empty(_)) => return Ok(()),
        drawn => drawn?,
    };
    svg.write_svg(folder.join(format!("{name}.svg")))?;
    Ok(svg.write_png(folder.join(format!("{name}.png")), 1.0)?)
}
