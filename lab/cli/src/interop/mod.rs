//! `equic-lab interop`: runs the QUIC Interop Runner's test cases between implementations on this
//! machine.
//!
//! [`run`] selects the cells (a client, a server and a test case each) and runs some of them in
//! parallel. [`progress`] shows the progress, and [`show`] the results. [`endpoint`] is eQUIC's own
//! endpoint, `equic-lab interop-endpoint`.

pub(crate) mod endpoint;
mod progress;
mod show;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use equic_bench::builtin;
use equic_interop::cell::{self, Settings};
use equic_interop::registry::LIST;
use equic_interop::result::{Matrix, Times};
use equic_interop::{
    Case, CaseResult, Certificates, Implementation, Outcome, Registry, Role, Size,
};

use crate::failure::{Failure, Result};
use crate::output;
use progress::Progress;

/// Runs test cases of the QUIC Interop Runner between implementations, each as client and as
/// server, with a relay between them. `scripts/interop.sh build` builds the implementations.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use only these implementations, as clients and as servers
    #[arg(long = "impl", value_name = "NAME", value_delimiter = ',')]
    implementations: Vec<String>,
    /// Use only these implementations as clients
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "implementations")]
    client: Vec<String>,
    /// Use only these implementations as servers
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "implementations")]
    server: Vec<String>,
    /// Run only pairs in which this implementation is the client or the server
    #[arg(long, value_name = "NAME")]
    with: Option<String>,
    /// Run only these test cases
    #[arg(long, value_name = "CASE", value_delimiter = ',', value_parser = case)]
    only: Vec<Case>,
    /// Use the same file sizes, numbers of connections and rate (10 Mb/s) as the QUIC Interop
    /// Runner
    #[arg(long)]
    full: bool,
    /// Number of cells to run in parallel
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Seed for the random losses, corruptions and file contents
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// File with the list of implementations [default: lab/peers/interop.json in the current
    /// directory if it exists, otherwise the implementations of the built-in list that are built]
    #[arg(long, value_name = "FILE")]
    implementations_file: Option<PathBuf>,
    /// Directory with the built implementations [default: target/servers in the current directory,
    /// or in the source tree of this program]
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
    /// Directory for result.json and the logs of each cell
    #[arg(long, value_name = "DIR", default_value = "out/interop")]
    out: PathBuf,
    /// Exchange plugins (docs/plugin-wire.md) between eQUIC's endpoints and peers that support this
    #[arg(long)]
    plugins: bool,
    /// With --plugins: plugin (.qplug) that eQUIC's endpoints offer
    #[arg(long, value_name = "FILE", requires = "plugins")]
    push: Vec<PathBuf>,
    /// Count unsupported test cases as failed
    #[arg(long)]
    strict: bool,
    /// Print the result as JSON, in the QUIC Interop Runner's schema
    #[arg(long)]
    json: bool,
}

fn case(name: &str) -> Result<Case, String> {
    Case::named(name).ok_or_else(|| {
        let names: Vec<&str> = Case::ALL.iter().map(|case| case.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// A cell to run: a client, a server and a test case.
#[derive(Clone, Copy)]
struct CellChoice<'a> {
    client: &'a Implementation,
    server: &'a Implementation,
    case: Case,
}

pub(crate) fn run(args: &Args) -> Result {
    let registry = registry(args)?;
    let either = |own: &[String]| {
        if own.is_empty() { args.implementations.clone() } else { own.to_vec() }
    };
    let clients = registry.select(&either(&args.client), Role::Client)?;
    let servers = registry.select(&either(&args.server), Role::Server)?;
    if let Some(name) = &args.with {
        registry.select(std::slice::from_ref(name), Role::Client)?;
    }
    let cases: Vec<Case> = Case::ALL
        .into_iter()
        .filter(|case| args.only.is_empty() || args.only.contains(case))
        .collect();
    let wanted = |client: &str, server: &str| {
        args.with.as_ref().is_none_or(|name| name == client || name == server)
    };
    let mut jobs = VecDeque::new();
    for case in &cases {
        for server in &servers {
            for client in clients.iter().filter(|client| wanted(&client.name, &server.name)) {
                jobs.push_back(CellChoice { client, server, case: *case });
            }
        }
    }
    if jobs.is_empty() {
        return Err(Failure::new(
            "there is nothing to run, because the options leave no client or no server",
        ));
    }
    let out = absolute(&args.out)?;
    let logs = out.join("logs");
    std::fs::create_dir_all(&logs).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", logs.display()), error)
    })?;
    let settings = Settings {
        size: if args.full { Size::Runner } else { Size::Small },
        certificates: Certificates::write(&out.join("certificates"), args.seed)?,
        logs,
        seed: args.seed,
    };
    let mut matrix = Matrix {
        clients: clients.iter().map(|one| one.name.clone()).collect(),
        servers: servers.iter().map(|one| one.name.clone()).collect(),
        cases,
        urls: clients.iter().chain(&servers).map(|o| (o.name.clone(), o.url.clone())).collect(),
        ..Matrix::default()
    };
    let start = seconds();
    let stopped = carry_out(args, &settings, jobs, &mut matrix)?;
    let times = Times { start, end: seconds() };
    finish(args, &matrix, times, &settings, stopped)
}

/// Runs the cells. Returns `true` if a signal ended the run early.
fn carry_out<'a>(
    args: &Args,
    settings: &Settings,
    jobs: VecDeque<CellChoice<'a>>,
    matrix: &mut Matrix,
) -> Result<bool> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::because("cannot watch for signals", error))?;
    }
    let progress = Progress::new(jobs.len(), args.json);
    let jobs = Mutex::new(jobs);
    let done: Mutex<Vec<(CellChoice<'a>, Outcome)>> = Mutex::new(Vec::new());
    let work = || -> Result {
        while !stop.load(Ordering::Relaxed) {
            let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(job) = next else { break };
            progress.begin(&job);
            let outcome = cell::run(settings, job.client, job.server, job.case, &stop);
            progress.done(&job, &outcome)?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push((job, outcome));
        }
        Ok(())
    };
    let worked: Vec<Result> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result>| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("the thread of a cell panicked")))
        };
        threads.into_iter().map(ended).collect()
    });
    drop(progress);
    worked.into_iter().collect::<Result<Vec<()>>>()?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (job, outcome) in done {
        let names = (job.client.name.clone(), job.server.name.clone(), job.case);
        matrix.cells.insert(names, outcome);
    }
    Ok(stop.load(Ordering::Relaxed))
}

fn finish(
    args: &Args,
    matrix: &Matrix,
    times: Times,
    settings: &Settings,
    stopped: bool,
) -> Result {
    let json = matrix.json(times, &settings.logs.to_string_lossy());
    let text = serde_json::to_string_pretty(&json)? + "\n";
    let path = args.out.join("result.json");
    std::fs::write(&path, &text).map_err(|error| {
        Failure::because(format_args!("cannot write {}", path.display()), error)
    })?;
    if args.json {
        output::document(&text)?;
    } else {
        show::matrix(matrix)?;
        output::line(format_args!("\nResult: {}", path.display()))?;
    }
    if stopped {
        return Err(Failure::new("interrupted before all cells were run"));
    }
    let failed = matrix.count(CaseResult::Failed);
    let unsupported = if args.strict { matrix.count(CaseResult::Unsupported) } else { 0 };
    match failed + unsupported {
        0 => Ok(()),
        bad => Err(Failure::new(format!("{bad} of {} cells failed", matrix.cells.len()))),
    }
}

fn registry(args: &Args) -> Result<Registry> {
    let equic = std::env::current_exe()
        .map_err(|error| Failure::because("cannot find the path of this program", error))?;
    let built = match &args.built {
        Some(built) => absolute(built)?,
        None => builtin::built(&equic),
    };
    let here = Path::new(LIST).is_file().then(|| PathBuf::from(LIST));
    let mut registry = match args.implementations_file.clone().or(here) {
        Some(file) => Registry::read(&absolute(&file)?, &built, &equic)?,
        None => {
            let dir = builtin::tree(&equic).unwrap_or_default().join("lab/peers");
            let dir = absolute(&dir)?;
            let mut registry = Registry::built_in(&dir, &built, &equic)?;
            let without = registry.retain_built(&[&dir, &built]);
            if !without.is_empty() {
                output::notice(format_args!(
                    "these implementations are left out, because they are not built: {} (`scripts/interop.sh build` in the source tree builds them)",
                    without.join(", ")
                ));
            }
            registry
        }
    };
    if args.plugins {
        let mut arguments = vec!["--plugins".to_owned()];
        for file in &args.push {
            let file = absolute(file)?.to_string_lossy().into_owned();
            arguments.extend(["--push".to_owned(), file]);
        }
        registry.add_arguments(&equic, &arguments);
    }
    Ok(registry)
}

/// Returns the absolute path, because endpoints are started in another directory.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        Failure::because(format_args!("{} is not a valid path", path.display()), error)
    })
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
