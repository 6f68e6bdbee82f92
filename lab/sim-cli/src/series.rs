//! Writes the files of one run: time series as CSV and JSON, plots as SVG and, with the feature
//! `png`, as PNG, and qlog files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum as _;
use equic_report::csv;
use equic_report::plot::{Axis, LinePlot, PNG, PlotError, Series as Line, Svg};
use equic_scenario::command::{Plotted, Run};
use equic_scenario::play::{
    FileHeader, FlowPoint, JsonSeq, Logs, MakeLogs, PortPoint, QlogSink, Series, record,
};
use equic_scenario::{Place, Scenario};
use serde::Serialize;

use crate::failure::{Failure, Result};

/// Largest number of lines in a plot. A reader could not distinguish more.
const MOST_LINES: usize = 8;

/// Creates the directories, and checks that plots can be written. This is done first, because the
/// runs may take hours.
pub(crate) fn prepare(args: &Run, scenario: &Scenario) -> Result {
    check_ports(args, scenario)?;
    for folder in [&args.out, &args.qlog_dir].into_iter().flatten() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    }
    if args.out.is_some() || args.plot.is_some() {
        equic_report::plot::check_fonts()?;
    }
    Ok(())
}

/// Fails if `--plot-port` names a port that the scenario does not have, or if it selects more ports
/// than a plot can show.
fn check_ports(args: &Run, scenario: &Scenario) -> Result {
    if args.plot_port.is_empty() {
        return Ok(());
    }
    let place = Place::of(scenario).map_err(Failure::new)?;
    let ports: Vec<String> = place.ports().into_iter().map(|(name, _)| name).collect();
    if let Some(wanted) =
        args.plot_port.iter().find(|one| !ports.iter().any(|port| is_port(one, port)))
    {
        let names = ports.join("`, `");
        return Err(Failure::Usage(format!(
            "--plot-port: there is no port `{wanted}`; the ports are `{names}`"
        )));
    }
    let count =
        ports.iter().filter(|port| args.plot_port.iter().any(|one| is_port(one, port))).count();
    if count > MOST_LINES {
        let message =
            format!("--plot-port: a plot shows at most {MOST_LINES} ports, and these are {count}");
        return Err(Failure::Usage(message));
    }
    Ok(())
}

/// Runs the first seed once more, and writes its time series, plots and qlog files.
pub(crate) fn write(args: &Run, scenario: &Scenario) -> Result {
    let Some(seed) = scenario.seeds.first() else { return Ok(()) };
    let failures = Arc::new(Mutex::new(Vec::new()));
    let folder = args.qlog_dir.clone().unwrap_or_default();
    let names = log_names(scenario.flows.iter().map(|flow| flow.name.as_str()));
    let logs = |flow: &str, copy: usize| {
        logs(&folder, names.get(flow).map_or("flow", String::as_str), copy, &failures)
    };
    let wanted: Option<&MakeLogs<'_>> = if args.qlog_dir.is_some() { Some(&logs) } else { None };
    let (_, series) = record(scenario, *seed, wanted)?;
    if let Some(failure) = failures.lock().unwrap_or_else(PoisonError::into_inner).first() {
        return Err(Failure::new(String::clone(failure)));
    }
    if let Some(folder) = &args.out {
        write_series(folder, args, *seed, &series)?;
    }
    match &args.plot {
        Some(file) => write_plot(file, args, *seed, &series),
        None => Ok(()),
    }
}

/// Returns a file name for the qlog files of each flow: the flow's name, with a hyphen for each
/// character that is not a letter or a digit. If two names would be equal, ignoring case, the later
/// one gets a number.
fn log_names<'a>(flows: impl Iterator<Item = &'a str>) -> HashMap<&'a str, String> {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let mut taken = HashSet::new();
    let mut names = HashMap::new();
    for flow in flows {
        let own: String = flow.chars().map(plain).collect();
        let numbered = (2..).map(|number| format!("{own}-{number}"));
        let name = std::iter::once(own.clone())
            .chain(numbered)
            .find(|name| taken.insert(name.to_ascii_lowercase()))
            .unwrap_or(own);
        names.insert(flow, name);
    }
    names
}

/// Creates the qlog files of a connection: `FLOW-COPY_client.sqlog` and `FLOW-COPY_server.sqlog`.
fn logs(folder: &Path, name: &str, copy: usize, failures: &Arc<Mutex<Vec<String>>>) -> Logs {
    let name = name.to_owned();
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

/// A qlog file. If it could not be written completely, it reports a failure.
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

fn write_series(folder: &Path, args: &Run, seed: u64, series: &Series) -> Result {
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
        save(folder, &name.unwrap_or_default(), plot_of(series, *what, &args.plot_port, seed))?;
    }
    Ok(())
}

/// Draws one plot into a file, as SVG or PNG by the file's extension.
fn write_plot(file: &Path, args: &Run, seed: u64, series: &Series) -> Result {
    let svg = match plot_of(series, args.plot_of, &args.plot_port, seed) {
        Err(PlotError::Empty(_)) => {
            return Err(Failure::new(format!(
                "{} stays unwritten: there is nothing to plot of seed {seed}",
                file.display()
            )));
        }
        drawn => drawn?,
    };
    match file.extension() {
        Some(ending) if ending == "png" && !PNG => {
            let instead = file.with_extension("svg");
            svg.write_svg(&instead)?;
            let written = format!("{} is written instead of {}", instead.display(), file.display());
            Err(Failure::new(format!("{written}: {}", PlotError::NoPng)))
        }
        Some(ending) if ending == "png" => Ok(svg.write_png(file, 1.5)?),
        _ => Ok(svg.write_svg(file)?),
    }
}

/// Returns the plot of a quantity over time.
fn plot_of(series: &Series, what: Plotted, wanted: &[String], seed: u64) -> Result<Svg, PlotError> {
    if let Some((title, unit, value)) = of_flows(what) {
        let point = |one: &FlowPoint| (format!("{} {}", one.flow, one.copy), one.time, value(one));
        return lines(title, unit, seed, series.flows.iter().map(point));
    }
    if what == Plotted::Shares {
        let shares = series.shares();
        let points = shares.iter().map(|one| (one.protocol.to_owned(), one.time, one.share));
        return lines("share of the goodput", "", seed, points);
    }
    let all = by_use(&series.ports);
    let shown: Vec<&str> = if wanted.is_empty() {
        all.iter().copied().take(MOST_LINES).collect()
    } else {
        all.iter().copied().filter(|port| wanted.iter().any(|one| is_port(one, port))).collect()
    };
    let choice = match (shown.len() < all.len(), wanted.is_empty()) {
        (false, _) => String::new(),
        (true, true) => format!("; the {} busiest of {} ports", shown.len(), all.len()),
        (true, false) => format!("; {} of {} ports", shown.len(), all.len()),
    };
    let points = shown.iter().flat_map(|name| {
        let own = series.ports.iter().filter(|one| one.port == *name);
        own.map(|one| (one.port.clone(), one.time, Some(one.packets as f64)))
    });
    lines_of("packets in the queue", "", &format!("seed {seed}{choice}"), points)
}

/// Returns the names of all ports, the busiest first. They are ordered by the average number of
/// packets in the queue, then by the packets that the queue dropped, then by the rate.
fn by_use(points: &[PortPoint]) -> Vec<&str> {
    let mut order: Vec<(&str, (f64, u64, f64))> = Vec::new();
    let mut place: HashMap<&str, usize> = HashMap::new();
    for point in points {
        let at = *place.entry(&point.port).or_insert_with(|| {
            order.push((&point.port, (0.0, 0, 0.0)));
            order.len() - 1
        });
        let (waited, dropped, sent) = &mut order[at].1;
        *waited += point.packets as f64;
        *dropped += point.dropped;
        *sent += point.rate;
    }
    // The sort is stable, so ports with equal values stay in the order of the scenario.
    order.sort_by(|(_, one), (_, other)| {
        let by = other.0.total_cmp(&one.0).then(other.1.cmp(&one.1));
        by.then(other.2.total_cmp(&one.2))
    });
    order.into_iter().map(|(name, _)| name).collect()
}

/// Returns `true` if `wanted` is the name of this port, or that of the port's link.
fn is_port(wanted: &str, port: &str) -> bool {
    let link = port.strip_suffix(", there").or_else(|| port.strip_suffix(", back"));
    wanted == port || link == Some(wanted)
}

type Value = fn(&FlowPoint) -> Option<f64>;

/// Returns the title, the unit and a getter of a quantity of connections. Returns `None` for
/// quantities of ports or protocols.
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

/// Writes the files about applications, if at least one flow has an application other than a single
/// transfer.
fn write_applications(folder: &Path, seed: u64, series: &Series) -> Result {
    if !series.units.is_empty() {
        csv::write(folder.join("units.csv"), &series.units)?;
        let units = series.units.iter();
        let points = units.map(|one| {
            (format!("{} {}", one.flow, one.copy), one.began + one.took, Some(one.took))
        });
        save(folder, "units", lines("duration of each unit", "s", seed, points))?;
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

/// Returns a plot of values over time. Each point has the name of its line, a time, and a value. If
/// there are more lines than a plot can show, only the first ones are drawn.
fn lines(
    title: &str,
    unit: &str,
    seed: u64,
    points: impl Iterator<Item = (String, f64, Option<f64>)>,
) -> Result<Svg, PlotError> {
    let points: Vec<(String, f64, Option<f64>)> = points.collect();
    let names: HashSet<&str> = points.iter().map(|(name, ..)| name.as_str()).collect();
    let shown = if names.len() > MOST_LINES {
        format!("seed {seed}; the first {MOST_LINES} of {}", names.len())
    } else {
        format!("seed {seed}")
    };
    lines_of(title, unit, &shown, points.into_iter())
}

fn lines_of(
    title: &str,
    unit: &str,
    subtitle: &str,
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
    let mut plot = LinePlot::new(title, Axis::new("virtual time", "s"), Axis::new(title, unit))
        .subtitle(subtitle);
    for name in order.into_iter().take(MOST_LINES) {
        let points = by_name.remove(&name).unwrap_or_default();
        plot = plot.series(Line::new(name, points));
    }
    plot.draw()
}

/// Writes a plot as SVG and, with the feature `png`, as PNG. Writes nothing if there are no values,
/// as for a threshold that was never set.
fn save(folder: &Path, name: &str, plot: Result<Svg, PlotError>) -> Result {
    let svg = match plot {
        Err(PlotError::Empty(_)) => return Ok(()),
        drawn => drawn?,
    };
    Ok(svg.write_into(folder, name, 1.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(port: &str, packets: usize, dropped: u64, rate: f64) -> PortPoint {
        PortPoint { time: 0.0, port: port.to_owned(), packets, bytes: 0, dropped, marked: 0, rate }
    }

    #[test]
    fn queue_plot_has_the_busiest_ports_first() {
        let mut points = Vec::new();
        for port in ["a, there", "a, back", "b, there", "b, back", "c, there", "c, back"] {
            points.push(point(port, 0, 0, 1.0));
        }
        points.extend([
            point("c, there", 9, 0, 1.0),
            point("b, back", 4, 1, 1.0),
            point("b, there", 4, 0, 9.0),
            point("a, back", 0, 0, 5.0),
        ]);
        let order = ["c, there", "b, back", "b, there", "a, back", "a, there", "c, back"];
        assert_eq!(by_use(&points), order);
        assert!(by_use(&[]).is_empty());
    }

    #[test]
    fn qlog_names_never_collide() {
        let flows = ["a b", "a.b", "a-b-2", "A b", "\u{3b1}", "\u{3b2}", "a-b", "a", "a-1"];
        let names = log_names(flows.into_iter());
        let distinct: HashSet<String> =
            names.values().map(|name| name.to_ascii_lowercase()).collect();
        assert_eq!((names.len(), distinct.len()), (flows.len(), flows.len()), "{names:?}");
        assert_eq!(names["a b"], "a-b");
        let plain = |one: char| one.is_ascii_alphanumeric() || one == '-';
        assert!(names.values().all(|name| name.chars().all(plain)), "{names:?}");
    }
}
