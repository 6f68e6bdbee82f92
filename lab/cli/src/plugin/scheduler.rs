//! Measures the cost of the lowest-latency path scheduler as a plugin, compared with native code
//! ("The Case for Protocol Plugins", table 1). Part of `equic-lab plugin-bench`.

use equic_harness::cpu_seconds;
use equic_plugin_kit::trial::{SchedulerArm, schedule};
use equic_report::stats::Sample;
use equic_report::stats::effect::Ratio;
use equic_report::table::{Column, Table};
use serde::Serialize;

use super::bench::change;
use crate::failure::{Failure, Result};

#[derive(Serialize)]
pub(super) struct Row {
    /// Name of the path scheduler.
    scheduler: &'static str,
    /// Throughput divided by that of the native scheduler, or `None` for the native scheduler
    /// itself. Throughput is the number of bytes transferred over two paths per second of CPU time
    /// of both endpoints.
    throughput: Option<Ratio>,
}

/// Measures all schedulers in `rounds` interleaved rounds, so that other load on the machine
/// affects all of them equally.
pub(super) fn rows(rounds: u32, seed: u64, bytes: u64) -> Result<Vec<Row>> {
    let arms = SchedulerArm::ALL;
    let failed = |arm: SchedulerArm| move |error| Failure::because(arm.name(), error);
    let mut plugins = Vec::new();
    for arm in arms {
        plugins.push(arm.load().map_err(failed(arm))?);
    }
    let mut times = vec![Vec::new(); arms.len()];
    for round in 0..rounds {
        for turn in 0..arms.len() {
            // Start each round with another scheduler.
            let at = (turn + round as usize) % arms.len();
            let seed = seed.wrapping_add(round.into());
            let run = || schedule(plugins[at].as_ref(), seed, bytes).map_err(failed(arms[at]));
            times[at].push(cpu_seconds(|| run().map(|_| ()))?);
        }
    }
    let samples = times.into_iter().map(|times| times.into_iter().collect::<Sample>());
    let samples: Vec<Sample> = samples.collect();
    let rows = arms.iter().zip(&samples).enumerate().map(|(at, (arm, sample))| Row {
        scheduler: arm.name(),
        // All transfers have the same number of bytes, so throughput is inversely proportional to
        // time.
        throughput: if at == 0 { None } else { Ratio::between(sample, &samples[0]) },
    });
    Ok(rows.collect())
}

pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(vec![
        Column::text("lowest-latency scheduler"),
        Column::number("throughput compared with the native scheduler"),
    ]);
    for row in rows {
        table.row(vec![row.scheduler.into(), change(row.throughput)]);
    }
    table
}
