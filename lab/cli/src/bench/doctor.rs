//! `equic-lab bench doctor`: finds properties of this machine that make measurements wrong or
//! unstable.

use equic_bench::doctor::{Finding, examine};
use equic_harness::allowed_cpus;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.bench.doctor/1";

/// Finds properties of this machine that make measurements wrong or unstable, and says how to fix
/// them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exit with 1 if the doctor has a serious finding
    #[arg(long)]
    strict: bool,
    /// Print the findings as JSON (schema equic.bench.doctor/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Findings {
    findings: Vec<Finding>,
}

pub(super) fn run(args: &Args) -> Result {
    let cpus = allowed_cpus()?;
    let (server, client) = (cpus.get(..1).unwrap_or(&[]), cpus.get(1..2).unwrap_or(&[]));
    let findings = examine(server, client);
    let serious = findings.iter().filter(|one| one.serious).count();
    if args.json {
        output::json(SCHEMA, Findings { findings })?;
    } else if findings.is_empty() {
        output::line("the doctor found no problems on this machine")?;
    } else {
        for one in findings {
            let weight = if one.serious { "serious" } else { "to know" };
            output::line(format_args!("{weight}: {}: {}\n  {}", one.what, one.found, one.help))?;
        }
    }
    match serious {
        0 => Ok(()),
        _ if !args.strict => Ok(()),
        count => Err(Failure::new(format!("the doctor has {count} serious findings"))),
    }
}
