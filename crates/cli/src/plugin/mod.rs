//! `equic plugin`: from C to a plugin on a connection.
//!
//! * [`mod@new`]: a folder with a plugin to begin with; [`build`]: C to a bundle;
//! * [`inspect`]: what is in a bundle, and whether it would run: `check`, with [`proof`]; [`list`]: bundles in folders;
//! * [`keys`]: keys of authors, and signatures;
//! * [`log`]: transparency logs, and what watches them;
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
mod play;
mod proof;
mod scheduler;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use equic_http3::Hooks;
use equic_plugin::{Bundle, MAX_BUNDLE, Origin, Plugin, Policy, decide};

use crate::failure::{Done, Failure};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a folder with a plugin to begin with
    New(new::Args),
    /// Compile a plugin and pack it, with its manifest
    Build(build::Args),
    /// Pack an object and a manifest into a bundle
    Pack(build::PackArgs),
    /// Find out whether a plugin would run, and under which policy
    Check(inspect::CheckArgs),
    /// Show what a bundle declares, and who signed it
    Inspect(inspect::Args),
    /// List the bundles that are in folders, such as a plugin cache
    List(list::Args),
    /// Play a plugin between two connections in memory, and show its calls
    Run(play::Args),
    /// Push plugins to a client that has never seen them: where they help, and where they mean harm
    Demo(demo::Args),
    /// Show the tree's plugins side by side: sizes, gains, and what they cost
    Bench(bench::Args),
    /// Make an author's key
    Key(keys::KeyArgs),
    /// Sign a bundle
    Sign(keys::SignArgs),
    /// Keep a transparency log of signed bundles
    #[command(subcommand)]
    Log(log::Command),
    /// Find out whether a transparency log has only grown, and by what
    Monitor(log::MonitorArgs),
}

pub(crate) fn run(command: &Command) -> Done {
    match command {
        Command::New(args) => new::run(args),
        Command::Build(args) => build::run(args),
        Command::Pack(args) => build::pack(args),
        Command::Check(args) => inspect::check(args),
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
    Plugin::load(&bundle, &granted).map_err(|error| Failure::because(path.display(), error))
}

/// Hooks that attach these plugins to each new connection; none: there are no plugins.
pub(crate) fn hooks(paths: &[PathBuf]) -> Done<Option<Hooks>> {
    let plugins = paths.iter().map(|path| load(path)).collect::<Done<Vec<Plugin>>>()?;
    Ok(hooks_of(plugins))
}

/// As [`hooks`], of plugins that are loaded.
pub(crate) fn hooks_of(plugins: Vec<Plugin>) -> Option<Hooks> {
    if plugins.is_empty() {
        return None;
    }
    Some(Hooks::new(move |connection| {
        for plugin in &plugins {
            let attached =
                plugin.instantiate().map_err(|error| error.to_string()).and_then(|one| {
                    let attached =
                        connection.attach_with_frames(one.hook, &one.points, &one.frames);
                    attached.map_err(|error| error.to_string())
                });
            if let Err(error) = attached {
                let name = &plugin.manifest().name;
                tracing::warn!(plugin = %name, %error, "a plugin is not on a connection");
            }
        }
    }))
}
