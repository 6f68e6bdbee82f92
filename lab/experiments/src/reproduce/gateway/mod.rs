//! The experiment of the eQUIC gateway's paper. A server has four sequential clients, and four
//! clients that later send requests in parallel and are limited by a quota. [`plan::Arm`] lists the
//! arms, which are variants of the experiment with different quotas.
//!
//! * `plan`: parameters, times and their scale, command lines. `search`: strength of the attack.
//!   `arm`: runs one arm. `block`: cost of rejecting a connection attempt.
//! * `metrics`: definitions of the metrics. `data`: the records and figures of a run, and the
//!   content of the result file.
//! * `compare`: compares the paper's numbers with ours. `show`: tables, Markdown, notes. `plots`:
//!   plots. `progress`: progress display.

mod arm;
mod block;
mod compare;
mod data;
mod metrics;
mod plan;
mod plots;
mod progress;
mod search;
mod show;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use equic_harness::until_interrupted;
use equic_load::Sample;
use equic_netns::measure::BpfStatistics;
use equic_netns::{Lab, pin_thread};
use equic_report::plot::check_fonts;
use equic_report::schema::Report;
use equic_report::table::Style;
use flate2::Compression;
use flate2::write::GzEncoder;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;

use super::OutputOptions;
use crate::envelope::Envelope;
use crate::failure::{Failure, Result};
use crate::output;
use arm::ArmContext;
use data::{Experiment, RawRecords, Run};
use plan::{Arm, ExperimentPlan, PARALLEL, SEQUENTIAL};
use progress::Progress;

/// Name of the schema of the result.
const SCHEMA: &str = "equic.reproduce.gateway/1";

/// Number of trials of each attack in the search. If the experiment has few runs, one trial is
/// made.
const TRIALS: u32 = 2;

/// Repeats the experiment of the gateway paper, and compares the results. First it searches for an
/// attack that costs a server without a quota half of its throughput. With ten runs per arm, it
/// takes about an hour.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Folder for the result, the plots and the raw samples
    #[arg(long, value_name = "DIR", default_value = "out/reproduce-gateway")]
    out: PathBuf,
    /// Number of runs with each variant of the quota [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Number of requests of each client [default: 1000, more on a fast machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    requests: Option<u32>,
    /// Maximum strength of the attack, as the number of requests of an attacker divided by that of
    /// another client. The experiment increases the strength until the attack halves the throughput
    #[arg(long, value_name = "TIMES", default_value = "32", value_parser = clap::value_parser!(u32).range(1..=1000))]
    most_attack: u32,
    /// Seed for the random order of the runs [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Make a small version of the experiment, with 2 runs of some seconds each. It takes a few
    /// minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputOptions,
    /// Measure nothing, but draw and print a stored result
    #[arg(long, value_name = "RESULT.json", conflicts_with_all = ["runs", "requests", "most_attack", "seed", "quick"])]
    plot_only: Option<PathBuf>,
}

/// Runs the experiment.
pub(super) fn run(args: &Args) -> Result {
    if let Some(stored) = &args.plot_only {
        check_fonts()?;
        super::make_folder(&args.out)?;
        return tell(args, &super::read(stored, SCHEMA)?);
    }
    until_interrupted(|| carry_out(args))
}

fn carry_out(args: &Args) -> Result {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new(
            "the experiment needs root to create network namespaces and to load BPF programs",
        )
        .help("run `sudo equic-lab reproduce gateway`"));
    }
    // These checks come first, so that a problem is found before minutes of measurements.
    let raw = args.out.join("raw");
    super::make_folder(&raw)?;
    check_fonts()?;
    let envelope = Envelope::now()?;
    let plan =
        ExperimentPlan::new(args, args.seed.unwrap_or_else(|| rand::random::<u32>().into()))?;
    // Keeps all threads, and processes without a CPU of their own, off the server's CPU.
    pin_thread(&[plan.other_cpu])?;
    // Removes the labs of experiments that were killed. A lab that cannot be removed does no harm.
    let _ = Lab::sweep();
    let decisions = block::decisions()?;
    let statistics = BpfStatistics::enable()?;
    let lab = Lab::builder("reproduce").clients(SEQUENTIAL + PARALLEL + block::EXTRA).build()?;
    let progress = Progress::new(&plan, args.output.is_document());
    let calm_s = ArmContext { lab: &lab, plan: &plan, progress: &progress }.calm()?;
    let trials = if (plan.runs_per_arm as usize) < compare::FEWEST { 1 } else { TRIALS };
    let mut play_none =
        |plan: &ExperimentPlan| ArmContext { lab: &lab, plan, progress: &progress }.play(Arm::None);
    let plan = plan.pace(calm_s);
    let plan = search::search(plan, args.most_attack, trials, &mut play_none, &progress)?;
    progress.begin(plan.run_s());
    let runs = play(&ArmContext { lab: &lab, plan: &plan, progress: &progress }, &raw)?;
    drop((progress, statistics));
    lab.close()?;
    let report = envelope.report(SCHEMA, Experiment { plan, decisions, runs })?;
    report.write_compact(args.out.join("result.json"))?;
    tell(args, &report)
}

/// Runs every arm once per round. Each round has another random order.
fn play(stage: &ArmContext<'_>, raw: &Path) -> Result<Vec<Run>> {
    let mut rng = StdRng::seed_from_u64(stage.plan.seed);
    let mut runs = Vec::new();
    for round in 0..stage.plan.runs_per_arm {
        let mut arms = Arm::ALL;
        arms.shuffle(&mut rng);
        for arm in arms {
            stage.progress.run(arm);
            let take = stage.play(arm)?;
            let run = Run::new(arm, round, stage.plan, &take);
            write_samples(raw, runs.len(), arm, &take)?;
            stage.progress.done(&run)?;
            runs.push(run);
        }
    }
    Ok(runs)
}

/// A request in the stored file: the client that made it, and the sample.
#[derive(Serialize)]
struct Kept<'a> {
    /// Kind of client: `sequential` or `parallel`.
    kind: &'static str,
    #[serde(flatten)]
    sample: &'a Sample,
}

/// Writes every request of a run as compressed JSON lines.
fn write_samples(raw: &Path, number: usize, arm: Arm, take: &RawRecords) -> Result {
    let name = serde_json::to_value(arm)?;
    let name = format!("{:02}-{}.jsonl.gz", number + 1, name.as_str().unwrap_or_default());
    let path = raw.join(name);
    let failed = |error: std::io::Error| {
        Failure::because(format_args!("cannot write {}", path.display()), error)
    };
    let mut file = GzEncoder::new(File::create(&path).map_err(failed)?, Compression::default());
    let sequential = take.sequential.iter().flatten().map(|sample| ("sequential", sample));
    let parallel = take.parallel.iter().map(|sample| ("parallel", sample));
    for (kind, sample) in sequential.chain(parallel) {
        let line = serde_json::to_string(&Kept { kind, sample })?;
        writeln!(file, "{line}").map_err(failed)?;
    }
    file.finish().map(drop).map_err(failed)
}

fn tell(args: &Args, report: &Report<Experiment>) -> Result {
    let experiment = &report.data;
    let plots = plots::write(experiment, &args.out)?;
    let markdown = show::markdown(report);
    if args.output.tell(report, markdown)? {
        return Ok(());
    }
    let width = Style::stdout().width;
    output::line(format_args!("\n{}", report.machine))?;
    for table in show::tables(experiment) {
        output::table(&table)?;
        output::line("")?;
    }
    for line in show::notes(experiment).into_iter().chain(show::verdicts(experiment)) {
        output::line(output::wrapped(&format!("* {line}"), width, "  "))?;
    }
    let (out, plots) = (args.out.display(), plots.join(", "));
    output::line(output::wrapped(&format!("In {out}: result.json, raw/, {plots}"), width, "  "))
}
