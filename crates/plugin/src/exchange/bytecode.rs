//! Compiles plugins from bytecode. Each plugin is compiled once for all connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::config::{Accepted, Load, Loaded};
use crate::policy::Granted;
use crate::runtime::Plugin;

/// Default limit on the size of the compiled plugins that a loader keeps, in bytes.
const USUAL_BYTES: usize = 16 << 20;

/// Maximum number of plugins that a loader keeps, including those that cannot be loaded.
const MAX_KEPT: usize = 1024;

/// Compiles the bytecode of plugins ([`Plugin`]), and caches the result for later connections under
/// the bundle's hash. The least recently used plugin is removed first. A bundle that cannot be
/// loaded is cached too, so that it is read only once.
#[derive(Debug)]
pub struct Bytecode {
    most: usize,
    /// Compiled plugins, sorted by their last use. The least recently used one comes first.
    kept: Mutex<VecDeque<Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    hash: [u8; 32],
    granted: Granted,
    made: Arc<OnceLock<Made>>,
}

#[derive(Debug)]
struct Made {
    plugin: Result<Plugin, String>,
    bytes: usize,
}

impl Kept {
    fn is(&self, plugin: &Accepted<'_>) -> bool {
        self.hash == *plugin.hash && self.granted == *plugin.granted
    }

    fn bytes(&self) -> usize {
        self.made.get().map_or(0, |made| made.bytes)
    }
}

impl Default for Bytecode {
    /// Returns a loader that keeps at most 16 MiB of plugins that no connection uses.
    fn default() -> Bytecode {
        Bytecode::new(USUAL_BYTES)
    }
}

impl Bytecode {
    /// Returns a loader that keeps about `most` bytes of plugins that no connection uses.
    pub fn new(most: usize) -> Bytecode {
        Bytecode { most, kept: Mutex::default() }
    }

    /// Returns the approximate memory of the kept plugins, in bytes.
    pub fn bytes(&self) -> usize {
        self.kept().iter().map(Kept::bytes).sum()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cache entry of a plugin, and marks the entry as the most recently used.
    fn place(&self, plugin: &Accepted<'_>) -> Arc<OnceLock<Made>> {
        let mut kept = self.kept();
        let found = kept.iter().position(|one| one.is(plugin)).and_then(|at| kept.remove(at));
        let one = found.unwrap_or_else(|| Kept {
            hash: *plugin.hash,
            granted: plugin.granted.clone(),
            made: Arc::default(),
        });
        let made = one.made.clone();
        kept.push_back(one);
        made
    }

    /// Removes the least recently used plugins until the cache is within its limits.
    fn trim(&self) {
        let mut kept = self.kept();
        let mut bytes: usize = kept.iter().map(Kept::bytes).sum();
        while (bytes > self.most || kept.len() > MAX_KEPT)
            && let Some(oldest) = kept.pop_front()
        {
            bytes -= oldest.bytes();
        }
    }

    fn plugin(&self, plugin: &Accepted<'_>) -> Result<Plugin, String> {
        // While one connection compiles a plugin, only connections that need the same plugin wait.
        let place = self.place(plugin);
        let made = place.get_or_init(|| {
            let loaded = Plugin::load(plugin.bundle, plugin.granted);
            let loaded = loaded.map_err(|error| error.to_string());
            let bytes = match &loaded {
                Ok(loaded) => loaded.size(),
                Err(why) => why.len(),
            };
            Made { plugin: loaded, bytes: bytes + size_of::<Kept>() + size_of::<Made>() }
        });
        self.trim();
        made.plugin.clone()
    }
}

impl Load for Bytecode {
    fn is_ready(&self, plugin: &Accepted<'_>) -> bool {
        let kept = self.kept();
        kept.iter().any(|one| one.is(plugin) && one.made.get().is_some())
    }

    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String> {
        let loaded = self.plugin(plugin)?;
        let instance = loaded.instantiate_as(plugin.frame_types, plugin.allowance.cloned());
        instance.map_err(|error| error.to_string())
    }
}
