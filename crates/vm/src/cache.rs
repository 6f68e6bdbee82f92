//! Programs that were loaded before: instances of the same object share its code, and loading it again costs a
//! look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::helper::{HelperHost, Helpers};
use crate::program::{Config, LoadError, Program};

/// Programs by the object that they were loaded from, all with the same helpers and configuration. It keeps what was
/// used last, within its limit; programs that were handed out stay what they are.
///
/// Objects are looked up by a keyed hash and then compared byte by byte: two that differ are never taken for the
/// same, and nobody can choose objects that make looking up slow. An object that is refused is not remembered.
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
    /// By when they were used last.
    order: std::collections::BTreeMap<u64, Arc<[u8]>>,
    /// Of all programs.
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
    /// For at most `limit` bytes of objects, code and all that belongs to them, counted roughly.
    pub fn new(helpers: Arc<Helpers<H>>, config: Config, limit: usize) -> Cache<H> {
        let state =
            State { programs: HashMap::new(), order: Default::default(), bytes: 0, clock: 0 };
        Cache { helpers, config, limit, state: Mutex::new(state) }
    }

    /// As [`Program::load`].
    pub fn load(&self, elf: &[u8]) -> Result<Program<H>, LoadError> {
        if let Some(program) = self.state().find(elf) {
            return Ok(program);
        }
        // Others go on meanwhile. If one of them loads the same, the later one stays.
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

    /// Programs that it keeps.
    pub fn len(&self) -> usize {
        self.state().programs.len()
    }

    /// True if it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that these count for.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        // Nothing in here panics between two changes that belong together.
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
