//! Error codes, the last error message of each thread, and the functions that keep panics from
//! unwinding into C.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ::equic_gateway::{ConfigError, Error};

/// Result of a function of the handle-based API. `equic_last_error_message` has the details: what
/// failed, why, and how to fix it. New codes are only added at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_error {
    /// Success.
    EQUIC_OK = 0,
    /// A pointer is NULL, a string is not UTF-8, or an address or a number is invalid.
    EQUIC_ERROR_INVALID_ARGUMENT = 1,
    /// A capability is missing.
    EQUIC_ERROR_NOT_PERMITTED = 2,
    /// There is no interface of this name in this network namespace.
    EQUIC_ERROR_NO_SUCH_INTERFACE = 3,
    /// Another XDP program is attached to the interface. It was not changed.
    EQUIC_ERROR_INTERFACE_BUSY = 4,
    /// This gateway is already attached to the interface.
    EQUIC_ERROR_ALREADY_ATTACHED = 5,
    /// This gateway is not attached to the interface.
    EQUIC_ERROR_NOT_ATTACHED = 6,
    /// The mode is EQUIC_MODE_NATIVE, and the driver cannot run the program.
    EQUIC_ERROR_NATIVE_REFUSED = 7,
    /// The kernel lacks a feature that the program needs.
    EQUIC_ERROR_KERNEL_TOO_OLD = 8,
    /// The object file is not the gateway's program.
    EQUIC_ERROR_BAD_OBJECT = 9,
    /// Object file, running gateway and library have different versions.
    EQUIC_ERROR_ABI_VERSION = 10,
    /// The kernel's verifier rejected the program. `equic_last_error_log` has the complete log.
    EQUIC_ERROR_VERIFIER = 11,
    /// No running gateway was found, or none that matches.
    EQUIC_ERROR_NO_GATEWAY = 12,
    /// Several gateways match. Select one of them.
    EQUIC_ERROR_AMBIGUOUS_GATEWAY = 13,
    /// The configuration or a setting is invalid.
    EQUIC_ERROR_CONFIG = 14,
    /// The gateway has no service of this name.
    EQUIC_ERROR_NO_SUCH_SERVICE = 15,
    /// A list is full, or the gateway cannot accept another server.
    EQUIC_ERROR_FULL = 16,
    /// The running program is not a gateway, or one that this library does not support.
    EQUIC_ERROR_FOREIGN_PROGRAM = 17,
    /// The requested item does not exist.
    EQUIC_ERROR_NOT_FOUND = 18,
    /// The gateway belongs to another process. This process joined it, and cannot attach or detach
    /// it.
    EQUIC_ERROR_NOT_OWNER = 19,
    /// The gateway was closed.
    EQUIC_ERROR_CLOSED = 20,
    /// Another error of the operating system.
    EQUIC_ERROR_SYSTEM = 21,
    /// A bug in this library. Please report it.
    EQUIC_ERROR_INTERNAL = 22,
    /// The gateway at a socket rejected this process.
    EQUIC_ERROR_REFUSED = 23,
    /// Nothing can be pinned at the path, or the pinned objects do not match the configuration.
    EQUIC_ERROR_PIN = 24,
    /// The token is from a NEW_TOKEN frame, so the server must validate it.
    EQUIC_ERROR_NEW_TOKEN = 25,
    /// The token or the connection ID has a wrong format.
    EQUIC_ERROR_PROOF_MALFORMED = 26,
    /// The key of the token or the connection ID is unknown: it was never in the ring, or it was
    /// rotated out.
    EQUIC_ERROR_PROOF_UNKNOWN_KEY = 27,
    /// The token was not issued for this client and connection ID, or the connection ID was not
    /// issued by a server of the service.
    EQUIC_ERROR_PROOF_FORGED = 28,
    /// The token has expired.
    EQUIC_ERROR_PROOF_EXPIRED = 29,
    /// The token was issued in the future: the clocks differ.
    EQUIC_ERROR_PROOF_EARLY = 30,
}

use equic_error::*;

/// All error codes in order, each with a short text.
const TEXTS: [(equic_error, &CStr); 31] = [
    (EQUIC_OK, c"success"),
    (EQUIC_ERROR_INVALID_ARGUMENT, c"invalid argument"),
    (EQUIC_ERROR_NOT_PERMITTED, c"the process lacks a capability that this operation needs"),
    (EQUIC_ERROR_NO_SUCH_INTERFACE, c"there is no such network interface"),
    (EQUIC_ERROR_INTERFACE_BUSY, c"another XDP program is attached to the interface"),
    (EQUIC_ERROR_ALREADY_ATTACHED, c"the gateway is already attached to the interface"),
    (EQUIC_ERROR_NOT_ATTACHED, c"the gateway is not attached to the interface"),
    (EQUIC_ERROR_NATIVE_REFUSED, c"the driver refuses the program in native mode"),
    (EQUIC_ERROR_KERNEL_TOO_OLD, c"the kernel is too old"),
    (EQUIC_ERROR_BAD_OBJECT, c"the object file is not the gateway's program"),
    (EQUIC_ERROR_ABI_VERSION, c"the program and the library have different versions"),
    (EQUIC_ERROR_VERIFIER, c"the kernel's verifier rejected the program"),
    (EQUIC_ERROR_NO_GATEWAY, c"no such gateway is running"),
    (EQUIC_ERROR_AMBIGUOUS_GATEWAY, c"several gateways match: choose one"),
    (EQUIC_ERROR_CONFIG, c"the configuration is invalid"),
    (EQUIC_ERROR_NO_SUCH_SERVICE, c"the gateway has no such service"),
    (EQUIC_ERROR_FULL, c"a list is full, or all server slots of the gateway are in use"),
    (EQUIC_ERROR_FOREIGN_PROGRAM, c"the program is not a gateway that this library supports"),
    (EQUIC_ERROR_NOT_FOUND, c"not found"),
    (EQUIC_ERROR_NOT_OWNER, c"the gateway belongs to another process"),
    (EQUIC_ERROR_CLOSED, c"the gateway was closed"),
    (EQUIC_ERROR_SYSTEM, c"the operating system reported an error"),
    (EQUIC_ERROR_INTERNAL, c"internal error"),
    (EQUIC_ERROR_REFUSED, c"the gateway rejected this process"),
    (EQUIC_ERROR_PIN, c"cannot pin at the path, or cannot use the objects that are pinned there"),
    (EQUIC_ERROR_NEW_TOKEN, c"the token is from a NEW_TOKEN frame"),
    (EQUIC_ERROR_PROOF_MALFORMED, c"the token or connection ID has a wrong format"),
    (EQUIC_ERROR_PROOF_UNKNOWN_KEY, c"the key of the token or connection ID is unknown"),
    (EQUIC_ERROR_PROOF_FORGED, c"the token or connection ID is forged"),
    (EQUIC_ERROR_PROOF_EXPIRED, c"the token has expired"),
    (EQUIC_ERROR_PROOF_EARLY, c"the token was issued in the future"),
];

/// Error of a function of this library, with its code and its message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: equic_error,
    pub(crate) message: String,
    /// The verifier's complete log, if the verifier rejected the program.
    log: Option<String>,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: equic_error, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), log: None }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new(EQUIC_ERROR_INVALID_ARGUMENT, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::NotPermitted { .. } => EQUIC_ERROR_NOT_PERMITTED,
            Error::NoSuchInterface { .. } => EQUIC_ERROR_NO_SUCH_INTERFACE,
            Error::InterfaceBusy { .. } => EQUIC_ERROR_INTERFACE_BUSY,
            Error::AlreadyAttached { .. } => EQUIC_ERROR_ALREADY_ATTACHED,
            Error::NotAttached { .. } => EQUIC_ERROR_NOT_ATTACHED,
            Error::NativeRefused { .. } => EQUIC_ERROR_NATIVE_REFUSED,
            Error::KernelTooOld { .. } => EQUIC_ERROR_KERNEL_TOO_OLD,
            Error::BadObject { .. } => EQUIC_ERROR_BAD_OBJECT,
            Error::AbiVersion { .. } => EQUIC_ERROR_ABI_VERSION,
            Error::Verifier { .. } => EQUIC_ERROR_VERIFIER,
            Error::NoGateway
            | Error::NoGatewayHere { .. }
            | Error::NoSuchGateway { .. }
            | Error::NoGatewaySocket { .. } => EQUIC_ERROR_NO_GATEWAY,
            Error::SocketRefused { busy: true, .. } => EQUIC_ERROR_FULL,
            Error::SocketRefused { .. } => EQUIC_ERROR_REFUSED,
            Error::Pin { .. } | Error::PinMismatch { .. } => EQUIC_ERROR_PIN,
            Error::ManyGateways { .. } => EQUIC_ERROR_AMBIGUOUS_GATEWAY,
            Error::Config(_) => EQUIC_ERROR_CONFIG,
            Error::NoSuchService { .. } => EQUIC_ERROR_NO_SUCH_SERVICE,
            Error::NoFreeLedger { .. }
            | Error::ListFull { .. }
            | Error::ListTooLong { .. }
            | Error::ListenersFull { .. } => EQUIC_ERROR_FULL,
            Error::ForeignProgram { .. } => EQUIC_ERROR_FOREIGN_PROGRAM,
            _ => EQUIC_ERROR_SYSTEM,
        };
        let message = error.to_string();
        let log = if let Error::Verifier { log, .. } = error { Some(log) } else { None };
        Failure { code, message, log }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::from(Error::Config(error))
    }
}

/// The last error of a thread.
struct Last {
    message: CString,
    log: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Converts text to a C string. Removes NUL bytes from the text.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

fn remember(failure: &Failure) {
    let last = Last { message: c_text(&failure.message), log: failure.log.as_deref().map(c_text) };
    // If the thread is ending, its message can no longer be stored. The code is still returned.
    let _ = LAST.try_with(|slot| slot.replace(Some(last)));
}

/// Runs the body of a C function that returns an error code. Errors and panics become codes, and
/// the thread's last error message is set.
pub(crate) fn boundary(body: impl FnOnce() -> Result<()>) -> equic_error {
    let failure = match caught(body) {
        Ok(()) => return EQUIC_OK,
        Err(failure) => failure,
    };
    remember(&failure);
    failure.code
}

/// Runs the body of a C function that returns another value, like [`boundary`]. Returns `otherwise`
/// after an error.
pub(crate) fn boundary_or<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    caught(body).unwrap_or_else(|failure| {
        remember(&failure);
        otherwise
    })
}

/// Runs a function body, and converts a panic to an error.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwind safety: handles keep their state in types that stay consistent after a panic (atomics,
    // and locks whose poisoning is ignored). The caller gets an internal error.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(internal(&*payload)))
}

fn internal(payload: &(dyn Any + Send)) -> Failure {
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Failure::new(EQUIC_ERROR_INTERNAL, format!("internal error, please report it: {what}"))
}

/// Returns the message of the last failure in this thread, including how to fix it: one or several
/// lines of UTF-8. Never NULL. Empty if no call has failed yet. Successful calls do not change it.
/// Valid until the next failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn equic_last_error_message() -> *const c_char {
    last(|last| last.message.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the verifier's complete log if the last failure in this thread was EQUIC_ERROR_VERIFIER,
/// otherwise NULL. Valid until the next failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn equic_last_error_log() -> *const c_char {
    last(|last| last.log.as_ref().map_or(ptr::null(), |log| log.as_ptr())).unwrap_or(ptr::null())
}

fn last<T>(read: impl FnOnce(&Last) -> T) -> Option<T> {
    LAST.try_with(|slot| slot.borrow().as_ref().map(read)).ok().flatten()
}

/// Returns a short text for an error code (enum equic_error), or for any other number. Never NULL.
/// The string must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn equic_strerror(error: c_int) -> *const c_char {
    TEXTS
        .iter()
        .find(|(code, _)| *code as c_int == error)
        .map_or(c"unknown error".as_ptr(), |(_, text)| text.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the message is never NULL, is NUL-terminated, and no other call in this thread
        // fails before it is copied.
        unsafe { CStr::from_ptr(equic_last_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn error_of_a_panic_is_internal_and_has_its_message() {
        assert_eq!(boundary(|| panic!("table {}", 7)), EQUIC_ERROR_INTERNAL);
        assert!(message().contains("table 7"), "{}", message());
        assert_eq!(boundary_or(4, || panic!("again")), 4);
        assert!(message().contains("again"));
    }

    #[test]
    fn error_message_belongs_to_its_thread_and_outlives_success() {
        assert_eq!(boundary(|| Err(Failure::argument("no\0 port"))), EQUIC_ERROR_INVALID_ARGUMENT);
        assert_eq!(boundary(|| Ok(())), EQUIC_OK);
        assert_eq!(message(), "no port");
        assert_eq!(std::thread::spawn(message).join().unwrap(), "");
        assert!(equic_last_error_log().is_null());
    }

    #[test]
    fn error_codes_have_texts_of_their_own() {
        for (index, (code, text)) in TEXTS.iter().enumerate() {
            assert_eq!(*code as usize, index);
            assert!(TEXTS.iter().filter(|(_, other)| other == text).count() == 1);
        }
        let unknown = equic_strerror(TEXTS.len() as c_int);
        assert_eq!(unknown, equic_strerror(-1));
        assert_ne!(unknown, equic_strerror(EQUIC_ERROR_INTERNAL as c_int));
    }

    #[test]
    fn error_keeps_the_log_of_the_verifier() {
        let error = Error::Verifier { line: "last".to_owned(), log: "first\nlast".to_owned() };
        assert_eq!(boundary(|| Err(error.into())), EQUIC_ERROR_VERIFIER);
        // SAFETY: the log is not NULL after a verifier error.
        assert_eq!(unsafe { CStr::from_ptr(equic_last_error_log()) }, c"first\nlast");
    }
}
