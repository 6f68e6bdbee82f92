//! Measures the cost of plugins: the CPU time of in-memory transfers with and without them, and the
//! time until a plugin runs.

use equic_harness::cpu_seconds;
use equic_plugin_kit::trial::{Extension, SchedulerArm, extended, loading, schedule, signed};

use super::data::{CostArm, Costs, LoadTimes};
use super::part::failed;
use crate::failure::Result;

/// Plugins whose loading time is measured.
const LOADED: [&str; 3] = ["monitor", "lowest-latency", "fec-xor"];

/// Measures all costs, which takes about two minutes. With `quick`, the measurement is shorter, for
/// tests.
pub(super) fn measure(quick: bool) -> Result<Costs> {
    let (bytes, rounds) = if quick { (300_000, 2) } else { (20_000_000, 40) };
    let schedulers = schedulers(rounds, bytes)?;
    let extensions = extensions(rounds, bytes)?;
    let loading: Result<Vec<LoadTimes>> =
        LOADED.iter().map(|plugin| load_times(plugin, if quick { 2 } else { 100 })).collect();
    Ok(Costs { bytes, schedulers, extensions, loading: loading? })
}

/// Measures the CPU times of arms (transfers with different plugins) in interleaved rounds, so that
/// other load affects all arms equally. `run` gets the index of an arm and a seed.
fn interleaved(
    names: Vec<&'static str>,
    rounds: u64,
    mut run: impl FnMut(usize, u64) -> Result,
) -> Result<Vec<CostArm>> {
    let arm = |name: &str| CostArm { name: name.to_owned(), seconds: Vec::new() };
    let mut arms: Vec<CostArm> = names.into_iter().map(arm).collect();
    let count = arms.len();
    for round in 0..rounds {
        for turn in 0..count {
            // Each round starts with another arm.
            let at = (turn + round as usize) % count;
            arms[at].seconds.push(cpu_seconds(|| run(at, round + 1))?);
        }
    }
    Ok(arms)
}

fn schedulers(rounds: u64, bytes: u64) -> Result<Vec<CostArm>> {
    let arms = SchedulerArm::ALL;
    let plugins = arms.iter().map(|arm| arm.load()).collect::<Result<Vec<_>, _>>();
    let plugins = plugins.map_err(failed)?;
    interleaved(arms.map(SchedulerArm::name).to_vec(), rounds, |at, seed| {
        schedule(plugins[at].as_ref(), seed, bytes).map(drop).map_err(failed)
    })
}

fn extensions(rounds: u64, bytes: u64) -> Result<Vec<CostArm>> {
    let arms = Extension::ALL;
    let plugins = arms.iter().map(|arm| arm.load()).collect::<Result<Vec<_>, _>>();
    let plugins = plugins.map_err(failed)?;
    interleaved(arms.map(words).to_vec(), rounds, |at, seed| {
        extended(arms[at], plugins[at].as_ref(), seed, bytes).map_err(failed)
    })
}

fn words(extension: Extension) -> &'static str {
    match extension {
        Extension::None => "no extension",
        Extension::Monitoring => MONITORING,
        Extension::OnePathOfTwo => ONE_PATH,
        Extension::TwoPaths => TWO_PATHS,
        Extension::TwoPathsScheduled => "two paths, plugin lowest-latency as the scheduler",
        Extension::ErrorCorrection => ERROR_CORRECTION,
    }
}

/// Name of the arm with monitoring. This and the constants below name those arms for which PQUIC's
/// paper has a figure.
pub(super) const MONITORING: &str = "plugin monitor";
pub(super) const ONE_PATH: &str = "several paths agreed on, one open";
pub(super) const TWO_PATHS: &str = "two paths, native scheduler";
pub(super) const ERROR_CORRECTION: &str = "plugin fec-xor at both ends";

fn load_times(plugin: &str, rounds: u64) -> Result<LoadTimes> {
    let bundle = signed(plugin).map_err(failed)?;
    let mut times = LoadTimes {
        plugin: plugin.to_owned(),
        bundle: bundle.len(),
        first_us: Vec::new(),
        again_us: Vec::new(),
    };
    for round in 0..rounds {
        let took = loading(&bundle, 2 * round).map_err(failed)?;
        let micros = |time: std::time::Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
        times.first_us.push(micros(took.first));
        times.again_us.push(micros(took.again));
    }
    Ok(times)
}
