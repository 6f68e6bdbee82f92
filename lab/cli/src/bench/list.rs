//! `equic-lab bench list`: lists the implementations, and shows which are built.

use std::process::{Command, Stdio};

use equic_bench::{BenchError, Implementation, Places, Registry};
use equic_report::table::{Cell, Column, Table, Tone};
use serde::Serialize;

use super::lists::{self, Lists};
use crate::failure::Result;
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.bench.list/1";

/// Lists the implementations, the protocols that they support, and whether they are built
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    lists: Lists,
    /// Print the list as JSON (schema equic.bench.list/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    implementation: &'a Implementation,
    /// True if all files for the implementation's own command exist. If it has no command, true if
    /// the files for `transfer` exist.
    built: bool,
    /// True if all files for the workload `transfer` exist. `None` if the implementation does not
    /// support it.
    transfer_built: Option<bool>,
    /// The files that are missing and the way to get them, or `None` if `built` is true.
    why: Option<String>,
}

#[derive(Serialize)]
struct List<'a> {
    /// File from which the list was read, or `None` for the built-in list.
    file: Option<&'a std::path::Path>,
    implementations: Vec<Listed<'a>>,
}

pub(super) fn run(args: &Args) -> Result {
    let equic = lists::program()?;
    let (file, built) = (args.lists.file()?, args.lists.built(&equic)?);
    let registry = Registry::open(file.as_deref(), &built, &equic)?;
    let listed = |one| Listed::new(one, registry.places());
    let implementations: Vec<Listed<'_>> = registry.all().iter().map(listed).collect();
    if args.json {
        return output::json(SCHEMA, List { file: file.as_deref(), implementations });
    }
    let source = file.map_or("built-in list".to_owned(), |file| file.display().to_string());
    let mut table = Table::new([
        Column::text("name"),
        Column::number("tier"),
        Column::text("speaks"),
        Column::text("built"),
        Column::text("transfer"),
        Column::text("from"),
    ])
    .title(format!("Implementations: the list {source}; built in {}", built.display()));
    for Listed { implementation: one, built, transfer_built, why } in &implementations {
        let speaks = if one.command.is_empty() { String::new() } else { one.speaks.join(", ") };
        let transfer = match (one, transfer_built) {
            (_, None) => String::new(),
            (one, Some(built)) => format!("{}{}", kind(one), if *built { "" } else { ": no" }),
        };
        let built = match (built, why) {
            (true, _) => Cell::new("yes"),
            (false, why) => {
                let why = why.as_deref().unwrap_or_default();
                Cell::new(format!("no: {why}")).tone(Tone::Warning)
            }
        };
        table.row([
            Cell::new(&one.name).tone(Tone::Strong),
            Cell::new(one.tier.to_string()),
            Cell::new(speaks),
            built,
            Cell::new(transfer),
            Cell::new(&one.url),
        ]);
    }
    output::table(&table)
}

impl<'a> Listed<'a> {
    fn new(one: &'a Implementation, places: &Places) -> Listed<'a> {
        let transfer = one.is_endpoint().then(|| transfer(one, places));
        let own = if one.command.is_empty() { None } else { Some(places.check(one, false)) };
        let own = own.map(|checked| checked.map_err(|error| short(&error)));
        let transfer_built = transfer.as_ref().map(Result::is_ok);
        let why = own.or(transfer).and_then(Result::err);
        Listed { implementation: one, built: why.is_none(), transfer_built, why }
    }
}

fn transfer(one: &Implementation, places: &Places) -> Result<(), String> {
    match &one.image {
        Some(image) if one.endpoint.is_empty() && one.path.is_none() => pulled(image),
        _ => places.check(one, true).map_err(|error| short(&error)),
    }
}

/// Returns where the program for the workload `transfer` comes from.
fn kind(one: &Implementation) -> &'static str {
    match one {
        one if !one.endpoint.is_empty() => "endpoint",
        one if one.path.is_some() => "scripts",
        _ => "image",
    }
}

/// Checks that docker has pulled an image.
fn pulled(image: &str) -> Result<(), String> {
    let mut command = Command::new("docker");
    command.args(["image", "inspect", "--", image]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("docker has no image {image}: run `docker pull {image}`")),
        Err(_) => Err("docker is not installed".to_owned()),
    }
}

/// Describes in a few words what an implementation lacks to be run.
fn short(error: &BenchError) -> String {
    match error {
        BenchError::NotBuilt { path, help, .. } => {
            let built = help.split_once('`').and_then(|(_, rest)| rest.split_once('`'));
            built
                .map_or_else(|| format!("{} is missing", path.display()), |(how, _)| how.to_owned())
        }
        other => other.to_string(),
    }
}
