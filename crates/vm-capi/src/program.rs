//! C functions for programs. A program is loaded once and shared by its instances.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, PoisonError};

use vm::{Config, Engine, Entry, LoadError, Program};

use crate::error::*;
use crate::helpers::{C, Table, equic_vm_helpers, text};

/// A loaded program.
pub struct equic_vm_program {
    pub(crate) program: Program<C>,
    pub(crate) entries: Vec<Entry>,
}

/// Loads an object file that clang compiled for BPF, with these helpers. Instances have `memory` bytes, a power of two
/// from 16 KiB to 16 MiB, or 0 for 64 KiB. The file may come from an untrusted source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_program_load(
    helpers: *mut equic_vm_helpers,
    elf: *const c_void,
    length: usize,
    memory: usize,
    interpreted: c_int,
    program: *mut *mut equic_vm_program,
) -> equic_vm_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let (helpers, place) =
            unsafe { (handle(helpers, "helpers")?, result(program, "program")?) };
        if elf.is_null() || isize::try_from(length).is_err() {
            return Err(invalid("elf is NULL, or the length is too large"));
        }
        // SAFETY: the pointer is not NULL, and equic_vm.h requires this many readable bytes.
        let elf = unsafe { std::slice::from_raw_parts(elf.cast::<u8>(), length) };
        let mut config = Config::default();
        if memory != 0 {
            config.memory = memory;
        }
        if interpreted != 0 {
            config.engine = Engine::Interpreter;
        }
        let mut table = helpers.table.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match std::mem::replace(&mut *table, Table::Open(Default::default())) {
            Table::Open(open) => Arc::new(open),
            Table::Shared(shared) => shared,
        };
        *table = Table::Shared(Arc::clone(&shared));
        drop(table);
        let program = Program::load(elf, shared, &config).map_err(|error| {
            let code = match error {
                LoadError::Memory(_) => EQUIC_VM_ERROR_INVALID_ARGUMENT,
                LoadError::System(_) => EQUIC_VM_ERROR_SYSTEM,
                _ => EQUIC_VM_ERROR_REFUSED,
            };
            Failure(code, error.to_string())
        })?;
        let entries = program.entries().filter_map(|name| program.entry(name)).collect();
        *place = Box::into_raw(Box::new(equic_vm_program { program, entries }));
        Ok(())
    })
}

/// Releases a program. Its instances can still run. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_program_free(program: *mut equic_vm_program) {
    if !program.is_null() {
        // SAFETY: `Box::into_raw` in `equic_vm_program_load` created the handle, and the caller
        // releases it only once.
        drop(unsafe { Box::from_raw(program) });
    }
}

/// Returns the number of the global function with this name, for `equic_vm_run` of the program's instances.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_program_entry(
    program: *const equic_vm_program,
    name: *const c_char,
    entry: *mut u32,
) -> equic_vm_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let (program, name) = unsafe { (handle(program, "program")?, text(name, "name")?) };
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let place = unsafe { result(entry, "entry") }?;
        let found = program.program.entries().position(|entry| entry == name).ok_or_else(|| {
            let message = format!("the program has no global function {name}");
            Failure(EQUIC_VM_ERROR_NO_ENTRY, message)
        })?;
        *place = found as u32;
        Ok(())
    })
}

/// Returns the part of the program's memory that the host may use: `length` bytes from `offset`. Both are 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_program_free_memory(
    program: *const equic_vm_program,
    offset: *mut u64,
    length: *mut u64,
) {
    // SAFETY: the caller follows the pointer rules in equic_vm.h.
    let free = unsafe { program.as_ref() }.map(|program| program.program.free());
    let (from, bytes) = free.map_or((0, 0), |free| (free.offset, free.len));
    // SAFETY: equic_vm.h requires a valid location for the result, or NULL.
    if let Some(offset) = unsafe { offset.as_mut() } {
        *offset = from;
    }
    // SAFETY: equic_vm.h requires a valid location for the result, or NULL.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = bytes;
    }
}

/// Returns 1 if calls run compiled code, or 0 if they are interpreted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_program_is_compiled(program: *const equic_vm_program) -> c_int {
    // SAFETY: the caller follows the pointer rules in equic_vm.h.
    c_int::from(unsafe { program.as_ref() }.is_some_and(|program| program.program.is_compiled()))
}
