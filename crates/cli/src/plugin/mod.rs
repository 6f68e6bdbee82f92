//! `equic plugin`: from C to a plugin on a connection.
//!
//! * [`mod@new`]: a folder with a plugin to begin with; [`build`]: C to a bundle;
//! * [`inspect`]: what is in a bundle, and whether it would run: `check`, with [`proof`]; [`list`]: bundles in folders;
//! * [`keys`]: keys of authors, and signatures;
//! * [`log`]: transparency logs, and what watches them;
//! * [`operations`]: the operations and fields that plugins may use, and the classes that they need;
//! * [`own`]: plugins of one's own on the connections of `get` and `serve`;
//! * [`play`]: a plugin between two connections in memory;
//! * [`demo`]: the tree's plugins where they help, and plugins that mean harm; [`bench`]: all of them side by side;
//! * [`limits`]: what peers can cause, against the goals.

mod bench;
mod build;
mod demo;
mod inspect;
mod keys;
mod limits;
mod list;
mod log;
mod new;
mod operations;
mod own;
mod play;
mod proof;
mod scheduler;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use equic_http3::Hooks;
use equic_plugin::{Bundle, MAX_BUNDLE, Origin, Plugin, Policy, decide, lint};

use crate::exchange::Standing;
use crate::failure::{Done, Failure};
use own::try_to_attach;
pub(crate) use own::{Counts, OnFailure, OwnPlugins, Tally};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a folder with a plugin to start from
    New(new::Args),
    /// Compile a plugin and pack it, with its manifest
    Build(build::Args),
    /// Pack an object and a manifest into a bundle
    Pack(build::PackArgs),
    /// Check whether a plugin would run, and under which policy
    Check(inspect::CheckArgs),
    /// List the operations and fields that plugins may use, and the class that each of them needs
    Operations(operations::Args),
    /// Show what a bundle declares, and who signed it
    Inspect(inspect::Args),
    /// List the bundles in folders, such as a plugin cache
    List(list::Args),
    /// Run a plugin between two connections in memory, and show its calls
    Run(play::Args),
    /// Push helpful and hostile plugins to a client that does not know them
    Demo(demo::Args),
    /// Compare the included plugins: size, gain and cost
    Bench(bench::Args),
    /// Create an author's key
    Key(keys::KeyArgs),
    /// Sign a bundle
    Sign(keys::SignArgs),
    /// Maintain a transparency log of signed bundles
    #[command(subcommand)]
    Log(log::Command),
    /// Check that a transparency log has only grown, and list the new entries
    Monitor(log::MonitorArgs),
}

pub(crate) fn run(command: &Command) -> Done {
    match command {
        Command::New(args) => new::run(args),
        Command::Build(args) => build::run(args),
        Command::Pack(args) => build::pack(args),
        Command::Check(args) => inspect::check(args),
        Command::Operations(args) => operations::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::List(args) => list::run(args),
        Command::Run(args) => play::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Key(args) => keys::make(args),
        Command::Sign(args) => keys::sign(args),
        Command::Log(command) => log::run(command),
        Command::Monitor(args) => log::monitor(args),
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads a bundle's file; one that is larger than a bundle may be is refused.
fn read(path: &Path) -> Done<Vec<u8>> {
    let failed = |error| Failure::because(format_args!("cannot read {}", path.display()), error);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MAX_BUNDLE as u64 {
        let message =
            format!("{} has {length} bytes, and a bundle {MAX_BUNDLE} at most", path.display());
        return Err(Failure::new(message));
    }
    equic_gateway::read_regular(path, MAX_BUNDLE as u64).map_err(failed)
}

fn write(path: &Path, bytes: &[u8]) -> Done {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::because(format_args!("cannot write {}", path.display()), error))
}

fn parse<'b>(path: &Path, bytes: &'b [u8]) -> Done<Bundle<'b>> {
    Bundle::parse(bytes).map_err(|error| Failure::because(path.display(), error))
}

/// Loads a plugin of the user's own, which is granted all that it declares.
fn load(path: &Path) -> Done<Plugin> {
    let bytes = read(path)?;
    load_bytes(path, &bytes)
}

/// As [`load`], of a bundle that was read from this file.
pub(crate) fn load_bytes(path: impl AsRef<Path>, bytes: &[u8]) -> Done<Plugin> {
    let path = path.as_ref();
    let bundle = parse(path, bytes)?;
    let granted = decide(&bundle, Origin::Own, &Policy::default(), seconds_now());
    let granted = granted.map_err(|error| Failure::because(path.display(), error))?;
    Plugin::load(&bundle, &granted).map_err(|error| {
        // What the manifest lacks says more than that a helper does not exist.
        let faults = lint(&bundle);
        if faults.is_empty() {
            Failure::because(path.display(), error)
        } else {
            Failure::because(path.display(), faults.join("\n  "))
        }
    })
}

/// As [`load_bytes`], and fails if the plugin uses what it does not declare, or can never be attached.
fn load_checked(path: &Path, bytes: &[u8]) -> Done<Plugin> {
    let plugin = load_bytes(path, bytes)?;
    check_use(path, &parse(path, bytes)?, &plugin)?;
    Ok(plugin)
}

/// Fails if a plugin uses what it does not declare, or can never be attached.
fn check_use(path: &Path, bundle: &Bundle<'_>, plugin: &Plugin) -> Done {
    let faults = lint(bundle);
    if !faults.is_empty() {
        return Err(Failure::because(path.display(), faults.join("\n  ")));
    }
    try_to_attach(&[plugin]).map_err(|failure| failure.about(&path.display().to_string()))
}

/// Loads plugins of the user's own, and tries to attach them. `tally` counts their calls, and `tell` hears of failures.
pub(crate) fn own(
    paths: &[PathBuf],
    tally: Option<Tally>,
    tell: Option<OnFailure>,
) -> Done<OwnPlugins> {
    let load = |path: &PathBuf| {
        let bytes = read(path)?;
        let plugin = load_bytes(path, &bytes)?;
        Ok((plugin, parse(path, &bytes)?.hash()))
    };
    let plugins = paths.iter().map(load).collect::<Done<Vec<_>>>()?;
    if !plugins.is_empty() {
        let all: Vec<&Plugin> = plugins.iter().map(|(plugin, _)| plugin).collect();
        try_to_attach(&all)?;
    }
    Ok(OwnPlugins::new(plugins, tally, tell))
}

/// Hooks that attach these plugins to each new connection; `None` if there are no plugins.
pub(crate) fn hooks_of(plugins: Vec<Plugin>) -> Option<Hooks> {
    let plugins = plugins.into_iter().map(|plugin| (plugin, [0; 32])).collect();
    let tell: OnFailure = Arc::new(|standing: &Standing| {
        tracing::warn!("{}", standing.line());
    });
    OwnPlugins::new(plugins, None, Some(tell)).hooks()
}
