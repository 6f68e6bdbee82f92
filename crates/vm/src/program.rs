//! A program, loaded once, and its instances.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::check::{self, CheckError, Checked, check};
use crate::elf::{self, ElfError, Function, Object};
use crate::helper::{Helpers, Host};
use crate::interpret;
#[cfg(all(target_arch = "x86_64", unix))]
use crate::jit;
use crate::memory::{DATA_START, Memory, Region, STACK};
use crate::sandbox::Sandbox;
use crate::trap::{Trap, TrapKind};

/// Engine that runs programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Compiled code where there is a compiler for the machine, the interpreter elsewhere.
    #[default]
    Auto,
    /// The interpreter.
    Interpreter,
}

/// Configuration for loading programs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Bytes of memory of an instance: variables, what the host puts there, and [`STACK`]. A power of two from
    /// 16 KiB to 16 MiB; 64 KiB by default.
    pub memory: usize,
    /// Engine that runs programs.
    pub engine: Engine,
}

impl Default for Config {
    fn default() -> Self {
        Config { memory: 64 << 10, engine: Engine::Auto }
    }
}

/// Reason for which a program was not loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The memory asked for cannot be.
    #[error("{0} bytes of memory: take a power of two from 16 KiB to 16 MiB")]
    Memory(usize),
    /// The file is not one that can be loaded.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// An instruction was refused.
    #[error("{error}{}", function.as_deref().map(|name| format!(" (in {name})")).unwrap_or_default())]
    Check {
        /// The instruction refused, and the reason.
        error: CheckError,
        /// The function that it is in, if there are names.
        function: Option<String>,
    },
    /// The system gave no memory for compiled code.
    #[error("no memory for compiled code: {0}")]
    System(#[from] io::Error),
}

/// A function of a program that can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index in the program's functions.
    index: u32,
}

/// A program that was checked and compiled. Clones share it.
#[derive(Debug)]
pub struct Program<H: Host> {
    inner: Arc<Inner<H>>,
}

impl<H: Host> Clone for Program<H> {
    fn clone(&self) -> Self {
        Program { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<H: Host> {
    checked: Checked,
    helpers: Arc<Helpers<H>>,
    /// Names of functions, in the order of their first instructions.
    names: Vec<Function>,
    /// The same functions, from where to where.
    functions: Vec<check::Function>,
    /// Memory from [`DATA_START`] on at the beginning of an instance.
    image: Vec<u8>,
    memory: usize,
    #[cfg(all(target_arch = "x86_64", unix))]
    compiled: Option<Arc<jit::Compiled<H>>>,
}

#[cfg(all(target_arch = "x86_64", unix))]
fn compile<H: Host>(
    checked: &Checked,
    helpers: &Arc<Helpers<H>>,
    config: &Config,
) -> io::Result<Option<Arc<jit::Compiled<H>>>> {
    match config.engine {
        Engine::Auto => {
            let compiled = jit::Compiled::new(checked, config.memory, Arc::clone(helpers))?;
            Ok(Some(Arc::new(compiled)))
        }
        Engine::Interpreter => Ok(None),
    }
}

impl<H: Host> Program<H> {
    /// Loads an object file as clang writes it for BPF: its global functions are the entries.
    pub fn load(elf: &[u8], helpers: Arc<Helpers<H>>, config: &Config) -> Result<Self, LoadError> {
        let room = room(config)?;
        let object = elf::load(elf, room, |name| helpers.number_of(name))?;
        Self::new(object, helpers, config)
    }

    /// Loads bare instructions. The first is the entry `main`.
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
        let functions = names.iter().map(|function| checked.function_at(function.start)).collect();
        #[cfg(all(target_arch = "x86_64", unix))]
        let compiled = compile(&checked, &helpers, config)?;
        let inner = Inner {
            checked,
            helpers,
            names,
            functions,
            image,
            memory: config.memory,
            #[cfg(all(target_arch = "x86_64", unix))]
            compiled,
        };
        Ok(Program { inner: Arc::new(inner) })
    }

    /// The entry of this name.
    pub fn entry(&self, name: &str) -> Option<Entry> {
        let names = &self.inner.names;
        let found = names.iter().position(|function| function.global && function.name == name)?;
        Some(Entry { index: found as u32 })
    }

    /// The names of the entries, in the order of their code.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        let global = self.inner.names.iter().filter(|function| function.global);
        global.map(|function| function.name.as_str())
    }

    /// Instructions, LDDW counted twice.
    pub fn instructions(&self) -> usize {
        self.inner.checked.ops.len()
    }

    /// The memory between the program's variables and its stack, which is the host's to use.
    pub fn free(&self) -> Region {
        let from = (DATA_START + self.inner.image.len()).next_multiple_of(16);
        Region::new(from as u64, (self.inner.memory - STACK).saturating_sub(from) as u64)
    }

    /// An instance: memory of its own, with the variables' first values.
    pub fn instantiate(&self) -> io::Result<Instance<H>> {
        let mut sandbox = Sandbox::new(self.inner.memory)?;
        put_image(&self.inner, &mut sandbox);
        Ok(Instance {
            program: Arc::clone(&self.inner),
            #[cfg(all(target_arch = "x86_64", unix))]
            state: self
                .inner
                .compiled
                .as_ref()
                .map(|compiled| jit::StateFor::new(Arc::clone(compiled), &sandbox)),
            sandbox,
        })
    }
}

/// Bytes that variables may take.
fn room(config: &Config) -> Result<usize, LoadError> {
    let memory = config.memory;
    if !memory.is_power_of_two() || !(16 << 10..=16 << 20).contains(&memory) {
        return Err(LoadError::Memory(memory));
    }
    Ok(memory - STACK - DATA_START)
}

fn put_image<H: Host>(program: &Inner<H>, sandbox: &mut Sandbox) {
    let image = &program.image;
    sandbox.bytes_mut()[DATA_START..DATA_START + image.len()].copy_from_slice(image);
}

fn name_at(names: &[Function], at: u32) -> Option<&str> {
    let after = names.partition_point(|function| function.start <= at);
    names.get(after.checked_sub(1)?).map(|function| function.name.as_str())
}

/// A program with memory of its own.
#[derive(Debug)]
pub struct Instance<H: Host> {
    program: Arc<Inner<H>>,
    sandbox: Sandbox,
    #[cfg(all(target_arch = "x86_64", unix))]
    state: Option<jit::StateFor<H>>,
}

impl<H: Host> Instance<H> {
    /// Calls an entry: `arguments` are in `r1` to `r5`, and what is in `r0` in the end comes back. What it costs
    /// is taken from `budget`; a call that would cost more ends when the budget does. After a trap memory is
    /// as the program left it.
    #[inline]
    pub fn call(
        &mut self,
        entry: Entry,
        arguments: [u64; 5],
        budget: &mut u64,
        data: &mut H::Data<'_>,
    ) -> Result<u64, Box<Trap>> {
        let program = &*self.program;
        let Some(&function) = program.functions.get(entry.index as usize) else {
            return Err(self.trap(0, TrapKind::NoEntry));
        };
        match budget.checked_sub(u64::from(function.end - function.start)) {
            Some(left) => *budget = left,
            None => {
                *budget = 0;
                return Err(self.trap(function.start as usize, TrapKind::Budget));
            }
        }
        #[cfg(all(target_arch = "x86_64", unix))]
        if let Some(state) = &mut self.state {
            return state
                .enter(&mut self.sandbox, function, arguments, budget, data)
                .map_err(|ended| self.trap(ended.0, ended.1));
        }
        self.interpret(function, arguments, budget, data)
    }

    #[inline(never)]
    fn interpret(
        &mut self,
        function: check::Function,
        arguments: [u64; 5],
        budget: &mut u64,
        data: &mut H::Data<'_>,
    ) -> Result<u64, Box<Trap>> {
        let Inner { checked, helpers, .. } = &*self.program;
        let memory = self.sandbox.bytes_mut();
        interpret::run(checked, helpers, function.start, arguments, memory, budget, data)
            .map_err(|ended| self.trap(ended.0, ended.1))
    }

    #[cold]
    fn trap(&self, at: usize, kind: TrapKind) -> Box<Trap> {
        let function = name_at(&self.program.names, at as u32).map(str::to_owned);
        Box::new(Trap { kind, at, function })
    }

    /// The instance's memory.
    pub fn memory(&mut self) -> Memory<'_> {
        Memory::new(self.sandbox.bytes_mut())
    }

    /// The program that it is an instance of.
    pub fn program(&self) -> Program<H> {
        Program { inner: Arc::clone(&self.program) }
    }

    /// Memory as it was when the instance was made.
    pub fn reset(&mut self) {
        self.sandbox.bytes_mut().fill(0);
        put_image(&self.program, &mut self.sandbox);
    }
}
