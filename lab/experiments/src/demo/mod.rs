//! `equic-lab demo`: two attacks on a real HTTP/3 server, each with different protections.
//!
//! The lab has a server, four legitimate clients, two attackers, and a host for newcomers. There
//! are eight arms, that is, variants of the experiment (`arms::Arm`). The first four have only the
//! clients: without an attack, and under attack without protection, with quotas in the server, and
//! with the same quotas in the gateway. The last four also have newcomers: without an attack, and
//! under a flood of Initial packets from forged sources without protection, with Retry by the
//! server, and with Retry by the gateway. `carry_out` runs all arms.
//!
//! * `args`: the options, and `plan`: the values derived from them. `commands`: the command lines
//!   of the child processes (`part`). `arm`: runs one arm, with `steps` for its timing, `processes`
//!   for its child processes, and `raw_records` for its records.
//! * `result`: the figures, with those of `newcomers`. `drops`: rejected packets. `conclusion` and
//!   `forged`: summaries in sentences. `show`: tables and notes. `plot`: plots. `progress`: the
//!   progress display.

mod args;
mod arm;
mod arms;
mod commands;
mod conclusion;
mod drops;
mod forged;
mod newcomers;
mod plan;
mod plot;
mod processes;
mod progress;
mod raw_records;
mod result;
mod show;
mod steps;

use std::path::Path;

use equic_harness::until_interrupted;
use equic_netns::{Lab, pin_thread};
use equic_report::schema::Report;
use equic_report::table::Style;

use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;
pub use args::Args;
use arms::Arm;
use plan::{ATTACKERS, CLIENTS, DemoPlan};
use progress::Progress;
use result::{ArmResult, Demo, Forged};

/// Name of the schema of the demo's result.
const SCHEMA: &str = "equic.demo/1";

/// Runs the demo, and shows the result.
///
/// # Errors
/// Fails without root, without two CPUs, and if a child process fails.
pub fn run(args: &Args) -> Result {
    until_interrupted(|| carry_out(args))
}

fn carry_out(args: &Args) -> Result {
    check(args)?;
    let plan = DemoPlan::new(args)?;
    let envelope = Envelope::now()?;
    // Keeps all threads, and processes without a CPU of their own, off the server's CPU.
    pin_thread(&[plan.other_cpu])?;
    // Removes the labs of demos that were killed. A lab that cannot be removed does no harm.
    let _ = Lab::sweep();
    // The lab needs one additional host, for the newcomers.
    let lab = Lab::builder("demo").clients(CLIENTS + ATTACKERS + 1).build()?;
    let mut progress = Progress::new(&plan, args.json);
    let arms = play(&Arm::QUOTAS, &plan, &lab, &mut progress)?;
    let forged = play(&Arm::FORGED, &plan, &lab, &mut progress)?;
    drop(progress);
    lab.close()?;
    let demo = Demo {
        notes: show::notes(&plan, &arms, &forged),
        conclusion: conclusion::conclude(&plan, &arms),
        forged: Forged { conclusion: forged::conclude(&forged), arms: forged },
        plan,
        arms,
    };
    let report = envelope.report(SCHEMA, demo)?;
    report.write(args.out.join("demo.json"))?;
    plot::write(&report.data, &args.out)?;
    if args.json {
        return output::document(&report.to_json()?);
    }
    tell(&report, &args.out)
}

/// Checks in advance for problems that would make the demo fail after a minute.
fn check(args: &Args) -> Result {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new(
            "the demo needs root to create network namespaces and to load XDP programs",
        )
        .help("run `sudo equic-lab demo`"));
    }
    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::because(format_args!("cannot create the folder {}", args.out.display()), error)
    })?;
    Ok(())
}

/// Runs arms one after the other.
fn play(
    arms: &[Arm],
    plan: &DemoPlan,
    lab: &Lab,
    progress: &mut Progress,
) -> Result<Vec<ArmResult>> {
    let mut results = Vec::new();
    let mut start = 0.0;
    for arm in arms {
        let take = arm::DemoStage { lab, plan, progress }.play(*arm)?;
        let result = ArmResult::new(*arm, plan, take, start);
        start += result.seconds;
        progress.done(&result, plan.seconds(*arm))?;
        results.push(result);
    }
    Ok(results)
}

fn tell(report: &Report<Demo>, out: &Path) -> Result {
    let (demo, width) = (&report.data, Style::stdout().width);
    output::line(format_args!("\n{}", report.machine))?;
    output::table(&show::quotas(&demo.arms))?;
    output::table(&show::forged(&demo.forged.arms))?;
    for note in &demo.notes {
        output::line(output::wrapped(&format!("* {note}"), width, "  "))?;
    }
    let files = "demo.json, demo.svg, newcomers.svg";
    output::line(format_args!("Written: {}/{files}", out.display()))?;
    for conclusion in [&demo.conclusion, &demo.forged.conclusion] {
        output::line(format_args!("\n{}", output::wrapped(conclusion, width, "")))?;
    }
    Ok(())
}
