//! Shows the result to people: tables for a terminal and for a README, with explanatory notes.

use std::fmt::Write as _;

use equic_report::number::{self, MISSING};
use equic_report::schema::Report;
use equic_report::stats::Sample;
use equic_report::table::{Column, Table};

use super::compare::{CLAIMS, ClaimVerdict, Estimate, MEASURED, PAIRS};
use super::data::Experiment;
use super::plan::{Arm, ExperimentPlan, LOSS};

/// If other processes use more than this share of the machine (in percent), a note mentions it.
const DISTURBED: f64 = 5.0;

/// Formats a number with three significant digits and thousands separators.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => {
            let count = number::count(v.round() as u64);
            if value < 0.0 { format!("-{count}") } else { count }
        }
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn change(estimate: Estimate) -> String {
    let percent = |value: f64| format!("{:+.0} %", value * 100.0);
    let median = percent(estimate.median);
    match estimate.interval {
        Some(ends) => format!("{median} ({} to {})", percent(ends.low), percent(ends.high)),
        None => format!("{median} (no interval)"),
    }
}

/// Returns rows with the paper's figures, our figures and the verdict on the claim.
fn claims(experiment: &Experiment) -> Vec<[String; 4]> {
    let rows = CLAIMS.iter().map(|claim| {
        let ours = PAIRS.map(|(_, from, to)| {
            let Some(found) = experiment.change(claim, from, to) else {
                return MISSING.to_owned();
            };
            match claim.change {
                Some(paper) => {
                    format!("{}: {}", change(found), ClaimVerdict::of(paper, &found).short())
                }
                None => change(found),
            }
        });
        let [published, best] = ours;
        [claim.name.to_owned(), claim.paper.to_owned(), published, best]
    });
    rows.collect()
}

/// Describes the search for the strength of the attack and for the windows of the means.
fn searched(plan: &ExperimentPlan) -> Option<String> {
    let last = plan.search.last()?;
    let tried: Vec<String> = plan
        .search
        .iter()
        .map(|step| {
            format!(
                "{1} with {0} times the paper's attack",
                step.attack,
                number::percent(step.loss())
            )
        })
        .collect();
    let found = if last.loss() >= LOSS {
        "This is the weakest attack that costs at least half of the throughput in every trial"
    } else {
        "This is the strongest attack that was permitted. It costs less than half of the throughput, so the results below say little about throughput"
    };
    Some(format!(
        "The attack is {} times as strong as the paper's. {found}. In the search for this strength, a server without a quota lost these shares of its throughput, in the better of {} trials: {}. Mean rates are measured in windows of {}. This is twice the longest time without an answer in these trials.",
        plan.attack,
        last.trials.len(),
        tried.join(", "),
        number::seconds(plan.mean_window_s()),
    ))
}

/// Returns one row per metric with a cell per arm, which has the median and optionally the
/// interval.
fn figures(experiment: &Experiment, intervals: bool) -> Vec<(String, Vec<String>)> {
    let cell = |estimate: Option<Estimate>| {
        estimate.map_or_else(
            || MISSING.to_owned(),
            |found| {
                let Some(interval) = found.interval.filter(|_| intervals) else {
                    return figure(found.median);
                };
                if interval.low == interval.high && interval.low == found.median {
                    return figure(found.median);
                }
                let (low, high) = (figure(interval.low), figure(interval.high));
                format!("{} ({low} to {high})", figure(found.median))
            },
        )
    };
    let named = |name: &str, unit: &str| {
        // A rate has its unit in the name, so the unit is not added.
        if matches!(unit, "" | "/s") { name.to_owned() } else { format!("{name}, {unit}") }
    };
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for row in &MEASURED {
        let cells = Arm::ALL.map(|arm| cell(experiment.figure(arm, row.of)));
        rows.push((named(row.name, row.unit), cells.to_vec()));
    }
    let decisions = Arm::ALL.map(|arm| cell(experiment.decision(arm)));
    rows.push((
        "CPU time of only the decision to reject an attempt, ns".to_owned(),
        decisions.to_vec(),
    ));
    let recoveries = Arm::ALL.map(|arm| {
        let never = if experiment.of(arm).is_empty() { MISSING } else { "did not recover in time" };
        experiment.recovery(arm).map_or_else(|| never.to_owned(), figure)
    });
    rows.push(("time to recover from the attack, s".to_owned(), recoveries.to_vec()));
    let dropped =
        Arm::ALL.map(|arm| {
            cell(experiment.figure(arm, |run| {
                Some(run.gateway.as_ref()?.dropped.values().sum::<u64>() as f64)
            }))
        });
    rows.push(("packets dropped in the kernel".to_owned(), dropped.to_vec()));
    rows
}

/// Returns tables for the terminal: the paper's claims, and the figures of every arm.
pub(super) fn tables(experiment: &Experiment) -> [Table; 2] {
    let mut against = Table::new([
        Column::text("figure (kernel compared with user space)"),
        Column::text("paper"),
        Column::number(format!("ours,\n{}", PAIRS[0].0)),
        Column::number(format!("ours,\n{}", PAIRS[1].0)),
    ])
    .title("Changes from user space to the kernel: medians over rounds, with 95 % intervals");
    for row in claims(experiment) {
        against.row(row);
    }
    let columns = Arm::ALL.iter().map(|arm| Column::number(arm.heading()));
    let mut all = Table::new([Column::text("")].into_iter().chain(columns))
        .title("Results of the sequential clients and of the server: medians over runs");
    for (name, cells) in figures(experiment, false) {
        all.row([name].into_iter().chain(cells));
    }
    [against, all]
}

/// Returns notes that a reader needs to interpret the figures.
pub(super) fn notes(experiment: &Experiment) -> Vec<String> {
    let plan = &experiment.plan;
    let mut notes = vec![format!(
        "Each arm ran {} times, in rounds with a random order of the arms (seed {}). {} sequential clients made {} requests each, and {} parallel clients (the attackers) made {} requests each. Each request was for {} KiB, over a separate connection. The quota was {} connections.",
        plan.runs_per_arm,
        plan.seed,
        plan.sequential_clients,
        number::count(plan.requests_per_client.into()),
        plan.parallel_clients,
        number::count(plan.requests_per_attacker().into()),
        plan.bytes_per_request / 1024,
        plan.quota
    )];
    notes.extend(searched(plan));
    notes.push(if plan.scale < 1.0 {
        format!(
            "Without an attack, the sequential clients need {} for their requests on this machine. All times of the paper are therefore multiplied by {:.3}. The attack begins after {} instead of 30 s. Each attacker starts its {} requests within {}. Connections time out after {}. Rates are measured in windows of {} instead of 5 s.",
            number::seconds(plan.calm_s),
            plan.scale,
            number::seconds(plan.start_s),
            number::count(plan.requests_per_attacker().into()),
            number::seconds(plan.attack_s),
            number::seconds(plan.idle_timeout_ms as f64 / 1000.0),
            number::seconds(plan.window_s),
        )
    } else {
        "This machine is not faster than the paper's, so times are not scaled.".to_owned()
    });
    notes.push(if plan.server_cpu == plan.other_cpu {
        "This machine has only one CPU, which the clients share with the server.".to_owned()
    } else {
        format!(
            "The server runs on CPU {}. All other programs run on CPU {}, where the attackers have the lowest priority (nice 19).",
            plan.server_cpu, plan.other_cpu
        )
    });
    if experiment.runs.iter().any(|run| run.gateway.as_ref().is_some_and(|g| !g.native)) {
        notes.push(
            "The gateway was attached in generic mode, in which each packet costs more CPU time than in native mode.".into(),
        );
    }
    let missing: Vec<&str> =
        experiment.runs.iter().filter_map(|run| run.block_missing.as_deref()).collect();
    if let Some(first) = missing.first() {
        notes.push(format!(
            "In {} runs, the CPU time to reject an attempt could not be measured. In the first of these runs, the reason was: {first}.",
            missing.len()
        ));
    }
    let foreign: Sample = experiment.runs.iter().map(|run| run.foreign_percent).collect();
    let (median, most) = (foreign.median().unwrap_or(0.0), foreign.max().unwrap_or(0.0));
    let disturbed =
        if most > DISTURBED { ". The results would be better on an idle machine" } else { "" };
    notes.push(format!(
        "Other programs used {median:.1} % of the machine (median over runs; at most {most:.1} %){disturbed}."
    ));
    notes
}

/// Returns a sentence about each claim of the paper.
pub(super) fn verdicts(experiment: &Experiment) -> Vec<String> {
    let mut sentences = Vec::new();
    for claim in &CLAIMS {
        let Some(paper) = claim.change else { continue };
        let said = PAIRS.map(|(how, from, to)| match experiment.change(claim, from, to) {
            Some(ours) => {
                format!(
                    "for the arms \"{how}\", the claim {}: {}",
                    ClaimVerdict::of(paper, &ours).words(),
                    change(ours)
                )
            }
            None => format!("for the arms \"{how}\", the figure could not be measured"),
        });
        sentences.push(format!(
            "{}. The paper reports {}. {}; {}.",
            claim.name,
            claim.paper,
            capital(&said[0]),
            said[1]
        ));
    }
    sentences
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the whole result as Markdown, for the experiment's README.
pub(super) fn markdown(report: &Report<Experiment>) -> String {
    let experiment = &report.data;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "Made {} on {} by `{}`.\n",
        report.created.as_str(),
        report.machine,
        report.command.join(" ")
    );
    for note in notes(experiment) {
        let _ = writeln!(text, "* {note}");
    }
    let _ = writeln!(text, "\n### The paper's numbers and ours\n");
    let _ = writeln!(
        text,
        "Each cell has the change from user space to the kernel: the median over rounds, with its 95 % interval.\n"
    );
    let _ = writeln!(text, "| | paper | ours, {} | ours, {} |", PAIRS[0].0, PAIRS[1].0);
    let _ = writeln!(text, "|---|---|---|---|");
    for row in claims(experiment) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    let _ = writeln!(text, "\n### Every arm\n");
    let _ = writeln!(
        text,
        "Each cell has the median over runs, with its 95 % interval. Unless a row says otherwise, requests and durations are those of the sequential clients.\n"
    );
    let headings = Arm::ALL.map(|arm| arm.heading().replace('\n', " "));
    let _ =
        writeln!(text, "| | {} |\n|---|{}", headings.join(" | "), "---|".repeat(headings.len()));
    for (name, cells) in figures(experiment, true) {
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    let _ = writeln!(text, "\n### What held\n");
    for sentence in verdicts(experiment) {
        let _ = writeln!(text, "* {sentence}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.0473, "0.047"),
            (2.716, "2.72"),
            (27.16, "27.2"),
            (271.6, "272"),
            (77_551.0, "77,551"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
