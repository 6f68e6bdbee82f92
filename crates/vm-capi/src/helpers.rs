//! C functions for helpers. A helper is a function of the host that programs may call.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use vm::{Caller, HelperError, HelperHost, Helpers, Region};

use crate::error::*;

/// The C host, as a type parameter of the engine. Each call of a program has a pointer that its
/// helpers receive.
pub(crate) struct C;
impl HelperHost for C {
    type Data<'h> = *mut c_void;
}

/// A table of helpers, with which programs are loaded.
pub struct equic_vm_helpers {
    pub(crate) table: Mutex<Table>,
}

pub(crate) enum Table {
    Open(Helpers<C>),
    /// A program was loaded with this table, so the table can no longer change.
    Shared(Arc<Helpers<C>>),
}

/// A call of a program, while one of its helpers runs.
pub struct equic_vm_call {
    /// The `Caller` of the running helper, which lives until the helper returns.
    caller: *mut c_void,
    /// True if the helper charged more instructions than the budget had left.
    overdrawn: bool,
}

/// A helper function. `data` is the pointer that was given to `equic_vm_run`, and `own` the one
/// that was given to `equic_vm_helpers_add`. `arguments` are r1 to r5. The value in `result`
/// becomes r0 of the program. A result other than 0 ends the program's call with
/// EQUIC_VM_ERROR_HELPER. A helper must not use `call` after it has returned, must not leave by
/// longjmp, and must neither run nor release the instance that calls it.
pub type equic_vm_helper_fn = Option<
    unsafe extern "C" fn(
        call: *mut equic_vm_call,
        data: *mut c_void,
        own: *mut c_void,
        arguments: *const u64,
        result: *mut u64,
    ) -> c_int,
>;

struct Function {
    run: unsafe extern "C" fn(
        *mut equic_vm_call,
        *mut c_void,
        *mut c_void,
        *const u64,
        *mut u64,
    ) -> c_int,
    own: *mut c_void,
}

// SAFETY: equic_vm.h requires that any thread may use `run` and `own`.
unsafe impl Send for Function {}
// SAFETY: equic_vm.h requires that any thread may use `run` and `own`.
unsafe impl Sync for Function {}

impl Function {
    fn run(
        &self,
        caller: &mut Caller<'_, *mut c_void>,
        arguments: [u64; 5],
    ) -> std::result::Result<u64, HelperError> {
        let (mut value, data) = (0, *caller.data);
        let mut call =
            equic_vm_call { caller: std::ptr::from_mut(caller).cast(), overdrawn: false };
        // SAFETY: equic_vm.h requires a function of this type. All pointers live until it returns.
        let code = unsafe { (self.run)(&mut call, data, self.own, arguments.as_ptr(), &mut value) };
        match code {
            _ if call.overdrawn => Err(HelperError::Budget),
            0 => Ok(value),
            code => Err(HelperError::failed(format!("it returned {code}"))),
        }
    }
}

/// Creates a table without helpers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_helpers_new(
    helpers: *mut *mut equic_vm_helpers,
) -> equic_vm_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let helpers = unsafe { result(helpers, "helpers") }?;
        let table = Mutex::new(Table::Open(Helpers::new()));
        *helpers = Box::into_raw(Box::new(equic_vm_helpers { table }));
        Ok(())
    })
}

/// Adds a helper. Programs call it by `number`, or by `name` as an extern function. Each call takes `cost` from the
/// budget before it runs. If its work grows with its arguments, the helper must charge more with `equic_vm_charge`.
/// `function` is called with `own`, from every thread that runs programs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_helpers_add(
    helpers: *mut equic_vm_helpers,
    number: u32,
    name: *const c_char,
    cost: u32,
    function: equic_vm_helper_fn,
    own: *mut c_void,
) -> equic_vm_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic_vm.h.
        let (helpers, name) = unsafe { (handle(helpers, "helpers")?, text(name, "name")?) };
        let function = Function { run: function.ok_or_else(|| invalid("function is NULL"))?, own };
        let mut table = helpers.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table::Open(open) = &mut *table else {
            let message =
                "a program was already loaded with these helpers: add all helpers before loading";
            return Err(Failure(EQUIC_VM_ERROR_HELPER_TABLE, message.to_owned()));
        };
        let run =
            move |caller: &mut Caller<'_, *mut c_void>, a: u64, b: u64, c: u64, d: u64, e: u64| {
                function.run(caller, [a, b, c, d, e])
            };
        let added = open.add(number, name, cost, run);
        added.map(drop).map_err(|error| Failure(EQUIC_VM_ERROR_HELPER_TABLE, error.to_string()))
    })
}

/// Releases a table. Programs that were loaded with it keep their helpers. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_helpers_free(helpers: *mut equic_vm_helpers) {
    if !helpers.is_null() {
        // SAFETY: `Box::into_raw` in `equic_vm_helpers_new` created the handle, and the caller
        // releases it only once.
        drop(unsafe { Box::from_raw(helpers) });
    }
}

/// For helpers: returns `length` bytes of the program's memory at `offset`. The helper passes both
/// as the program gave them. Returns NULL if the range is not within the memory. The pointer is
/// valid until the helper returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_call_memory(
    call: *mut equic_vm_call,
    offset: u64,
    length: u64,
) -> *mut u8 {
    // SAFETY: equic_vm.h requires the `call` argument of the running helper.
    let Some(call) = (unsafe { call.as_ref() }) else { return std::ptr::null_mut() };
    // SAFETY: `Function::run` created it from a `Caller`, which lives until the helper returns.
    let caller = unsafe { &mut *call.caller.cast::<Caller<'_, *mut c_void>>() };
    match caller.memory.write(Region::new(offset, length)) {
        Ok(bytes) => bytes.as_mut_ptr(),
        Err(_) => std::ptr::null_mut(),
    }
}

/// For helpers: takes more instructions from the budget, before doing the work. Returns 0, or
/// another value if the budget is too small. The helper must then return, and the program's call
/// ends with EQUIC_VM_ERROR_BUDGET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_vm_charge(call: *mut equic_vm_call, cost: u64) -> c_int {
    // SAFETY: equic_vm.h requires the `call` argument of the running helper.
    let Some(call) = (unsafe { call.as_mut() }) else { return 1 };
    // SAFETY: `Function::run` created it from a `Caller`, which lives until the helper returns.
    let caller = unsafe { &mut *call.caller.cast::<Caller<'_, *mut c_void>>() };
    call.overdrawn |= caller.charge(cost).is_err();
    c_int::from(call.overdrawn)
}

/// Reads a string argument. Fails if it is NULL or not UTF-8.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid(&format!("{name} is NULL")));
    }
    // SAFETY: equic_vm.h requires NUL-terminated text.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(&format!("{name} is not UTF-8")))
}
