//! `equic-lab bench run`: measures every client against every server that supports its protocol.
//!
//! `options` and `extras` turn command-line arguments into a plan. `show` prints the progress, and
//! a table at the end.

mod extras;
mod options;
mod show;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use equic_bench::agent::AgentMessage;
use equic_bench::claim::Claim;
use equic_bench::doctor::{self, Finding};
use equic_bench::manifest::Manifest;
use equic_bench::network::{Links, Network};
use equic_bench::plan::RunPlan;
use equic_bench::result::summary::Disturbed;
use equic_bench::run::{Event, Runner};
use equic_bench::testbed::{Description, Machine, Testbed};
use equic_bench::{
    Implementation, NetPath, Record, Registry, Workload, preflight, result, transfer,
};
use equic_interop::Certificates;
use equic_netns::Lab;
use equic_report::number;
use serde::Serialize;

use crate::envelope;
use crate::failure::{Failure, Result};
use crate::output;
use options::Chosen;
use show::Progress;

use super::lists;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.bench.run/1";

/// Measures every client against every server that supports its protocol: goodput, handshakes,
/// requests, CPU time and memory, in randomised interleaved rounds. docs/bench.md explains it;
/// `make bench-deps` builds the implementations
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Folder for the results of the run [default: out/bench/TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume an interrupted run; no other option is permitted
    #[arg(long, value_name = "DIR", conflicts_with_all = ["Chosen", "ExtraOptions", "out"])]
    resume: Option<PathBuf>,
    /// Do not start if the doctor has a serious finding about this machine
    #[arg(long)]
    strict: bool,
    /// Print the result as JSON (schema equic.bench.run/1)
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct Summary<'a> {
    /// Path of the run's folder.
    folder: &'a Path,
    /// True if the whole plan was carried out.
    complete: bool,
    /// The results of each cell. A cell is one combination of client, server, workload and
    /// settings.
    cells: Vec<show::Cell<'a>>,
}

pub(super) fn run(args: &Args) -> Result {
    let stop = Arc::new(AtomicBool::new(false));
    until_signal(&stop)?;
    let resumed = args.resume.is_some();
    let equic = lists::program()?;
    let plan = match &args.resume {
        Some(folder) => RunPlan::read(folder)?.options,
        None => args.chosen.options(&equic)?,
    };
    let registry = Registry::open(plan.registry.as_deref(), &plan.built, &equic)?;
    let plan = match &args.resume {
        Some(folder) => resume(folder, &registry)?,
        None => {
            let chosen = args.chosen.implementations(&registry, &plan)?;
            let plan = options::with_default_path(plan, &chosen);
            RunPlan::new(plan, &chosen, registry.places())?
        }
    };
    let created = envelope::created()?;
    let folder = match (&args.resume, &args.out) {
        (Some(folder), _) | (None, Some(folder)) => folder.clone(),
        (None, None) => Path::new("out/bench").join(created.as_str().replace(':', "")),
    };
    let folder = std::path::absolute(folder)?;
    let links = links(&plan)?;
    let here = plan.paths()?.iter().any(|(_, path)| !matches!(path, NetPath::Testbed(_)));
    if here {
        preflight::programs(&plan, registry.places())?;
    }
    preflight::privileges(&plan)?;
    preflight::extras(&plan)?;
    if !resumed {
        claim(&folder)?;
    }
    preflight::space(&plan, &folder)?;
    let certificates = certificates(args, &plan, &folder, resumed)?;
    if plan.options.workloads.contains(&Workload::Transfer) {
        for one in &plan.implementations {
            transfer::set_up(&one.implementation)?;
        }
    }
    let testbed = testbed(&plan, &certificates)?;
    let claim = Claim::take();
    let findings = examine(args, &plan, testbed.as_ref(), claim.other())?;
    if !resumed {
        let mut manifest =
            Manifest::new(&plan, registry.places(), created, envelope::command(), findings)?;
        manifest.crypto = Some(equic_quic::AWS_LC_PROVIDER_LIBRARIES.to_owned());
        let machines = testbed.iter().flat_map(|testbed| [&testbed.server, &testbed.client]);
        manifest.testbed = machines.map(|one| (one.name.clone(), one.about.clone())).collect();
        manifest.write(&folder)?;
        plan.write(&folder)?;
    }
    // Remove the labs that killed runs left behind. If one cannot be removed, it does no harm.
    if !links.is_empty() {
        let _ = Lab::sweep();
    }
    let network = Network::build(links)?;
    let runner = Runner {
        plan: &plan,
        folder: &folder,
        places: registry.places(),
        certificates: &certificates,
        network: &network,
        testbed: testbed.as_ref(),
        stop: &stop,
    };
    let records = carry_out(args, &runner, &claim);
    drop(testbed);
    network.close()?;
    // The error may be a full disk. Say how to resume the run after the problem is fixed.
    let records = records.map_err(|failure| failure.help(resume_hint(&folder)))?;
    finish(args, &plan, &folder, &records, stop.load(Ordering::Relaxed))
}

/// Returns advice on how to resume an interrupted run.
fn resume_hint(folder: &Path) -> String {
    format!("to continue the run: `equic-lab bench run --resume {}`", folder.display())
}

/// Installs signal handlers: the first SIGINT, SIGTERM or SIGHUP ends the run cleanly, the second
/// one at once.
fn until_signal(stop: &Arc<AtomicBool>) -> Result {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(stop)))
            .map_err(|error| Failure::because("cannot watch for signals", error))?;
    }
    Ok(())
}

/// Reads the plan that the interrupted run stored in its folder. Fails if something that the plan
/// depends on has changed.
fn resume(folder: &Path, registry: &Registry) -> Result<RunPlan> {
    let then = RunPlan::read(folder)?;
    let names: Vec<String> =
        then.implementations.iter().map(|one| one.implementation.name.clone()).collect();
    let now = RunPlan::new(then.options.clone(), &registry.select(&names)?, registry.places())?;
    match then.difference(&now) {
        None => Ok(then),
        Some(what) => Err(Failure::new(format!(
            "the run in {} cannot be resumed: {what}, so results from before and after this change cannot be compared",
            folder.display()
        ))
        .help("start a new run")),
    }
}

/// Creates the run's directory. Fails if the directory belongs to another run.
fn claim(folder: &Path) -> Result {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot make {}", folder.display()), error)
    })?;
    if folder.join(equic_bench::plan::FILE).exists() {
        let what = format!("the folder {} belongs to another run", folder.display());
        return Err(Failure::new(what).help(resume_hint(folder)));
    }
    Ok(())
}

fn links(plan: &RunPlan) -> Result<Vec<Links>> {
    let paths = plan.paths()?;
    let mut links = Vec::new();
    for key in &plan.cells.keys {
        if let Some((_, path)) = paths.iter().find(|(name, _)| *name == key.path) {
            links.extend(Links::of(path, &key.point)?);
        }
    }
    Ok(links)
}

fn certificates(args: &Args, plan: &RunPlan, folder: &Path, resumed: bool) -> Result<PathBuf> {
    let certificates = match &plan.options.certificates {
        Some(given) => given.clone(),
        None if resumed => folder.join("certificates/usual"),
        None => Certificates::write(&folder.join("certificates"), args.chosen.seed)?.usual,
    };
    preflight::certificates(&certificates)?;
    Ok(certificates)
}

/// Connects to the two machines of a testbed if one of the plan's paths uses them.
fn testbed(plan: &RunPlan, certificates: &Path) -> Result<Option<Testbed>> {
    for (_, path) in plan.paths()? {
        if let NetPath::Testbed(file) = path {
            let all: Vec<&Implementation> =
                plan.implementations.iter().map(|one| &one.implementation).collect();
            let description = Description::read(&file)?;
            return Ok(Some(Testbed::connect(&description, &all, certificates)?));
        }
    }
    Ok(None)
}

/// Returns the doctor's findings about this machine, or about the machines of the testbed.
fn examine(
    args: &Args,
    plan: &RunPlan,
    testbed: Option<&Testbed>,
    other: Option<u32>,
) -> Result<Vec<Finding>> {
    let mut findings = match testbed {
        None => doctor::examine(&plan.options.server_cpus, &plan.options.client_cpus),
        Some(Testbed { server, client }) => {
            let of = |machine: &Machine| match &machine.about {
                AgentMessage::Checked { findings, .. } => findings.clone(),
                _ => Vec::new(),
            };
            let named = |machine: &Machine| {
                let name = machine.name.clone();
                let with =
                    move |one: Finding| Finding { what: format!("{name}: {}", one.what), ..one };
                of(machine).into_iter().map(with).collect::<Vec<_>>()
            };
            [named(server), named(client)].concat()
        }
    };
    findings.extend(other.map(|process| {
        Finding {
            what: "another run".to_owned(),
            serious: true,
            found: format!(
                "process {process} also runs `equic-lab bench run`, so the two runs disturb each other"
            ),
            help:
                "wait until that process has ended; with `--strict`, a run does not start while another run is active"
                    .to_owned(),
        }
    }));
    let serious: Vec<&Finding> = findings.iter().filter(|one| one.serious).collect();
    if args.strict && !serious.is_empty() {
        let lines: Vec<String> = serious
            .iter()
            .map(|one| format!("{}: {}\n  {}", one.what, one.found, one.help))
            .collect();
        return Err(Failure::new(format!("the doctor has serious findings\n{}", lines.join("\n"))));
    }
    for one in serious {
        output::notice(format_args!("{}: {}\n  {}", one.what, one.found, one.help));
    }
    Ok(findings)
}

fn carry_out(args: &Args, runner: &Runner<'_>, claim: &Claim) -> Result<Vec<Record>> {
    let progress = Progress::new(runner.plan, args.json);
    let mut trouble = Ok(());
    let records = runner.run(|event| {
        let told = match event {
            Event::Begins(turn, attempt) => {
                if let Some(process) = claim.joined() {
                    output::notice(format_args!(
                        "process {process} has started another run, so the two runs disturb each other"
                    ));
                }
                progress.begin(turn, attempt);
                Ok(())
            }
            Event::Ended(record) => progress.ended(record),
            Event::Done(_) => {
                progress.done();
                Ok(())
            }
        };
        // If the output cannot be printed because its reader is gone, continue the run. The first
        // error is returned at the end.
        if trouble.is_ok() {
            trouble = told;
        }
    })?;
    Ok(records)
}

fn finish(args: &Args, plan: &RunPlan, folder: &Path, records: &[Record], stopped: bool) -> Result {
    let summary = result::write(folder)?;
    let cells = show::cells(plan, records);
    let measured = cells.iter().any(show::Cell::is_measured);
    if args.json {
        output::json(SCHEMA, Summary { folder, complete: !stopped, cells })?;
    } else {
        super::report::tables(&result::tables(&summary), false)?;
        super::report::draw(folder, &summary);
        super::report::page(folder, &summary)?;
    }
    if stopped {
        return Err(Failure::new("interrupted").help(resume_hint(folder)));
    }
    if measured {
        return Ok(());
    }
    let disturbed: Vec<&Disturbed> =
        summary.rows.iter().filter_map(|row| row.disturbed.as_ref()).collect();
    let most =
        |read: fn(&Disturbed) -> f64| disturbed.iter().map(|one| read(one)).fold(0.0, f64::max);
    let nothing = "no cell could be measured";
    let Some(widest) =
        disturbed.iter().max_by(|a, b| (a.foreign + a.steal).total_cmp(&(b.foreign + b.steal)))
    else {
        return Err(Failure::new(nothing));
    };
    let (foreign, steal) = (most(|one| one.foreign), most(|one| one.steal));
    Err(Failure::new(format!(
        "{nothing} undisturbed: other programs used up to {} of the CPUs, and the hypervisor took {}",
        number::percent(foreign),
        number::percent(steal)
    ))
    .help(format!("measure on an idle machine, or accept such figures: {}", widest.accept)))
}
