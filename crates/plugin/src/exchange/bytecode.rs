//! Plugins as bytecode in its cage.

use super::config::{Accepted, Load, Loaded};
use crate::runtime::Plugin;

/// Compiles a plugin's bytecode ([`Plugin`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytecode;

impl Load for Bytecode {
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String> {
        let declared = plugin.bundle.manifest().frames.iter().map(|frame| frame.frame_type);
        // Bytecode writes the types of its frames itself.
        if !declared.eq(plugin.frame_types.iter().copied()) {
            return Err("its frame types are not those that it was written with".to_owned());
        }
        let loaded =
            Plugin::load(plugin.bundle, plugin.granted).and_then(|loaded| match plugin.allowance {
                Some(allowance) => loaded.instantiate_within(allowance.clone()),
                None => loaded.instantiate(),
            });
        loaded.map_err(|error| error.to_string())
    }
}
