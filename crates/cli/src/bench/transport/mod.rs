//! `equic bench transport`: QUIC implementations side by side.
//!
//! A fresh server and a fresh client for every cell, each on a CPU of its own; all cells of a round in
//! random order, again and again. `plan`: what is chosen; `show`: tables and progress.

mod plan;
mod show;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use equic_bench::cell::{self, CellContext, CellSpec};
use equic_bench::extras::Extras;
use equic_bench::site::{Host, Site};
use equic_bench::summary::{Row, rows};
use equic_bench::sweep::Point;
use equic_bench::transport::{Route, Run, cells};
use equic_bench::{Effective, Implementation, Outcome, Places, Registry, Workload};
use equic_harness::until_interrupted;
use equic_interop::Certificates;
use equic_lab::Lab;
use equic_report::schema::Report;
use serde::Serialize;

use crate::envelope::Envelope;
use crate::failure::{Done, Failure};
use crate::output;
use plan::TransportPlan;
use show::Progress;

/// The schema of the result.
const SCHEMA: &str = "equic.bench.transport/1";

/// Measures QUIC implementations side by side: goodput, CPU time, handshakes, requests and memory, each
/// server and client a fresh process on a CPU of its own. `make bench-deps` builds the others. Takes
/// about half an hour
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A few minutes, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Only these implementations
    #[arg(long = "impl", value_name = "NAME", value_delimiter = ',')]
    implementations: Vec<String>,
    /// How often everything is measured, instead of 7 times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// What lies between client and server; veth needs root [default: both for root]
    #[arg(long, value_name = "PATH", value_delimiter = ',', value_parser = plan::route)]
    path: Vec<Route>,
    /// Only these: download, streams, upload, handshakes, resumed, requests, idle
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = plan::workload)]
    only: Vec<Workload>,
    /// Bytes of a transfer, instead of 1000000000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000_000))]
    bytes: Option<u64>,
    /// Seconds of handshakes and of requests, instead of 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: Option<u16>,
    /// Idle connections, instead of 10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,
    /// Seconds that a client may take beyond what a very slow one takes
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u16).range(1..=3600))]
    grace: u16,
    /// The same number gives the same order of measurements
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// The list of implementations
    #[arg(long, value_name = "FILE", default_value = "bench/implementations.json")]
    implementations_file: PathBuf,
    /// Where they were built
    #[arg(long, value_name = "DIR", default_value = "target/servers")]
    built: PathBuf,
    /// Where result.json goes
    #[arg(long, value_name = "DIR", default_value = "out/bench-transport")]
    out: PathBuf,
    /// Print the result as JSON (schema equic.bench.transport/1)
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
}

/// `data` of the result.
#[derive(Serialize)]
struct Bench {
    plan: TransportPlan,
    /// Address of each implementation's web page, by name.
    urls: BTreeMap<String, String>,
    /// Settings that were in force at the client of each implementation.
    effective: BTreeMap<String, Effective>,
    /// One for each path, workload and implementation.
    rows: Vec<Row>,
    /// Everything that was run, in the order it was.
    runs: Vec<Run>,
}

pub(super) fn run(args: &Args) -> Done {
    until_interrupted(|| carry_out(args))
}

fn carry_out(args: &Args) -> Done {
    let plan = TransportPlan::new(args)?;
    let equic = std::env::current_exe()
        .map_err(|error| Failure::because("this program does not find itself", error))?;
    let built = std::path::absolute(&args.built)?;
    let registry = Registry::read(&args.implementations_file, &built, &equic)?;
    let chosen = match &args.implementations[..] {
        [] => vec!["tier1".to_owned()],
        chosen => chosen.to_vec(),
    };
    let mut implementations = registry.select(&chosen)?;
    // Those without a command are for other workloads.
    implementations.retain(|one| one.speaks("perf"));
    for one in &implementations {
        registry.places().built(&one.name, &one.command)?;
    }
    let envelope = Envelope::now()?;
    let certificates = Certificates::write(&args.out.join("certificates"), args.seed)?;
    let lab = if plan.needs_lab() {
        // What killed runs left behind; whatever cannot be removed is not in the way.
        let _ = Lab::sweep();
        Some(Lab::builder("benchtp").clients(1).build()?)
    } else {
        None
    };
    let names: Vec<String> = implementations.iter().map(|one| one.name.clone()).collect();
    let scene =
        Scene { lab: lab.as_ref(), certificates: &certificates.usual, places: registry.places() };
    let runs = measure(args, &plan, &scene, &implementations, &names)?;
    if let Some(lab) = lab {
        lab.close()?;
    }
    let effective = runs.iter().filter_map(|run| {
        Some((run.cell.implementation.clone(), run.outcome.effective()?.clone()))
    });
    let data = Bench {
        urls: implementations.iter().map(|one| (one.name.clone(), one.url.clone())).collect(),
        effective: effective.collect(),
        rows: rows(&runs, &names, plan.seed),
        runs,
        plan,
    };
    finish(args, &envelope.report(SCHEMA, data)?)
}

/// Lab, certificates and places that all cells share.
struct Scene<'a> {
    lab: Option<&'a Lab>,
    certificates: &'a Path,
    places: &'a Places,
}

impl<'a> Scene<'a> {
    /// Server and client, each on a CPU of its own.
    fn context(
        &self,
        plan: &'a TransportPlan,
        route: Route,
        stop: &'a AtomicBool,
    ) -> Option<CellContext<'a>> {
        let (address, server, client) = match (route, self.lab) {
            (Route::Loopback, _) => (Ipv4Addr::LOCALHOST, None, None),
            (Route::Veth, Some(lab)) => {
                (lab.server().ipv4, Some(lab.server()), Some(lab.client(0)))
            }
            (Route::Veth, None) => return None,
        };
        let (certificates, places) = (self.certificates, self.places);
        let site =
            |namespace, cpus| Site { host: Host::Here(namespace), cpus, places, certificates };
        Some(CellContext {
            server: site(server, std::slice::from_ref(&plan.cpus.0)),
            client: site(client, std::slice::from_ref(&plan.cpus.1)),
            address: address.into(),
            relay: None,
            size: plan.size,
            stop,
            logs: None,
            count_calls: false,
            extras: Extras::default(),
        })
    }
}

fn measure(
    args: &Args,
    plan: &TransportPlan,
    scene: &Scene<'_>,
    implementations: &[Implementation],
    names: &[String],
) -> Done<Vec<Run>> {
    let stop = AtomicBool::new(false);
    let cells = cells(names, &plan.workloads, &plan.routes, plan.rounds, plan.seed);
    let progress = Progress::new(cells.len(), args.json || args.markdown);
    let mut runs = Vec::with_capacity(cells.len());
    for cell in cells {
        let who = implementations.iter().find(|one| one.name == cell.implementation);
        let (Some(who), Some(context)) = (who, scene.context(plan, cell.route, &stop)) else {
            continue;
        };
        progress.begin(&cell);
        let spec = CellSpec {
            server: who,
            client: who,
            workload: cell.workload,
            protocol: if cell.workload == Workload::Requests { "h3" } else { "perf" },
            point: &Point::new(),
            round: 0,
        };
        let outcome = Outcome::of(cell::run(&context, &spec), cell.workload);
        progress.done(&cell, &outcome)?;
        runs.push(Run { cell, outcome });
    }
    Ok(runs)
}

fn finish(args: &Args, report: &Report<Bench>) -> Done {
    let path = args.out.join("result.json");
    report.write(&path)?;
    if args.json {
        return output::document(&report.to_json()?);
    }
    show::tables(&report.data.rows, args.markdown)?;
    show::effective(&report.data.effective, args.markdown)?;
    show::failures(&report.data.rows)?;
    output::line(format_args!("\n{}\nResult: {}", report.machine, path.display()))?;
    let measured = |run: &Run| matches!(run.outcome, Outcome::Measured(_));
    if report.data.runs.iter().any(measured) {
        Ok(())
    } else {
        Err(Failure::new("nothing could be measured"))
    }
}
