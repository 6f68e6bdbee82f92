//! Programs, which are loaded once, and their instances, each of which has its own memory.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::check::{self, CheckError, Checked, check};
use crate::elf::{self, ElfError, Function, Object};
use crate::helper::{HelperHost, Helpers};
use crate::interpret;
use crate::jit;
use crate::memory::{DATA_START, Memory, Region, STACK};
use crate::sandbox::Sandbox;
use crate::trap::{Trap, TrapKind};

/// The engine that runs programs: the compiler or the interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Compiled code if there is a compiler for the machine, otherwise the interpreter.
    #[default]
    Auto,
    /// The interpreter.
    Interpreter,
}

/// Options for loading programs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Memory of an instance in bytes: variables, data of the host, and [`STACK`]. It must be a
    /// power of two from 16 KiB to 16 MiB. The default is 64 KiB.
    pub memory: usize,
    /// The engine that runs the programs.
    pub engine: Engine,
}

impl Default for Config {
    fn default() -> Self {
        Config { memory: 64 << 10, engine: Engine::Auto }
    }
}

/// Reason why a program cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The requested memory size is invalid.
    #[error("a memory of {0} bytes is not possible: use a power of two from 16 KiB to 16 MiB")]
    Memory(usize),
    /// The object file cannot be loaded.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The check rejected an instruction.
    #[error("{error}{}", function.as_deref().map(|name| format!(" (in {name})")).unwrap_or_default())]
    Check {
        /// The rejected instruction, and the reason for the rejection.
        error: CheckError,
        /// Name of the function that contains the instruction, or `None` if the names are not
        /// known.
        function: Option<String>,
    },
    /// The operating system provided no memory for compiled code.
    #[error("no memory for compiled code: {0}")]
    System(#[from] io::Error),
}

/// A function of a program that the host can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the function among the program's entries.
    place: u32,
}

/// A checked and compiled program. Clones of this value share the code.
#[derive(Debug)]
pub struct Program<H: HelperHost> {
    inner: Arc<Inner<H>>,
}

impl<H: HelperHost> Clone for Program<H> {
    fn clone(&self) -> Self {
        Program { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<H: HelperHost> {
    checked: Checked,
    helpers: Arc<Helpers<H>>,
    /// Names of the functions, in the order of their first instructions.
    names: Vec<Function>,
    /// The global functions, which the host can call, in the order of their first instructions.
    entries: Vec<check::Function>,
    /// Initial memory of an instance, from [`DATA_START`] on.
    image: Vec<u8>,
    memory: usize,
    compiled: Option<Arc<jit::Compiled<H>>>,
}

impl<H: HelperHost> Program<H> {
    /// Loads an object file that clang wrote for BPF. Its global functions become the entries.
    pub fn load(elf: &[u8], helpers: Arc<Helpers<H>>, config: &Config) -> Result<Self, LoadError> {
        let room = room(config)?;
        let object = elf::load(elf, room, |name| helpers.number_of(name))?;
        Self::new(object, helpers, config)
    }

    /// Loads instructions without an object file. The first instruction is the start of the entry
    /// `main`.
    pub fn from_code(
        code: &[u8],
        helpers: Arc<Helpers<H>>,
        config: &Config,
    ) -> Result<Self, LoadError> {
        room(config)?;
        let main = Function { name: "main".to_owned(), start: 0, global: true };
        let object = Object { code: code.to_vec(), functions: vec![main], image: Vec::new() };
        Self::new(object, helpers, config)
    }

    fn new(object: Object, helpers: Arc<Helpers<H>>, config: &Config) -> Result<Self, LoadError> {
        let Object { code, functions: mut names, image } = object;
        names.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        let starts: Vec<u32> = names.iter().map(|function| function.start).collect();
        let checked = check(&code, &starts, |number| helpers.place(number)).map_err(|error| {
            let function = name_at(&names, error.at as u32).map(str::to_owned);
            LoadError::Check { error, function }
        })?;
        let global = names.iter().filter(|function| function.global);
        let entries: Vec<_> = global.map(|function| checked.function_at(function.start)).collect();
        let compiled = match config.engine {
            Engine::Auto => {
                jit::Compiled::new(&checked, &entries, config.memory, Arc::clone(&helpers))?
            }
            Engine::Interpreter => None,
        };
        let inner = Inner {
            checked,
            helpers,
            names,
            entries,
            image,
            memory: config.memory,
            compiled: compiled.map(Arc::new),
        };
        Ok(Program { inner: Arc::new(inner) })
    }

    /// Returns the entry with this name, or `None` if the program has no such global function.
    pub fn entry(&self, name: &str) -> Option<Entry> {
        let place = self.entries().position(|entry| entry == name)?;
        Some(Entry { place: place as u32 })
    }

    /// Returns the names of all helpers that the entry calls, directly or through other functions.
    /// A call in unreachable code counts, too.
    pub fn helpers_of(&self, entry: Entry) -> Vec<&str> {
        let Inner { checked, helpers, entries, .. } = &*self.inner;
        let Some(function) = entries.get(entry.place as usize) else { return Vec::new() };
        let places = checked.helpers_from(function.start);
        places.into_iter().map(|place| helpers.get(place).name.as_str()).collect()
    }

    /// Returns all calls of helpers in the entry and in the functions that it calls. Each result
    /// has the helper's name. It also has the first argument of the call, if the instructions right
    /// before the call show that it is a constant.
    pub fn helper_calls(&self, entry: Entry) -> Vec<(&str, Option<u64>)> {
        let Inner { checked, helpers, entries, .. } = &*self.inner;
        let Some(function) = entries.get(entry.place as usize) else { return Vec::new() };
        let calls = checked.helper_calls_from(function.start).into_iter();
        calls.map(|(place, first)| (helpers.get(place).name.as_str(), first)).collect()
    }

    /// The names of all entries, in the order of their code.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        let global = self.inner.names.iter().filter(|function| function.global);
        global.map(|function| function.name.as_str())
    }

    /// Returns `true` if the program was compiled, and `false` if it is interpreted.
    pub fn is_compiled(&self) -> bool {
        self.inner.compiled.is_some()
    }

    /// Returns `true` if both values refer to the same loaded program.
    pub fn is_same(&self, other: &Program<H>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Estimated memory of the program in bytes: instructions, names, variables, and the pages of
    /// compiled code.
    pub fn size(&self) -> usize {
        let Inner { checked, names, entries, image, compiled, .. } = &*self.inner;
        let named: usize = names.iter().map(|function| function.name.len()).sum();
        let functions = names.len() * size_of::<Function>() + size_of_val(entries.as_slice());
        let code = compiled.as_ref().map_or(0, |compiled| compiled.size());
        size_of::<Inner<H>>() + checked.size() + functions + named + image.len() + code
    }

    /// Number of instructions of the program. LDDW counts as two.
    pub fn instructions(&self) -> usize {
        self.inner.checked.ops.len()
    }

    /// The memory between the program's variables and its stack, which the host may use.
    pub fn free(&self) -> Region {
        let from = (DATA_START + self.inner.image.len()).next_multiple_of(16);
        Region::new(from as u64, (self.inner.memory - STACK).saturating_sub(from) as u64)
    }

    /// Creates an instance, which has its own memory with the initial values of the variables.
    ///
    /// # Errors
    /// Fails if the system has no memory for the instance, or if the process already has
    /// [`MAX_INSTANCES`](crate::MAX_INSTANCES) instances.
    pub fn instantiate(&self) -> io::Result<Instance<H>> {
        let mut sandbox = Sandbox::new(self.inner.memory)?;
        put_image(&self.inner, &mut sandbox);
        let machine = match &self.inner.compiled {
            Some(compiled) => Machine::Compiled(jit::Ready::new(Arc::clone(compiled), sandbox)),
            None => Machine::Interpreted(sandbox),
        };
        Ok(Instance { program: Arc::clone(&self.inner), machine })
    }
}

/// Returns the number of bytes that are available for variables.
fn room(config: &Config) -> Result<usize, LoadError> {
    let memory = config.memory;
    if !memory.is_power_of_two() || !(16 << 10..=16 << 20).contains(&memory) {
        return Err(LoadError::Memory(memory));
    }
    Ok(memory - STACK - DATA_START)
}

fn put_image<H: HelperHost>(program: &Inner<H>, sandbox: &mut Sandbox) {
    let image = &program.image;
    sandbox.bytes_mut()[DATA_START..DATA_START + image.len()].copy_from_slice(image);
}

fn name_at(names: &[Function], at: u32) -> Option<&str> {
    let after = names.partition_point(|function| function.start <= at);
    names.get(after.checked_sub(1)?).map(|function| function.name.as_str())
}

/// The engine that runs an instance, together with the memory of the instance.
#[derive(Debug)]
enum Machine<H: HelperHost> {
    Compiled(jit::Ready<H>),
    Interpreted(Sandbox),
}

/// An instance of a program, which has its own memory.
#[derive(Debug)]
pub struct Instance<H: HelperHost> {
    program: Arc<Inner<H>>,
    machine: Machine<H>,
}

impl<H: HelperHost> Instance<H> {
    /// Calls an entry with `arguments` in `r1` to `r5`, and returns the final value of `r0`. The
    /// cost of the call is taken from `budget`. A call that would exceed the budget ends with a
    /// trap. After a trap, the memory stays as the program left it.
    #[inline]
    pub fn call(
        &mut self,
        entry: Entry,
        arguments: [u64; 5],
        budget: &mut u64,
        data: &mut H::Data<'_>,
    ) -> Result<u64, Box<Trap>> {
        let [r1, r2, r3, r4, r5] = arguments;
        let ended = match &mut self.machine {
            Machine::Compiled(ready) => {
                match ready.enter(entry.place, [r1, r2, r3, r4, r5], budget, data) {
                    Ok(value) => return Ok(value),
                    Err(ended) => ended,
                }
            }
            // The array of registers is created only here, because compiled code does not need it.
            Machine::Interpreted(sandbox) => {
                let arguments = [r1, r2, r3, r4, r5];
                match interpret_entry(&self.program, sandbox, entry, arguments, budget, data) {
                    Ok(value) => return Ok(value),
                    Err(ended) => ended,
                }
            }
        };
        Err(self.trap(*ended))
    }

    #[cold]
    fn trap(&self, (at, kind): (usize, TrapKind)) -> Box<Trap> {
        let function = name_at(&self.program.names, at as u32).map(str::to_owned);
        Box::new(Trap { kind, at, function })
    }

    fn sandbox(&mut self) -> &mut Sandbox {
        match &mut self.machine {
            Machine::Compiled(ready) => ready.sandbox(),
            Machine::Interpreted(sandbox) => sandbox,
        }
    }

    /// The instance's memory.
    pub fn memory(&mut self) -> Memory<'_> {
        Memory::new(self.sandbox().bytes_mut())
    }

    /// The program of this instance.
    pub fn program(&self) -> Program<H> {
        Program { inner: Arc::clone(&self.program) }
    }

    /// Restores the initial content of the memory.
    pub fn reset(&mut self) {
        let program = Arc::clone(&self.program);
        let sandbox = self.sandbox();
        sandbox.bytes_mut().fill(0);
        put_image(&program, sandbox);
    }
}

#[inline(never)]
fn interpret_entry<H: HelperHost>(
    program: &Inner<H>,
    sandbox: &mut Sandbox,
    entry: Entry,
    arguments: [u64; 5],
    budget: &mut u64,
    data: &mut H::Data<'_>,
) -> interpret::End {
    let Some(function) = program.entries.get(entry.place as usize) else {
        return Err(Box::new((0, TrapKind::NoEntry)));
    };
    let Some(left) = budget.checked_sub(u64::from(program.checked.cost(*function))) else {
        *budget = 0;
        return Err(Box::new((function.start as usize, TrapKind::Budget)));
    };
    *budget = left;
    let memory = sandbox.bytes_mut();
    let Inner { checked, helpers, .. } = program;
    interpret::run(checked, helpers, function.start, arguments, memory, budget, data)
}
