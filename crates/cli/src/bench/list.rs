//! `equic bench list`: which implementations there are, and which are built.

use std::path::PathBuf;

use equic_bench::{Implementation, Places, Registry};
use equic_report::table::{Cell, Column, Table, Tone};
use serde::Serialize;

use crate::failure::{Done, Failure};
use crate::output;

/// The schema of what `--json` prints.
const SCHEMA: &str = "equic.bench.list/1";

/// Shows which implementations there are, what they speak, and which are built
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The list of implementations
    #[arg(long, value_name = "FILE", default_value = "bench/implementations.json")]
    implementations_file: PathBuf,
    /// Where they were built
    #[arg(long, value_name = "DIR", default_value = "target/servers")]
    built: PathBuf,
    /// Print it as JSON (schema equic.bench.list/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    implementation: &'a Implementation,
    built: bool,
}

#[derive(Serialize)]
struct List<'a> {
    implementations: Vec<Listed<'a>>,
}

pub(super) fn run(args: &Args) -> Done {
    let equic = std::env::current_exe()
        .map_err(|error| Failure::because("this program does not find itself", error))?;
    let built = std::path::absolute(&args.built)?;
    let registry = Registry::read(&args.implementations_file, &built, &equic)?;
    let listed = |one| Listed { implementation: one, built: is_built(one, registry.places()) };
    let implementations: Vec<Listed<'_>> = registry.all().iter().map(listed).collect();
    if args.json {
        return output::json(SCHEMA, List { implementations });
    }
    let mut table = Table::new([
        Column::text("name"),
        Column::number("tier"),
        Column::text("speaks"),
        Column::text("transfer"),
        Column::text("built"),
        Column::text("from"),
    ]);
    for Listed { implementation: one, built } in &implementations {
        let speaks = if one.command.is_empty() { String::new() } else { one.speaks.join(", ") };
        let transfer = match one {
            one if !one.endpoint.is_empty() => "endpoint",
            one if one.path.is_some() => "scripts",
            one if one.image.is_some() => "image",
            _ => "",
        };
        let built = if *built {
            Cell::new("yes")
        } else {
            Cell::new("no: make bench-deps").tone(Tone::Warning)
        };
        table.row([
            Cell::new(&one.name).tone(Tone::Strong),
            Cell::new(one.tier.to_string()),
            Cell::new(speaks),
            Cell::new(transfer),
            built,
            Cell::new(&one.url),
        ]);
    }
    output::table(&table)
}

fn is_built(one: &Implementation, places: &Places) -> bool {
    let command = |words: &[String]| words.is_empty() || places.program(words).is_ok();
    let scripts = |path: &PathBuf| path.join("run-client.sh").is_file();
    command(&one.command) && command(&one.endpoint) && one.path.as_ref().is_none_or(scripts)
}
