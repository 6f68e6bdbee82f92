//! `equic plugin list`: lists the bundles in directories, such as a plugin cache.

use std::path::{Path, PathBuf};

use equic_plugin::Class;
use equic_quic::printable;
use equic_report::number::{self, MISSING};
use equic_report::table::{Column, Table};
use serde::Serialize;

use super::{parse, read};
use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.plugin.list/1";

/// Maximum depth of nested directories. A plugin cache has one directory for each server.
const MAX_DEPTH: usize = 8;

/// Lists bundles with name, version, classes, size, and author. No code of them runs. In a
/// directory, all files whose name ends in .qplug are listed, as in a plugin cache. A file that is
/// not a bundle is listed with the error, and the exit code is then 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files and folders with bundles
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Print the list as JSON (schema equic.plugin.list/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    file: String,
    /// The bundle, or `None` if the file is not a bundle.
    bundle: Option<Listed>,
    /// Why the file is not a bundle, or `None` if it is one.
    error: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    version: String,
    /// Size of the bundle in bytes.
    bytes: usize,
    capabilities: Vec<String>,
    /// Public key of the author who signed the bundle, or `None` if it is not signed.
    signed_by: Option<String>,
    /// Public key of the transparency log whose proof the bundle contains, or `None` if it contains
    /// no proof.
    logged_in: Option<String>,
}

#[derive(Serialize)]
struct Data {
    plugins: Vec<Row>,
}

/// Adds the bundle files in a directory and its subdirectories. Symbolic links are not followed, so
/// the search cannot leave the directory or run in circles.
fn look_into(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result {
    let failed = |error| Failure::because(format_args!("cannot list {}", folder.display()), error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, path) = (entry.file_type().map_err(failed)?, entry.path());
        if kind.is_dir() && depth < MAX_DEPTH {
            look_into(&path, depth + 1, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "qplug") {
            files.push(path);
        }
    }
    Ok(())
}

fn listed(path: &Path) -> Result<Listed> {
    let bytes = read(path)?;
    let bundle = parse(path, &bytes)?;
    let manifest = bundle.manifest();
    Ok(Listed {
        name: manifest.name.clone(),
        version: manifest.version.to_string(),
        bytes: bytes.len(),
        capabilities: manifest.capabilities.iter().map(Class::to_string).collect(),
        signed_by: bundle.author().map(|key| key.to_string()),
        logged_in: bundle.staple().map(|staple| staple.head().log().to_string()),
    })
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        Column::text("plugin"),
        Column::text("version"),
        Column::number("bundle").unit("B"),
        Column::text("classes"),
        Column::text("signed by"),
        Column::text("file"),
    ]);
    for row in rows {
        let Some(one) = &row.bundle else { continue };
        let signed = one.signed_by.as_deref().unwrap_or(MISSING);
        table.row([
            one.name.clone(),
            one.version.clone(),
            number::count(one.bytes as u64),
            one.capabilities.join(", "),
            signed.to_owned(),
            // A file name may contain any characters, so make it printable.
            printable(&row.file),
        ]);
    }
    table
}

pub(super) fn run(args: &Args) -> Result {
    let mut files = Vec::new();
    for path in &args.paths {
        match path.is_dir() {
            true => look_into(path, 0, &mut files)?,
            false => files.push(path.clone()),
        }
    }
    files.sort();
    files.dedup();
    let rows = files.iter().map(|file| {
        let (bundle, error) = match listed(file) {
            Ok(bundle) => (Some(bundle), None),
            Err(failure) => (None, Some(failure.to_string())),
        };
        Row { file: file.display().to_string(), bundle, error }
    });
    let data = Data { plugins: rows.collect() };
    let wrong = data.plugins.iter().filter_map(|row| row.error.as_ref());
    let count = wrong.clone().count();
    if args.json {
        output::json(SCHEMA, &data)?;
    } else {
        wrong.for_each(output::notice);
        output::table(&table(&data.plugins))?;
    }
    match count {
        0 => Ok(()),
        1 => Err(Failure::new("one file is not a bundle")),
        count => Err(Failure::new(format!("{count} files are not bundles"))),
    }
}
