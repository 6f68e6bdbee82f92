//! `equic plugin`: tools to write, build, check and sign plugins.
//!
//! * [`mod@new`]: creates a directory with an example plugin; [`build`]: compiles C to a bundle;
//! * [`inspect`]: shows the content of a bundle (`inspect`), and whether it would run (`check`,
//!   which uses [`proof`]); [`list`]: lists bundles in directories;
//! * [`keys`]: keys of authors, and signatures;
//! * [`log`]: transparency logs, and their monitor;
//! * [`operations`]: the operations and fields that plugins may use, and the classes that they
//!   need;
//! * [`play`]: runs a plugin between two connections in memory.

mod build;
mod inspect;
mod keys;
mod list;
mod log;
mod new;
mod operations;
mod play;
mod proof;

use std::path::Path;

use clap::Subcommand;
use equic_command::plugin::{load, load_bytes, parse, read, seconds_now, try_to_attach};
use equic_plugin::{Bundle, Plugin, lint};

use crate::failure::{Failure, Result};
use crate::output;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a folder with a small plugin as a starting point
    New(new::Args),
    /// Compile a plugin, and pack it with its manifest into a bundle
    Build(build::Args),
    /// Pack a compiled object and a manifest into a bundle
    Pack(build::PackArgs),
    /// Check whether a plugin can run, and whether a policy accepts it
    Check(inspect::CheckArgs),
    /// List the operations and fields that plugins may use, and the capability class that each of
    /// them needs
    Operations(operations::Args),
    /// Show what a bundle declares, and who signed it
    Inspect(inspect::Args),
    /// List the bundles in folders, such as a plugin cache
    List(list::Args),
    /// Run a plugin in a simulated connection, and show the calls of its functions
    Run(play::Args),
    /// Create a key pair with which an author signs plugins
    Key(keys::KeyArgs),
    /// Sign a bundle with an author's key
    Sign(keys::SignArgs),
    /// Maintain a transparency log of signed bundles
    #[command(subcommand)]
    Log(log::Command),
    /// Check that a transparency log has only grown, and list the new entries
    Monitor(log::MonitorArgs),
}

pub(crate) fn run(command: &Command) -> Result {
    match command {
        Command::New(args) => new::run(args),
        Command::Build(args) => build::run(args),
        Command::Pack(args) => build::pack(args),
        Command::Check(args) => inspect::check(args),
        Command::Operations(args) => operations::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::List(args) => list::run(args),
        Command::Run(args) => play::run(args),
        Command::Key(args) => keys::make(args),
        Command::Sign(args) => keys::sign(args),
        Command::Log(command) => log::run(command),
        Command::Monitor(args) => log::monitor(args),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::because(format_args!("cannot write {}", path.display()), error))
}

/// Prints a JSON Schema.
fn print_schema(schema: &serde_json::Value) -> Result {
    output::text(format_args!("{schema:#}\n"))
}

/// Loads a plugin like [`load_bytes`], and makes the additional checks of [`check_use`].
fn load_checked(path: &Path, bytes: &[u8]) -> Result<Plugin> {
    let plugin = load_bytes(path, bytes)?;
    check_use(path, &parse(path, bytes)?, &plugin)?;
    Ok(plugin)
}

/// Fails if a plugin uses something that its manifest does not declare, or can never be attached.
fn check_use(path: &Path, bundle: &Bundle<'_>, plugin: &Plugin) -> Result {
    let faults = lint(bundle);
    if !faults.is_empty() {
        return Err(Failure::because(path.display(), faults.join("\n  ")));
    }
    try_to_attach(&[plugin]).map_err(|failure| failure.about(&path.display().to_string()))
}
