//! `equic sim compare`: two sweeps, flow by flow in each cell.

use std::collections::BTreeMap;
use std::path::Path;

use equic_report::number::{self, MISSING};
use equic_report::stats::Sample;
use equic_report::stats::ranks::{holm, signed_rank};
use equic_report::table::{Cell, Column, Table, Tone};
use equic_scenario::command::Compare;
use serde::Serialize;

use super::finish::{Group, groups};
use super::store;
use crate::failure::{Done, Failure};
use crate::output;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ComparisonVerdict {
    Worse,
    Better,
    /// Neither better nor worse, as far as these runs tell.
    Inconclusive,
    /// Every run has the same figure as the run with the same seed.
    Same,
    /// No run of the same seed has figures in both.
    Incomparable,
}

/// A flow of a cell in both results.
#[derive(Serialize)]
struct Compared {
    cell: String,
    flow: String,
    /// `completion_s`, or `goodput_bit_s` where not all connections completed in both.
    figure: &'static str,
    old: Option<f64>,
    new: Option<f64>,
    /// The new mean divided by the old.
    ratio: Option<f64>,
    /// Runs with the same seed.
    pairs: usize,
    /// Probability of such differences if there were none; none if all are the same.
    p: Option<f64>,
    verdict: ComparisonVerdict,
}

#[derive(Serialize)]
struct Comparison<'a> {
    p: f64,
    effect: f64,
    corrected: bool,
    flows: &'a [Compared],
}

pub(crate) fn run(args: &Compare) -> Done {
    if !(args.p > 0.0 && args.p < 1.0 && args.effect >= 0.0) {
        return Err(Failure::Usage("--p is between 0 and 1, and --effect 0 or more".to_owned()));
    }
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    let mut compared: Vec<Compared> =
        old.iter().filter_map(|(key, old)| Some(compare(key, old, new.get(key)?))).collect();
    if compared.is_empty() {
        return Err(Failure::new("the results have no flow of the same cell in common"));
    }
    let alone = old.len() + new.len() - 2 * compared.len();
    judge(args, &mut compared);
    let count = |verdict| compared.iter().filter(|one| one.verdict == verdict).count();
    let worse = count(ComparisonVerdict::Worse);
    if args.json {
        let Compare { p, effect, corrected, .. } = *args;
        output::json("equic.sim.compare/1", Comparison { p, effect, corrected, flows: &compared })?;
    } else {
        print(&compared)?;
        output::text(format_args!(
            "{worse} worse, {} better, {} the same, {} inconclusive, {} cannot be compared, {alone} in one result alone\n",
            count(ComparisonVerdict::Better),
            count(ComparisonVerdict::Same),
            count(ComparisonVerdict::Inconclusive),
            count(ComparisonVerdict::Incomparable),
        ))?;
    }
    // With --corrected, the smallest p-value counts as often as there are flows.
    let tests = compared.iter().filter(|one| one.p.is_some()).count();
    let seeds = seeds_for(args.p, if args.corrected { tests } else { 1 });
    let few = compared
        .iter()
        .filter(|one| one.verdict == ComparisonVerdict::Inconclusive && (one.pairs as u64) < seeds);
    let few = few.count();
    if few > 0 {
        output::notice(format_args!(
            "{few} inconclusive for lack of seeds: p < {} takes {seeds} or more seeds in both results",
            args.p
        ));
    }
    if worse > 0 && !args.no_fail {
        return Err(Failure::new(format!("{worse} of {} are worse", compared.len())));
    }
    Ok(())
}

/// Returns the number of pairs from which on the test can give a p-value below `p` in the first of so many tests. The
/// smallest that it gives is 2 / 2^pairs, if all differences have one sign.
fn seeds_for(p: f64, tests: usize) -> u64 {
    (1..)
        .find(|pairs| 2.0_f64.powi(1 - *pairs) * (tests.max(1) as f64) < p)
        .map_or(0, |pairs| pairs as u64)
}

/// Flows by their cell and name.
fn load(folder: &Path) -> Done<BTreeMap<(String, String), Group>> {
    let (grid, _, runs) = store::read(folder)?;
    let names: Vec<&str> = grid.axes().iter().map(|axis| axis.name.as_str()).collect();
    let groups = groups(names.len(), &runs).into_iter().map(|group| {
        let labels = names.iter().zip(&group.labels).map(|(name, label)| format!("{name} {label}"));
        ((labels.collect::<Vec<_>>().join(", "), group.flow[0].clone()), group)
    });
    Ok(groups.collect())
}

fn compare((cell, flow): &(String, String), old: &Group, new: &Group) -> Compared {
    let complete = old.completed == old.rows && new.completed == new.rows;
    let (figure, one, other) = if complete {
        ("completion_s", &old.completion, &new.completion)
    } else {
        ("goodput_bit_s", &old.goodput, &new.goodput)
    };
    let by_seed: BTreeMap<u64, f64> = other.iter().copied().collect();
    let pairs: Vec<(f64, f64)> =
        one.iter().filter_map(|(seed, value)| Some((*value, *by_seed.get(seed)?))).collect();
    let mean =
        |values: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(values).collect::<Sample>().mean();
    let (old, new) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
    let ratio = old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
    let differences: Vec<f64> = pairs.iter().map(|(one, other)| other - one).collect();
    Compared {
        cell: cell.clone(),
        flow: flow.clone(),
        figure,
        old,
        new,
        ratio,
        pairs: pairs.len(),
        p: signed_rank(&differences).map(|test| test.p),
        verdict: if pairs.is_empty() {
            ComparisonVerdict::Incomparable
        } else if differences.iter().all(|difference| *difference == 0.0) {
            ComparisonVerdict::Same
        } else {
            ComparisonVerdict::Inconclusive
        },
    }
}

fn judge(args: &Compare, compared: &mut [Compared]) {
    let known: Vec<f64> = compared.iter().filter_map(|one| one.p).collect();
    let p = if args.corrected { holm(&known) } else { known };
    for (one, p) in compared.iter_mut().filter(|one| one.p.is_some()).zip(p) {
        one.p = Some(p);
        let Some(ratio) = one.ratio else { continue };
        if p < args.p && (ratio - 1.0).abs() * 100.0 >= args.effect {
            // Less time is better, less goodput worse.
            let less_is_better = one.figure == "completion_s";
            let better = (ratio < 1.0) == less_is_better;
            one.verdict = if better { ComparisonVerdict::Better } else { ComparisonVerdict::Worse };
        }
    }
}

fn print(compared: &[Compared]) -> Done {
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
            ComparisonVerdict::Incomparable => ("cannot be compared", Tone::Warning),
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
