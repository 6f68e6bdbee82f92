//! Runs scenarios in virtual time. [`play`] runs a scenario with one seed. [`play_all`] runs it
//! with all its seeds, on several threads.
//!
//! Each run uses one thread, and its result depends only on the scenario and the seed. The number
//! of threads therefore does not change the results.
//!
//! * `stage.rs`: the simulation with all its agents;
//! * `transport.rs`: connections of both protocols; `plugins.rs`: their plugins;
//! * `memory.rs`: the memory that a run needs;
//! * `series.rs`: time series of a run. `crate::results` defines the results.

mod memory;
mod plugins;
mod series;
mod stage;
mod transport;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::Scenario;
use stage::PlayStage;

pub use crate::results::{
    ApplicationOutcome, ApplicationSummary, Figure, FlowOutcome, FlowSummary, Harm, Latency,
    MessageOutcome, PlayingOutcome, PortOutcome, RunOutcome, Summary, TrafficOutcome, jain,
};
pub use equic_sim::quic::{FileHeader, JsonSeq, Logs, QlogEvent, QlogSink};
pub use memory::memory;
#[cfg(feature = "plugins")]
pub(crate) use plugins::load as load_plugin;
pub use series::{FlowPoint, PathPoint, PlayingPoint, PortPoint, Series, SharePoint, UnitPoint};

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// The simulator rejected a scenario that the parser had accepted. This is a bug in the parser.
    #[error("seed {seed}: {reason}")]
    Refused {
        /// Seed of the run.
        seed: u64,
        /// The reason that the simulator gave.
        reason: String,
    },
}

/// Selects which flows of a scenario take part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All flows of the scenario.
    All,
    /// Only one flow, by its index in the description, counted from 0. The network and the
    /// background traffic stay the same.
    Flow(usize),
}

/// Creates the qlog files of a connection. The arguments are the name of its flow, and its number
/// within the flow, from 1.
pub type MakeLogs<'a> = dyn Fn(&str, usize) -> Logs + 'a;

/// Runs a scenario with one seed.
///
/// # Errors
/// Returns a [`PlayError`] if the simulator rejects the scenario. No scenario that
/// [`Scenario::parse`] accepts is known to cause this.
pub fn play(scenario: &Scenario, seed: u64, part: Part) -> Result<RunOutcome, PlayError> {
    let refused = |reason: String| PlayError::Refused { seed, reason };
    let mut stage = PlayStage::set(scenario, seed, part, None).map_err(refused)?;
    stage.run().map_err(refused)?;
    Ok(stage.outcome())
}

/// Like [`play`], but also returns time series. If `logs` is given, writes logs of the QUIC
/// connections. The outcome is the same as that of [`play`].
///
/// # Errors
/// The errors of [`play`]. Also fails if the scenario's interval is so short that there would be
/// too many samples.
pub fn record(
    scenario: &Scenario,
    seed: u64,
    logs: Option<&MakeLogs<'_>>,
) -> Result<(RunOutcome, Series), PlayError> {
    let refused = |reason: String| PlayError::Refused { seed, reason };
    let mut stage = PlayStage::set(scenario, seed, Part::All, logs).map_err(refused)?;
    let series = stage.record().map_err(refused)?;
    Ok((stage.outcome(), series))
}

/// Runs a scenario with all its seeds on `threads` threads. Returns the outcomes in the order of
/// the seeds. After each run, calls `done` on the thread of that run, with the number of completed
/// runs.
///
/// # Errors
/// Returns the error of the first seed that failed.
pub fn play_all(
    scenario: &Scenario,
    part: Part,
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<RunOutcome>, PlayError> {
    let seeds = &scenario.seeds;
    let (next, finished, failed) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::with_capacity(seeds.len()));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(seed) = seeds.get(index) else { break };
            let outcome = play(scenario, *seed, part);
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, seeds.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, outcome)| outcome).collect()
}
