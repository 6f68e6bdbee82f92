//! Loads the plugins of a QUIC flow's endpoints. They are loaded once, and attached to each
//! connection as local plugins.

use equic_command::plugin;
use equic_http3::Hooks;
use equic_plugin::Plugin;
use equic_scenario::{PluginFile, QuicOptions};

use crate::failure::Result;

/// Hooks with the plugins of each endpoint, or `None` for an endpoint without plugins.
pub(super) struct Plugins {
    pub(super) client: Option<Hooks>,
    pub(super) server: Option<Hooks>,
}

impl Plugins {
    pub(super) fn load(options: &QuicOptions) -> Result<Plugins> {
        Ok(Plugins {
            client: of_end(&options.client_plugins)?,
            server: of_end(&options.server_plugins)?,
        })
    }
}

fn of_end(files: &[PluginFile]) -> Result<Option<Hooks>> {
    let plugins = files.iter().map(load).collect::<Result<Vec<Plugin>>>()?;
    Ok(plugin::hooks_of(plugins))
}

/// Loads the plugin in a file, and grants it every capability that it declares.
///
/// # Errors
/// The file is not a plugin, or the plugin cannot run. The error names the file.
pub(super) fn load(file: &PluginFile) -> Result<Plugin> {
    plugin::load_bytes(&file.name, &file.bundle)
}
