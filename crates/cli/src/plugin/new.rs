//! `equic plugin new`: a folder with a plugin to begin with.

use std::path::PathBuf;

use crate::failure::{Done, Failure};
use crate::output;

/// Makes a folder with a plugin in C that acknowledges seldom, its manifest, and the headers that it is compiled with.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder; its last part is the plugin's name: small letters, digits, - _ .
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

const SOURCE: &str = include_str!("template.c");
const MANIFEST: &str = include_str!("template.toml");

pub(super) fn run(args: &Args) -> Done {
    let folder = &args.folder;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let manifest = MANIFEST.replace("NAME", name);
    // The manifest's reader checks the name; the object is only a placeholder.
    equic_plugin::pack(&manifest, b"none", None)
        .map_err(|error| Failure::usage(error.to_string()))?;
    std::fs::create_dir(folder).map_err(|error| {
        Failure::because(format_args!("cannot make {}", folder.display()), error)
    })?;
    let files = [(format!("{name}.c"), SOURCE.to_owned()), ("plugin.toml".to_owned(), manifest)];
    let headers = equic_plugin::headers().map(|header| (header.name.to_owned(), header.text));
    for (file, text) in files.into_iter().chain(headers) {
        super::write(&folder.join(file), text.as_bytes())?;
    }
    output::line(format_args!(
        "{0}/{name}.c and {0}/plugin.toml are there: `equic plugin build {0}`, then `equic plugin run {0}/{name}.qplug`",
        folder.display()
    ))
}
