//! Runs in virtual time: [`play`] plays a scenario with one seed, [`play_all`] with all of them, on several threads.
//!
//! A run is one thread's, and the same from the same scenario and seed in any process; so results do not depend on
//! how many threads there are.
//!
//! * `stage.rs`: the simulation with everybody in it; `transport.rs`: connections of either protocol; `plugins.rs`: plugins
//!   of their ends; `memory.rs`: what a run takes;
//! * `series.rs`: time series of a run. Results are in `crate::results`.

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

/// Reason for which a run cannot be played to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// The simulator refuses what the description passed, which a check before should have found.
    #[error("seed {seed}: {reason}")]
    Refused {
        /// Seed of the run.
        seed: u64,
        /// Reason that the simulator gives.
        reason: String,
    },
}

/// Flows of a scenario that take part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All flows.
    All,
    /// The flow with this number in the description, counted from 0, in the same network and beside the same other
    /// traffic.
    Flow(usize),
}

/// Makes the logs of the connection with this number, from 1, of the flow of this name.
pub type MakeLogs<'a> = dyn Fn(&str, usize) -> Logs + 'a;

/// Plays a scenario with one seed.
///
/// # Errors
/// [`PlayError`], which no scenario is known to lead to that was read by [`Scenario::parse`].
pub fn play(scenario: &Scenario, seed: u64, part: Part) -> Result<RunOutcome, PlayError> {
    let refused = |reason: String| PlayError::Refused { seed, reason };
    let mut stage = PlayStage::set(scenario, seed, part, None).map_err(refused)?;
    stage.run().map_err(refused)?;
    Ok(stage.outcome())
}

/// As [`play`], with time series, and with logs of QUIC connections if a function for these is given. The outcome is
/// the same.
///
/// # Errors
/// As [`play`], and if the interval of the scenario is so short that there are too many points.
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

/// Plays a scenario with all its seeds, on so many threads. The outcomes are in the order of the seeds; `done` is
/// called after each run, by whichever thread it was on, with the number of runs done so far.
///
/// # Errors
/// That of the first seed that has one.
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
