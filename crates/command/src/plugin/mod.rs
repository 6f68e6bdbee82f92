//! Loads local plugins of the user, and attaches them to connections.

mod own;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use equic_http3::Hooks;
use equic_plugin::{Bundle, MAX_BUNDLE, Origin, Plugin, Policy, decide, lint};

use crate::exchange::Standing;
use crate::failure::{Failure, Result};
pub use own::{Counting, Counts, OnFailure, OwnPlugins, Tally, try_to_attach};

/// Returns the time in seconds since the Unix epoch.
pub fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads the file of a bundle. Fails if it exceeds the maximum size of a bundle.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error| Failure::because(format_args!("cannot read {}", path.display()), error);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MAX_BUNDLE as u64 {
        let message =
            format!("{} has {length} bytes, but a bundle has at most {MAX_BUNDLE}", path.display());
        return Err(Failure::new(message));
    }
    equic_gateway::read_regular(path, MAX_BUNDLE as u64).map_err(failed)
}

/// Parses a bundle that was read from this file.
///
/// # Errors
/// The bytes are not a bundle. The message names the file.
pub fn parse<'b>(path: &Path, bytes: &'b [u8]) -> Result<Bundle<'b>> {
    Bundle::parse(bytes).map_err(|error| Failure::because(path.display(), error))
}

/// Loads a local plugin of the user, and grants it every capability that it declares.
pub fn load(path: &Path) -> Result<Plugin> {
    let bytes = read(path)?;
    load_bytes(path, &bytes)
}

/// Loads a plugin like [`load`], from the bytes of a bundle. `path` is only used in errors.
pub fn load_bytes(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Plugin> {
    let path = path.as_ref();
    let bundle = parse(path, bytes)?;
    let granted = decide(&bundle, Origin::Own, &Policy::default(), seconds_now());
    let granted = granted.map_err(|error| Failure::because(path.display(), error))?;
    Plugin::load(&bundle, &granted).map_err(|error| {
        // Report missing declarations first. The loader's error only says that a helper does not
        // exist.
        let faults = lint(&bundle);
        if faults.is_empty() {
            Failure::because(path.display(), error)
        } else {
            Failure::because(path.display(), faults.join("\n  "))
        }
    })
}

/// Loads local plugins of the user, and attaches them to a test connection in memory. `tally`
/// counts their calls, and `tell` is called when one fails.
pub fn own(paths: &[PathBuf], tally: Option<Tally>, tell: Option<OnFailure>) -> Result<OwnPlugins> {
    let load = |path: &PathBuf| {
        let bytes = read(path)?;
        let plugin = load_bytes(path, &bytes)?;
        Ok((plugin, parse(path, &bytes)?.hash()))
    };
    let plugins = paths.iter().map(load).collect::<Result<Vec<_>>>()?;
    if !plugins.is_empty() {
        let all: Vec<&Plugin> = plugins.iter().map(|(plugin, _)| plugin).collect();
        try_to_attach(&all)?;
    }
    Ok(OwnPlugins::new(plugins, tally, tell))
}

/// Returns hooks that attach these plugins to each new connection, or `None` if there are no
/// plugins.
pub fn hooks_of(plugins: Vec<Plugin>) -> Option<Hooks> {
    let plugins = plugins.into_iter().map(|plugin| (plugin, [0; 32])).collect();
    let tell: OnFailure = Arc::new(|standing: &Standing| {
        tracing::warn!("{}", standing.line());
    });
    OwnPlugins::new(plugins, None, Some(tell)).hooks()
}
