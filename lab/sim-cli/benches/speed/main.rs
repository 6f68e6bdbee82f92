//! Measures the cost of simulations, compared with ns-3. Run `make bench-sim`.
//!
//! Every run is a separate process, so that its CPU time and its memory can be measured. The runs
//! of ns-3 use `lab/sim-cli/oracle/ns3_tcp.py`; their preparation does not count. The simulators
//! take turns, so that changes of the machine's speed affect all of them alike.
//!
//! * this file: the order of runs;
//! * `case.rs`: the cases;
//! * `table.rs`: the tables of results.

mod case;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use serde::{Deserialize, Serialize};

use case::{Case, Stack, cases};

/// Measure the cost of simulations, compared with ns-3
#[derive(Parser)]
struct Args {
    /// Run small cases in a few seconds, to check that everything works; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Number of runs of each case
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: u64,
    /// Python interpreter with ns-3 (`pip install ns3==3.44.post0`)
    #[arg(long, value_name = "PROGRAM", default_value = "python3", env = "NS3_PYTHON")]
    python: PathBuf,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write the tables into this file, between its lines `<!-- bench-sim: begin -->` and `<!--
    /// bench-sim: end -->`
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Run this case with this seed in this process
    #[arg(long, hide = true, num_args = 2)]
    only: Option<Vec<String>>,
    /// Passed by cargo, and ignored
    #[arg(long, hide = true)]
    bench: bool,
}

/// Result of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// CPU time in seconds.
    pub cpu: f64,
    /// Number of simulated events.
    #[serde(default)]
    pub events: u64,
    /// Largest growth of the process's memory, in bytes. `None`: not measured.
    #[serde(default)]
    pub memory: Option<u64>,
}

/// All runs of a case with one simulator and protocol.
pub(crate) struct Measured {
    pub case: Case,
    pub stack: Stack,
    pub runs: Vec<Run>,
}

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let args = Args::parse();
    match work(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(args: &Args) -> Result {
    let cases = cases(args.quick);
    if let Some([name, seed]) = args.only.as_deref() {
        let (name, stack) = name.rsplit_once('/').ok_or("a case must have the form NAME/STACK")?;
        let case = cases.iter().find(|case| case.name == name).ok_or("unknown case")?;
        println!("{}", serde_json::to_string(&case.play(Stack::find(stack)?, seed.parse()?)?)?);
        return Ok(());
    }
    let runs = if args.quick { args.runs.min(2) } else { args.runs.max(2) };
    let ns3 = has_ns3(&args.python);
    if !ns3 {
        eprintln!(
            "bench-sim: {} has no ns-3, so its columns stay empty: run `pip install ns3==3.44.post0` in a virtual \
             environment, and set NS3_PYTHON to its python",
            args.python.display()
        );
    }
    let mut all: Vec<Measured> = Vec::new();
    for case in &cases {
        for stack in case.stacks().into_iter().filter(|stack| ns3 || *stack != Stack::Ns3) {
            all.push(Measured { case: case.clone(), stack, runs: Vec::new() });
        }
    }
    // The runs are made in rounds, so that changes of the machine's speed affect all simulators
    // alike.
    for seed in 1..=runs {
        for one in &mut all {
            if one.stack == Stack::Ns3 && seed > one.case.ns3_runs {
                continue;
            }
            eprintln!("bench-sim: round {seed} of {runs}: {}, {}", one.case.name, one.stack.name());
            one.runs.push(match one.stack {
                Stack::Ns3 => case::ns3(&args.python, &one.case, seed)?,
                stack => own(args, &one.case, stack, seed)?,
            });
        }
    }
    let markdown = table::markdown(&all)?;
    if let Some(path) = &args.into {
        insert(path, &markdown)?;
    }
    print!("{}", if args.markdown { markdown } else { table::plain(&all)? });
    Ok(())
}

/// Makes one run in a separate process.
fn own(args: &Args, case: &Case, stack: Stack, seed: u64) -> Result<Run> {
    let mut command = Command::new(std::env::current_exe()?);
    if args.quick {
        command.arg("--quick");
    }
    command.arg("--only").arg(format!("{}/{}", case.name, stack.name())).arg(seed.to_string());
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}, {}: {said}", case.name, stack.name()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn has_ns3(python: &Path) -> bool {
    // Only looks for the module, because importing it compiles headers for ten seconds.
    let found = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ns') is None)";
    Command::new(python).args(["-c", found]).status().is_ok_and(|status| status.success())
}

/// Replaces the text between the two marks of a file.
fn insert(path: &Path, text: &str) -> Result {
    const MARKS: [&str; 2] = ["<!-- bench-sim: begin -->", "<!-- bench-sim: end -->"];
    let old = std::fs::read_to_string(path)?;
    let parts = old.split_once(MARKS[0]).and_then(|(head, rest)| {
        let (_, tail) = rest.split_once(MARKS[1])?;
        Some((head, tail))
    });
    let missing = || format!("{} has no lines {} and {}", path.display(), MARKS[0], MARKS[1]);
    let (head, tail) = parts.ok_or_else(missing)?;
    Ok(std::fs::write(path, format!("{head}{}\n\n{text}\n{}{tail}", MARKS[0], MARKS[1]))?)
}
