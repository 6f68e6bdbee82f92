//! `equic-lab plugin-bench --limits`: measures how much load peers can cause with plugins, and
//! compares it with the goals in docs/vm.md.

use std::sync::Arc;
use std::time::Duration;

use equic_harness::cpu_seconds;
use equic_plugin::Usage;
use equic_plugin::exchange::Push;
use equic_plugin_kit::limits::{self, Flooded, Idle, Kept, Observed, Replacing, WORKERS};
use equic_plugin_kit::{End, TrialError};
use equic_report::table::{Cell, Column, Table};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.plugin.limits/2";

/// Maximum number of connections from one address.
const CONNECTIONS: u64 = 8;

/// Sizes and repetitions of the measurements.
#[derive(Clone, Copy)]
struct Extent {
    /// Virtual time during which connections are idle.
    idle: Duration,
    /// Number of bytes in the transfer that measures the cost of a packet.
    bytes: u64,
    /// Number of repetitions of a measurement. The minimum of the results counts.
    times: u32,
    /// Amounts of work that are tried in a worker, in percent of what the allowance permits. The
    /// work is a number of loop turns.
    turns: &'static [u32],
    /// Only every n-th input is measured.
    every: usize,
    /// Number of connections that are kept in memory, to compute the average memory of one
    /// connection.
    kept: u64,
}

const FULL: Extent = Extent {
    idle: Duration::from_secs(1),
    bytes: 40_000_000,
    times: 3,
    // From below the allowance to above it. Above it, plugins are detached.
    turns: &[50, 90, 300],
    every: 1,
    kept: 8,
};

const QUICK: Extent = Extent {
    idle: Duration::from_millis(200),
    bytes: 2_000_000,
    times: 1,
    turns: &[90],
    every: 3,
    kept: 2,
};

#[derive(Serialize)]
struct Data {
    /// True if the measurements were short, so that the times are not reliable.
    quick: bool,
    goals: Vec<Goal>,
    /// True if every goal is met.
    met: bool,
}

/// A goal, and the worst value that was measured for it.
#[derive(Serialize)]
struct Goal {
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    goal: f64,
    measured: f64,
    /// Name of the input with the highest cost.
    input: String,
    met: bool,
    /// All measured inputs.
    inputs: Vec<Input>,
}

/// A measured input, and what its plugins used.
#[derive(Clone, Serialize)]
struct Input {
    input: String,
    measured: f64,
    /// Number of plugins that the peer offered to the measured endpoint.
    offered: usize,
    /// Number of the peer's plugins that still run.
    running: usize,
    /// Number of steps that were charged to the plugins.
    steps: u64,
    /// Number of calls, offers and loads that were refused because the account of the peer's
    /// address had too few steps left.
    refused: u64,
    /// Memory of the plugins in bytes, as charged to the account of the peer's address.
    bytes: usize,
}

impl Input {
    fn new(input: impl Into<String>, measured: f64) -> Input {
        let input = input.into();
        Input { input, measured, offered: 0, running: 0, steps: 0, refused: 0, bytes: 0 }
    }

    fn charged(self, (offered, running): (usize, usize), usage: Usage) -> Input {
        let Usage { steps, refused, bytes, .. } = usage;
        Input { offered, running, steps, refused, bytes, ..self }
    }
}

impl Goal {
    fn new(
        name: &'static str,
        what: &'static str,
        (goal, unit): (f64, &'static str),
        inputs: Vec<Input>,
    ) -> Goal {
        let worst = inputs.iter().max_by(|a, b| a.measured.total_cmp(&b.measured));
        let (measured, input) =
            worst.map_or((0.0, String::new()), |one| (one.measured, one.input.clone()));
        Goal { name, what, unit, goal, measured, input, met: measured <= goal, inputs }
    }
}

fn failed(error: TrialError) -> Failure {
    Failure::because("cannot load a plugin for the measurement", error)
}

/// Runs `work` several times and returns the minimum CPU time. Other load on the machine can only
/// increase a CPU time.
fn least(times: u32, mut work: impl FnMut() -> Result) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..times {
        least = least.min(cpu_seconds(&mut work)?);
    }
    Ok(least)
}

fn loading(extent: Extent) -> Result<Vec<Input>> {
    let mut all = Vec::new();
    for (what, bundle) in limits::bundles().map_err(failed)? {
        let load = || limits::load(&bundle).map(drop).map_err(failed);
        let measured = 1e3 * least(extent.times + 2, load)?;
        all.push(Input::new(format!("{what}, {} bytes", bundle.len()), measured));
    }
    let mut replacing = Replacing::new().map_err(failed)?;
    let (rounds, before) = (20, replacing.usage().steps);
    let seconds = least(extent.times, || replacing.replace(rounds).map_err(failed))?;
    let what =
        "a plugin that replaces another one, while 16 plugins with 64 frame types are loaded";
    let mut usage = replacing.usage();
    usage.steps -= before;
    let input = Input::new(what, 1e3 * seconds / rounds as f64);
    all.push(input.charged((16, replacing.running()), usage));
    all.push(flood()?);
    Ok(all)
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> Result<f64> {
    const PAGE: f64 = 4096.0;
    let text = std::fs::read_to_string("/proc/self/statm")
        .map_err(|error| Failure::because("cannot read /proc/self/statm", error))?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages
        .map(|pages| PAGE * pages)
        .ok_or_else(|| Failure::new("/proc/self/statm does not contain the number of pages"))
}

fn memory(extent: Extent) -> Result<Vec<Input>> {
    let mut all = Vec::new();
    for (what, bundle) in limits::kept().map_err(failed)? {
        let begun = resident()?;
        let without = Kept::new(extent.kept, None).map_err(failed)?;
        let usual = resident()? - begun;
        let mut kept = Kept::new(extent.kept, Some(&bundle)).map_err(failed)?;
        let grown = (resident()? - begun - usual - usual).max(kept.counted() as f64);
        let input = Input::new(format!("plugins of {what}"), grown / 1e6 / extent.kept as f64);
        all.push(input.charged((16 * extent.kept as usize, kept.running()), kept.usage()));
        drop(without);
    }
    Ok(all)
}

/// Returns the CPU time that plugins use on idle connections, in percent of one core.
fn idle(
    extent: Extent,
    connections: u64,
    (input, push): (&str, &[Arc<Push>]),
    baseline: f64,
) -> Result<Input> {
    let mut idle = Idle::new(connections, push).map_err(failed)?;
    let before = idle.usage();
    let seconds = cpu_seconds(|| idle.pass(extent.idle).map_err(failed))? - baseline;
    let mut usage = idle.usage();
    usage.steps -= before.steps;
    let input = Input::new(input, 100.0 * seconds / extent.idle.as_secs_f64());
    Ok(input.charged((push.len() * connections as usize, idle.running()), usage))
}

/// Measures all worker plugins, on one connection and on as many as one address may have.
fn workers(extent: Extent) -> Result<[Vec<Input>; 2]> {
    let counts = [1, CONNECTIONS];
    let mut baselines = [0.0; 2];
    for (baseline, connections) in baselines.iter_mut().zip(counts) {
        *baseline = idle(extent, connections, ("no plugin", &[]), 0.0)?.measured / 100.0;
        *baseline *= extent.idle.as_secs_f64();
    }
    let mut inputs = [Vec::new(), Vec::new()];
    for worker in WORKERS.iter().step_by(extent.every) {
        let tried = extent.turns.iter().map(|percent| (worker.turns * percent).div_ceil(100));
        let mut tried: Vec<u32> = tried.collect();
        tried.dedup();
        for turns in tried {
            let push = worker.push(turns).map_err(failed)?;
            let input = format!("{turns} times {}", worker.does);
            for ((connections, baseline), inputs) in
                counts.into_iter().zip(baselines).zip(&mut inputs)
            {
                inputs.push(idle(extent, connections, (&input, &push), baseline)?);
            }
        }
    }
    Ok(inputs)
}

/// Plugins to measure: number of plugins, number of functions of each, and number of divisions in
/// each function. Some of the plugins are within the limits, others are detached.
const OBSERVERS: &[(usize, usize, usize)] =
    &[(1, 32, 0), (1, 8, 0), (1, 4, 0), (4, 2, 0), (4, 32, 0), (16, 32, 0), (1, 2, 16), (1, 1, 40)];

/// Measures the time in microseconds that observing plugins add to the processing of a packet.
fn packet(extent: Extent) -> Result<Vec<Input>> {
    let measure = |(plugins, functions, divisions): (usize, usize, usize)| {
        let mut observed = Observed::new(plugins, functions, divisions).map_err(failed)?;
        let before = observed.usage().steps;
        let pair = &mut observed.pair;
        let seconds = cpu_seconds(|| {
            let done = pair.network.transfer(End::Client, extent.bytes, Duration::from_secs(600));
            done.map(drop).map_err(|stuck| Failure::because("the transfer", stuck))
        })?;
        let packets = pair.network.connection(End::Client).map_or(1, |client| {
            let stats = client.stats();
            stats.packets_received + stats.packets_sent
        });
        let mut usage = observed.usage();
        usage.steps -= before;
        let what = format!(
            "{plugins} plugins with {functions} functions that each do {divisions} divisions"
        );
        let input = Input::new(what, 1e6 * seconds / packets as f64);
        Ok::<_, Failure>(input.charged((plugins, observed.running()), usage))
    };
    let mut all: Vec<Input> = Vec::new();
    for plugins in OBSERVERS.iter().step_by(extent.every) {
        // Alternate measurements with and without plugins, and take the minimum of each, because
        // other load on the machine can only increase the times.
        let (mut base, mut with) = (f64::INFINITY, None::<Input>);
        for _ in 0..extent.times {
            base = base.min(measure((0, 0, 0))?.measured);
            let input = measure(*plugins)?;
            let least = with.as_ref().is_none_or(|known| input.measured < known.measured);
            with = if least { Some(input) } else { with };
        }
        all.extend(with.map(|input| Input { measured: input.measured - base, ..input }));
    }
    Ok(all)
}

/// Measures the time in milliseconds to handle a flood of exchange frames from a peer, until its
/// connection is closed.
fn flood() -> Result<Input> {
    let mut flooded = Flooded::new().map_err(failed)?;
    let mut frames = 0;
    let seconds = cpu_seconds(|| {
        frames = flooded.send().map_err(failed)?;
        Ok::<_, Failure>(())
    })?;
    let what =
        format!("{frames} frames of the plugin exchange, the last of which closes the connection");
    Ok(Input::new(what, 1e3 * seconds))
}

fn value(value: f64, unit: &str) -> Cell {
    Cell::new(format!("{value:.2} {unit}"))
}

/// Measures each goal and prints the results. Fails if a goal is missed, but not with `quick`.
pub(super) fn run(quick: bool, json: bool) -> Result {
    let extent = if quick { QUICK } else { FULL };
    // Measure memory first. Other measurements leave free memory in the process, which would
    // distort the result.
    let memory = memory(extent)?;
    let [one, many] = workers(extent)?;
    let goals = vec![
        Goal::new("bundle", "CPU time to load a bundle", (20.0, "ms"), loading(extent)?),
        Goal::new("memory", "memory of a connection's plugins", (2.0, "MB"), memory),
        Goal::new("idle", "CPU time of an idle connection", (5.0, "%"), one),
        Goal::new("address", "CPU time of an address's idle connections", (25.0, "%"), many),
        Goal::new("packet", "CPU time added to a packet", (3.0, "µs"), packet(extent)?),
    ];
    let met = goals.iter().all(|goal| goal.met);
    let data = Data { quick, goals, met };
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
    if met || quick { Ok(()) } else { Err(Failure::new("a goal was missed: see the table")) }
}
