//! C functions for instances of programs. Each instance has its own memory.

use std::ffi::c_void;

use vm::{Entry, Instance, Region, TrapKind};

use crate::error::*;
use crate::helpers::C;
use crate::program::equic_vm_program;

/// An instance of a program, with its own memory.
pub struct equic_vm_instance {
    instance: Instance<C>,
    entries: Vec<Entry>,
}

/// Creates an instance, with the initial values of its variables. Only one thread at a time may use
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_instance_new(
    program: *const equic_vm_program,
    instance: *mut *mut equic_vm_instance,
) -> equic_vm_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let (program, place) =
            unsafe { (handle(program, "program")?, result(instance, "instance")?) };
        let made = program.program.instantiate();
        let instance = made.map_err(|error| Failure(EQUIC_VM_ERROR_SYSTEM, error.to_string()))?;
        let entries = program.entries.clone();
        *place = Box::into_raw(Box::new(equic_vm_instance { instance, entries }));
        Ok(())
    })
}

/// Releases an instance. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_instance_free(instance: *mut equic_vm_instance) {
    if !instance.is_null() {
        // SAFETY: `Box::into_raw` in `equic_vm_instance_new` created the handle, and the caller
        // releases it only once.
        drop(unsafe { Box::from_raw(instance) });
    }
}

/// Returns `length` bytes of the instance's memory at `offset`, or NULL if the range is not within
/// the memory. The pointer is valid until the instance is released. The program writes to the
/// memory while it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_instance_memory(
    instance: *mut equic_vm_instance,
    offset: u64,
    length: u64,
) -> *mut u8 {
    // SAFETY: the caller follows the pointer rules in equic_vm.h.
    let Some(instance) = (unsafe { instance.as_mut() }) else { return std::ptr::null_mut() };
    match instance.instance.memory().write(Region::new(offset, length)) {
        Ok(bytes) => bytes.as_mut_ptr(),
        Err(_) => std::ptr::null_mut(),
    }
}

/// Resets the instance's memory to its initial state. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_instance_reset(instance: *mut equic_vm_instance) {
    // SAFETY: the caller follows the pointer rules in equic_vm.h.
    if let Some(instance) = unsafe { instance.as_mut() } {
        instance.instance.reset();
    }
}

/// Runs a function. `arguments` are five words, r1 to r5, or NULL for zeros. The cost in
/// instructions is taken from `budget`. A call that costs more ends with EQUIC_VM_ERROR_BUDGET and
/// a budget of 0. Helpers receive `data`. The function's value is written to `result`, which may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_run(
    instance: *mut equic_vm_instance,
    entry: u32,
    arguments: *const u64,
    budget: *mut u64,
    data: *mut c_void,
    result: *mut u64,
) -> equic_vm_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let (instance, budget) = unsafe {
            (crate::error::result(instance, "instance")?, crate::error::result(budget, "budget")?)
        };
        let Some(entry) = instance.entries.get(entry as usize) else {
            let message =
                "the program has no such entry: pass a number that equic_vm_program_entry returned";
            return Err(Failure(EQUIC_VM_ERROR_NO_ENTRY, message.to_owned()));
        };
        // SAFETY: equic_vm.h requires five words, or NULL.
        let arguments =
            unsafe { arguments.cast::<[u64; 5]>().as_ref() }.copied().unwrap_or_default();
        let mut data = data;
        let ended = instance.instance.call(*entry, arguments, budget, &mut data);
        let value = ended.map_err(|trap| {
            let code = match trap.kind {
                TrapKind::Budget => EQUIC_VM_ERROR_BUDGET,
                TrapKind::Helper { .. } => EQUIC_VM_ERROR_HELPER,
                _ => EQUIC_VM_ERROR_INTERNAL,
            };
            Failure(code, trap.to_string())
        })?;
        // SAFETY: equic_vm.h requires a valid location for the result, or NULL.
        if let Some(result) = unsafe { result.as_mut() } {
            *result = value;
        }
        Ok(())
    })
}
