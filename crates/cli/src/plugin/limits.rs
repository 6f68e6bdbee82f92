//! `equic plugin bench --limits`: what peers can cause by plugins, measured against the goals.

use std::time::Duration;

use equic_harness::cpu_seconds;
use equic_plugin_kit::limits::{self, Idle, WORKERS, Worker};
use equic_plugin_kit::{End, TrialError};
use equic_report::table::{Cell, Column, Table};
use serde::Serialize;

use crate::failure::{Done, Failure};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.plugin.limits/1";

/// Virtual time for which connections are idle.
const IDLE: Duration = Duration::from_secs(2);

/// Connections of one address.
const CONNECTIONS: u64 = 8;

/// Bytes of the transfer by which the cost of a packet is measured.
const BYTES: u64 = 40_000_000;

#[derive(Serialize)]
struct Data {
    goals: Vec<Goal>,
    /// True if every goal is met.
    met: bool,
}

/// A goal, and the worst that was measured.
#[derive(Serialize)]
struct Goal {
    what: &'static str,
    unit: &'static str,
    goal: f64,
    measured: f64,
    /// Input that costs the most.
    input: String,
    met: bool,
}

/// A value that was measured, and its input.
type Measured = (f64, String);

impl Goal {
    fn new(what: &'static str, unit: &'static str, goal: f64, (measured, input): Measured) -> Goal {
        Goal { what, unit, goal, measured, input, met: measured <= goal }
    }
}

fn failed(error: TrialError) -> Failure {
    Failure::because("a plugin that is measured", error)
}

fn worst(all: impl Iterator<Item = Measured>) -> Measured {
    all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

/// The least of some CPU times: what else the machine does only adds to it.
fn least<E: From<std::io::Error>>(times: u32, work: impl Fn() -> Result<(), E>) -> Result<f64, E> {
    let mut least = f64::INFINITY;
    for _ in 0..times {
        least = least.min(cpu_seconds(&work)?);
    }
    Ok(least)
}

fn loading(bundles: &[(&'static str, Vec<u8>)]) -> Done<Measured> {
    let mut all = Vec::new();
    for (what, bundle) in bundles {
        let load = || limits::load(bundle).map(drop).map_err(failed);
        all.push((1e3 * least(5, load)?, format!("{what}, {} bytes", bundle.len())));
    }
    Ok(worst(all.into_iter()))
}

/// Bytes of memory that are in use of this process.
fn resident() -> Done<f64> {
    const PAGE: f64 = 4096.0;
    let text = std::fs::read_to_string("/proc/self/statm")
        .map_err(|error| Failure::because("cannot read /proc/self/statm", error))?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.map(|pages| PAGE * pages).ok_or_else(|| Failure::new("/proc/self/statm has no pages"))
}

fn memory(bundles: &[(&'static str, Vec<u8>)]) -> Done<Measured> {
    let mut all = Vec::new();
    for (what, bundle) in bundles {
        // The first time it also takes what the process takes once.
        drop(limits::kept(bundle).map_err(failed)?);
        let before = resident()?;
        let (running, mut pair) = limits::kept(bundle).map_err(failed)?;
        let grown = resident()? - before;
        let counted = pair.network.connection(End::Client).map_or(0, |client| client.memory());
        let measured = grown.max(counted as f64) / 1e6;
        all.push((measured, format!("{running} plugins of {what}")));
    }
    Ok(worst(all.into_iter()))
}

/// Percent of a core that workers take on idle connections.
fn idle(connections: u64, worker: &Worker, loops: u32, baseline: f64) -> Done<Measured> {
    let mut idle = Idle::new(connections, Some((worker, loops))).map_err(failed)?;
    let seconds = cpu_seconds(|| idle.pass(IDLE).map_err(failed))? - baseline;
    let input = format!(
        "{} plugins, of which {} run on after {} s: {loops} times {}",
        15 * connections,
        idle.running(),
        IDLE.as_secs(),
        worker.does
    );
    Ok((100.0 * seconds / IDLE.as_secs_f64(), input))
}

fn idle_baseline(connections: u64) -> Done<f64> {
    let mut idle = Idle::new(connections, None).map_err(failed)?;
    cpu_seconds(|| idle.pass(IDLE).map_err(failed))
}

/// The worst of all workers on one connection, and on as many as one address has.
fn workers() -> Done<[Measured; 2]> {
    let (one, many) = (idle_baseline(1)?, idle_baseline(CONNECTIONS)?);
    let (mut of_one, mut of_many) = (Vec::new(), Vec::new());
    for worker in WORKERS {
        let mut at_most = (f64::NEG_INFINITY, 1);
        for loops in worker.loops {
            let measured = idle(1, worker, *loops, one)?;
            if measured.0 > at_most.0 {
                at_most = (measured.0, *loops);
            }
            of_one.push(measured);
        }
        // Several connections have less for each: fewer loops may be worse.
        for loops in [at_most.1, at_most.1.div_ceil(2)] {
            of_many.push(idle(CONNECTIONS, worker, loops, many)?);
        }
    }
    Ok([worst(of_one.into_iter()), worst(of_many.into_iter())])
}

/// Microseconds that observers add to a packet.
fn packet() -> Done<Measured> {
    let measure = |plugins: usize| {
        let mut pair = limits::observed(plugins).map_err(failed)?;
        let transfer = |bytes| pair.network.transfer(End::Server, bytes, Duration::from_secs(600));
        let mut transfer = transfer;
        let work = || {
            let done = transfer(BYTES).map(drop);
            done.map_err(|stuck| Failure::because("the transfer", stuck))
        };
        let seconds = cpu_seconds(work)?;
        let packets = pair.network.connection(End::Client).map_or(1, |client| {
            let stats = client.stats();
            stats.packets_received + stats.packets_sent
        });
        let running = pair.standings(End::Client);
        let active = equic_plugin::exchange::Progress::Active;
        let running = running.iter().filter(|one| one.progress == active).count();
        Done::Ok((1e6 * seconds / packets as f64, running))
    };
    let mut base = f64::INFINITY;
    for _ in 0..3 {
        base = base.min(measure(0)?.0);
    }
    let mut all = Vec::new();
    for plugins in [1, 2, 4, 16] {
        let (seconds, running) = measure(plugins)?;
        let input = format!(
            "{plugins} plugins of 32 empty functions, of which {running} run on after {BYTES} bytes"
        );
        all.push((seconds - base, input));
    }
    Ok(worst(all.into_iter()))
}

fn value(value: f64, unit: &str) -> Cell {
    Cell::new(format!("{value:.2} {unit}"))
}

/// Measures each goal and shows it; fails if one is missed.
pub(super) fn run(json: bool) -> Done {
    let bundles = limits::bundles().map_err(failed)?;
    let [one, many] = workers()?;
    let goals = vec![
        Goal::new("CPU time to load a bundle", "ms", 20.0, loading(&bundles)?),
        Goal::new("memory of a connection's plugins", "MB", 2.1, memory(&bundles)?),
        Goal::new("CPU time of an idle connection", "%", 5.0, one),
        Goal::new("CPU time of an address's idle connections", "%", 25.0, many),
        Goal::new("CPU time added to a packet", "µs", 3.0, packet()?),
    ];
    let met = goals.iter().all(|goal| goal.met);
    let data = Data { goals, met };
    if json {
        output::json(SCHEMA, &data)?;
    } else {
        let mut table = Table::new(vec![
            Column::text("goal"),
            Column::number("at most"),
            Column::number("measured"),
            Column::text("met"),
            Column::text("worst input"),
        ]);
        for goal in &data.goals {
            let met = if goal.met { "yes" } else { "NO" };
            table.row(vec![
                goal.what.into(),
                value(goal.goal, goal.unit),
                value(goal.measured, goal.unit),
                met.into(),
                goal.input.clone().into(),
            ]);
        }
        output::table(&table)?;
    }
    if met { Ok(()) } else { Err(Failure::new("a goal is missed: see the table")) }
}
