//! `equic-lab sim compare`: compares two sweeps, flow by flow in each cell. A cell is one
//! combination of the values of a grid.

use std::collections::BTreeMap;
use std::path::Path;

use equic_report::number::{self, MISSING};
use equic_report::stats::Sample;
use equic_report::stats::ranks::{holm, signed_rank};
use equic_report::table::{Cell, Column, Table, Tone};
use equic_scenario::command::Compare;
use equic_scenario::{Grid, Scenario};
use serde::Serialize;

use super::differ::{self, Difference};
use super::finish::{Group, groups};
use super::store;
use crate::failure::{Failure, Result};
use crate::output;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ComparisonVerdict {
    Worse,
    Better,
    /// The runs do not show whether the flow is better or worse.
    Inconclusive,
    /// Every run has the same result as the run with the same seed in the other sweep.
    Same,
    /// There are too few seeds for the verdicts `Worse` and `Better`, even for the largest possible
    /// difference.
    TooFewSeeds,
    /// No seed has results in both sweeps, or the results measure different things.
    Incomparable,
}

/// The comparison of a flow. Its cell is in both sweeps.
#[derive(Serialize)]
struct Compared {
    cell: String,
    flow: String,
    /// The quantity that is compared: `completion_s`, or `goodput_bit_s` if not all connections
    /// completed in both sweeps.
    figure: &'static str,
    old: Option<f64>,
    new: Option<f64>,
    /// The flow's mean in the new sweep divided by its mean in the old sweep.
    ratio: Option<f64>,
    /// Number of pairs of runs with the same seed.
    pairs: usize,
    /// The p-value: the probability of such differences if only chance caused them. `None` if all
    /// pairs are equal.
    p: Option<f64>,
    verdict: ComparisonVerdict,
    /// The reason why the flow cannot be compared. Empty if it can be compared.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

#[derive(Serialize)]
struct Comparison<'a> {
    p: f64,
    effect: f64,
    corrected: bool,
    /// Scenario keys that have different values in the two sweeps.
    differences: &'a [Difference],
    flows: &'a [Compared],
}

pub(crate) fn run(args: &Compare) -> Result {
    if !(args.p > 0.0 && args.p < 1.0 && args.effect >= 0.0) {
        return Err(Failure::Usage(
            "--p must be between 0 and 1, and --effect must be 0 or more".to_owned(),
        ));
    }
    let (old, new) = (Loaded::read(&args.old)?, Loaded::read(&args.new)?);
    let mut compared: Vec<Compared> = old
        .flows
        .iter()
        .filter_map(|(key, one)| {
            let other = new.flows.get(key)?;
            Some(compare(key, (one, old.scenario(&key.0)?), (other, new.scenario(&key.0)?)))
        })
        .collect();
    if compared.is_empty() {
        return Err(Failure::Incomparable(
            "the two results have no flow in common: they must contain the same cells".to_owned(),
        ));
    }
    let single = old.flows.len() + new.flows.len() - 2 * compared.len();
    let differences = differ::differences(&old.grid, &new.grid);
    let seeds = judge(args, &mut compared);
    let count = |verdict| compared.iter().filter(|one| one.verdict == verdict).count();
    if args.json {
        let Compare { p, effect, corrected, .. } = *args;
        let comparison =
            Comparison { p, effect, corrected, differences: &differences, flows: &compared };
        output::json("equic.sim.compare/1", comparison)?;
    } else {
        print(&compared)?;
        if let Some(table) = differ::table(&differences) {
            output::table(&table)?;
        }
        output::text(format_args!(
            "flows: {} worse, {} better, {} the same, {} inconclusive, {} with too few seeds, {} not comparable, {single} in only one of the results\n",
            count(ComparisonVerdict::Worse),
            count(ComparisonVerdict::Better),
            count(ComparisonVerdict::Same),
            count(ComparisonVerdict::Inconclusive),
            count(ComparisonVerdict::TooFewSeeds),
            count(ComparisonVerdict::Incomparable),
        ))?;
    }
    let (worse, few) = (count(ComparisonVerdict::Worse), count(ComparisonVerdict::TooFewSeeds));
    let all = compared.len();
    if count(ComparisonVerdict::Incomparable) == all {
        return Err(Failure::Incomparable("no flow can be compared".to_owned()));
    }
    if args.no_fail {
        return Ok(());
    }
    if worse > 0 {
        return Err(Failure::new(format!("{worse} of {all} flows are worse")));
    }
    if few > 0 {
        return Err(Failure::Undecided(format!(
            "{few} of {all} flows have too few seeds for a verdict: p < {} needs {seeds} or more seeds in both results",
            args.p
        )));
    }
    Ok(())
}

/// Returns the smallest number of pairs with which the test can give a p-value below `p`, after
/// Holm's correction for `tests` tests. The smallest possible p-value is 2 / 2^pairs. It results if
/// all differences have the same sign.
fn seeds_for(p: f64, tests: usize) -> u64 {
    (1..)
        .find(|pairs| 2.0_f64.powi(1 - *pairs) * (tests.max(1) as f64) < p)
        .map_or(0, |pairs| pairs as u64)
}

/// A sweep that was read from its directory.
struct Loaded {
    grid: Grid,
    /// The cells of the grid, by name.
    cells: BTreeMap<String, usize>,
    /// The flows. The key is the name of the cell and the name of the flow.
    flows: BTreeMap<(String, String), Group>,
}

impl Loaded {
    fn read(folder: &Path) -> Result<Loaded> {
        let (grid, _, runs) = store::read(folder)?;
        let names: Vec<&str> = grid.axes().iter().map(|axis| axis.name.as_str()).collect();
        let groups = groups(names.len(), &runs).into_iter().map(|group| {
            let labels = names.iter().zip(&group.labels);
            let labels = labels.map(|(name, label)| format!("{name} {label}"));
            ((labels.collect::<Vec<_>>().join(", "), group.flow[0].clone()), group)
        });
        let flows = groups.collect();
        let cells = differ::names(&grid).into_iter().enumerate().map(|(cell, name)| (name, cell));
        Ok(Loaded { cells: cells.collect(), flows, grid })
    }

    fn scenario(&self, cell: &str) -> Option<&Scenario> {
        self.grid.scenarios().get(*self.cells.get(cell)?)
    }
}

fn compare(
    (cell, flow): &(String, String),
    (old, scenario): (&Group, &Scenario),
    (new, other_scenario): (&Group, &Scenario),
) -> Compared {
    let complete = old.completed == old.rows && new.completed == new.rows;
    let (figure, one, other) = if complete {
        ("completion_s", &old.completion, &new.completion)
    } else {
        ("goodput_bit_s", &old.goodput, &new.goodput)
    };
    let obstacle = differ::obstacle(scenario, other_scenario, flow, complete);
    let by_seed: BTreeMap<u64, f64> = other.iter().copied().collect();
    let pairs: Vec<(f64, f64)> =
        one.iter().filter_map(|(seed, value)| Some((*value, *by_seed.get(seed)?))).collect();
    let mean =
        |values: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(values).collect::<Sample>().mean();
    let (old, new) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
    let ratio = old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
    let differences: Vec<f64> = pairs.iter().map(|(one, other)| other - one).collect();
    let none = pairs.is_empty().then(|| "no seed has results in both sweeps".to_owned());
    let why = obstacle.or(none).unwrap_or_default();
    Compared {
        cell: cell.clone(),
        flow: flow.clone(),
        figure,
        old,
        new,
        ratio,
        pairs: pairs.len(),
        p: signed_rank(&differences).map(|test| test.p).filter(|_| why.is_empty()),
        verdict: if !why.is_empty() {
            ComparisonVerdict::Incomparable
        } else if differences.iter().all(|difference| *difference == 0.0) {
            ComparisonVerdict::Same
        } else {
            ComparisonVerdict::Inconclusive
        },
        why,
    }
}

/// Adds the verdicts that need a statistical test. Returns the number of seeds that such a verdict
/// needs at least.
fn judge(args: &Compare, compared: &mut [Compared]) -> u64 {
    let known: Vec<f64> = compared.iter().filter_map(|one| one.p).collect();
    // With --corrected, Holm's method multiplies the smallest p-value by the number of compared
    // flows.
    let seeds = seeds_for(args.p, if args.corrected { known.len() } else { 1 });
    let p = if args.corrected { holm(&known) } else { known };
    for (one, p) in compared.iter_mut().filter(|one| one.p.is_some()).zip(p) {
        one.p = Some(p);
        let Some(ratio) = one.ratio else { continue };
        if p < args.p && (ratio - 1.0).abs() * 100.0 >= args.effect {
            // A smaller completion time is better, and a larger goodput is better.
            let less_is_better = one.figure == "completion_s";
            let better = (ratio < 1.0) == less_is_better;
            one.verdict = if better { ComparisonVerdict::Better } else { ComparisonVerdict::Worse };
        } else if (one.pairs as u64) < seeds {
            one.verdict = ComparisonVerdict::TooFewSeeds;
        }
    }
    seeds
}

fn print(compared: &[Compared]) -> Result {
    let mut table = Table::new([
        Column::text("cell"),
        Column::text("flow"),
        Column::text("figure"),
        Column::number("old"),
        Column::number("new"),
        Column::number("change"),
        Column::number("p"),
        Column::text("verdict"),
    ]);
    for one in compared {
        let time = one.figure == "completion_s";
        let how = if time { number::seconds } else { number::bit_rate };
        let shown = |value: Option<f64>| value.map_or(MISSING.to_owned(), how);
        let change = one.old.zip(one.new).map(|(old, new)| number::change(old, new));
        let (verdict, tone) = match one.verdict {
            ComparisonVerdict::Worse => ("worse", Tone::Bad),
            ComparisonVerdict::Better => ("better", Tone::Good),
            ComparisonVerdict::Same => ("the same", Tone::Faint),
            ComparisonVerdict::Inconclusive => ("inconclusive", Tone::Faint),
            ComparisonVerdict::TooFewSeeds => ("too few seeds", Tone::Warning),
            ComparisonVerdict::Incomparable => ("cannot be compared", Tone::Warning),
        };
        let verdict = match one.why.as_str() {
            "" => verdict.to_owned(),
            why => format!("{verdict}: {why}"),
        };
        table.row([
            Cell::new(one.cell.clone()),
            Cell::new(one.flow.clone()),
            Cell::new(if time { "completion" } else { "goodput" }),
            Cell::new(shown(one.old)),
            Cell::new(shown(one.new)),
            Cell::new(change.unwrap_or_else(|| MISSING.to_owned())),
            Cell::new(one.p.map_or(MISSING.to_owned(), |p| format!("{p:.4}"))),
            Cell::new(verdict).tone(tone),
        ]);
    }
    output::table(&table)
}
