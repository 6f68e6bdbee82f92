//! Calls from the host into compiled code, and calls from compiled code to helpers.

#![allow(unsafe_code, reason = "calls compiled code, which calls back")]

use std::any::Any;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::code::{Compiled, Entry};
use crate::helper::{Caller, HelperHost, Helpers, Run};
use crate::interpret::End;
use crate::memory::Memory;
use crate::sandbox::Sandbox;
use crate::trap::{HelperError, TrapKind};

/// State of a running call, which compiled code shares with the host. Compiled code accesses the
/// fields for which there is a constant with the offset below. It also passes the address of the
/// state to the shims.
#[repr(C)]
#[derive(Debug)]
pub(super) struct State {
    base: *mut u8,
    budget: u64,
    /// Native stack pointer at the time when the host entered the program.
    stack: *mut u8,
    /// Index of the called helper and index of the call instruction, combined by the function
    /// `State::call`.
    call: u32,
    trap: u32,
    trap_at: u32,
    // Compiled code uses only the fields above this line.
    /// Size of the sandbox with its slack, in bytes.
    len: usize,
    /// The program's table of helpers, of type `Helpers<H>`.
    helpers: *const (),
    /// The data of the host for the current call, of type `H::Data<'_>`.
    data: *mut (),
    failed: Option<Box<HelperError>>,
    panicked: Option<Box<dyn Any + Send>>,
}

// SAFETY: `base` and `helpers` point to data that may be sent to other threads and that `Ready`
// keeps alive. The other pointers are set for each call, and are not used after the call.
unsafe impl Send for State {}
// SAFETY: a shared reference gives no access to the fields.
unsafe impl Sync for State {}

impl State {
    pub(super) const BASE: i8 = offset_of!(State, base) as i8;
    pub(super) const BUDGET: i8 = offset_of!(State, budget) as i8;
    pub(super) const STACK: i8 = offset_of!(State, stack) as i8;
    pub(super) const CALL: i8 = offset_of!(State, call) as i8;
    pub(super) const TRAP: i8 = offset_of!(State, trap) as i8;
    pub(super) const TRAP_AT: i8 = offset_of!(State, trap_at) as i8;
    pub(super) const TRAP_BUDGET: i32 = 1;
    const TRAP_HELPER: u32 = 2;

    /// Combines an instruction's index and a helper's index into one number. Both are below 2^16.
    pub(super) fn call(at: usize, helper: u32) -> u32 {
        (at as u32) << 16 | helper
    }

    fn new<H: HelperHost>(sandbox: &Sandbox, helpers: &Helpers<H>) -> State {
        State {
            base: sandbox.base().as_ptr(),
            budget: 0,
            stack: null_mut(),
            call: 0,
            trap: 0,
            trap_at: 0,
            len: sandbox.len(),
            helpers: std::ptr::from_ref(helpers).cast(),
            data: null_mut(),
            failed: None,
            panicked: None,
        }
    }
}

/// A compiled program together with its sandbox.
#[derive(Debug)]
pub(crate) struct Ready<H: HelperHost> {
    state: Box<State>,
    sandbox: Sandbox,
    /// The functions that the host can call. `compiled` owns their code.
    entries: Arc<[Entry]>,
    /// The code and the table of helpers.
    compiled: Arc<Compiled<H>>,
}

impl<H: HelperHost> Ready<H> {
    pub(crate) fn new(compiled: Arc<Compiled<H>>, sandbox: Sandbox) -> Ready<H> {
        assert!(
            compiled.memory == sandbox.size(),
            "the code must be compiled for this size of the sandbox"
        );
        let state = Box::new(State::new(&sandbox, compiled.helpers()));
        let entries = Arc::clone(&compiled.entries);
        Ready { state, sandbox, entries, compiled }
    }

    pub(crate) fn sandbox(&mut self) -> &mut Sandbox {
        &mut self.sandbox
    }

    /// Calls a function, given its index in `entries`. Takes the charge for entering it from the
    /// budget first.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        entry: u32,
        arguments: [u64; 5],
        budget: &mut u64,
        data: &mut H::Data<'_>,
    ) -> End {
        let Some(entry) = self.entries.get(entry as usize) else { return Err(no_entry()) };
        let Some(left) = budget.checked_sub(u64::from(entry.cost)) else {
            *budget = 0;
            return Err(too_dear(entry.at));
        };
        self.state.budget = left;
        self.state.data = std::ptr::from_mut(data).cast();
        let [r1, r2, r3, r4, r5] = arguments;
        // SAFETY: `compile` wrote this function for a sandbox of this size, and `self.compiled`
        // keeps it mapped. The state has the base of `self.sandbox`, which is uniquely borrowed,
        // the helpers that the code was compiled with, and `data` of the type that they expect.
        let end = unsafe { (entry.glue)(r1, r2, r3, r4, r5, &mut *self.state) };
        *budget = end.budget;
        if self.state.trap == 0 {
            Ok(end.value)
        } else {
            Err(trapped(&mut self.state, self.compiled.helpers()))
        }
    }
}

#[cold]
fn no_entry() -> Box<(usize, TrapKind)> {
    Box::new((0, TrapKind::NoEntry))
}

#[cold]
fn too_dear(at: u32) -> Box<(usize, TrapKind)> {
    Box::new((at as usize, TrapKind::Budget))
}

#[cold]
fn trapped<H: HelperHost>(state: &mut State, helpers: &Helpers<H>) -> Box<(usize, TrapKind)> {
    state.trap = 0;
    if let Some(panic) = state.panicked.take() {
        resume_unwind(panic);
    }
    let at_helper = (state.call >> 16) as usize;
    Box::new(match state.failed.take() {
        Some(error) => (at_helper, helpers.get(state.call & 0xffff).trap(*error)),
        None => (state.trap_at as usize, TrapKind::Budget),
    })
}

/// Result of a helper, which fits into two registers: the value for `r0`, and whether the program's
/// call must end.
#[repr(C)]
struct Returned {
    value: u64,
    ends: u64,
}

/// Result of a program's call, which fits into two registers: the value of `r0`, and the remaining
/// budget.
#[repr(C)]
pub(super) struct Ended {
    value: u64,
    budget: u64,
}

/// Code with which the host enters a function of the program. It takes the arguments in the
/// registers that compiled code uses for them. On all machines with a compiler, the calling
/// convention of C is the System V ABI or AAPCS64.
pub(super) type Glue = unsafe extern "C" fn(u64, u64, u64, u64, u64, *mut State) -> Ended;
/// Function through which compiled code calls a helper. It has the same calling convention as
/// [`Glue`].
type Shim = extern "C" fn(u64, u64, u64, u64, u64, *mut State) -> Returned;

/// The shims for a table of helpers, in the order of the table.
#[derive(Debug, Default)]
pub(crate) struct Shims {
    table: Vec<Shim>,
}

impl Shims {
    /// Adds the shim for a helper of type `R`.
    pub(crate) fn push<H: HelperHost, R: Run<H>>(&mut self) {
        self.table.push(shim::<H, R>);
    }

    /// Returns the address of the shim with this index.
    pub(super) fn address(&self, place: u32) -> usize {
        self.table[place as usize] as usize
    }
}

/// Runs a helper of type `R`, on behalf of compiled code.
extern "C" fn shim<H: HelperHost, R: Run<H>>(
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
    state: *mut State,
) -> Returned {
    // SAFETY: compiled code passes the state that `enter` gave it. `enter` does not access the
    // state until compiled code returns, and compiled code does not access it until this function
    // returns.
    let state = unsafe { &mut *state };
    // SAFETY: `Ready::<H>::new` set the pointer to a `Helpers<H>` that it keeps alive and that is
    // never modified.
    let helpers = unsafe { &*state.helpers.cast::<Helpers<H>>() };
    // SAFETY: `enter` with the same `H` set the pointer from a unique reference to `H::Data<'_>`,
    // which stays borrowed until `enter` returns. The pointer has no lifetime, but helpers work for
    // every lifetime of the data, so they cannot keep a reference.
    let data = unsafe { &mut *state.data.cast::<H::Data<'_>>() };
    // SAFETY: these are the bytes of the sandbox and its slack. `enter` borrows the sandbox
    // uniquely, and compiled code is waiting for this function.
    let bytes = unsafe { std::slice::from_raw_parts_mut(state.base, state.len) };
    // Most helpers have zero-sized types. For these, the table need not be read.
    let run = match size_of::<R>() {
        0 => NonNull::<R>::dangling().as_ptr().cast_const(),
        _ => std::ptr::from_ref(&*helpers.get(state.call & 0xffff).run).cast::<R>(),
    };
    // SAFETY: compiled code called the shim with the helper's index. `Helpers::add` stores a helper
    // and its shim, which is compiled for the helper's type, at the same index of both tables. A
    // zero-sized value may be at any aligned address.
    let run = unsafe { &*run };
    let mut caller = Caller { data, memory: Memory::new(bytes), budget: &mut state.budget };
    let arguments = [r1, r2, r3, r4, r5];
    // A panic cannot unwind through compiled code. So it is caught here, and resumed after the
    // compiled code has returned.
    let result = catch_unwind(AssertUnwindSafe(|| run.run(&mut caller, &arguments)));
    match result {
        Ok(Ok(value)) => return Returned { value, ends: 0 },
        Ok(Err(error)) => state.failed = Some(error),
        Err(panic) => state.panicked = Some(panic),
    }
    state.trap = State::TRAP_HELPER;
    Returned { value: 0, ends: 1 }
}
