//! A cache of loaded programs. Instances of the same object file share its code, and loading the
//! same file again costs only a look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::helper::{HelperHost, Helpers};
use crate::program::{Config, LoadError, Program};

/// A cache of loaded programs, with their object files as keys. All programs in it have the same
/// helpers and configuration. If the cache exceeds its memory limit, it evicts the least recently
/// used programs. Evicted programs that are still in use stay valid.
///
/// The cache finds an object file by a keyed hash, and then compares it byte by byte. Therefore it
/// never confuses two files, and an attacker cannot choose files whose hashes collide. Rejected
/// files are not cached.
#[derive(Debug)]
pub struct Cache<H: HelperHost> {
    helpers: Arc<Helpers<H>>,
    config: Config,
    limit: usize,
    state: Mutex<State<H>>,
}

#[derive(Debug)]
struct State<H: HelperHost> {
    programs: HashMap<Arc<[u8]>, Cached<H>>,
    /// Object files in the order of their last use.
    order: std::collections::BTreeMap<u64, Arc<[u8]>>,
    /// Estimated memory of all cached programs, in bytes.
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Cached<H: HelperHost> {
    program: Program<H>,
    bytes: usize,
    used: u64,
}

impl<H: HelperHost> Cache<H> {
    /// Creates a cache that uses at most `limit` bytes. The estimated use includes object files,
    /// code and all associated memory.
    pub fn new(helpers: Arc<Helpers<H>>, config: Config, limit: usize) -> Cache<H> {
        let state =
            State { programs: HashMap::new(), order: Default::default(), bytes: 0, clock: 0 };
        Cache { helpers, config, limit, state: Mutex::new(state) }
    }

    /// Returns the cached program of this object file. If the cache does not have it, loads the
    /// file like [`Program::load`] and caches the program.
    pub fn load(&self, elf: &[u8]) -> Result<Program<H>, LoadError> {
        if let Some(program) = self.state().find(elf) {
            return Ok(program);
        }
        // The lock is not held while the program is loaded, so other threads can continue. If
        // another thread loads the same file at the same time, the cache keeps the program that was
        // loaded last.
        let program = Program::load(elf, Arc::clone(&self.helpers), &self.config)?;
        let bytes = elf.len() + program.size();
        if bytes <= self.limit {
            let mut state = self.state();
            state.remove(elf);
            while state.bytes + bytes > self.limit && state.remove_oldest() {}
            state.insert(elf, &program, bytes);
        }
        Ok(program)
    }

    /// Number of cached programs.
    pub fn len(&self) -> usize {
        self.state().programs.len()
    }

    /// Returns `true` if the cache has no programs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimated memory of the cached programs in bytes.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        // A panic while the lock was held does no harm, because no code here can panic in the
        // middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: HelperHost> State<H> {
    fn find(&mut self, elf: &[u8]) -> Option<Program<H>> {
        let cached = self.programs.get_mut(elf)?;
        let key = self.order.remove(&cached.used)?;
        self.clock += 1;
        cached.used = self.clock;
        self.order.insert(self.clock, key);
        Some(cached.program.clone())
    }

    fn insert(&mut self, elf: &[u8], program: &Program<H>, bytes: usize) {
        self.clock += 1;
        let key: Arc<[u8]> = elf.into();
        self.order.insert(self.clock, Arc::clone(&key));
        self.programs.insert(key, Cached { program: program.clone(), bytes, used: self.clock });
        self.bytes += bytes;
    }

    fn remove(&mut self, elf: &[u8]) {
        if let Some(cached) = self.programs.remove(elf) {
            self.order.remove(&cached.used);
            self.bytes -= cached.bytes;
        }
    }

    fn remove_oldest(&mut self) -> bool {
        let Some((_, oldest)) = self.order.first_key_value() else { return false };
        let oldest = Arc::clone(oldest);
        self.remove(&oldest);
        true
    }
}
