//! The paper's API: `equic_t` and the functions of its listing, in the order they are called.
//!
//! The listing has no way to learn that something failed, so here, and only here, the library says
//! it on stderr and ends the process.
//!
//! * here: the functions; `state.rs`: what stands behind an `equic_t`;
//! * `object.rs`: which file `equic_read_object` reads;
//! * `settings.rs`: port, limit and policy, by function or environment;
//! * `stop.rs`: what the signal callbacks do; `descriptors.rs`: where they find the links.

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

/// One network interface under protection: what the paper's listing declares on its stack. The
/// first function called with it is `equic_get_interface`, which fills it in whatever it held. It
/// may be copied; copies stand for the same interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct equic_t {
    /// The interface's index.
    pub if_index: c_int,
    /// The descriptor of the XDP program from `equic_load` on, before that -1. The library's: not to
    /// be closed.
    pub prog_fd: c_int,
    /// Private.
    pub id: u64,
}

/// Says what went wrong. Nobody reads it if stderr is closed; that is no reason to fail.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "equic: {message}");
}

/// Runs a step of the set-up; ends the process if it fails.
fn or_exit(function: &str, step: impl FnOnce() -> Result<()>) {
    if let Err(failure) = caught(step) {
        say(&format!("{function}: {}", failure.message));
        // SAFETY: no lock of this library is held here, so exit handlers may call it.
        unsafe { libc::exit(libc::EXIT_FAILURE) }
    }
}

/// Chooses the network interface to protect, and makes `equic` usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_get_interface(equic: *mut equic_t, interface: *const c_char) {
    or_exit("equic_get_interface", || {
        // SAFETY: the contract of the API, here and below.
        let interface = unsafe { text(interface, "interface") }?;
        if equic.is_null() {
            return Err(Failure::argument("`equic` is NULL"));
        }
        let if_index = state::interface_index(interface)?;
        let id = state::begin(equic.addr(), interface);
        // SAFETY: not NULL. It is written and not read: the listing's variable is uninitialised.
        unsafe { equic.write(equic_t { if_index, prog_fd: -1, id }) };
        Ok(())
    });
}

/// Reads the XDP program from an object file. A name without a slash that is not in the working
/// directory is looked for beside the library; if it is not there either, the copy inside the
/// library is used, and stderr says so. A path with a slash must exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_read_object(equic: *mut equic_t, object: *const c_char) {
    or_exit("equic_read_object", || {
        // SAFETY: the contract of the API.
        let (state, name) = unsafe { (state::of(equic)?, text(object, "object")?) };
        let found = object::read(name)?;
        if let Some(notice) = &found.notice {
            say(&format!("equic_read_object: {notice}"));
        }
        state.set_object(found)
    });
}

/// Sets the UDP port to protect, before `equic_load`. Without it: EQUIC_PORT from the environment,
/// or 443. The port is protected on every address of the machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set_port(equic: *mut equic_t, port: u16) {
    // SAFETY: the contract of the API.
    or_exit("equic_set_port", || unsafe { state::of(equic) }?.set_port(port));
}

/// Sets how many connections a source may hold at a time; 0: any number. Without it: EQUIC_LIMIT
/// from the environment, or 5 as in the paper. After `equic_load`, it takes effect at once.
///
/// What happens at the limit is not quite the paper's, unless EQUIC_POLICY_STRICT is set. Algorithm 1 of
/// the paper drops a source with *more* connections than the limit (`>`), so that one more than the limit
/// is let in, and with it everything of the source is lost. By default, at the limit (`>=`) what would
/// open one more is dropped: the source holds as many as the limit, and they go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set_limit(equic: *mut equic_t, limit: u32) {
    // SAFETY: the contract of the API.
    or_exit("equic_set_limit", || unsafe { state::of(equic) }?.set_limit(limit));
}

/// Sets what happens to a source at its limit (enum equic_policy). Without it: EQUIC_POLICY from the
/// environment ("new", "underway" or "strict"), or EQUIC_POLICY_UNDERWAY. EQUIC_POLICY_STRICT is the
/// paper's Algorithm 1. After `equic_load`, it takes effect at once.
///
/// What holds, with each of them, for a source that opens many connections side by side. UNDERWAY: as
/// many as its limit come through; the others never reach the server, and open connections do not
/// suffer. It holds for servers that give handshakes up within 10 s, and a client that cheats (new
/// connection IDs within an attempt) gets up to three for one. Whoever forges the address of another
/// can hold its free places for 10 to 20 s with as many packets, but never harms what is open. NEW:
/// handshakes under way do not count, so all that begin before the first ones are counted come
/// through; a server has to close those for which `equic_inc_counter` returns 1. STRICT: all of them
/// come through as well, and then nothing of the source does, until the server closes enough of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set_policy(equic: *mut equic_t, policy: c_int) {
    // SAFETY: the contract of the API.
    or_exit("equic_set_policy", || unsafe { state::of(equic) }?.set_policy(self::policy(policy)?));
}

/// Loads the program and attaches it to the interface: in the driver, or behind it where the driver
/// cannot, and stderr says so. It leaves the interface when the process ends, by SIGKILL too. A
/// program of somebody else on the interface is an error, and left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_load(equic: *mut equic_t) {
    or_exit("equic_load", || {
        // SAFETY: the contract of the API.
        let state = unsafe { state::of(equic) }?;
        let loaded = state.load()?;
        if let Some(notice) = loaded.notice {
            say(&format!("equic_load: {notice}"));
        }
        // SAFETY: the contract of the API; `state::of` found it not NULL.
        unsafe { (*equic).prog_fd = loaded.program };
        Ok(())
    });
}

/// Takes the program off the interface and frees what stands behind `equic`. Not in the paper: its
/// programs end by a signal, and the end of the process does the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_unload(equic: *mut equic_t) {
    or_exit("equic_unload", || {
        // SAFETY: the contract of the API.
        unsafe { state::of(equic) }?;
        // SAFETY: `state::of` found it valid.
        state::end(unsafe { &*equic }.id)?;
        // SAFETY: as above.
        unsafe { equic.write(equic_t { if_index: 0, prog_fd: -1, id: 0 }) };
        Ok(())
    });
}

/// Counts one more connection of `peer` (a sockaddr_in or sockaddr_in6, also with an IPv4-mapped
/// address), to be called when its handshake is complete. From any thread, without a system call.
/// An address of another family, NULL, or an `equic` that is not loaded is said on stderr, once,
/// and ignored: a server goes on.
///
/// Returns 1 if the source holds more connections than its limit now, else 0: the over-limit signal. The
/// paper's function returns nothing, and its programs need not look; one that does closes the connection,
/// and calls `equic_dec_counter` for it as for any other. (0 with EQUIC_POLICY_STRICT, and in a dry run.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_inc_counter(equic: *mut equic_t, peer: *const sockaddr) -> c_int {
    or_ignore("equic_inc_counter", &INC_SAID, || {
        // SAFETY: the contract of the API.
        let (state, peer) = unsafe { (state::of(equic)?, peer_of_any_length(peer)?) };
        Ok(state.service()?.increment(peer).over_limit)
    })
}

/// Counts one connection of `peer` less. Otherwise as `equic_inc_counter`.
///
/// `peer` is the address that `equic_inc_counter` was called with for this connection, not the one
/// the client has now: a client may have migrated (RFC 9000 s.9), and which connection is meant only
/// the address tells. With the wrong one the old address keeps a place that nobody uses, and the new
/// one, if it has connections, one too few: so keep a copy of the address with the connection. (Or
/// count a migrated client at its new address: `equic_inc_counter` for the new one, then
/// `equic_dec_counter` for the old one. The handles of `equic_opened` do all that.)
///
/// Returns 1 if there was a connection to take back. A source without one stays at none: returns 0,
/// and says so on stderr, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_dec_counter(equic: *mut equic_t, peer: *const sockaddr) -> c_int {
    or_ignore("equic_dec_counter", &DEC_SAID, || {
        // SAFETY: the contract of the API.
        let (state, peer) = unsafe { (state::of(equic)?, peer_of_any_length(peer)?) };
        if state.service()?.decrement(peer).is_some() {
            return Ok(true);
        }
        let message = format!(
            "{} holds no connection to take back: a client that migrated has to be named by the \
             address it was counted with",
            peer.ip().to_canonical()
        );
        Err(Failure::new(equic_error::EQUIC_ERROR_NOT_FOUND, message))
    })
}

static INC_SAID: AtomicU32 = AtomicU32::new(0);
static DEC_SAID: AtomicU32 = AtomicU32::new(0);

/// Runs a step of the server's daily work: 1 or 0, and 0 for a failure. That is said once per kind, for
/// a server must not fill its log at the pace of its clients.
fn or_ignore(function: &str, said: &AtomicU32, step: impl FnOnce() -> Result<bool>) -> c_int {
    let failure = match caught(step) {
        Ok(yes) => return yes.into(),
        Err(failure) => failure,
    };
    let bit = 1u32 << (failure.code as u32 % u32::BITS);
    if said.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        say(&format!("{function}: {}; ignored, and not said again", failure.message));
    }
    0
}

/// For `signal(SIGINT, equic_sigint_callback)`: takes the program off every interface and ends the
/// process with EXIT_SUCCESS. Only does what a signal handler may; so nothing is flushed, and
/// exit handlers do not run.
#[unsafe(no_mangle)]
pub extern "C" fn equic_sigint_callback(signal: c_int) {
    let _ = signal;
    stop::detach_and_exit()
}

/// For `signal(SIGTERM, equic_sigterm_callback)`: as `equic_sigint_callback`.
#[unsafe(no_mangle)]
pub extern "C" fn equic_sigterm_callback(signal: c_int) {
    let _ = signal;
    stop::detach_and_exit()
}
