//! Runs in virtual time. [`play`] runs a scenario with one seed, [`play_all`] with all seeds on
//! several threads.
//!
//! Each run uses one thread, and depends only on its scenario and seed. So results do not depend on
//! the number of threads.
//!
//! * `stage.rs`: the simulation with all its agents; `transport.rs`: connections of either
//!   protocol; `plugins.rs`: their plugins; `memory.rs`: the memory that a run needs;
//! * `series.rs`: time series of a run. `crate::results` has the results.

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

/// Reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// The simulator rejects a description that was checked before. This is a bug in the check.
    #[error("seed {seed}: {reason}")]
    Refused {
        /// Seed of the run.
        seed: u64,
        /// Reason given by the simulator.
        reason: String,
    },
}

/// The flows of a scenario that take part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All flows.
    All,
    /// Only the flow with this index in the description, counted from 0. The network and the
    /// background traffic are the same.
    Flow(usize),
}

/// Creates the logs of a connection, from the name of its flow and its number in that flow, from 1.
pub type MakeLogs<'a> = dyn Fn(&str, usize) -> Logs + 'a;

/// Runs a scenario with one seed.
///
/// # Errors
/// Fails with [`PlayError`]. No scenario that [`Scenario::parse`] accepts is known to cause it.
pub fn play(scenario: &Scenario, seed: u64, part: Part) -> Result<RunOutcome, PlayError> {
    let refused = |reason: String| PlayError::Refused { seed, reason };
    let mut stage = PlayStage::set(scenario, seed, part, None).map_err(refused)?;
    stage.run().map_err(refused)?;
    Ok(stage.outcome())
}

/// Like [`play`], but also returns time series, and writes logs of QUIC connections if `logs` is
/// given. The outcome is the same.
///
/// # Errors
/// Fails as [`play`] does, and if the interval of the scenario is so short that there would be too
/// many points.
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

/// Runs a scenario with all its seeds, on this number of threads. Returns the outcomes in the order
/// of the seeds. Calls `done` after each run, on the thread of that run, with the number of runs
/// done so far.
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
