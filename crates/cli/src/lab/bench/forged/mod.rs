//! `equic lab bench --forged`: a flood of Initials whose source addresses are forged, a new one each.
//!
//! A limit by source does nothing against it, and a limit in all hits newcomers too. So what is measured
//! is whether newcomers still get in, each from an address that the server has not seen, what becomes of
//! connections that were there before, and what the server's CPU spends. The lab, its CPUs and the
//! baseline are those of the parent module.
//!
//! * `plan`: what is chosen, and the command lines of the parts; `cell`: one measurement;
//! * `result`: shares, ratios and their intervals; `show`: the table.

mod cell;
mod plan;
mod result;
mod show;

use equic_lab::Lab;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use super::Args;
use super::show::Progress;
use crate::failure::Done;
use cell::{Cell, Stage};
use plan::Arm;
pub(super) use plan::Plan;
pub(super) use result::Bench;
pub(super) use show::{note, table};

/// The schema of the result.
pub(super) const SCHEMA: &str = "equic.lab.bench.forged/1";

/// Measures every arm at every rate, again and again in random order.
pub(super) fn measure(args: &Args, cpus: [usize; 2], lab: &Lab) -> Done<Bench> {
    let plan = Plan::new(args, cpus);
    let progress = Progress::new(plan.cells());
    let mut rng = SmallRng::seed_from_u64(plan.seed);
    let stage = Stage { lab, plan: &plan };
    let mut cells: Vec<Cell> = Vec::with_capacity(plan.cells());
    let mut order: Vec<(Option<u64>, Arm)> =
        plan.flood_pps.iter().flat_map(|pps| Arm::ALL.map(|arm| (*pps, arm))).collect();
    for round in 0..plan.rounds {
        order.shuffle(&mut rng);
        for &(pps, arm) in &order {
            progress.begin(arm.title(), pps);
            cells.push(stage.measure(round, arm, pps)?);
            progress.done();
        }
    }
    drop(progress);
    Ok(Bench::new(plan, cells))
}
