//! Loads the plugins of flows. Each plugin is loaded once per flow, and then attached to each
//! connection of the flow. It counts as installed by the owner of that end, not as received from
//! the peer.

#[cfg(feature = "plugins")]
use equic_plugin::{Bundle, Origin, Plugin, Policy, decide};
use equic_sim::quic::HooksOfEnds;
#[cfg(feature = "plugins")]
use equic_sim::quic::{Connection, Hooks};

#[cfg(feature = "plugins")]
use crate::model::PluginFile;
use crate::model::QuicOptions;

/// Time at which the validity of plugins is checked, in seconds since the Unix epoch. It is
/// constant, so that a run does not depend on the date and no plugin expires.
#[cfg(feature = "plugins")]
const NOW: u64 = 0;

/// Creates hooks that run a flow's plugins, for both ends of its connections.
///
/// # Errors
/// Fails if a plugin cannot be loaded. The error names the plugin.
#[cfg(feature = "plugins")]
pub(super) fn hooks(options: &QuicOptions) -> Result<HooksOfEnds, String> {
    Ok(HooksOfEnds {
        client: of_end(&options.client_plugins)?,
        server: of_end(&options.server_plugins)?,
    })
}

/// A stub for builds without the feature `plugins`, in which no flow has plugins.
#[cfg(not(feature = "plugins"))]
pub(super) fn hooks(options: &QuicOptions) -> Result<HooksOfEnds, String> {
    match options.client_plugins.first().or(options.server_plugins.first()) {
        None => Ok(HooksOfEnds::default()),
        Some(one) => Err(format!("{}: plugins need a build with the feature `plugins`", one.name)),
    }
}

#[cfg(feature = "plugins")]
fn of_end(files: &[PluginFile]) -> Result<Option<Hooks>, String> {
    if files.is_empty() {
        return Ok(None);
    }
    let plugins = files.iter().map(load).collect::<Result<Vec<_>, String>>()?;
    Ok(Some(Hooks::new(move |connection: &mut Connection| {
        for (name, plugin) in &plugins {
            plugin.attach(connection).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    })))
}

#[cfg(feature = "plugins")]
pub(crate) fn load(file: &PluginFile) -> Result<(String, Plugin), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.name);
    let bundle = Bundle::parse(&file.bundle).map_err(|error| wrong(&error))?;
    let granted =
        decide(&bundle, Origin::Own, &Policy::default(), NOW).map_err(|error| wrong(&error))?;
    let plugin = Plugin::load(&bundle, &granted).map_err(|error| wrong(&error))?;
    Ok((file.name.clone(), plugin))
}
