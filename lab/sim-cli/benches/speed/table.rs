//! Formats the results of the benchmark as tables.

use std::fmt::Write as _;

use equic_report::number::{self, MISSING};
use equic_report::schema::Machine;
use equic_report::stats::{Interval, Sample};
use equic_report::table::{Column, Style, Table};

use super::case::{Case, Kind, Stack};
use super::{Measured, Result};

/// Returns the mean of a figure over the runs, and its 95 % confidence interval.
fn mean(one: &Measured, figure: impl Fn(&super::Run) -> f64) -> Option<(f64, Option<Interval>)> {
    let sample: Sample = one.runs.iter().map(figure).collect();
    Some((sample.mean()?, sample.mean_95()))
}

fn shown(figure: Option<(f64, Option<Interval>)>, how: impl Fn(f64) -> String) -> String {
    match figure {
        None => MISSING.to_owned(),
        Some((mean, None)) => how(mean),
        Some((mean, Some(ends))) => {
            format!("{} ({} to {})", how(mean), how(ends.low), how(ends.high))
        }
    }
}

fn cpu(one: &Measured) -> Option<(f64, Option<Interval>)> {
    mean(one, |run| run.cpu)
}

fn of<'a>(all: &'a [Measured], case: &Case, stack: Stack) -> Option<&'a Measured> {
    all.iter().find(|one| one.case.name == case.name && one.stack == stack)
}

/// Returns the mean CPU time of ns-3 divided by that of `stack`.
fn ratio(all: &[Measured], case: &Case, stack: Stack) -> Option<f64> {
    let mean = |stack| Some(cpu(of(all, case, stack)?)?.0);
    Some(mean(Stack::Ns3)? / mean(stack)?)
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(MISSING.to_owned(), |ratio| format!("{ratio:.1}"))
}

fn tables(all: &[Measured]) -> [(&'static str, Table); 3] {
    let kind = |kind| {
        let mut cases: Vec<&Case> = Vec::new();
        for one in all.iter().filter(|one| one.case.kind == kind) {
            if cases.iter().all(|case| case.name != one.case.name) {
                cases.push(&one.case);
            }
        }
        cases
    };
    let mut transfers = Table::new([
        Column::text("transfer"),
        Column::text("simulated protocol"),
        Column::number("CPU time"),
        Column::number("events per second of CPU time"),
        Column::number("CPU time of ns-3 divided by this CPU time"),
    ]);
    for one in all.iter().filter(|one| one.case.kind == Kind::Transfer) {
        transfers.row([
            one.case.name.clone(),
            one.stack.name().to_owned(),
            shown(cpu(one), number::seconds),
            shown(mean(one, |run| run.events as f64 / run.cpu), number::rate),
            times(ratio(all, &one.case, one.stack)),
        ]);
    }
    let mut flows = Table::new([
        Column::text("flows"),
        Column::text("simulated protocol"),
        Column::number("CPU time"),
        Column::number("events per second of CPU time"),
        Column::number("CPU time per event"),
        Column::number("memory per flow"),
    ]);
    for one in all.iter().filter(|one| one.case.kind == Kind::Flows) {
        let memory = mean(one, |run| {
            run.memory.map_or(f64::NAN, |bytes| bytes as f64 / one.case.flows as f64)
        });
        flows.row([
            one.case.name.clone(),
            one.stack.name().to_owned(),
            shown(cpu(one), number::seconds),
            shown(mean(one, |run| run.events as f64 / run.cpu), number::rate),
            shown(mean(one, |run| run.cpu / run.events as f64), number::seconds),
            shown(memory, |bytes| number::bytes(bytes as u64)),
        ]);
    }
    let mut grid = Table::new([
        Column::text("point of the grid"),
        Column::number("CPU time, QUIC"),
        Column::number("CPU time, TCP"),
        Column::number("CPU time, ns-3 TCP"),
        Column::number("CPU time of ns-3 divided by that of QUIC"),
        Column::number("CPU time of ns-3 divided by that of TCP"),
    ]);
    for case in kind(Kind::Grid) {
        let time = |stack| shown(of(all, case, stack).and_then(cpu), number::seconds);
        grid.row([
            case.name.clone(),
            time(Stack::Quic),
            time(Stack::Tcp),
            time(Stack::Ns3),
            times(ratio(all, case, Stack::Quic)),
            times(ratio(all, case, Stack::Tcp)),
        ]);
    }
    [
        ("Simulations of one transfer:", transfers),
        ("Simulations of many flows, each for the given virtual time:", flows),
        ("Simulations of single points of the grid of the nsQUIC thesis:", grid),
    ]
}

pub(crate) fn plain(all: &[Measured]) -> Result<String> {
    let mut text = format!("{}\n", Machine::read()?);
    for (title, table) in tables(all) {
        write!(text, "\n{title}\n{}", table.render(Style::stdout()))?;
    }
    Ok(text)
}

pub(crate) fn markdown(all: &[Measured]) -> Result<String> {
    let mut text = format!(
        "Measured on {}. Cells have means of {} runs with 95 % intervals. The runs were made in rounds. All flows use CUBIC.\n",
        Machine::read()?,
        all.iter().map(|one| one.runs.len()).max().unwrap_or(0)
    );
    for (title, table) in tables(all) {
        write!(text, "\n{title}\n\n{}", table.markdown())?;
    }
    Ok(text)
}
