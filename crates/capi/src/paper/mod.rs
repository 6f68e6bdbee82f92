//! The API of the eQUIC paper: the type `equic_t`, and the functions of the paper's code listing in
//! the order in which the listing calls them.
//!
//! The listing does not handle errors. Therefore, in this API only, the library prints errors to
//! stderr and ends the process.
//!
//! * this file: the functions; `state.rs`: the state behind an `equic_t`;
//! * `object.rs`: the file that `equic_read_object` reads;
//! * `settings.rs`: port, limit and policy, set by functions or the environment;
//! * `stop.rs`: the actions of the signal callbacks; `descriptors.rs`: the file descriptors of the
//!   BPF links.

mod descriptors;
mod object;
mod settings;
mod state;
mod stop;

use std::ffi::{c_char, c_int};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::sockaddr;

use crate::arguments::{peer_of_any_length, text};
use crate::error::{Failure, Result, caught, equic_error};
use crate::options::policy;

/// A protected network interface. The paper's listing declares it on its stack. The first function
/// called with it must be `equic_get_interface`, which initialises it. It may be copied. Copies
/// refer to the same interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct equic_t {
    /// The interface's index.
    pub if_index: c_int,
    /// Descriptor of the XDP program, or -1 before `equic_load`. The library owns it, so the caller
    /// must not close it.
    pub prog_fd: c_int,
    /// Private.
    pub id: u64,
}

/// Prints an error message. If stderr is closed, the message is lost, which is not an error.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "equic: {message}");
}

/// Runs one step of the setup. If the step fails, prints the error and ends the process.
fn or_exit(function: &str, step: impl FnOnce() -> Result<()>) {
    if let Err(failure) = caught(step) {
        say(&format!("{function}: {}", failure.message));
        // SAFETY: this library holds no lock here, so exit handlers may call it.
        unsafe { libc::exit(libc::EXIT_FAILURE) }
    }
}

/// Selects the network interface to protect, and initialises `equic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_get_interface(equic: *mut equic_t, interface: *const c_char) {
    or_exit("equic_get_interface", || {
        // SAFETY: the caller follows the pointer rules in equic.h, here and below.
        let interface = unsafe { text(interface, "interface") }?;
        if equic.is_null() {
            return Err(Failure::argument("`equic` is NULL"));
        }
        let if_index = state::interface_index(interface)?;
        let id = state::begin(equic.addr(), interface);
        // SAFETY: the pointer is not NULL. The `equic_t` is written without being read, because the
        // variable of the paper's listing is uninitialised.
        unsafe { equic.write(equic_t { if_index, prog_fd: -1, id }) };
        Ok(())
    });
}

/// Reads the XDP program from an object file. A name without a slash is searched for in the working
/// directory and in the directory of the library. If it is in neither, the copy inside the library
/// is used, with a message on stderr. A path with a slash must exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_read_object(equic: *mut equic_t, object: *const c_char) {
    or_exit("equic_read_object", || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (state, name) = unsafe { (state::of(equic)?, text(object, "object")?) };
        let found = object::read(name)?;
        if let Some(notice) = &found.notice {
            say(&format!("equic_read_object: {notice}"));
        }
        state.set_object(found)
    });
}

/// Sets the UDP port to protect. Must be called before `equic_load`. Without this call, EQUIC_PORT
/// from the environment or 443 is used. The port is protected on every address of the machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set_port(equic: *mut equic_t, port: u16) {
    // SAFETY: the caller follows the pointer rules in equic.h.
    or_exit("equic_set_port", || unsafe { state::of(equic) }?.set_port(port));
}

/// Sets the maximum number of connections per source. 0: no limit. Without this call, EQUIC_LIMIT
/// from the environment is used, or 5 as in the paper. After `equic_load`, the change takes effect
/// at once.
///
/// Unless EQUIC_POLICY_STRICT is set, the behaviour at the limit differs from the paper. Algorithm
/// 1 of the paper drops all packets of a source with *more* connections than the limit (`>`). So it
/// admits one connection more than the limit, and then the source loses all of them. By default, a
/// source *at* the limit (`>=`) cannot open another connection, and its open connections continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set_limit(equic: *mut equic_t, limit: u32) {
    // SAFETY: the caller follows the pointer rules in equic.h.
    or_exit("equic_set_limit", || unsafe { state::of(equic) }?.set_limit(limit));
}

/// Sets what happens to a source at its limit (enum equic_policy). Without this call, EQUIC_POLICY
/// from the environment ("new", "underway" or "strict") or EQUIC_POLICY_UNDERWAY is used.
/// EQUIC_POLICY_STRICT is the paper's Algorithm 1. After `equic_load`, the change takes effect at
/// once.
///
/// If a source opens many connections at the same time, the policies differ. UNDERWAY: as many
/// connections as the limit reach the server, and the others do not. Open connections are not
/// affected. This requires that the server gives up handshakes within 10 s. A client that cheats
/// (new connection IDs within an attempt) gets up to three attempts for one. An attacker who forges
/// the address of a source can occupy its free places for 10 to 20 s with as many packets, but
/// never affects open connections. NEW: handshakes in progress do not count. So all connections
/// that begin before the first ones are counted reach the server, which must close those for which
/// `equic_inc_counter` returns 1. STRICT: all of them reach the server as well, and then all
/// packets of the source are dropped until the server has closed enough of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set_policy(equic: *mut equic_t, policy: c_int) {
    // SAFETY: the caller follows the pointer rules in equic.h.
    or_exit("equic_set_policy", || unsafe { state::of(equic) }?.set_policy(self::policy(policy)?));
}

/// Loads the program and attaches it to the interface: in the driver, or generic if the driver does
/// not support it, with a message on stderr. The program is detached when the process ends, even by
/// SIGKILL. An XDP program of another owner on the interface is an error, and is not changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_load(equic: *mut equic_t) {
    or_exit("equic_load", || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let state = unsafe { state::of(equic) }?;
        let loaded = state.load()?;
        if let Some(notice) = loaded.notice {
            say(&format!("equic_load: {notice}"));
        }
        // SAFETY: the pointer is not NULL (see `state::of`), and the caller follows the pointer
        // rules in equic.h.
        unsafe { (*equic).prog_fd = loaded.program };
        Ok(())
    });
}

/// Detaches the program from the interface and frees the state of `equic`. It is not in the paper:
/// its programs end by a signal, and the end of the process has the same effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_unload(equic: *mut equic_t) {
    or_exit("equic_unload", || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { state::of(equic) }?;
        // SAFETY: `state::of` has checked the `equic_t`.
        state::end(unsafe { &*equic }.id)?;
        // SAFETY: `state::of` has checked the `equic_t`.
        unsafe { equic.write(equic_t { if_index: 0, prog_fd: -1, id: 0 }) };
        Ok(())
    });
}

/// Counts a new connection of `peer` (a sockaddr_in or sockaddr_in6, possibly with an IPv4-mapped
/// address). Call it when the handshake is complete. It may be called from any thread, and makes no
/// system call. An address of another family, NULL, or an `equic` that is not loaded is ignored,
/// with a single message on stderr, so that a server continues.
///
/// Returns 1 if the source now holds more connections than its limit, otherwise 0. The paper's
/// function returns nothing, and its programs may ignore the result. If the program closes the
/// connection because of it, it must call `equic_dec_counter` as usual. (Always 0 with
/// EQUIC_POLICY_STRICT, and in a dry run.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_inc_counter(equic: *mut equic_t, peer: *const sockaddr) -> c_int {
    or_ignore("equic_inc_counter", &INC_SAID, || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (state, peer) = unsafe { (state::of(equic)?, peer_of_any_length(peer)?) };
        Ok(state.service()?.increment(peer).over_limit)
    })
}

/// Removes a connection of `peer` from the count. Errors are handled as by `equic_inc_counter`.
///
/// `peer` must be the address that was passed to `equic_inc_counter` for this connection, even if
/// the client has migrated since (RFC 9000 s.9), because only the address identifies the
/// connection. With a wrong address, the old address keeps a place for a closed connection, and the
/// new one, if it has connections, is counted one too low. So store a copy of the address with the
/// connection. (Alternatively, count a migrated client at its new address: `equic_inc_counter` for
/// the new address, then `equic_dec_counter` for the old one. The handles of `equic_opened` do this
/// automatically.)
///
/// Returns 1 if a connection was removed. If the source has none, the count stays 0, and the
/// function returns 0, with a single message on stderr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_dec_counter(equic: *mut equic_t, peer: *const sockaddr) -> c_int {
    or_ignore("equic_dec_counter", &DEC_SAID, || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (state, peer) = unsafe { (state::of(equic)?, peer_of_any_length(peer)?) };
        if state.service()?.decrement(peer).is_some() {
            return Ok(true);
        }
        let message = format!(
            "{} holds no connection: for a client that has migrated, pass the address with which \
             the connection was counted",
            peer.ip().to_canonical()
        );
        Err(Failure::new(equic_error::EQUIC_ERROR_NOT_FOUND, message))
    })
}

static INC_SAID: AtomicU32 = AtomicU32::new(0);
static DEC_SAID: AtomicU32 = AtomicU32::new(0);

/// Runs a step that happens for every connection. Returns the step's result as 1 or 0, and returns
/// 0 after a failure. Each kind of failure is printed only once, because clients could otherwise
/// fill the server's log.
fn or_ignore(function: &str, said: &AtomicU32, step: impl FnOnce() -> Result<bool>) -> c_int {
    let failure = match caught(step) {
        Ok(yes) => return yes.into(),
        Err(failure) => failure,
    };
    let bit = 1u32 << (failure.code as u32 % u32::BITS);
    if said.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        say(&format!(
            "{function}: {}; the call was ignored, and further failures of this kind are not reported",
            failure.message
        ));
    }
    0
}

/// For `signal(SIGINT, equic_sigint_callback)`: detaches the program from every interface, and ends
/// the process with EXIT_SUCCESS. It is safe in a signal handler, so it does not flush output or
/// run exit handlers.
#[unsafe(no_mangle)]
pub extern "C" fn equic_sigint_callback(signal: c_int) {
    let _ = signal;
    stop::detach_and_exit()
}

/// For `signal(SIGTERM, equic_sigterm_callback)`: like `equic_sigint_callback`.
#[unsafe(no_mangle)]
pub extern "C" fn equic_sigterm_callback(signal: c_int) {
    let _ = signal;
    stop::detach_and_exit()
}
