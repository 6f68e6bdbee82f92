//! C functions for services and their connections, with which a server reports its connections to
//! the gateway.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, PoisonError, Weak};

use ::equic_gateway::{Guard, Service};
use libc::{sockaddr, socklen_t};

use crate::arguments::{give, handle, peer};
use crate::error::{Failure, Result, boundary, boundary_or, c_text, equic_error};
use crate::gateway::Inner;

/// A flag of `equic_opened`: the source now holds more connections than the service's limit. The
/// server may close this one. Its handshake began before those that filled the limit were complete.
pub const EQUIC_OVER_LIMIT: u32 = 1;
/// A flag of `equic_opened`: there was no room to count this connection, so it does not count
/// towards the quota.
pub const EQUIC_UNTRACKED: u32 = 2;

/// A service of a gateway, for which a server counts its connections.
pub struct equic_service {
    service: Service,
    name: CString,
    gateway: Weak<Inner>,
}

impl equic_service {
    pub(crate) fn new(service: Service, gateway: Weak<Inner>) -> equic_service {
        let name = c_text(service.name());
        equic_service { service, name, gateway }
    }

    pub(crate) fn name(&self) -> &str {
        self.service.name()
    }

    /// Returns the gateway of the service. Fails if the gateway was closed.
    pub(crate) fn gateway(&self) -> Result<std::sync::Arc<Inner>> {
        self.gateway.upgrade().ok_or_else(|| {
            let message = format!("the gateway of the service `{}` was closed", self.name());
            Failure::new(equic_error::EQUIC_ERROR_CLOSED, message)
        })
    }
}

/// An open connection. It counts for its source until `equic_connection_closed`.
pub struct equic_connection {
    guard: Mutex<Guard>,
}

/// Releases a service. Its connections stay open. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_service_release(service: *mut equic_service) {
    boundary(|| {
        if !service.is_null() {
            // SAFETY: `Box::into_raw` in `equic_gateway_service` created the handle, and the caller
            // releases it only once.
            drop(unsafe { Box::from_raw(service) });
        }
        Ok(())
    });
}

/// Returns the service's name, which is valid until the service is released. Returns NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_service_name(service: *const equic_service) -> *const c_char {
    // SAFETY: the caller follows the pointer rules in equic.h.
    boundary_or(std::ptr::null(), || Ok(unsafe { handle(service, "service") }?.name.as_ptr()))
}

/// Returns the current limit of connections per source. 0: no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_service_limit(service: *const equic_service) -> u32 {
    // SAFETY: the caller follows the pointer rules in equic.h.
    boundary_or(0, || Ok(unsafe { handle(service, "service") }?.service.limit()))
}

/// Counts the connections of the peer's source in this process. The source is the peer's address,
/// cut to the gateway's prefix length. The port does not matter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_service_count(
    service: *const equic_service,
    peer: *const sockaddr,
    peer_len: socklen_t,
    count: *mut u32,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (service, peer) = unsafe { (handle(service, "service")?, self::peer(peer, peer_len)?) };
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(count, service.service.count(peer)) };
        Ok(())
    })
}

/// Returns 1 if the peer's source holds as many connections in this process as its limit, so that
/// another one would be EQUIC_OVER_LIMIT. Otherwise, and for an invalid address, returns 0. For
/// servers that can refuse connections before the handshake, when the address may still be forged.
/// The call counts nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_service_full(
    service: *const equic_service,
    peer: *const sockaddr,
    peer_len: socklen_t,
) -> c_int {
    boundary_or(0, || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (service, peer) = unsafe { (handle(service, "service")?, self::peer(peer, peer_len)?) };
        Ok(c_int::from(service.service.full(peer)))
    })
}

/// Counts a connection of `peer`. Call it when the handshake is complete, so that an attacker
/// cannot use up the quota of a forged address. It makes no system call and does not block.
///
/// `count` (may be NULL) becomes the number of connections of the source in this process, including
/// this one. `flags` (may be NULL) becomes EQUIC_OVER_LIMIT, EQUIC_UNTRACKED, both or 0. Whatever
/// the flags, the caller must end `connection` with `equic_connection_closed`. On failure, it is
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_opened(
    service: *const equic_service,
    peer: *const sockaddr,
    peer_len: socklen_t,
    connection: *mut *mut equic_connection,
    count: *mut u32,
    flags: *mut u32,
) -> equic_error {
    boundary(|| {
        if connection.is_null() {
            return Err(Failure::argument("`connection` is NULL"));
        }
        // SAFETY: the pointer is not NULL, and the caller follows the pointer rules in equic.h,
        // here and below.
        unsafe { connection.write(std::ptr::null_mut()) };
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (service, peer) = unsafe { (handle(service, "service")?, self::peer(peer, peer_len)?) };
        let guard = service.service.opened(peer);
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe {
            tell(&guard, count, flags);
            connection
                .write(Box::into_raw(Box::new(equic_connection { guard: Mutex::new(guard) })));
        }
        Ok(())
    })
}

/// Moves the count of a connection to another address of its peer (connection migration, RFC 9000
/// s.9). `count` and `flags` are as for `equic_opened`. EQUIC_OVER_LIMIT: the new source is at its
/// limit, including the connections of other processes. The server should then close the
/// connection.
///
/// Call it only after the peer has proved by a PATH_RESPONSE that it receives packets at the
/// address. An attacker can forge any source address: if a server called it for every packet, it
/// would count an attacker's connections at the address of a victim, who could then not connect. If
/// the validation of a path fails, do not call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_connection_moved(
    connection: *const equic_connection,
    peer: *const sockaddr,
    peer_len: socklen_t,
    count: *mut u32,
    flags: *mut u32,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (connection, peer) =
            unsafe { (handle(connection, "connection")?, self::peer(peer, peer_len)?) };
        let mut guard = connection.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.moved(peer);
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { tell(&guard, count, flags) };
        Ok(())
    })
}

/// Stops counting a connection that was closed, and frees its handle. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_connection_closed(connection: *mut equic_connection) {
    boundary(|| {
        if !connection.is_null() {
            // SAFETY: `Box::into_raw` in `equic_opened` created the handle, and the caller closes
            // it only once.
            drop(unsafe { Box::from_raw(connection) });
        }
        Ok(())
    });
}

/// Writes the results of a counted connection.
///
/// # Safety
/// `count` and `flags` must be NULL or valid for a write.
unsafe fn tell(guard: &Guard, count: *mut u32, flags: *mut u32) {
    let mut said = 0;
    if guard.over_limit() {
        said |= EQUIC_OVER_LIMIT;
    }
    if guard.untracked() {
        said |= EQUIC_UNTRACKED;
    }
    // SAFETY: the caller upholds the `# Safety` section of this function.
    unsafe {
        give(count, guard.count());
        give(flags, said);
    }
}
