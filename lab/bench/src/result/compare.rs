//! Compares two results: which cells are better, worse, equal, or undecided.
//!
//! A cell is better or worse only if the difference is statistically significant (p < 0.05) *and*
//! large enough to matter (at least 1 %). Unpaired samples are tested with the Mann-Whitney test,
//! and the change is the median of all ratios of a new to an old figure (Hodges-Lehmann estimator).
//! Rounds that ran interleaved on one machine are pairs. For these, the test is Wilcoxon's signed
//! rank test, and the change is the median of the ratios within rounds. Drift of the machine then
//! cancels out.
//!
//! A cell has no difference if the 95 % interval of its change lies within a bound (5 %). That is
//! the equivalence test by two one-sided tests, each at 2.5 %.
//!
//! Few rounds cannot give p < 0.05, however large the difference is. Such a cell does not get the
//! verdict `inconclusive`, but a separate one: [`TooFewRounds`](ComparisonVerdict::TooFewRounds).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use equic_report::stats::effect::{ratio, ratio_interval_95};
use equic_report::stats::ranks::{
    holm, least_mann_whitney, least_signed_rank, mann_whitney, signed_rank,
};
use equic_report::stats::{Interval, Sample};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read::{Run, SAMPLES};
use super::runner::RunnerFile;
use super::summary::{Row, Summary};
use super::{ResultError, summarise};
use crate::record::Key;

/// Version of the schema of a comparison.
pub const COMPARISON: &str = "equic.bench.compare/1";

/// Thresholds that decide the verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Maximum p-value for which a cell counts as different.
    pub p: f64,
    /// Minimum size of a change for which a cell counts as different: 0.01 is 1 %.
    pub effect: f64,
    /// Bound for equal cells: a cell counts as equal if the interval of its change lies within this
    /// bound. 0.05 is 5 %.
    pub same: f64,
    /// True if p-values are corrected for the number of cells by Holm's method. The probability
    /// that any cell is wrongly called different is then at most `p`.
    pub corrected: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { p: 0.05, effect: 0.01, same: 0.05, corrected: false }
    }
}

/// Verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// The cell is worse, or it fails although it did not in the old result.
    Worse,
    /// The cell is better, or it no longer fails.
    Better,
    /// The cell is equal: the interval of its change lies within [`Rule::same`].
    Same,
    /// No other verdict applies.
    Inconclusive,
    /// The cell has fewer rounds than `Worse` or `Better` needs, however large the difference is.
    TooFewRounds,
    /// Only one of the two results has figures for the cell, and nothing failed.
    Incomparable,
}

/// The change of a cell: the new figure divided by the old one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The median of the ratios within rounds if rounds are paired, otherwise the median of all
    /// ratios of a new to an old figure. 1.02 is 2 % more.
    pub value: f64,
    /// Interval that contains the change with a confidence of 95 % or more. `None` if there are too
    /// few rounds.
    pub interval: Option<Interval>,
}

/// Comparison of a cell between the old and the new result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Identity of the cell, with the implementation names of the old result.
    #[serde(flatten)]
    pub key: Key,
    /// Unit of the medians.
    pub unit: String,
    /// Median of the old figures.
    pub old: Option<f64>,
    /// Median of the new figures.
    pub new: Option<f64>,
    /// Number of figures in the old result.
    pub old_count: usize,
    /// Number of figures in the new result.
    pub new_count: usize,
    /// Number of failed rounds in the old result, and the number of all its rounds.
    pub old_failed: (usize, usize),
    /// Number of failed rounds in the new result, and the number of all its rounds.
    pub new_failed: (usize, usize),
    /// The new figure divided by the old one.
    pub ratio: Option<Change>,
    /// True if figures are compared round by round, as pairs.
    pub paired: bool,
    /// p-value of the test that decides the verdict: the Mann-Whitney test, or Wilcoxon's signed
    /// rank test for pairs.
    pub p: Option<f64>,
    /// p-value of the Mann-Whitney test. It is also computed if the test for pairs decides.
    pub mann_whitney_p: Option<f64>,
    /// The p-value `p`, corrected for the number of cells by Holm's method.
    pub corrected_p: Option<f64>,
    /// The smallest p-value that this number of rounds can give, corrected for the number of cells
    /// if the rule demands it.
    pub least_p: Option<f64>,
    /// With [`ComparisonVerdict::TooFewRounds`]: the number of rounds that each result needs for a
    /// verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
    /// True if the client's clock is doubted in at least half of the rounds of the old result. The
    /// verdict then depends on that clock.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old_clock_doubted: bool,
    /// True if the client's clock is doubted in at least half of the rounds of the new result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_clock_doubted: bool,
    /// CPU time of server and client in the new result, divided by that in the old one. It has no
    /// influence on the verdict.
    pub cpu: Option<f64>,
    /// Verdict on the cell.
    pub verdict: ComparisonVerdict,
    /// Reason for the verdict, if the figures do not show it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Two results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the old result.
    pub old: String,
    /// Name of the new result.
    pub new: String,
    /// Rule that decides the verdicts.
    pub rule: Rule,
    /// True if figures are compared round by round, as pairs.
    pub paired: bool,
    /// Notes, for example that the results are from different machines.
    pub notes: Vec<String>,
    /// The cells that are in at least one of the two results.
    pub cells: Vec<Compared>,
}

impl Comparison {
    /// Returns the number of cells with this verdict.
    #[must_use]
    pub fn count(&self, verdict: ComparisonVerdict) -> usize {
        self.cells.iter().filter(|cell| cell.verdict == verdict).count()
    }
}

/// Name of an implementation in the old result, and of the one in the new result that it is
/// compared with. With `("equic-old", "equic")`, two builds that ran interleaved in one run are
/// compared.
pub type Renamed = (String, String);

/// Reads a result: a run's folder, its `samples.jsonl`, or a `result.json`.
///
/// # Errors
/// [`ResultError`]. A `result.json` without eQUIC's extension object has no samples and cannot be
/// compared.
pub fn load(path: &Path) -> Result<Summary, ResultError> {
    if path.is_dir() {
        return Ok(summarise(&Run::read(path)?));
    }
    if path.file_name().is_some_and(|name| name == SAMPLES) {
        return load(
            path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        );
    }
    let bytes =
        fs::read(path).map_err(|source| ResultError::Read { path: path.to_owned(), source })?;
    let wrong = |reason: String| ResultError::Json { path: path.to_owned(), reason };
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if value.get("equic").is_none() {
        return Err(wrong(
            "the file has no samples (field `equic`): use a file that `equic-lab bench` wrote"
                .into(),
        ));
    }
    let file: RunnerFile<Summary> =
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    Ok(file.equic)
}

/// Compares two results. With `renamed`, compares only cells of the old name in `old` with those of
/// the new name in `new`.
#[must_use]
pub fn compare(old: &Summary, new: &Summary, renamed: Option<&Renamed>, rule: Rule) -> Comparison {
    let same_run = (old.started, old.ended, &old.rows) == (new.started, new.ended, &new.rows);
    let same_machine = !machine(old).is_null() && machine(old) == machine(new);
    let overlap = old.started < new.ended && new.started < old.ended;
    let paired = same_run || (same_machine && overlap);
    let mut notes = Vec::new();
    if !same_run && !same_machine {
        notes.push(
            "the results may come from different machines, so the machines may cause differences"
                .to_owned(),
        );
    } else if !paired {
        notes.push(
            "the runs were not interleaved, so the differences include the machine's drift between them"
                .to_owned(),
        );
    }
    let mut others: BTreeMap<Key, &Row> =
        new.rows.iter().map(|row| (row.key.clone(), row)).collect();
    let mut cells = Vec::new();
    for row in &old.rows {
        let Some(key) = in_new(&row.key, renamed) else { continue };
        match others.remove(&key) {
            Some(other) => cells.push(cell(row, other, paired, rule)),
            None if renamed.is_none() => cells.push(alone(row, true)),
            None => {}
        }
    }
    if renamed.is_none() {
        cells.extend(others.into_values().map(|row| alone(row, false)));
    }
    judge(&mut cells, rule);
    Comparison { old: old.name.clone(), new: new.name.clone(), rule, paired, notes, cells }
}

/// Returns those facts about the machine that distinguish it from others.
fn machine(summary: &Summary) -> &Value {
    &summary.manifest["machine"]
}

fn in_new(key: &Key, renamed: Option<&Renamed>) -> Option<Key> {
    let Some((from, to)) = renamed else { return Some(key.clone()) };
    let rename = |name: &String| if name == from { to.clone() } else { name.clone() };
    let (client, server) = (rename(&key.client), rename(&key.server));
    let changed = (&client, &server) != (&key.client, &key.server);
    changed.then(|| Key { client, server, ..key.clone() })
}

fn values(row: &Row) -> Sample {
    row.points.iter().map(|point| point.value).collect()
}

fn cpu(row: &Row) -> Option<f64> {
    row.points.iter().map(|point| point.server_cpu + point.client_cpu).collect::<Sample>().median()
}

fn cell(old: &Row, new: &Row, paired: bool, rule: Rule) -> Compared {
    let (before, after) = (values(old), values(new));
    let mut compared = Compared {
        key: old.key.clone(),
        unit: if old.unit.is_empty() { new.unit.clone() } else { old.unit.clone() },
        old: before.median(),
        new: after.median(),
        old_count: before.len(),
        new_count: after.len(),
        old_failed: (old.failed(), old.rounds),
        new_failed: (new.failed(), new.rounds),
        ratio: None,
        paired: false,
        p: None,
        mann_whitney_p: None,
        corrected_p: None,
        least_p: None,
        rounds_needed: None,
        old_clock_doubted: old.clock_is_doubted(),
        new_clock_doubted: new.clock_is_doubted(),
        cpu: cpu(old).zip(cpu(new)).map(|(old, new)| new / old),
        verdict: ComparisonVerdict::Incomparable,
        why: String::new(),
    };
    if old.unit != new.unit && !before.is_empty() && !after.is_empty() {
        compared.why = format!("the unit changed from {} to {}", old.unit, new.unit);
        return compared;
    }
    let by_round: BTreeMap<i64, f64> =
        old.points.iter().map(|point| (point.round, point.value)).collect();
    let ratios: Vec<f64> = new
        .points
        .iter()
        .filter_map(|point| Some(point.value / by_round.get(&point.round)?))
        .collect();
    compared.mann_whitney_p = mann_whitney(&before, &after).map(|test| test.p);
    if paired && ratios.len() >= 2 {
        let sample = Sample::from(&*ratios);
        compared.paired = true;
        compared.ratio =
            sample.median().map(|value| Change { value, interval: sample.median_95() });
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        // `signed_rank` returns `None` if the two figures are equal in every pair.
        compared.p = Some(signed_rank(&logarithms).map_or(1.0, |test| test.p));
        compared.least_p = Some(least_signed_rank(sample.len()));
    } else {
        let interval = ratio_interval_95(&before, &after);
        compared.ratio = ratio(&before, &after).map(|value| Change { value, interval });
        compared.p = compared.mann_whitney_p;
        compared.least_p = compared.p.map(|_| least_mann_whitney(before.len(), after.len()));
    }
    (compared.verdict, compared.why) = failures(old, new, rule);
    compared
}

/// Returns the verdict that follows from a cell's failures. A cell that fails more often is worse,
/// whatever its figures are.
fn failures(old: &Row, new: &Row, rule: Rule) -> (ComparisonVerdict, String) {
    // A round that failed because of a busy machine does not count as a failure of the
    // implementations.
    let rate = |row: &Row| {
        let failed = row.failed().saturating_sub(row.disturbed_rounds());
        (failed, row.rounds.saturating_sub(row.failed()))
    };
    let ((a, b), (c, d)) = (rate(old), rate(new));
    let why = || format!("{a} of {} failed, now {c} of {}", a + b, c + d);
    let (was, is) = (a as f64 / (a + b).max(1) as f64, c as f64 / (c + d).max(1) as f64);
    if was != is && fisher(a, b, c, d) < rule.p {
        let verdict = if is > was { ComparisonVerdict::Worse } else { ComparisonVerdict::Better };
        return (verdict, why());
    }
    // A sound cell had figures and no failures. If all of its rounds now fail, it is worse, however
    // few rounds there are. A cell that used to fail sometimes may fail in every round without a
    // significant change of its failure rate.
    let sound = old.measured > 0 && a == 0;
    let busy = |row: &Row| {
        let only_noise = row.failed() == row.disturbed_rounds();
        let noise = row.disturbed.is_some() || row.disturbed_rounds() > 0;
        row.measured == 0 && only_noise && noise
    };
    if busy(old) || busy(new) {
        let why = "the machine was too busy in every round".to_owned();
        return (ComparisonVerdict::Incomparable, why);
    }
    if new.measured == 0 && (sound || (old.measured > 0 && new.unsupported.is_some())) {
        let unsupported = new.unsupported.clone().unwrap_or_else(why);
        return (ComparisonVerdict::Worse, format!("the new result has no figures: {unsupported}"));
    }
    let why = if was == is { String::new() } else { why() };
    if old.measured == 0 || new.measured == 0 {
        return (ComparisonVerdict::Incomparable, why);
    }
    (ComparisonVerdict::Inconclusive, why)
}

/// Returns the two-sided p-value of Fisher's exact test (1922). It compares the shares `a` of `a +
/// b` and `c` of `c + d`.
fn fisher(a: usize, b: usize, c: usize, d: usize) -> f64 {
    let ln = |n: usize| -> f64 { (2..=n).map(|i| (i as f64).ln()).sum() };
    let (first, second, marked) = (a + b, c + d, a + c);
    let fixed = ln(first) + ln(second) + ln(marked) + ln(b + d) - ln(first + second);
    let chance = |a: usize| {
        let (b, c) = (first - a, marked - a);
        (fixed - ln(a) - ln(b) - ln(c) - ln(second - c)).exp()
    };
    let range = marked.saturating_sub(second)..=marked.min(first);
    let seen = chance(a) * (1.0 + 1e-9);
    range.map(chance).filter(|one| *one <= seen).sum::<f64>().min(1.0)
}

fn alone(row: &Row, old: bool) -> Compared {
    let median = row.value.map(|value| value.median);
    let failed = (row.failed(), row.rounds);
    Compared {
        key: row.key.clone(),
        unit: row.unit.clone(),
        old: median.filter(|_| old),
        new: median.filter(|_| !old),
        old_count: if old { row.measured } else { 0 },
        new_count: if old { 0 } else { row.measured },
        old_failed: if old { failed } else { (0, 0) },
        new_failed: if old { (0, 0) } else { failed },
        ratio: None,
        paired: false,
        p: None,
        mann_whitney_p: None,
        corrected_p: None,
        least_p: None,
        rounds_needed: None,
        old_clock_doubted: old && row.clock_is_doubted(),
        new_clock_doubted: !old && row.clock_is_doubted(),
        cpu: None,
        verdict: ComparisonVerdict::Incomparable,
        why: format!("the cell exists only in the {} result", if old { "old" } else { "new" }),
    }
}

/// Sets the verdict of those cells whose verdict does not follow from failures.
fn judge(cells: &mut [Compared], rule: Rule) {
    let tested: Vec<usize> = (0..cells.len()).filter(|i| cells[*i].p.is_some()).collect();
    let corrected = |read: fn(&Compared) -> Option<f64>, cells: &[Compared]| {
        holm(&tested.iter().filter_map(|i| read(&cells[*i])).collect::<Vec<f64>>())
    };
    let p = corrected(|cell| cell.p, cells);
    // The corrected p-values that would result if each cell had its largest possible difference.
    let least = corrected(|cell| cell.least_p, cells);
    let count = tested.len();
    for ((index, p), least) in tested.into_iter().zip(p).zip(least) {
        let cell = &mut cells[index];
        cell.corrected_p = Some(p);
        if rule.corrected {
            cell.least_p = Some(least);
        }
        let p = if rule.corrected { Some(p) } else { cell.p };
        let (ComparisonVerdict::Inconclusive, Some(change), Some(p), Some(least)) =
            (cell.verdict, cell.ratio, p, cell.least_p)
        else {
            continue;
        };
        // With logarithms, an increase and the opposite decrease are equally large, whichever
        // result is called old.
        let effect = change.value.ln().abs();
        if p < rule.p && effect >= (1.0 + rule.effect).ln() {
            let less_is_better = matches!(&*cell.unit, "s" | "B");
            let better = (change.value > 1.0) != less_is_better;
            cell.verdict =
                if better { ComparisonVerdict::Better } else { ComparisonVerdict::Worse };
        } else if cell.why.is_empty()
            && change.interval.is_some_and(|interval| is_within(interval, rule.same))
        {
            // Equal figures do not make two cells the same if one of them fails more often.
            cell.verdict = ComparisonVerdict::Same;
        } else if least >= rule.p {
            cell.verdict = ComparisonVerdict::TooFewRounds;
            let factor = if rule.corrected { count as f64 } else { 1.0 };
            cell.rounds_needed = rounds_needed(cell.paired, rule.p / factor);
        }
    }
}

/// Returns true if an interval of ratios contains no difference above the bound, in either
/// direction.
fn is_within(interval: Interval, bound: f64) -> bool {
    let most = 1.0 + bound;
    interval.low >= 1.0 / most && interval.high <= most
}

/// Returns the smallest number of rounds that can give a p-value below `p`. Returns `None` if
/// 10,000 rounds cannot.
fn rounds_needed(paired: bool, p: f64) -> Option<usize> {
    let least = |rounds: &usize| match paired {
        true => least_signed_rank(*rounds),
        false => least_mann_whitney(*rounds, *rounds),
    };
    // A run has at most 10,000 rounds.
    (1..=10_000).find(|rounds| least(rounds) < p)
}
