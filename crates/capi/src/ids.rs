//! C functions for verifiable connection IDs, which a gateway can check. The IDs are made with the
//! key ring of a joined gateway, or with a copy of a key ring.

use std::sync::{Arc, Weak};

use ::equic_gateway::ConnectionIds;
use equic_token::{IdError, IdFormat, IdGenerator};

use crate::arguments::{give, handle};
use crate::error::{Failure, Result, boundary, equic_error};
use crate::gateway::{Inner, equic_gateway};
use crate::retry::{bytes_at, equic_ring, give_handle};
use equic_error::*;

/// Length in bytes of the connection IDs that a gateway checks and that `equic_gateway_ids`
/// creates.
pub const EQUIC_ID_LENGTH: usize = 12;

const _: () = assert!(EQUIC_ID_LENGTH == ConnectionIds::LEN, "the C macro needs a literal number");

/// Generator of the connection IDs of one server process. Two processes need different server IDs.
pub struct equic_ids(Maker);

enum Maker {
    /// A generator with a copy of a key ring, which the caller must replace after a rotation.
    Copy(IdGenerator),
    /// The generator with this instance number, which uses the current key ring of a gateway.
    Of(Weak<Inner>, u8),
}

impl equic_ids {
    fn length(&self) -> usize {
        match &self.0 {
            Maker::Copy(generator) => generator.format().len(),
            Maker::Of(..) => EQUIC_ID_LENGTH,
        }
    }
}

/// Returns the generator with this instance number of a gateway. Fails if the gateway was closed.
fn of(gateway: &Weak<Inner>, instance: u8) -> Result<ConnectionIds> {
    let closed =
        || Failure::new(EQUIC_ERROR_CLOSED, "the gateway of these connection IDs was closed");
    gateway.upgrade().ok_or_else(closed)?.connection_ids(instance)
}

impl From<IdError> for Failure {
    fn from(error: IdError) -> Failure {
        let code = match error {
            IdError::Format => EQUIC_ERROR_INVALID_ARGUMENT,
            IdError::Malformed => EQUIC_ERROR_PROOF_MALFORMED,
            IdError::UnknownEpoch => EQUIC_ERROR_PROOF_UNKNOWN_KEY,
            IdError::Forged => EQUIC_ERROR_PROOF_FORGED,
            IdError::Random => EQUIC_ERROR_SYSTEM,
        };
        Failure::new(code, error.to_string())
    }
}

/// Returns the slot of this process at the gateway, from 0. It is the first byte of the server ID
/// in its connection IDs (`equic_gateway_ids`). The next gateway may assign another slot. Returns
/// EQUIC_ERROR_NOT_FOUND while the process has no slot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_slot(
    gateway: *const equic_gateway,
    slot: *mut u32,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h, here and below.
        let found = unsafe { handle(gateway, "gateway") }?.inner.ledger()?.slot();
        let none =
            || Failure::new(EQUIC_ERROR_NOT_FOUND, "this process has no slot at the gateway");
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(slot, found.ok_or_else(none)?) };
        Ok(())
    })
}

/// Creates a generator of connection IDs for a service with check_ids. They are EQUIC_ID_LENGTH
/// bytes long. The gateway must be joined with `issue_ids`, or loaded by this process. The server
/// must create *all* its IDs with it: the Source Connection ID of its handshakes, and those in
/// NEW_CONNECTION_ID frames and in a preferred address.
///
/// `equic_ids_generate` uses the current key of the gateway, or of the next gateway after that one
/// is joined. The caller need not handle key rotation. The two bytes after the first byte of an ID
/// are its server ID: the slot of the process (`equic_gateway_slot`), and `instance`, from 0 to
/// 255, with which the caller distinguishes its sockets. Handles with the same instance share a
/// generator, so no ID occurs twice.
///
/// Returns EQUIC_ERROR_NOT_FOUND as `equic_gateway_ring` does. After `equic_gateway_close`, calls
/// with the handle return EQUIC_ERROR_CLOSED, and the caller must still release it with
/// `equic_ids_free`. On failure, *ids is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_ids(
    gateway: *const equic_gateway,
    instance: u8,
    ids: *mut *mut equic_ids,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe {
            give_handle(ids, || {
                let gateway = &handle(gateway, "gateway")?.inner;
                gateway.connection_ids(instance)?;
                Ok(equic_ids(Maker::Of(Arc::downgrade(gateway), instance)))
            })
        }
    })
}

/// Creates a generator of connection IDs of `length` bytes, 8 to 20, with `server_id`, 0 to 8
/// bytes. At least eight bytes of an ID must remain for its other content. The generator has a copy
/// of the ring. For IDs that a gateway can check, use `equic_gateway_ids`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_new(
    ring: *const equic_ring,
    length: usize,
    server_id: *const u8,
    server_id_len: usize,
    ids: *mut *mut equic_ids,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe {
            give_handle(ids, || {
                let server_id = bytes_at(server_id, server_id_len, "server_id")?;
                let ring = handle(ring, "ring")?.keys()?.into_owned();
                let format = IdFormat::new(length, server_id.len())?;
                Ok(equic_ids(Maker::Copy(IdGenerator::new(format, server_id, ring)?)))
            })
        }
    })
}

/// Writes a new connection ID, which was not issued before. `length` must be that of
/// `equic_ids_new`, or EQUIC_ID_LENGTH for `equic_gateway_ids`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_generate(
    ids: *const equic_ids,
    id: *mut u8,
    length: usize,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let ids = unsafe { handle(ids, "ids") }?;
        let expected = ids.length();
        if id.is_null() || length != expected {
            return Err(Failure::argument(format!(
                "the connection IDs of this generator have {expected} bytes: pass this length"
            )));
        }
        let made = match &ids.0 {
            Maker::Copy(generator) => generator.generate(),
            Maker::Of(gateway, instance) => of(gateway, *instance)?.generate(),
        };
        // SAFETY: equic.h requires that `id` has room for `expected` bytes.
        unsafe { std::ptr::copy_nonoverlapping(made.as_bytes().as_ptr(), id, expected) };
        Ok(())
    })
}

/// Checks whether a server of this service issued a connection ID. Returns EQUIC_OK,
/// EQUIC_ERROR_PROOF_MALFORMED, EQUIC_ERROR_PROOF_UNKNOWN_KEY (issued before a restart, or too old)
/// or EQUIC_ERROR_PROOF_FORGED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_check(
    ids: *const equic_ids,
    id: *const u8,
    length: usize,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (ids, id) = unsafe { (handle(ids, "ids")?, bytes_at(id, length, "id")?) };
        match &ids.0 {
            Maker::Copy(generator) => generator.open(id),
            Maker::Of(gateway, instance) => of(gateway, *instance)?.open(id),
        }?;
        Ok(())
    })
}

/// Replaces the ring after a key rotation. New IDs use its current key. Only for generators of
/// `equic_ids_new`: others follow their gateway.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_set_ring(
    ids: *const equic_ids,
    ring: *const equic_ring,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (ids, ring) = unsafe { (handle(ids, "ids")?, handle(ring, "ring")?) };
        let Maker::Copy(generator) = &ids.0 else {
            let message = "cannot replace the ring: this generator follows the keys of a gateway. Use equic_ids_set_ring only with a generator of equic_ids_new";
            return Err(Failure::argument(message));
        };
        generator.set_ring(ring.keys()?.into_owned());
        Ok(())
    })
}

/// Releases a generator. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_free(ids: *mut equic_ids) {
    if !ids.is_null() {
        // SAFETY: this library created the handle, and equic.h requires that the caller frees it
        // only once.
        drop(unsafe { Box::from_raw(ids) });
    }
}
