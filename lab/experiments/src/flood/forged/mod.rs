//! `equic-lab gateway-bench --forged`: a flood of Initial packets, each with a new forged source
//! address.
//!
//! A limit per source has no effect against this flood, and a total limit also affects newcomers.
//! The benchmark therefore measures whether newcomers, whose addresses the server has not seen
//! before, still get in. It also measures the effect on existing connections, and the server's CPU
//! use. The lab, its CPUs and the baseline are those of the parent module.
//!
//! * `plan`: parameters, and command lines of the child processes. `cell`: one measurement.
//! * `quinn`: a server on the QUIC implementation quinn, for one of the arms.
//! * `result`: shares, ratios and their intervals. `show`: the table.

mod cell;
mod plan;
mod quinn;
mod result;
mod show;

use equic_netns::Lab;

use super::args::Args;
use super::rounds::measure_all;
use super::steps::BenchStage;
use crate::failure::Result;
pub(super) use plan::ForgedPlan;
pub use quinn::{QuinnArgs, serve as serve_quinn};
pub(super) use result::Bench;
pub(super) use show::{note, table};

/// Name of the schema of the result.
pub(super) const SCHEMA: &str = "equic.lab.bench.forged/1";

/// Measures every arm at every rate, in repeated rounds of random order.
pub(super) fn measure(args: &Args, cpus: [usize; 2], lab: &Lab) -> Result<Bench> {
    let plan = ForgedPlan::new(args, cpus, lab);
    let stage = BenchStage { lab, plan: &plan };
    let cells = measure_all(&plan.flood_pps, plan.rounds, plan.seed, |round, arm, pps| {
        stage.measure(round, arm, pps)
    })?;
    Ok(Bench::new(plan, cells))
}
