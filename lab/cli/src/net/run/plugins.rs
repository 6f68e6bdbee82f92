//! Plugins of a QUIC flow's ends: loaded once, and attached to each of its connections as their owner's own.

use equic_command::plugin;
use equic_http3::Hooks;
use equic_plugin::Plugin;
use equic_scenario::{PluginFile, QuicOptions};

use crate::failure::Done;

/// Hooks of both ends; none: that end has no plugins.
pub(super) struct Plugins {
    pub(super) client: Option<Hooks>,
    pub(super) server: Option<Hooks>,
}

impl Plugins {
    pub(super) fn load(options: &QuicOptions) -> Done<Plugins> {
        Ok(Plugins {
            client: of_end(&options.client_plugins)?,
            server: of_end(&options.server_plugins)?,
        })
    }
}

fn of_end(files: &[PluginFile]) -> Done<Option<Hooks>> {
    let plugins = files.iter().map(load).collect::<Done<Vec<Plugin>>>()?;
    Ok(plugin::hooks_of(plugins))
}

/// The plugin in a file, which is granted all that it declares.
///
/// # Errors
/// It is none, or cannot run: with the name of the file.
pub(super) fn load(file: &PluginFile) -> Done<Plugin> {
    plugin::load_bytes(&file.name, &file.bundle)
}
