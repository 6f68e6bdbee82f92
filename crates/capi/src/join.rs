//! C functions that join a gateway of another process, and their options.

use std::ffi::{c_char, c_int};
use std::mem::size_of;
use std::sync::{Arc, Mutex};

use ::equic_gateway::{Control, JoinOptions, Ledger, TokenCheck};

use crate::arguments::{give, optional_text, text};
use crate::error::{Failure, Result, boundary, equic_error};
use crate::gateway::{Inner, Kind, equic_gateway};
use crate::versioned::{self, Versioned};

/// The keys with which a server checks the tokens of a gateway's Retry packets
/// (`equic_retry_verify`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_token_check {
    /// The server does not check tokens.
    EQUIC_TOKEN_CHECK_NONE = 0,
    /// The server checks tokens with the gateway's key ring (`equic_gateway_ring`).
    EQUIC_TOKEN_CHECK_GATEWAY_KEYS = 1,
    /// The server checks tokens with a ring from another source, for example a file.
    EQUIC_TOKEN_CHECK_OWN_KEYS = 2,
}

/// Options of `equic_gateway_join` and `equic_gateway_connect`. The gateway refuses to enable Retry
/// or check_ids while a server has joined that does not support it, because clients of that server
/// could not connect.
///
/// Call `equic_join_options_init` first. It sets the defaults, and `size`, so that programs built
/// with an older header keep working.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct equic_join_options {
    /// sizeof(equic_join_options) of the caller.
    pub size: usize,
    /// An enum equic_token_check. The default is EQUIC_TOKEN_CHECK_NONE.
    pub token_check: c_int,
    /// If not 0, the server creates all its connection IDs with the gateway's key ring
    /// (`equic_gateway_ids`), and the gateway may check them (check_ids). The default is 0.
    pub issue_ids: c_int,
}

// SAFETY: the structure is `repr(C)` and begins with `size`. All fields are integers.
unsafe impl Versioned for equic_join_options {
    const INIT: &'static str = "equic_join_options_init";
    const FIRST_SIZE: usize = size_of::<equic_join_options>();

    fn defaults(size: usize) -> equic_join_options {
        equic_join_options {
            size,
            token_check: equic_token_check::EQUIC_TOKEN_CHECK_NONE as c_int,
            issue_ids: 0,
        }
    }
}

/// Sets the defaults. `size` must be sizeof(equic_join_options).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_join_options_init(
    options: *mut equic_join_options,
    size: usize,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h.
    boundary(|| unsafe { versioned::init(options, size) })
}

/// Joins a gateway of another process, to report the connections of this process. The quota applies
/// to the sum over all processes. `selector` is an interface, the gateway's name or the ID of its
/// program. With NULL, there must be exactly one gateway. `name` identifies this process in
/// `equic gateway status`. With NULL, the process ID is used. `options` may be NULL for the defaults.
/// Needs CAP_SYS_ADMIN to find the gateway. Reporting needs no capabilities.
///
/// When the gateway ends, the library joins the next one automatically, and reports all open
/// connections to it. Services and connections stay valid. The library finds the next gateway by
/// `selector` if that is an interface or a name, otherwise by the name and interface of the first
/// gateway. Finding it needs CAP_SYS_ADMIN again, so a program that drops this capability should
/// join through a socket. `equic_gateway_notify` reports these events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_join(
    selector: *const c_char,
    name: *const c_char,
    options: *const equic_join_options,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h, here and below.
    unsafe {
        joined(gateway, name, options, |options| {
            // SAFETY: the caller follows the pointer rules in equic.h.
            let control = Control::open(optional_text(selector, "selector")?)?;
            let ledger = control.join(options)?;
            Ok(Kind::Joined(Mutex::new(control), ledger))
        })
    }
}

/// Joins the gateway at a Unix socket (`equic gateway run --socket PATH`), to report the
/// connections of this process. Needs no privileges. When the gateway ends, the library joins the
/// next one at the same path automatically, and reports all open connections to it. Services and
/// connections stay valid. Settings, lists and counters are not available (EQUIC_ERROR_NOT_OWNER).
/// `name` and `options` are as for `equic_gateway_join`. The gateway gives its key ring only to users
/// who may serve all its services. Other users join without it, and `equic_gateway_ring` and
/// `equic_gateway_ids` fail.
///
/// Returns EQUIC_ERROR_NO_GATEWAY if no gateway listens at the path. Returns EQUIC_ERROR_REFUSED or
/// EQUIC_ERROR_FULL, with the gateway's reason, if the gateway rejects this process. On failure,
/// *gateway is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_connect(
    path: *const c_char,
    name: *const c_char,
    options: *const equic_join_options,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h, here and below.
    unsafe {
        joined(gateway, name, options, |options| {
            // SAFETY: the caller follows the pointer rules in equic.h.
            Ok(Kind::Connected(Ledger::connect(text(path, "path")?, options)?))
        })
    }
}

/// Joins a gateway of another process by calling `join`, and writes its handle to `gateway`.
///
/// # Safety
/// `gateway` must be NULL or valid for a write, `name` must be NULL or a C string, and `options` must
/// be NULL or point to options.
unsafe fn joined(
    gateway: *mut *mut equic_gateway,
    name: *const c_char,
    options: *const equic_join_options,
    join: impl FnOnce(JoinOptions) -> Result<Kind>,
) -> equic_error {
    boundary(|| {
        if gateway.is_null() {
            return Err(Failure::argument("`gateway` is NULL"));
        }
        // SAFETY: the pointer is not NULL, and the caller upholds the `# Safety` section of this
        // function, here and below.
        unsafe { gateway.write(std::ptr::null_mut()) };
        // SAFETY: the caller upholds the `# Safety` section of this function.
        let name = unsafe { optional_text(name, "name") }?;
        let name = name.map_or_else(|| std::process::id().to_string(), str::to_owned);
        // SAFETY: the caller upholds the `# Safety` section of this function.
        let options = unsafe { to_options(name, options) }?;
        let inner = Inner::feeding(join(options)?);
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(gateway, Box::into_raw(Box::new(equic_gateway { inner: Arc::new(inner) }))) };
        Ok(())
    })
}

/// Converts the caller's options.
///
/// # Safety
/// `options` must be NULL or point to options.
unsafe fn to_options(name: String, options: *const equic_join_options) -> Result<JoinOptions> {
    let made = JoinOptions::new(name);
    if options.is_null() {
        return Ok(made);
    }
    // SAFETY: the caller upholds the `# Safety` section of this function.
    let options = unsafe { versioned::read(options) }?;
    Ok(made.token_check(token_check(options.token_check)?).issue_ids(options.issue_ids != 0))
}

/// Returns the `TokenCheck` that a number of the C enum `equic_token_check` stands for.
fn token_check(number: c_int) -> Result<TokenCheck> {
    use equic_token_check::*;
    [
        (EQUIC_TOKEN_CHECK_NONE, TokenCheck::None),
        (EQUIC_TOKEN_CHECK_GATEWAY_KEYS, TokenCheck::GatewayKeys),
        (EQUIC_TOKEN_CHECK_OWN_KEYS, TokenCheck::OwnKeys),
    ]
    .into_iter()
    .find(|(code, _)| *code as c_int == number)
    .map(|(_, check)| check)
    .ok_or_else(|| Failure::argument(format!("no enum equic_token_check has the number {number}")))
}
