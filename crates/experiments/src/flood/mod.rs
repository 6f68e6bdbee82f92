//! `equic lab bench`: what a flood leaves of a server, by who protects it.
//!
//! A lab of a server, a legitimate client, an attacker and a bystander. The flood has a CPU of its own,
//! which its soft interrupts run on too; server and client share another. Five arms (`plan::Arm`) at
//! several rates, in random order, again and again; the baseline is the same flood sent to the
//! bystander, so that only what reaches the server differs.
//!
//! * `args`: the options; `plan`: what is chosen by them, and the command lines of the parts;
//! * `rounds`: the order of the measurements of all `arms`, and `progress`: how far they are; `cell`: one measurement,
//!   made of `steps`; `guard`: what protects the server;
//! * `rows`, `result`: ratios and their intervals; `show`: the table;
//! * `forged`: the same for a flood from forged sources, with measures and arms of its own.

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
use equic_lab::{Lab, pin_thread};
use equic_report::schema::Report;
use equic_report::table::{Style, Table};
use serde::Serialize;

use crate::envelope::Envelope;
use crate::failure::{Done, Failure};
use crate::output;
pub use args::Args;
pub use forged::{QuinnArgs, serve_quinn};
use plan::{FloodPlan, HOSTS, two_cpus};
use result::Bench;
use rounds::measure_all;
use steps::BenchStage;

/// The schema of the result.
const SCHEMA: &str = "equic.lab.bench/1";

/// Measures, and shows the result.
///
/// # Errors
/// Without root, without two CPUs, and when a part of it fails.
pub fn run(args: &Args) -> Done {
    until_interrupted(|| carry_out(args))
}

fn carry_out(args: &Args) -> Done {
    check(args)?;
    let envelope = Envelope::now()?;
    // Threads, and parts that are not told otherwise, stay off the server's CPU.
    let cpus = two_cpus()?;
    pin_thread(&[cpus[1]])?;
    // Labs that killed runs left behind. One that cannot be removed does no harm.
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

fn tell<T: Serialize>(args: &Args, report: &Report<T>, table: &Table, note: &str) -> Done {
    if args.json {
        return output::document(&report.to_json()?);
    }
    let table = if args.markdown { table.markdown() } else { table.render(Style::stdout()) };
    output::text(format_args!("{table}\n{note}\n{}\n", report.machine))
}

/// Checks at once for what would make the benchmark fail after minutes.
fn check(args: &Args) -> Done {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new(
            "the benchmark needs root, to make network namespaces and to load XDP programs",
        )
        .mend("run `sudo equic lab bench`"));
    }
    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", args.out.display()), error)
    })
}
