//! `equic-lab plugin-bench`: compares the sizes, benefits and costs of the plugins in the source
//! tree.

use equic_harness::cpu_seconds;
use equic_plugin_kit::tree::{Source, TREE};
use equic_plugin_kit::trial::{TRIALS, Way, bulk};
use equic_report::number::{self, MISSING};
use equic_report::stats::Sample;
use equic_report::stats::effect::Ratio;
use equic_report::table::{Cell, Column, Table};
use serde::Serialize;

use super::scheduler;
use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.plugin.bench/1";

/// Compares the plugins of the source tree: lines of C, bytes, and the effect of each on a
/// connection in virtual time that it is meant to improve. --rounds also measures its cost on other
/// connections, with 95 % intervals: the goodput of a bottleneck in virtual time, and the CPU time
/// of a transfer. Reliable CPU times need a quiet machine and a command that was built with
/// --release. A separate table shows the cost of the lowest-latency scheduler as bytecode. Needs
/// clang.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure only this plugin; may be given several times
    #[arg(long, value_name = "NAME", value_parser = named)]
    only: Vec<&'static str>,
    /// Number of interleaved rounds that measure goodput and CPU time with and without each plugin.
    /// A 95 % interval needs at least 4 rounds; 0 skips these measurements
    #[arg(long, value_name = "N", default_value = "0",
        value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    /// Number of bytes of each transfer that measures goodput and CPU time
    #[arg(long, value_name = "N", default_value = "20000000",
        value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    bytes: u64,
    /// Seed of the random losses and delays of the paths
    #[arg(long, value_name = "N", default_value = "17")]
    seed: u64,
    /// Instead, measure the CPU time and memory that peers can use up with the worst known plugins,
    /// and compare them with the goals of docs/vm.md (with --json: schema equic.plugin.limits/2)
    #[arg(long, conflicts_with_all = ["only", "rounds", "markdown"])]
    limits: bool,
    /// With --limits: measure for seconds instead of minutes. Missed goals then do not count as a
    /// failure, because short measurements are not reliable
    #[arg(long, requires = "limits")]
    quick: bool,
    /// Print the table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print the result as JSON (schema equic.plugin.bench/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Data {
    seed: u64,
    rounds: u32,
    /// Number of bytes of each transfer that measures goodput and CPU time.
    bytes: u64,
    plugins: Vec<Row>,
    /// Costs of a path scheduler that is a plugin. Empty if they were not measured.
    schedulers: Vec<scheduler::Row>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// Number of lines of C, including comments.
    lines: usize,
    /// Size of the unsigned bundle in bytes.
    bundle_bytes: usize,
    /// Size of the plugin's instructions in bytes.
    code_bytes: usize,
    /// Effect on the connection that the plugin is meant to improve, or `None` if no trial measures
    /// it.
    gain: Option<Gain>,
    /// Goodput through a bottleneck with the plugin, divided by the goodput without it. `None` if
    /// it was not measured.
    goodput: Option<Ratio>,
    /// CPU time of both endpoints for a transfer with the plugin, divided by the time without it.
    /// `None` if it was not measured.
    cpu: Option<Ratio>,
}

/// Returns `name` if the source tree has a plugin with this name. Fails otherwise.
fn named(name: &str) -> Result<&'static str, String> {
    let found = TREE.iter().find(|source| source.name == name);
    found.map(|source| source.name).ok_or_else(|| {
        let names: Vec<&str> = TREE.iter().map(|source| source.name).collect();
        format!("the plugins of the tree are {}", names.join(", "))
    })
}

#[derive(Serialize)]
struct Gain {
    scenario: &'static str,
    measure: &'static str,
    unit: &'static str,
    without: f64,
    with: f64,
}

fn row(source: &Source, seed: u64) -> Result<Row> {
    let failed = |error| Failure::because(source.name, error);
    let bundle = source.bundle(None).map_err(failed)?;
    let plugin = source.load().map_err(failed)?;
    let trial = TRIALS.iter().find(|trial| trial.plugin == source.name);
    let compared = trial.map(|trial| trial.run(seed, 1)).transpose().map_err(failed)?;
    let gain = compared.map(|one| Gain {
        scenario: one.trial.scenario,
        measure: one.trial.measure,
        unit: one.trial.unit,
        without: one.without.value,
        with: one.with.value,
    });
    Ok(Row {
        name: source.name,
        lines: source.lines(),
        bundle_bytes: bundle.len(),
        // An eBPF instruction is eight bytes long (RFC 9669 s.3).
        code_bytes: 8 * plugin.instructions(),
        gain,
        goodput: None,
        cpu: None,
    })
}

/// Returns the ratios of goodput and of CPU time with the plugin to those without it. Transfers
/// with and without the plugin alternate, so that other load on the machine affects both equally.
fn cost(source: &Source, rounds: u32, seed: u64, bytes: u64) -> Result<[Option<Ratio>; 2]> {
    let failed = |error| Failure::because(source.name, error);
    let plugin = source.load().map_err(failed)?;
    let (mut times, mut cpus) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..rounds {
        // In every other round, the transfer with the plugin comes first.
        for turn in [round % 2 == 0, round % 2 != 0] {
            let attached = turn.then_some(&plugin);
            let seed = seed.wrapping_add(round.into());
            let took = bulk(source, attached, Way::Bottleneck, seed, bytes).map_err(failed)?;
            times[usize::from(turn)].push(took.as_secs_f64());
            let run = || bulk(source, attached, Way::Unlimited, seed, bytes).map_err(failed);
            cpus[usize::from(turn)].push(cpu_seconds(|| run().map(|_| ()))?);
        }
    }
    let sample = |values: Vec<f64>| values.into_iter().collect::<Sample>();
    let ([time, time_with], [cpu, cpu_with]) = (times.map(sample), cpus.map(sample));
    // Both transfers have the same number of bytes, so goodput is inversely proportional to time.
    Ok([Ratio::between(&time_with, &time), Ratio::between(&cpu, &cpu_with)])
}

/// Formats a ratio as a change in percent, with its interval if it has one.
pub(super) fn change(ratio: Option<Ratio>) -> Cell {
    let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    ratio.map_or_else(
        || Cell::new(MISSING),
        |ratio| {
            let value = percent(ratio.value);
            Cell::new(match ratio.interval {
                Some(ends) => {
                    format!("{value} % ({} to {})", percent(ends.low), percent(ends.high))
                }
                None => format!("{value} % (no interval)"),
            })
        },
    )
}

fn table(data: &Data) -> Table {
    let mut columns = vec![
        Column::text("plugin"),
        Column::number("lines of C"),
        Column::number("bundle").unit("B"),
        Column::number("code").unit("B"),
        Column::text("measure"),
        Column::number("without"),
        Column::number("with"),
        Column::number("change"),
    ];
    if data.rounds > 0 {
        columns.extend([Column::number("goodput"), Column::number("CPU time")]);
    }
    let mut table = Table::new(columns);
    for row in &data.plugins {
        let gain = |show: &dyn Fn(&Gain) -> String| {
            Cell::new(row.gain.as_ref().map_or_else(|| MISSING.to_owned(), show))
        };
        let mut cells: Vec<Cell> = vec![
            row.name.into(),
            row.lines.to_string().into(),
            number::count(row.bundle_bytes as u64).into(),
            number::count(row.code_bytes as u64).into(),
            gain(&|gain| gain.measure.to_owned()),
            gain(&|gain| super::demo::value(gain.without, gain.unit)),
            gain(&|gain| super::demo::value(gain.with, gain.unit)),
            gain(&|gain| number::change(gain.without, gain.with)),
        ];
        if data.rounds > 0 {
            cells.extend([change(row.goodput), change(row.cpu)]);
        }
        table.row(cells);
    }
    table
}

pub(crate) fn run(args: &Args) -> Result {
    if args.limits {
        return super::limits::run(args.quick, args.json);
    }
    let mut plugins = Vec::new();
    for source in TREE.iter().filter(|one| args.only.is_empty() || args.only.contains(&one.name)) {
        let mut row = row(source, args.seed)?;
        if args.rounds > 0 {
            [row.goodput, row.cpu] = cost(source, args.rounds, args.seed, args.bytes)?;
        }
        plugins.push(row);
    }
    let wanted = args.only.is_empty() || args.only.contains(&"lowest-latency");
    let schedulers = match args.rounds {
        rounds if rounds > 0 && wanted => scheduler::rows(rounds, args.seed, args.bytes)?,
        _ => Vec::new(),
    };
    let (seed, rounds, bytes) = (args.seed, args.rounds, args.bytes);
    let data = Data { seed, rounds, bytes, plugins, schedulers };
    if args.json {
        return output::json(SCHEMA, data);
    }
    let table = table(&data);
    let costs = (!data.schedulers.is_empty()).then(|| scheduler::table(&data.schedulers));
    if args.markdown {
        output::text(table.markdown())?;
        return costs.map_or(Ok(()), |costs| output::text(format!("\n{}", costs.markdown())));
    }
    output::table(&table)?;
    if let Some(costs) = costs {
        output::table(&costs)?;
    }
    for row in &data.plugins {
        if let Some(gain) = &row.gain {
            output::line(format_args!("* {}: {}", row.name, gain.scenario))?;
        }
    }
    Ok(())
}
