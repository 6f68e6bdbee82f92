//! Into compiled code and, for helpers, back out of it.

#![allow(unsafe_code, reason = "calling compiled code, and being called by it")]

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

/// State of a call that compiled code shares: it reads and writes the fields whose offsets are below, and passes
/// the state's address to shims.
#[repr(C)]
#[derive(Debug)]
pub(super) struct State {
    base: *mut u8,
    budget: u64,
    /// Native stack pointer at the moment the program was entered.
    stack: *mut u8,
    /// Number of the helper called and the place of the call: `State::call`.
    call: u32,
    trap: u32,
    trap_at: u32,
    // From here on Rust's alone.
    /// Bytes of the sandbox and its slack.
    len: usize,
    /// The program's `Helpers<H>`.
    helpers: *const (),
    /// `H::Data<'_>` of the call under way.
    data: *mut (),
    failed: Option<Box<HelperError>>,
    panicked: Option<Box<dyn Any + Send>>,
}

// SAFETY: `base` and `helpers` point to what may go to other threads and `Ready` keeps alive; the
// other pointers are set for each call, and mean nothing after it.
unsafe impl Send for State {}
// SAFETY: a shared reference gives access to nothing.
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

    /// An instruction's index and a helper's place, both below 2^16.
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

/// A compiled program and its sandbox.
#[derive(Debug)]
pub(crate) struct Ready<H: HelperHost> {
    state: Box<State>,
    sandbox: Sandbox,
    /// Those of `compiled`, which keeps their code.
    entries: Arc<[Entry]>,
    /// Keeps the code and the helpers.
    compiled: Arc<Compiled<H>>,
}

impl<H: HelperHost> Ready<H> {
    pub(crate) fn new(compiled: Arc<Compiled<H>>, sandbox: Sandbox) -> Ready<H> {
        assert!(compiled.memory == sandbox.size(), "code for a sandbox of this size");
        let state = Box::new(State::new(&sandbox, compiled.helpers()));
        let entries = Arc::clone(&compiled.entries);
        Ready { state, sandbox, entries, compiled }
    }

    pub(crate) fn sandbox(&mut self) -> &mut Sandbox {
        &mut self.sandbox
    }

    /// Calls an entry by its place. What it costs is taken from the budget first.
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
        // SAFETY: `compile` wrote this function, for a sandbox of this size, and `self.compiled` keeps it mapped.
        // The state has the base of `self.sandbox`, which is borrowed uniquely, the helpers that the code was
        // compiled with, and `data`, of the type that they expect.
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

/// Result of a helper, in two registers: `r0`, and whether the call of the program ends here.
#[repr(C)]
struct Returned {
    value: u64,
    ends: u64,
}

/// Result of a call of the program, in the same registers: `r0`, and what is left of the budget.
#[repr(C)]
pub(super) struct Ended {
    value: u64,
    budget: u64,
}

/// The beginning of compiled code: the arguments are where the program wants them. On the machines that there is a
/// compiler for, C's calling convention is the System V ABI or AAPCS64.
pub(super) type Glue = unsafe extern "C" fn(u64, u64, u64, u64, u64, *mut State) -> Ended;
/// Function by which compiled code calls a helper: of the same calling convention.
type Shim = extern "C" fn(u64, u64, u64, u64, u64, *mut State) -> Returned;

/// A shim for each helper of a table, in its order.
#[derive(Debug, Default)]
pub(crate) struct Shims {
    table: Vec<Shim>,
}

impl Shims {
    /// Adds the one of a helper of type `R`.
    pub(crate) fn push<H: HelperHost, R: Run<H>>(&mut self) {
        self.table.push(shim::<H, R>);
    }

    /// Address of the code that calls the helper in this place.
    pub(super) fn address(&self, place: u32) -> usize {
        self.table[place as usize] as usize
    }
}

/// Called by compiled code for a helper of type `R`.
extern "C" fn shim<H: HelperHost, R: Run<H>>(
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
    state: *mut State,
) -> Returned {
    // SAFETY: compiled code passes the state that `enter` gave it. `enter` does not touch it before compiled
    // code has returned, and compiled code not before this function has.
    let state = unsafe { &mut *state };
    // SAFETY: `Ready::<H>::new` set it from the `Helpers<H>` that it keeps, and nobody changes.
    let helpers = unsafe { &*state.helpers.cast::<Helpers<H>>() };
    // SAFETY: `enter` of the same `H` set it from a unique reference to `H::Data<'_>`, borrowed until it returns. The
    // lifetime is lost on the way; helpers are generic over it, so none can tell, or keep anything by it.
    let data = unsafe { &mut *state.data.cast::<H::Data<'_>>() };
    // SAFETY: the sandbox's bytes and slack; `enter` has the sandbox borrowed uniquely, and compiled code waits.
    let bytes = unsafe { std::slice::from_raw_parts_mut(state.base, state.len) };
    // Most helpers have nothing but their type, and need not be looked for.
    let run = match size_of::<R>() {
        0 => NonNull::<R>::dangling().as_ptr().cast_const(),
        _ => std::ptr::from_ref(&*helpers.get(state.call & 0xffff).run).cast::<R>(),
    };
    // SAFETY: compiled code called the shim in the helper's place of the table, and `Helpers::add` puts a helper
    // and its shim, which knows its type, into the same place of both. A value without bytes is at any address that is
    // aligned.
    let run = unsafe { &*run };
    let mut caller = Caller { data, memory: Memory::new(bytes), budget: &mut state.budget };
    let arguments = [r1, r2, r3, r4, r5];
    // Compiled code cannot be unwound through: a panic waits until it has returned.
    let result = catch_unwind(AssertUnwindSafe(|| run.run(&mut caller, &arguments)));
    match result {
        Ok(Ok(value)) => return Returned { value, ends: 0 },
        Ok(Err(error)) => state.failed = Some(error),
        Err(panic) => state.panicked = Some(panic),
    }
    state.trap = State::TRAP_HELPER;
    Returned { value: 0, ends: 1 }
}
