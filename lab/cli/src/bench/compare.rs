//! `equic-lab bench compare`: shows which results are better or worse.

use std::path::PathBuf;

use equic_bench::result::compare::{
    COMPARISON, Compared, Comparison, ComparisonVerdict, Rule, compare, load,
};
use equic_bench::result::comparison;

use super::report::tables;
use crate::failure::{Failure, Result};
use crate::output;

/// Compares two results. A cell is better or worse only if the difference is significant (p < 0.05)
/// and at least 1 %. The test is Mann-Whitney, or a paired test by rounds if both ran interleaved
/// in one run. A verdict needs 6 paired rounds, or 4 unpaired rounds of each result. Exit status: 0
/// nothing is worse; 1 something is worse; 3 nothing is worse, but some cells have too few rounds
/// for a verdict; 4 no cell can be compared
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The old result: the folder of a run, or its file result.json
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The new result. With --rename, this may be the same as OLD
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Compare the implementation OLD with the implementation NEW. If both are in the same run,
    /// compare them round by round
    #[arg(long, value_name = "OLD=NEW", value_parser = renamed)]
    rename: Option<(String, String)>,
    /// Maximum p-value of a significant effect
    #[arg(long, value_name = "P", default_value = "0.05", value_parser = probability)]
    p: f64,
    /// Minimum size of a relevant effect, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    effect: f64,
    /// Maximum change, in percent: a cell counts as unchanged if the 95 % interval of its change is
    /// within this limit
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    same: f64,
    /// Correct the p-values for the number of compared cells (Holm)
    #[arg(long)]
    corrected: bool,
    /// Also exit with 1 if some cells cannot be compared
    #[arg(long)]
    strict: bool,
    /// Exit with 0 if at least one cell could be compared, even if a cell is worse
    #[arg(long, conflicts_with = "strict")]
    no_fail: bool,
    /// Print the comparison as JSON (schema equic.bench.compare/1)
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the tables in Markdown
    #[arg(long)]
    markdown: bool,
}

fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("two names are needed: write OLD=NEW".to_owned()),
    }
}

fn probability(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "the value is not a number".to_owned())?;
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err("the value is not between 0 and 1".to_owned())
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "the value is not a number".to_owned())?;
    if (0.0..=1000.0).contains(&value) {
        Ok(value)
    } else {
        Err("the value is not between 0 and 1000".to_owned())
    }
}

pub(super) fn run(args: &Args) -> Result {
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    let rule = Rule {
        p: args.p,
        effect: args.effect / 100.0,
        same: args.same / 100.0,
        corrected: args.corrected,
    };
    let compared = compare(&old, &new, args.rename.as_ref(), rule);
    if compared.cells.is_empty() {
        let what = "the two results have no cell in common";
        return Err(Failure::incomparable(
            what,
            "to compare two implementations, name both with `--rename OLD=NEW`",
        ));
    }
    match print(args, &compared) {
        // If the reader has closed the pipe, the exit status must still show the result of the
        // comparison.
        Ok(()) | Err(Failure::ClosedPipe) => {}
        Err(failure) => return Err(failure),
    }
    let worse = compared.count(ComparisonVerdict::Worse);
    let incomparable = compared.count(ComparisonVerdict::Incomparable);
    let all = compared.cells.len();
    if incomparable == all {
        let what = format!("none of {all} cells can be compared");
        return Err(Failure::incomparable(what, "the table gives the reason for each cell"));
    }
    if worse > 0 && !args.no_fail {
        return Err(Failure::new(format!("{worse} of {all} cells are worse")));
    }
    if args.strict && incomparable > 0 {
        return Err(Failure::new(format!("{incomparable} of {all} cells cannot be compared")));
    }
    let undecidable = compared.count(ComparisonVerdict::TooFewRounds);
    if undecidable > 0 && !args.no_fail {
        return Err(too_few(&compared, undecidable));
    }
    Ok(())
}

/// Returns the error for a comparison in which some verdicts were impossible, because there were
/// too few rounds.
fn too_few(compared: &Comparison, undecidable: usize) -> Failure {
    let all = compared.cells.len();
    let needed = compared.cells.iter().filter_map(|cell| cell.rounds_needed).max();
    let what = format!(
        "{undecidable} of {all} cells have too few rounds to decide whether they are worse"
    );
    let help = match needed {
        Some(rounds) => {
            format!(
                "repeat the measurement with `equic-lab bench run --runs {rounds}` or more rounds"
            )
        }
        None => "raise `--p`".to_owned(),
    };
    Failure::undecided(what, help)
}

fn print(args: &Args, compared: &Comparison) -> Result {
    if args.json {
        return output::json(COMPARISON, compared);
    }
    tables(&comparison(compared), args.markdown)?;
    for note in &compared.notes {
        output::notice(note);
    }
    let is_doubted = |cell: &&Compared| cell.old_clock_doubted || cell.new_clock_doubted;
    let doubted = compared.cells.iter().filter(is_doubted).count();
    if doubted > 0 {
        output::notice(format_args!(
            "{doubted} of {} verdicts depend on the clock of a client that does not agree with the clock of the runner: see the notes of `equic-lab bench report`",
            compared.cells.len()
        ));
    }
    output::line(format_args!("\n{}", verdicts(compared)))
}

fn verdicts(compared: &Comparison) -> String {
    let Rule { p, effect, same, corrected } = compared.rule;
    format!(
        "cells: {} worse, {} better, {} with no difference larger than {} %, {} inconclusive, {} with too few rounds, {} not comparable ({}, p < {p}{}, effect of {} % or more)",
        compared.count(ComparisonVerdict::Worse),
        compared.count(ComparisonVerdict::Better),
        compared.count(ComparisonVerdict::Same),
        same * 100.0,
        compared.count(ComparisonVerdict::Inconclusive),
        compared.count(ComparisonVerdict::TooFewRounds),
        compared.count(ComparisonVerdict::Incomparable),
        if compared.paired { "Wilcoxon's test of paired rounds" } else { "Mann-Whitney test" },
        if corrected { ", corrected for the number of cells" } else { "" },
        effect * 100.0,
    )
}
