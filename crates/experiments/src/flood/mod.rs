//! `equic lab bench`: what a flood leaves of a server, by who protects it.
//!
//! A lab of a server, a legitimate client, an attacker and a bystander. The flood has a CPU of its own,
//! which its soft interrupts run on too; server and client share another. Five arms (`plan::Arm`) at
//! several rates, in random order, again and again; the baseline is the same flood sent to the
//! bystander, so that only what reaches the server differs.
//!
//! * `plan`: what is chosen, and the command lines of the parts; `rounds`: the order of the measurements;
//!   `cell`: one measurement, made of `steps`; `guard`: what protects the server;
//! * `rows`, `result`: ratios and their intervals; `show`: table and progress;
//! * `forged`: the same for a flood from forged sources, with measures and arms of its own.

mod cell;
mod forged;
mod guard;
mod plan;
mod result;
mod rounds;
mod rows;
mod show;
mod steps;

use std::path::PathBuf;

use equic_harness::until_interrupted;
use equic_lab::{Lab, pin_thread};
use equic_report::schema::Report;
use equic_report::table::{Style, Table};
use serde::Serialize;

use crate::envelope::Envelope;
use crate::failure::{Done, Failure};
use crate::output;
use plan::{FloodPlan, HOSTS, two_cpus};
use result::Bench;
use rounds::measure_all;
use steps::BenchStage;

/// The schema of the result.
const SCHEMA: &str = "equic.lab.bench/1";

/// Measures what legitimate clients get under a flood: with the gateway, with nftables, with quotas in
/// the server, and with nothing. Takes about ten minutes, with --forged twenty
#[derive(clap::Args)]
pub struct Args {
    /// Where flood.json goes, or forged.json
    #[arg(long, value_name = "DIR", default_value = "out/bench-gateway")]
    out: PathBuf,
    /// The flood's source addresses are forged, a new one each: measures whether newcomers get in, with
    /// nothing, nftables, the server's Retry, the gateway's limit of new connections in all and its Retry
    #[arg(long)]
    forged: bool,
    /// With --forged: the flood comes in the names of the newcomers themselves, instead of from 12,582,912 addresses
    #[arg(long, requires = "forged")]
    victims: bool,
    /// Half a minute, to see that everything works
    #[arg(long)]
    quick: bool,
    /// How often everything is measured, instead of 7 times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Seconds of one measurement, instead of 3 (4 with --forged)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: Option<u16>,
    /// Initials a second, instead of 50000, 200000 (with --forged 2000, 20000) and all that a CPU can send;
    /// several are fine
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    flood: Vec<u64>,
    /// The same number gives the same order of measurements
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print the result as JSON (schema equic.lab.bench/1)
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
}

impl Args {
    /// Rates of the flood that were asked for, or else these. A rate is a number of Initials a second;
    /// none: all that a CPU can send.
    fn rates(&self, usual: Vec<Option<u64>>) -> Vec<Option<u64>> {
        if self.flood.is_empty() { usual } else { self.flood.iter().copied().map(Some).collect() }
    }
}

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
