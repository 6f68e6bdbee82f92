//! User-space eBPF that is safe against hostile bytecode.
//!
//! A program is C compiled by clang (`-target bpf`), or any RFC 9669 bytecode, from any source. The
//! host loads it ([`Program::load`]: ELF, structural check, compilation), instantiates it for each
//! user ([`Program::instantiate`]: own memory), and calls it ([`Instance::call`]) with a budget.
//! With any bytecode, the program accesses only its own memory, ends within its budget, and reaches
//! the host only through the [`Helpers`] it was loaded with. `docs/vm.md` explains why.
//!
//! ```
//! use std::sync::Arc;
//! use equic_vm::{Caller, Config, Helpers, HelperHost, Program, Region};
//!
//! struct Log;
//! impl HelperHost for Log {
//!     type Data<'h> = &'h mut Vec<String>;
//! }
//!
//! let mut helpers = Helpers::<Log>::new();
//! helpers.add(1, "log", 10, |caller: &mut Caller<'_, &mut Vec<String>>, text: Region| {
//!     let text = String::from_utf8_lossy(caller.memory.read(text)?).into_owned();
//!     caller.data.push(text);
//!     Ok(0)
//! })?;
//!
//! // r1 = 64, r2 = 2, log(r1, r2), exit
//! let code = [
//!     0xb7, 1, 0, 0, 64, 0, 0, 0, 0xb7, 2, 0, 0, 2, 0, 0, 0,
//!     0x85, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0,
//! ];
//! let program = Program::from_code(&code, Arc::new(helpers), &Config::default())?;
//! let main = program.entry("main").expect("code without names is called main");
//! let mut instance = program.instantiate()?;
//! instance.memory().write(Region::new(64, 2))?.copy_from_slice(b"hi");
//! let (mut budget, mut lines) = (1_000, Vec::new());
//! instance.call(main, [0; 5], &mut budget, &mut &mut lines)?;
//! assert_eq!(lines, ["hi"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To read the code, start at `program`. `op` and `decode` define the instructions, `check` the
//! rules for programs, and `interpret` the semantics. `jit` is the compiler, and `elf` the loader.
//! `sandbox` and `memory` are the program's memory. `cache` keeps loaded programs.

#![deny(unsafe_code)]

mod cache;
mod check;
mod decode;
mod elf;
mod helper;
mod interpret;
#[cfg(any(
    all(target_arch = "x86_64", target_pointer_width = "64", unix, not(target_os = "cygwin")),
    all(
        target_arch = "aarch64",
        target_pointer_width = "64",
        target_endian = "little",
        target_os = "linux"
    ),
))]
mod jit;
#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64", unix, not(target_os = "cygwin")),
    all(
        target_arch = "aarch64",
        target_pointer_width = "64",
        target_endian = "little",
        target_os = "linux"
    ),
)))]
#[path = "jit/none.rs"]
mod jit;
mod memory;
mod op;
mod program;
mod sandbox;
mod trap;

pub use cache::Cache;
pub use check::{CheckError, MAX_CALL_DEPTH, MAX_INSTRUCTIONS, Wrong};
pub use elf::ElfError;
pub use helper::{Argument, Caller, HelperFn, HelperHost, Helpers, RegisterError};
pub use memory::{DATA_START, Memory, Region, STACK, STACK_FRAME};
pub use program::{Config, Engine, Entry, Instance, LoadError, Program};
pub use sandbox::MAX_INSTANCES;
pub use trap::{HelperError, Trap, TrapKind};
