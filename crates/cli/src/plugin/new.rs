//! `equic plugin new`: creates a directory with a small plugin that the author can change.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::output;

/// Creates a plugin to start from: C code that sends fewer acknowledgements, its manifest, and the
/// headers that it needs. The folder may exist if it has none of these files. Existing files are
/// never changed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the plugin; `.` is the current folder. The plugin gets the folder's name, which
    /// may contain lower-case letters, digits, - _ .
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name of the plugin [default: name of the folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

const SOURCE: &str = include_str!("template.c");
const MANIFEST: &str = include_str!("template.toml");

pub(super) fn run(args: &Args) -> Result {
    let folder = &args.folder;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(folder)?,
    };
    let manifest = MANIFEST.replace("NAME", &name);
    // Let the parser of manifests check the name. It needs an object, so pass a placeholder.
    equic_plugin::pack(&manifest, b"none", None).map_err(|error| {
        Failure::usage(format!(
            "{error}\n  {name:?} is not a valid name of a plugin: give another name with --name"
        ))
    })?;
    let files = [(format!("{name}.c"), SOURCE.to_owned()), ("plugin.toml".to_owned(), manifest)];
    let headers = equic_plugin::headers().map(|header| (header.name.to_owned(), header.text));
    let files: Vec<_> =
        files.into_iter().chain(headers).map(|(file, text)| (folder.join(file), text)).collect();
    if let Some((path, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        return Err(Failure::new(format!(
            "{} already exists, so nothing was written",
            path.display()
        ))
        .help("choose another folder, or remove the file"));
    }
    fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot make {}", folder.display()), error)
    })?;
    for (path, text) in &files {
        write_new(path, text)?;
    }
    let build = folder.display().to_string();
    output::line(format_args!(
        "created {} and {}: next, run `equic plugin build {build}`, then `equic plugin run {}`",
        files[0].0.display(),
        files[1].0.display(),
        folder.join(format!("{name}.qplug")).display(),
    ))
}

/// Returns the last component of a directory's path. For `.` or `..`, resolves the path first.
fn name_of(folder: &Path) -> Result<String> {
    let named = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    if let Some(name) = named(folder) {
        return Ok(name);
    }
    let whole = folder.canonicalize().map_err(|error| {
        Failure::because(format_args!("cannot find {}", folder.display()), error)
    })?;
    named(&whole).ok_or_else(|| {
        Failure::usage(format!(
            "the folder {} has no name: give the plugin's name with --name",
            whole.display()
        ))
    })
}

/// Writes a new file. Fails if the file exists.
fn write_new(path: &Path, text: &str) -> Result {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::because(format_args!("cannot write {}", path.display()), error))
}
