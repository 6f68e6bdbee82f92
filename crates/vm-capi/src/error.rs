//! Error codes, the last error message of each thread, and the function that keeps panics from
//! unwinding into C.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a function. `equic_vm_last_error_message` returns the details: what failed, why, and what to do. New codes
/// are added at the end, and no code is ever removed.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_vm_error {
    /// The call succeeded.
    EQUIC_VM_OK = 0,
    /// A pointer is NULL, a string is not UTF-8, or a number is out of range.
    EQUIC_VM_ERROR_INVALID_ARGUMENT = 1,
    /// The helper cannot be added: its number or name is in use, or a program was already loaded with this table.
    EQUIC_VM_ERROR_HELPER_TABLE = 2,
    /// The object or its code was refused.
    EQUIC_VM_ERROR_REFUSED = 3,
    /// The program has no such entry.
    EQUIC_VM_ERROR_NO_ENTRY = 4,
    /// The call used up its budget.
    EQUIC_VM_ERROR_BUDGET = 5,
    /// A helper ended the call.
    EQUIC_VM_ERROR_HELPER = 6,
    /// The system has no memory left.
    EQUIC_VM_ERROR_SYSTEM = 7,
    /// A fault of this library. Please report it.
    EQUIC_VM_ERROR_INTERNAL = 8,
}

pub(crate) use equic_vm_error::*;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Error of a function of this library: its code and its message.
pub(crate) struct Failure(pub(crate) equic_vm_error, pub(crate) String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

pub(crate) fn invalid(what: &str) -> Failure {
    Failure(EQUIC_VM_ERROR_INVALID_ARGUMENT, what.to_owned())
}

/// Runs the body of a C function. An error becomes its code, and sets the thread's last error
/// message.
pub(crate) fn boundary(run: impl FnOnce() -> Result<()>) -> equic_vm_error {
    let Failure(code, message) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => return EQUIC_VM_OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(EQUIC_VM_ERROR_INTERNAL, "an internal error of this library".to_owned()),
    };
    let bytes: Vec<u8> = message.bytes().filter(|byte| *byte != 0).collect();
    let message = CString::new(bytes).unwrap_or_default();
    // If the thread is ending, its message can no longer be stored.
    let _ = MESSAGE.try_with(|last| *last.borrow_mut() = message);
    code
}

/// Returns the message of this thread's last error. It is never NULL, and valid until the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn equic_vm_last_error_message() -> *const c_char {
    MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns a reference to the location to which a C function writes a result. Fails if the pointer
/// is NULL.
pub(crate) unsafe fn result<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: equic_vm.h requires a valid pointer of this type, or NULL.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid(&format!("{name} is NULL")))
}

/// Returns a reference to the handle that a C program passed. Fails if the pointer is NULL.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: equic_vm.h requires a handle that was not released yet, or NULL.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(&format!("{name} is NULL")))
}
