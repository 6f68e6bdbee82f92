//! A cache of loaded programs. Instances of the same object share its code. Loading the object
//! again costs only a look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::helper::{HelperHost, Helpers};
use crate::program::{Config, LoadError, Program};

/// A cache of programs, keyed by their object files. All programs have the same helpers and
/// configuration. If the cache exceeds its limit, it evicts the least recently used programs.
/// Programs in use stay valid.
///
/// Objects are looked up by a keyed hash and then compared byte by byte. So different objects are
/// never confused, and an attacker cannot choose objects that collide. Rejected objects are not
/// cached.
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
    /// Objects by time of last use.
    order: std::collections::BTreeMap<u64, Arc<[u8]>>,
    /// Estimated memory of all programs in bytes.
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
    /// Creates a cache of at most `limit` bytes. The estimate includes objects, code and all
    /// associated memory.
    pub fn new(helpers: Arc<Helpers<H>>, config: Config, limit: usize) -> Cache<H> {
        let state =
            State { programs: HashMap::new(), order: Default::default(), bytes: 0, clock: 0 };
        Cache { helpers, config, limit, state: Mutex::new(state) }
    }

    /// Returns the cached program, or loads it like [`Program::load`].
    pub fn load(&self, elf: &[u8]) -> Result<Program<H>, LoadError> {
        if let Some(program) = self.state().find(elf) {
            return Ok(program);
        }
        // The lock is not held here, so other threads continue. If another thread loads the same
        // object meanwhile, the program that is loaded last stays.
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

    /// True if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimated memory of the cached programs in bytes.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        // A poisoned lock is safe to use: no code here panics between two changes that belong
        // together.
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
