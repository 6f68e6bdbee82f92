//! Into compiled code and, for helpers, back out of it.

#![allow(unsafe_code, reason = "calling compiled code, and being called by it")]

use std::any::Any;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::code::Compiled;
use crate::check::Function;
use crate::helper::{Caller, Helpers, Host, Run};
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
    /// The code of the function that is called.
    function: *const u8,
    /// Native stack pointer at the moment the program was entered.
    stack: *mut u8,
    /// Table of the program's helpers.
    shims: *const Shim,
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

// SAFETY: `base`, `shims` and `helpers` point to what may go to other threads and `StateFor` keeps alive; the
// other pointers are set for each call, and mean nothing after it.
unsafe impl Send for State {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for State {}

impl State {
    pub(super) const BASE: i8 = offset_of!(State, base) as i8;
    pub(super) const BUDGET: i8 = offset_of!(State, budget) as i8;
    pub(super) const FUNCTION: i8 = offset_of!(State, function) as i8;
    pub(super) const STACK: i8 = offset_of!(State, stack) as i8;
    pub(super) const SHIMS: i8 = offset_of!(State, shims) as i8;
    pub(super) const CALL: i8 = offset_of!(State, call) as i8;
    pub(super) const TRAP: i8 = offset_of!(State, trap) as i8;
    pub(super) const TRAP_AT: i8 = offset_of!(State, trap_at) as i8;
    pub(super) const TRAP_BUDGET: i32 = 1;
    const TRAP_HELPER: u32 = 2;

    /// An instruction's index and a helper's place, both below 2^16.
    pub(super) fn call(at: usize, helper: u32) -> u32 {
        (at as u32) << 16 | helper
    }

    fn new<H: Host>(sandbox: &Sandbox, helpers: &Helpers<H>) -> State {
        State {
            base: sandbox.base().as_ptr(),
            budget: 0,
            function: null(),
            stack: null_mut(),
            shims: helpers.shims.table.as_ptr(),
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

/// The state of a program in its sandbox.
#[derive(Debug)]
pub(crate) struct StateFor<H: Host> {
    state: Box<State>,
    /// Keeps the code and the helpers.
    compiled: Arc<Compiled<H>>,
}

impl<H: Host> StateFor<H> {
    pub(crate) fn new(compiled: Arc<Compiled<H>>, sandbox: &Sandbox) -> StateFor<H> {
        assert!(compiled.memory == sandbox.size(), "code for a sandbox of this size");
        let state = Box::new(State::new(sandbox, compiled.helpers()));
        StateFor { state, compiled }
    }

    /// Calls a function of the program, whose own cost is paid, and writes what is left of the budget back.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        sandbox: &mut Sandbox,
        function: Function,
        arguments: [u64; 5],
        budget: &mut u64,
        data: &mut H::Data<'_>,
    ) -> End {
        let state = &mut *self.state;
        assert!(state.base == sandbox.base().as_ptr(), "the sandbox that the state was made for");
        let (glue, function) = self.compiled.addresses(function);
        state.budget = *budget;
        state.function = function;
        state.data = std::ptr::from_mut(data).cast();
        let state: *mut State = state;
        // SAFETY: `glue` is the address of a function of this type that `compile` wrote, in memory that is
        // executable and stays so while `self.compiled` is there.
        let run: Glue = unsafe { std::mem::transmute(glue) };
        let [r1, r2, r3, r4, r5] = arguments;
        let value = run(r1, r2, r3, r4, r5, state);
        // SAFETY: compiled code has returned, so nothing else uses the state that was borrowed for this call.
        let state = unsafe { &mut *state };
        *budget = state.budget;
        if state.trap == 0 { Ok(value) } else { Err(trapped(state, self.compiled.helpers())) }
    }
}

#[cold]
fn trapped<H: Host>(state: &mut State, helpers: &Helpers<H>) -> Box<(usize, TrapKind)> {
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

/// Result of a helper, in rax and rdx: `r0`, and whether the call of the program ends here.
#[repr(C)]
struct Returned {
    value: u64,
    ends: u64,
}

/// The beginning of compiled code: the arguments are where the program wants them.
type Glue = extern "sysv64" fn(u64, u64, u64, u64, u64, *mut State) -> u64;
/// Function by which compiled code calls a helper: of the same calling convention.
type Shim = extern "sysv64" fn(u64, u64, u64, u64, u64, *mut State) -> Returned;

/// A shim for each helper of a table, in its order.
#[derive(Debug, Default)]
pub(crate) struct Shims {
    table: Vec<Shim>,
}

impl Shims {
    /// Adds the one of a helper of type `R`.
    pub(crate) fn push<H: Host, R: Run<H>>(&mut self) {
        self.table.push(shim::<H, R>);
    }
}

/// Called by compiled code for a helper of type `R`.
extern "sysv64" fn shim<H: Host, R: Run<H>>(
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
    // SAFETY: `StateFor::<H>::new` set it from the `Helpers<H>` that it keeps, and nobody changes.
    let helpers = unsafe { &*state.helpers.cast::<Helpers<H>>() };
    // SAFETY: `enter` of the same `H` set it from a unique reference to `H::Data<'_>`, borrowed until it returns. The
    // lifetime is lost on the way; helpers are generic over it, so none can tell, or keep anything by it.
    let data = unsafe { &mut *state.data.cast::<H::Data<'_>>() };
    // SAFETY: the sandbox's bytes and slack; `enter` has the sandbox borrowed uniquely, and compiled code waits.
    let bytes = unsafe { std::slice::from_raw_parts_mut(state.base, state.len) };
    let run = std::ptr::from_ref(&*helpers.get(state.call & 0xffff).run).cast::<R>();
    // SAFETY: compiled code called the shim in the helper's place of the table, and `Helpers::add` puts a helper
    // and its shim, which knows its type, into the same place of both.
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
