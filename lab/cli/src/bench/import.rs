//! `equic-lab bench import-tumi8`: evaluates the raw data of the paper "QUIC on the Highway" with
//! the statistics of `equic-lab bench`.

use std::path::PathBuf;

use equic_bench::result::tumi8;

use super::report::tables;
use crate::failure::Result;
use crate::output;

/// Reads a copy of github.com/tumi8/quic-10g-paper, the raw data of "QUIC on the Highway". Computes
/// its figures again with the statistics of `equic-lab bench`, and prints the paper's tables
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Copy of the paper's raw data: a clone of the repository, or its folder `results`
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Also list the results of every pair of client and server in every experiment
    #[arg(long)]
    all: bool,
    /// Print all results as JSON (schema equic.bench.tumi8/1)
    #[arg(long, conflicts_with_all = ["markdown", "all"])]
    json: bool,
    /// Print the tables in Markdown
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: &Args) -> Result {
    let import = tumi8::read(&args.dir)?;
    if args.json {
        return output::json(tumi8::IMPORT, &import);
    }
    tables(&tumi8::tables(&import), args.markdown)?;
    if args.all {
        tables(&[tumi8::all(&import)], args.markdown)?;
    }
    for note in &import.notes {
        output::notice(note);
    }
    let unchecked = import.repetitions - import.confirmed - import.contradicted;
    output::line(format_args!(
        "\n{} repetitions of {} runs; the clients' times (time.json) confirm {}, contradict {}, and are missing for {unchecked}",
        import.repetitions, import.files, import.confirmed, import.contradicted
    ))
}
