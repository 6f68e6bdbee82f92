//! `equic plugin list`: the bundles that are in folders, such as a plugin cache.

use std::path::{Path, PathBuf};

use equic_plugin::Class;
use equic_quic::printable;
use equic_report::number::{self, MISSING};
use equic_report::table::{Column, Table};
use serde::Serialize;

use super::{parse, read};
use crate::failure::{Done, Failure};
use crate::output;

/// Schema of the output with `--json`.
const SCHEMA: &str = "equic.plugin.list/1";

/// Folders within folders that are looked into: a plugin cache has one for each server.
const MAX_DEPTH: usize = 8;

/// Lists bundles: name, version, classes, size, and who signed each; nothing of them runs. In folders these are the
/// files that end in .qplug, as those of a plugin cache. A file that is no bundle is listed with what is wrong with it,
/// and then the exit code is 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files and folders with bundles
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Print them as JSON (schema equic.plugin.list/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    file: String,
    /// The bundle; none: the file is none.
    bundle: Option<Listed>,
    /// Reason for which the file is no bundle; none: it is one.
    error: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    version: String,
    /// Bytes of the bundle.
    bytes: usize,
    capabilities: Vec<String>,
    /// Public key of the author whose signature it has.
    signed_by: Option<String>,
    /// Public key of the log that it carries a proof of.
    logged_in: Option<String>,
}

#[derive(Serialize)]
struct Data {
    plugins: Vec<Row>,
}

/// Adds the bundles' files below a folder. Symbolic links are not followed, so there is no way out of the folder, and no
/// circle.
fn look_into(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Done {
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

fn listed(path: &Path) -> Done<Listed> {
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
            // A name of a file may hold anything.
            printable(&row.file),
        ]);
    }
    table
}

pub(super) fn run(args: &Args) -> Done {
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
        1 => Err(Failure::new("a file is no bundle")),
        count => Err(Failure::new(format!("{count} files are no bundles"))),
    }
}
