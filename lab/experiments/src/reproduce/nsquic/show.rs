//! Shows the result to people: tables for a terminal and for a README.

use std::fmt::Write as _;

use equic_report::number::{self, MISSING};
use equic_report::schema::Report;
use equic_report::table::{Column, Table};

use super::claims::{GOOGLE, NS3, QUIC, TODAY, findings};
use super::data::{Mean, Measured, NsQuic, Row};
use super::part::Part;
use super::verdict::{Against, Answer};

/// Returns the tables for a terminal. A part without a table is omitted.
pub(super) fn tables(all: &NsQuic) -> Vec<Table> {
    let mut tables = vec![extent(all)];
    tables.extend(all.parts.iter().filter_map(table));
    tables
}

/// Returns a table with the number of runs that were made of each grid, and the number of runs in
/// the complete grid.
fn extent(all: &NsQuic) -> Table {
    let columns = [
        Column::text("grid"),
        Column::number("simulated runs"),
        Column::number("runs in the full grid"),
        Column::text("axes of which only some values were simulated"),
    ];
    let mut table = Table::new(columns).title("Number of simulated runs of each grid");
    for part in Part::ALL {
        let Some(measured) = all.part(part) else {
            table.row([part.name(), "0", MISSING, "everything"]);
            continue;
        };
        let less = measured.axes.iter().filter(|axis| axis.values.len() < axis.of);
        let less = less.filter(|axis| axis.name != "seeds").map(|axis| {
            format!(
                "{}: {} of {} ({})",
                axis.name,
                axis.values.len(),
                axis.of,
                axis.values.join(", ")
            )
        });
        let seeds = measured.axes.iter().find(|axis| axis.name == "seeds");
        let seeds = seeds.and_then(|axis| {
            let played = axis.values.first().filter(|own| **own != axis.of.to_string())?;
            Some(format!("{played} of {} seeds", axis.of))
        });
        let less: Vec<String> = less.chain(seeds).collect();
        let less = if less.is_empty() { "nothing".to_owned() } else { less.join("; ") };
        let count = |count| number::count(count as u64);
        table.row([part.name().to_owned(), count(measured.runs), count(measured.of), less]);
    }
    table
}

/// Formats how an arm completed: the mean time with its interval, or the number of connections that
/// completed.
fn completion(row: Option<&Row>) -> String {
    let Some(flow) = row.and_then(|row| row.flows.first()) else { return MISSING.to_owned() };
    match flow.completion {
        Some(time) if flow.completed == flow.connections => shown(time, number::seconds),
        _ => format!("{} of {} connections completed", flow.completed, flow.connections),
    }
}

/// Formats a mean. Adds the interval unless its lower and upper bound are the mean.
fn shown(mean: Mean, how: impl Fn(f64) -> String) -> String {
    let [low, high] = [mean.low, mean.high].map(&how);
    if low == high { how(mean.mean) } else { format!("{} ({low} to {high})", how(mean.mean)) }
}

/// Returns the names of all arms of a grid that have results, in the order of the grid.
pub(super) fn arms(measured: &Measured) -> Vec<&str> {
    measured.values("arm").iter().map(String::as_str).collect()
}

/// Returns the table of a part, with the values of an axis as rows and the arms as columns.
fn table(measured: &Measured) -> Option<Table> {
    let (axis, fixed) = axis(measured.part)?;
    let mut columns = vec![Column::text(heading(axis))];
    let shares = matches!(measured.part, Part::Fairness | Part::Imc17);
    columns.extend(arms(measured).iter().map(|arm| {
        Column::number(if shares {
            format!("QUIC divided by TCP: {arm}")
        } else {
            (*arm).to_owned()
        })
    }));
    let words: Vec<&str> = fixed.iter().map(|(_, value)| *value).collect();
    let title = match &words[..] {
        [] => measured.part.title().to_owned(),
        words => format!("{}: {}", measured.part.title(), words.join(", ")),
    };
    let mut table = Table::new(columns).title(title);
    for value in measured.values(axis) {
        let mut point = vec![(axis, value.as_str())];
        point.extend(fixed);
        let mut cells = vec![value.clone()];
        for arm in arms(measured) {
            let row = measured.row(arm, &point);
            cells.push(match measured.part {
                Part::Within => row
                    .and_then(|row| row.jain)
                    .map_or(MISSING.to_owned(), |jain| shown(jain, |value| format!("{value:.3}"))),
                _ if shares => row.and_then(|row| row.share).map_or(MISSING.to_owned(), |share| {
                    shown(share, |value| format!("{value:.2}"))
                }),
                _ => completion(row),
            });
        }
        table.row(cells);
    }
    Some(table)
}

/// Returns the title of an axis.
pub(super) fn heading(axis: &str) -> &str {
    match axis {
        "flow.size" => "size",
        "network.link.rate" => "rate",
        "network.link.delay" => "delay, one way",
        "network.link.loss" => "loss",
        "network.link.queue" => "queue",
        other => other,
    }
}

/// A point of a grid: values of some of its axes.
type GridPoint = &'static [(&'static str, &'static str)];

/// Returns the axis that a part's table shows, and the values of the other axes.
fn axis(part: Part) -> Option<(&'static str, GridPoint)> {
    const SIZE: GridPoint = &[
        ("network.link.rate", "10 Mb/s"),
        ("network.link.delay", "50 ms"),
        ("network.link.loss", "1 %"),
    ];
    Some(match part {
        Part::Errors => ("network.link.loss", &[("flow.size", "1 MB")]),
        Part::Simple | Part::Dumbbell => ("flow.size", SIZE),
        Part::Nodes => ("nodes", &[]),
        Part::Within => ("flow.size", &[("network.link.loss", "0 %")]),
        Part::Fairness => {
            ("flow.size", &[("network.link.rate", "10 Mb/s"), ("network.link.loss", "0 %")])
        }
        Part::Imc17 => ("network.link.queue", &[]),
        Part::ZeroRtt => {
            ("flow.size", &[("network.link.delay", "50 ms"), ("network.link.loss", "0 %")])
        }
        Part::SimpleLarge | Part::DumbbellLarge => (
            "network.link.rate",
            &[("network.link.delay", "50 ms"), ("network.link.loss", "0.1 %")],
        ),
    })
}

/// Returns a table that compares the thesis' figures with ours.
fn beside(all: &NsQuic) -> Table {
    let columns = [
        Column::text("claim of the thesis"),
        Column::text("figure in the thesis"),
        Column::text("today's QUIC, today's TCP"),
        Column::text("Google's QUIC, ns-3's TCP of that time"),
        Column::text("verdict"),
    ];
    let mut table = Table::new(columns);
    for finding in findings(all) {
        let answer = |answer: &Option<Answer>| {
            answer
                .as_ref()
                .map_or(MISSING.to_owned(), |one| format!("{}: {}", one.held.word(), one.figures))
        };
        table.row([
            finding.claim.to_owned(),
            finding.figure.to_owned(),
            answer(&finding.today),
            match (finding.against, &finding.then) {
                (Against::Today, Some(_)) => {
                    format!("compared with today's TCP, it {}", answer(&finding.then))
                }
                _ => answer(&finding.then),
            },
            finding.judgement().to_owned(),
        ]);
    }
    table
}

/// Returns the whole result as Markdown, for the experiment's README.
pub(super) fn markdown(report: &Report<NsQuic>, plots: &[&str]) -> String {
    let all = &report.data;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Made {} by `{}`.\n", report.created.as_str(), command(report));
    let _ = writeln!(
        text,
        "Times are virtual and do not depend on the machine: the same command gives the same results on every \
         machine. Values are means over seeds with 95 % intervals.\n"
    );
    let _ = writeln!(
        text,
        "### The results of the thesis and these results\n\n{}",
        beside(all).markdown()
    );
    let mut judged: Vec<(&str, Vec<&str>)> = Vec::new();
    for finding in findings(all) {
        match judged.iter_mut().find(|(judgement, _)| *judgement == finding.judgement()) {
            Some((_, claims)) => claims.push(finding.claim),
            None => judged.push((finding.judgement(), vec![finding.claim])),
        }
    }
    for (judgement, claims) in judged {
        let _ = writeln!(text, "* **{judgement}**: {}.", claims.join("; "));
    }
    let _ = writeln!(
        text,
        "\n\"Today\" is {QUIC} compared with {}. \"Of that time\" is {GOOGLE} compared with {}.\n",
        TODAY.join(", "),
        NS3.join(" and ")
    );
    let _ = writeln!(text, "### Simulated runs\n\n{}", extent(all).markdown());
    for measured in &all.parts {
        let own: Vec<&&str> =
            plots.iter().filter(|plot| super::plots::part(plot) == Some(measured.part)).collect();
        let table = table(measured);
        if own.is_empty() && table.is_none() {
            continue;
        }
        let _ = writeln!(text, "### {}\n", measured.part.title());
        for plot in own {
            let _ = writeln!(text, "![{plot}]({plot}.svg)\n");
        }
        if let Some(table) = table {
            if let Some((_, fixed)) = axis(measured.part).filter(|(_, fixed)| !fixed.is_empty()) {
                let words: Vec<String> = fixed
                    .iter()
                    .map(|(axis, value)| format!("{} = {value}", heading(axis)))
                    .collect();
                let _ = writeln!(
                    text,
                    "Each cell has {1}. Settings: {0}.\n",
                    words.join("; "),
                    contents(measured.part)
                );
            } else {
                let _ = writeln!(text, "Each cell has {}.\n", contents(measured.part));
            }
            let _ = writeln!(text, "{}", table.markdown());
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Describes the content of the cells in a part's table.
const fn contents(part: Part) -> &'static str {
    match part {
        Part::Within => "Jain's fairness index of two connections",
        Part::Fairness | Part::Imc17 => "the goodput of QUIC divided by that of TCP",
        _ => "the time until the transfer completed",
    }
}

/// Returns the command line of the report, without the folder of the program.
fn command(report: &Report<NsQuic>) -> String {
    let words = report.command.iter().skip(1).map(String::as_str);
    std::iter::once("equic-lab").chain(words).collect::<Vec<_>>().join(" ")
}
