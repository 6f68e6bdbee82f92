//! `equic plugin bench`: the plugins of the tree side by side: how large they are, what they are good for, what they cost.

use equic_plugin_kit::tree::{Source, TREE};
use equic_plugin_kit::trial::{TRIALS, bulk};
use equic_report::number::{self, MISSING};
use equic_report::stats::Sample;
use equic_report::stats::effect::{Ratio, ratio_95};
use equic_report::table::{Cell, Column, Table};
use nix::time::{ClockId, clock_gettime};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;

use crate::failure::{Done, Failure};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.plugin.bench/1";

/// Bytes of a transfer whose cost is measured.
const BYTES: u64 = 20_000_000;

/// Shows the plugins of the source tree side by side: lines of C, bytes, and what each changes on a connection in virtual
/// time where it is meant to help. With --rounds also the CPU time that a transfer takes more with it; for figures
/// that mean something the machine must be quiet, and the command built with --release. It needs clang.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure CPU time in so many rounds, each with and without each plugin, in turns; 0: not at all
    #[arg(long, value_name = "N", default_value = "0",
        value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    /// Seed of what the paths do by chance: losses and jitter
    #[arg(long, value_name = "N", default_value = "17")]
    seed: u64,
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
    plugins: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// Lines of C, comments among them.
    lines: usize,
    /// Bytes of the bundle, unsigned.
    bundle_bytes: usize,
    /// Bytes of its instructions.
    code_bytes: usize,
    /// Trial in which it helps; none: it changes nothing that is measured here.
    gain: Option<Gain>,
    /// CPU time of both ends for a transfer with the plugin, divided by that without it; none: not measured.
    cpu: Option<Ratio>,
}

#[derive(Serialize)]
struct Gain {
    scenario: &'static str,
    measure: &'static str,
    unit: &'static str,
    without: f64,
    with: f64,
}

fn row(source: &Source, seed: u64) -> Done<Row> {
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
        // An instruction of eBPF has eight bytes (RFC 9669 s.3).
        code_bytes: 8 * plugin.instructions(),
        gain,
        cpu: None,
    })
}

/// CPU time of this thread that some work takes, in seconds.
fn cpu(work: impl FnOnce() -> Done) -> Done<f64> {
    let time = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(std::time::Duration::from);
    let begun = time()?;
    work()?;
    Ok((time()? - begun).as_secs_f64())
}

/// CPU time with a plugin over that without it, in turns: what else the machine does strikes both.
fn cost(source: &Source, rounds: u32, seed: u64) -> Done<Option<Ratio>> {
    let failed = |error| Failure::because(source.name, error);
    let plugin = source.load().map_err(failed)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // The first of two is not always the same one.
        for turn in [round % 2 == 0, round % 2 != 0] {
            let attached = turn.then(|| (&plugin, source.ends()));
            let took = cpu(|| bulk(attached, seed, BYTES).map_err(failed))?;
            if turn { with.push(took) } else { without.push(took) }
        }
    }
    let (without, with): (Sample, Sample) =
        (without.into_iter().collect(), with.into_iter().collect());
    Ok(ratio_95(&without, &with, &mut StdRng::seed_from_u64(seed)))
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
        columns.push(Column::number("CPU time"));
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
            let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
            cells.push(row.cpu.map_or_else(
                || Cell::new(MISSING),
                |cpu| {
                    let (low, high) = (percent(cpu.interval.low), percent(cpu.interval.high));
                    Cell::new(format!("{} % ({low} to {high})", percent(cpu.value)))
                },
            ));
        }
        table.row(cells);
    }
    table
}

pub(super) fn run(args: &Args) -> Done {
    let mut plugins = Vec::new();
    for source in TREE {
        let mut row = row(source, args.seed)?;
        if args.rounds > 0 {
            row.cpu = cost(source, args.rounds, args.seed)?;
        }
        plugins.push(row);
    }
    let data = Data { seed: args.seed, rounds: args.rounds, plugins };
    if args.json {
        return output::json(SCHEMA, data);
    }
    let table = table(&data);
    if args.markdown {
        return output::text(table.markdown());
    }
    output::table(&table)?;
    for row in &data.plugins {
        if let Some(gain) = &row.gain {
            output::line(format_args!("* {}: {}", row.name, gain.scenario))?;
        }
    }
    Ok(())
}
