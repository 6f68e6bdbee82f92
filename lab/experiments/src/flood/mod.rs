//! `equic-lab gateway-bench`: measures how much capacity for legitimate clients a flood leaves to a
//! server, with different protections.
//!
//! The lab has a server, a legitimate client, an attacker and a bystander. The flood has its own
//! CPU, which also handles its soft interrupts. Server and client share another CPU. Five arms
//! (`plan::Arm`) run at several rates, in repeated rounds of random order. In the baseline, the
//! same flood is sent to the bystander instead of the server. Only the packets at the server differ
//! then.
//!
//! * `args`: the options. `plan`: the parameters derived from the options, and the command lines of
//!   the child processes.
//! * `rounds`: the order of the measurements of all `arms`, with `progress`. `cell`: one
//!   measurement, consisting of `steps`. `guard`: the protection of the server.
//! * `rows`, `result`: ratios and their intervals. `show`: the table.
//! * `forged`: the same for a flood from forged sources, with other figures and arms.

mod args;
mod arms;
mod cell;
mod forged;
mod guard;
mod plan;
mod progress;
mod result;
mod rounds;
mod rows;
mod show;
mod steps;

use equic_harness::until_interrupted;
use equic_netns::{Lab, pin_thread};
use equic_report::schema::Report;
use equic_report::table::{Style, Table};
use serde::Serialize;

use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;
pub use args::Args;
pub use forged::{QuinnArgs, serve_quinn};
use plan::{FloodPlan, HOSTS, two_cpus};
use result::Bench;
use rounds::measure_all;
use steps::BenchStage;

/// Name of the schema of the result.
const SCHEMA: &str = "equic.lab.bench/1";

/// Runs the measurements, and shows the result.
///
/// # Errors
/// Fails without root, without two CPUs, and if a child process fails.
pub fn run(args: &Args) -> Result {
    until_interrupted(|| carry_out(args))
}

fn carry_out(args: &Args) -> Result {
    check(args)?;
    let envelope = Envelope::now()?;
    // Keeps all threads, and processes without a CPU of their own, off the server's CPU.
    let cpus = two_cpus()?;
    pin_thread(&[cpus[1]])?;
    // Removes the labs of runs that were killed. A lab that cannot be removed does no harm.
    let _ = Lab::sweep();
    let lab = Lab::builder("bench").clients(HOSTS).build()?;
    if args.forged {
        let bench = forged::measure(args, cpus, &lab)?;
        lab.close()?;
        let report = envelope.report(forged::SCHEMA, bench)?;
        report.write(args.out.join("forged.json"))?;
        let data = &report.data;
        return tell(args, &report, &forged::table(&data.rows), &forged::note(&data.plan));
    }
    let plan = FloodPlan::new(args, cpus);
    let stage = BenchStage { lab: &lab, plan: &plan };
    let cells = measure_all(&plan.flood_pps, plan.rounds, plan.seed, |round, arm, pps| {
        stage.measure(round, arm, pps)
    })?;
    lab.close()?;
    let report = envelope.report(SCHEMA, Bench::new(plan, cells))?;
    report.write(args.out.join("flood.json"))?;
    tell(args, &report, &show::table(&report.data.rows), &show::aim())
}

fn tell<T: Serialize>(args: &Args, report: &Report<T>, table: &Table, note: &str) -> Result {
    if args.json {
        return output::document(&report.to_json()?);
    }
    let table = if args.markdown { table.markdown() } else { table.render(Style::stdout()) };
    output::text(format_args!("{table}\n{note}\n{}\n", report.machine))
}

/// Checks in advance for problems that would make the benchmark fail after minutes.
fn check(args: &Args) -> Result {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new(
            "the benchmark needs root to create network namespaces and to load XDP programs",
        )
        .help("run `sudo equic-lab gateway-bench`"));
    }
    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::because(format_args!("cannot create the folder {}", args.out.display()), error)
    })
}
