//! `equic-lab bench report`: creates all files of a run from its samples, and prints the tables.

use std::path::{Path, PathBuf};

use equic_bench::result::{self, Summary};
use equic_report::plot::PNG;
use equic_report::table::{Style, Table};

use crate::failure::Result;
use crate::output;

/// Creates result.json, samples.csv, summary.csv, report.html and its plots (SVG and PNG files)
/// from a run's samples.jsonl, and prints the tables
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print the summary as JSON (schema equic.bench.summary/1)
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the tables in Markdown
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: &Args) -> Result {
    let summary = result::write(&args.dir)?;
    draw(&args.dir, &summary);
    if args.json {
        return output::document(&(serde_json::to_string_pretty(&summary)? + "\n"));
    }
    tables(&result::tables(&summary), args.markdown)?;
    if summary.cut {
        output::notice(
            "the last line of samples.jsonl is incomplete, because the run was stopped while it wrote the line",
        );
    }
    for line in &summary.unreadable {
        output::notice(format_args!("samples.jsonl, line {}: {}", line.line, line.why));
    }
    page(&args.dir, &summary)
}

/// Draws the plots of a run as PNG files. Nothing depends on these files, so an error is only
/// reported.
pub(super) fn draw(dir: &Path, summary: &Summary) {
    if let Err(error) = result::draw(dir, summary) {
        output::notice(format_args!("not all plots could be written as PNG files: {error}"));
    }
}

/// Prints the paths of a run's report page and plots.
pub(super) fn page(dir: &Path, summary: &Summary) -> Result {
    output::line(format_args!("\nPage: {}", dir.join("report.html").display()))?;
    if result::html::plots(&result::html::page(summary)).is_empty() {
        return output::line("No plots were created, because no cell has a result");
    }
    let kinds = if PNG { "SVG, PNG" } else { "SVG" };
    output::line(format_args!("Plots: {} ({kinds})", dir.join(result::PLOTS).display()))
}

/// Prints tables, with an empty line between them.
pub(super) fn tables(tables: &[Table], markdown: bool) -> Result {
    for table in tables {
        let text = if markdown { table.markdown() } else { table.render(Style::stdout()) };
        output::text(format_args!("\n{text}"))?;
    }
    Ok(())
}
