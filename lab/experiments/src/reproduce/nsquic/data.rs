//! The stored data of the experiment: a row for each cell of each grid, with means over seeds. A
//! cell is a combination of values of the grid's axes.

use std::collections::BTreeMap;
use std::path::Path;

use equic_report::stats::Sample;
use serde::{Deserialize, Serialize};

use super::part::Part;
use super::scale::{Axis, Scale};
use crate::failure::{Failure, Result};

/// The content of `data` in the result (schema equic.reproduce.nsquic/1).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NsQuic {
    pub scale: Scale,
    pub parts: Vec<Measured>,
}

/// The result of one grid of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub part: Part,
    /// Number of runs that were made. `of` is the number of runs in the complete grid.
    pub runs: usize,
    pub of: usize,
    pub axes: Vec<Axis>,
    pub rows: Vec<Row>,
}

/// A cell of a grid: a combination of values of its axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Value of each axis.
    pub point: BTreeMap<String, String>,
    pub flows: Vec<Flow>,
    /// Jain's fairness index of the goodputs of all connections of a run. `None` if there is one
    /// connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain: Option<Mean>,
    /// Goodput of the first flow divided by that of the second. `None` if there is one flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Mean>,
}

/// A group of connections with equal parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Flow {
    pub name: String,
    /// Number of connections over all seeds. `completed` is the number of connections that
    /// completed.
    pub connections: usize,
    pub completed: usize,
    /// Completion time of the connections that completed, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Mean>,
    /// Goodput in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Mean>,
}

/// A mean over seeds with its 95 % interval. If the sample has no interval, its lower and upper
/// bound are the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Mean {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Mean {
    /// Returns the mean over all seeds, or `None` if there are no values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Mean> {
        let sample: Sample = values.into_iter().collect();
        let mean = sample.mean()?;
        let (low, high) =
            sample.mean_95().map_or((mean, mean), |interval| (interval.low, interval.high));
        Some(Mean { mean: digits(mean), low: digits(low), high: digits(high) })
    }

    /// Returns true if this mean is smaller than the other, and their intervals do not overlap.
    pub(super) fn is_below(&self, other: &Mean) -> bool {
        self.high < other.low
    }
}

/// Rounds to five significant digits. This keeps the stored file small, and is more precise than
/// the intervals.
fn digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

impl NsQuic {
    /// Returns the result of a part, or `None` if the part did not run.
    pub(super) fn part(&self, part: Part) -> Option<&Measured> {
        self.parts.iter().find(|one| one.part == part)
    }

    /// Returns this result if its parts can be combined with runs of `scale`. Fails if the size or
    /// the number of seeds differs.
    pub(super) fn fitting(self, scale: &Scale) -> Result<NsQuic> {
        if self.scale.size != scale.size || self.scale.seeds != scale.seeds {
            let why = "the result for --keep has another size or another number of seeds";
            return Err(Failure::new(why).help(
                "use the same --quick, --medium and --seeds with which that result was made",
            ));
        }
        Ok(self)
    }

    /// Adds those parts of another result that this one lacks.
    pub(super) fn keep(&mut self, other: NsQuic) {
        let added = other.parts.into_iter().filter(|one| !self.scale.parts.contains(&one.part));
        self.parts.extend(added.collect::<Vec<_>>());
        self.parts.sort_by_key(|one| Part::ALL.iter().position(|part| *part == one.part));
        self.scale.parts = self.parts.iter().map(|one| one.part).collect();
        self.scale.large_seeds = self.scale.large_seeds.or(other.scale.large_seeds);
    }
}

impl Measured {
    /// Returns the values of an axis, or an empty list if there is no such axis.
    pub(super) fn values(&self, axis: &str) -> &[String] {
        let found = self.axes.iter().find(|one| one.name == axis);
        found.map_or(&[], |axis| &axis.values)
    }

    /// Returns the row of an arm at a point of the grid. Axes that `point` does not name may have
    /// any value.
    pub(super) fn row(&self, arm: &str, point: &[(&str, &str)]) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.is("arm", arm) && point.iter().all(|(axis, value)| row.is(axis, value)))
    }

    /// Returns the rows of two arms at the same point, as pairs.
    pub(super) fn pairs<'a>(
        &'a self,
        one: &'a str,
        other: &'a str,
    ) -> impl Iterator<Item = (&'a Row, &'a Row)> {
        let own = self.rows.iter().filter(move |row| row.is("arm", one));
        own.filter_map(move |row| {
            let same = |other: &&Row| {
                row.point.iter().all(|(axis, value)| axis == "arm" || other.is(axis, value))
            };
            let found = self.rows.iter().filter(|row| row.is("arm", other)).find(same)?;
            Some((row, found))
        })
    }
}

impl Row {
    /// Returns true if the axis has this value in the row.
    pub(super) fn is(&self, axis: &str, value: &str) -> bool {
        self.point.get(axis).is_some_and(|own| own == value)
    }

    /// Returns the completion time in seconds of the only flow, if every connection completed.
    pub(super) fn completion(&self) -> Option<Mean> {
        let flow = self.flows.first().filter(|flow| flow.completed == flow.connections)?;
        flow.completion
    }

    /// Returns how many times faster this row is than another one: the other's completion time
    /// divided by this row's. `None` if some connections did not complete.
    pub(super) fn times_faster_than(&self, other: &Row) -> Option<f64> {
        Some(other.completion()?.mean / self.completion()?.mean)
    }
}

/// The column of rows.csv that follows those of the axes. It contains the number of the cell.
const FIRST: &str = "cell";

/// A line of rows.csv, which describes one connection of a run.
struct Line {
    seed: u64,
    flow: String,
    completion: Option<f64>,
    goodput: f64,
}

/// Reads the rows of a sweep from its folder.
pub(super) fn read(path: &Path) -> Result<Vec<Row>> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read {}", path.display()), why)
    };
    let mut reader = csv::Reader::from_path(path).map_err(|error| failed(&error))?;
    let names = reader.headers().map_err(|error| failed(&error))?.clone();
    let place = |name: &str| {
        names.iter().position(|one| one == name).ok_or_else(|| failed(&format!("it has no {name}")))
    };
    let (axes, seed, flow) = (place(FIRST)?, place("seed")?, place("flow")?);
    let (completion, goodput) = (place("completion_s")?, place("goodput_bit_s")?);
    let mut rows = Vec::new();
    let mut cell: (Vec<String>, Vec<Line>) = Default::default();
    for record in reader.records() {
        let record = record.map_err(|error| failed(&error))?;
        let number = |place: usize| {
            let text = record.get(place).unwrap_or_default();
            text.parse::<f64>().map_err(|_| failed(&format!("{text:?} is not a number")))
        };
        let labels: Vec<String> = record.iter().take(axes).map(str::to_owned).collect();
        if labels != cell.0 && !cell.1.is_empty() {
            rows.push(row(&names, &cell));
            cell.1.clear();
        }
        cell.0 = labels;
        cell.1.push(Line {
            seed: number(seed)? as u64,
            flow: record.get(flow).unwrap_or_default().to_owned(),
            completion: number(completion).ok(),
            goodput: number(goodput)?,
        });
    }
    if !cell.1.is_empty() {
        rows.push(row(&names, &cell));
    }
    Ok(rows)
}

fn row(names: &csv::StringRecord, (labels, lines): &(Vec<String>, Vec<Line>)) -> Row {
    let mut flows: Vec<&str> = Vec::new();
    for line in lines {
        if !flows.contains(&line.flow.as_str()) {
            flows.push(&line.flow);
        }
    }
    let seeds = || lines.chunk_by(|one, other| one.seed == other.seed);
    let mean = |lines: &[Line], flow: &str, value: &dyn Fn(&Line) -> Option<f64>| {
        let own = lines.iter().filter(|line| line.flow == flow);
        own.filter_map(value).collect::<Sample>().mean()
    };
    let goodput = |line: &Line| Some(line.goodput);
    let jain = seeds().filter(|lines| lines.len() > 1).filter_map(|lines| {
        let sum: f64 = lines.iter().map(|line| line.goodput).sum();
        let squares: f64 = lines.iter().map(|line| line.goodput.powi(2)).sum();
        (squares > 0.0).then(|| sum * sum / (lines.len() as f64 * squares))
    });
    let share = match &flows[..] {
        [one, other] => Mean::of(seeds().filter_map(|lines| {
            let (one, other) = (mean(lines, one, &goodput)?, mean(lines, other, &goodput)?);
            (other > 0.0).then(|| one / other)
        })),
        _ => None,
    };
    let flow = |name: &str| {
        let own = || lines.iter().filter(|line| line.flow == name);
        Flow {
            name: name.to_owned(),
            connections: own().count(),
            completed: own().filter(|line| line.completion.is_some()).count(),
            completion: Mean::of(
                seeds().filter_map(|lines| mean(lines, name, &|line| line.completion)),
            ),
            goodput: Mean::of(seeds().filter_map(|lines| mean(lines, name, &goodput))),
        }
    };
    let names = names.iter().map(str::to_owned);
    Row {
        point: names.zip(labels.iter().cloned()).collect(),
        jain: Mean::of(jain),
        share,
        flows: flows.iter().map(|name| flow(name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nsquic_data_groups_connections_into_rows_of_cells() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let text = "arm,flow.size,cell,seed,flow,copy,completion_s,goodput_bit_s\n\
            a,1 MB,1,1,QUIC,1,2,300\na,1 MB,1,1,TCP,1,4,100\n\
            a,1 MB,1,2,QUIC,1,4,100\na,1 MB,1,2,TCP,1,,100\n\
            b,1 MB,2,1,only,1,5,800\n";
        std::fs::write(&path, text).unwrap();
        let rows = read(&path).unwrap();
        assert_eq!(rows.len(), 2);
        let [quic, tcp] = &rows[0].flows[..] else { panic!("{rows:?}") };
        assert_eq!((quic.completed, quic.connections, tcp.completed), (2, 2, 1));
        assert_eq!(quic.completion.unwrap().mean, 3.0);
        assert_eq!(rows[0].share.unwrap().mean, 2.0);
        // The expected indices of the two runs are 400^2 / (2 * 100,000) and 1.
        assert_eq!(rows[0].jain.unwrap().mean, 0.9);
        assert!(rows[0].is("flow.size", "1 MB") && !rows[0].is("flow.size", "2 MB"));
        assert_eq!((rows[1].jain, rows[1].share), (None, None));
        assert_eq!(rows[1].completion().unwrap(), Mean { mean: 5.0, low: 5.0, high: 5.0 });
        assert_eq!(rows[1].times_faster_than(&rows[0]), Some(0.6));
    }
}
