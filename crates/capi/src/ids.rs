//! Connection IDs that prove themselves: those that the gateway which was joined can check, or of a ring that
//! was copied.

use std::sync::{Arc, Weak};

use ::equic_gateway::ConnectionIds;
use equic_token::{IdError, IdFormat, IdGenerator};

use crate::arguments::{give, handle};
use crate::error::{Failure, Result, boundary, equic_error};
use crate::gateway::{Inner, equic_gateway};
use crate::retry::{bytes_at, equic_ring, give_handle};
use equic_error::*;

/// Bytes of the connection IDs that a gateway checks and `equic_gateway_ids` makes.
pub const EQUIC_ID_LENGTH: usize = 12;

const _: () = assert!(EQUIC_ID_LENGTH == ConnectionIds::LEN, "a macro of C says it in figures");

/// Makes the connection IDs of one server process. Two processes need server IDs of their own.
pub struct equic_ids(Maker);

enum Maker {
    /// With a ring that was handed over.
    Copy(IdGenerator),
    /// With a gateway's, as it is whenever one is made; of an instance of this process.
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

/// What makes the IDs of a gateway that is open.
fn of(gateway: &Weak<Inner>, instance: u8) -> Result<ConnectionIds> {
    let closed = || Failure::new(EQUIC_ERROR_CLOSED, "the gateway whose IDs these are was closed");
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

/// The place of this process among those that feed the gateway, from 0 on: the first byte of the server ID in its
/// connection IDs (`equic_gateway_ids`). The next gateway that is joined may give another. EQUIC_ERROR_NOT_FOUND while
/// it has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_slot(
    gateway: *const equic_gateway,
    slot: *mut u32,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API, here and below.
        let found = unsafe { handle(gateway, "gateway") }?.inner.ledger()?.slot();
        let none = || Failure::new(EQUIC_ERROR_NOT_FOUND, "this process has no place there");
        // SAFETY: as above.
        unsafe { give(slot, found.ok_or_else(none)?) };
        Ok(())
    })
}

/// What makes connection IDs for a service with check_ids, of EQUIC_ID_LENGTH bytes. The gateway was joined with
/// EQUIC_TOKEN_KEYS_TAKE_FOR_IDS or _IDS_ONLY, or loaded by this process; and *all* the server's IDs are made so: the
/// Source Connection ID of its handshakes, those of NEW_CONNECTION_ID frames, and that of a preferred address.
///
/// Each ID (`equic_ids_generate`) is made with the key that the gateway uses at that moment, or the next gateway once
/// that one is joined: nobody has to follow their rotation. The two bytes behind the first are its server ID: the
/// process's place (`equic_gateway_slot`) and `instance`, 0 to 255, a number of the caller's choice that tells its sockets
/// apart. Handles of one instance share what makes its IDs: none comes twice.
///
/// EQUIC_ERROR_NOT_FOUND as with `equic_gateway_ring`. After `equic_gateway_close` the handle gives
/// EQUIC_ERROR_CLOSED, and is still to be released with `equic_ids_free`. On failure *ids is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_ids(
    gateway: *const equic_gateway,
    instance: u8,
    ids: *mut *mut equic_ids,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        unsafe {
            give_handle(ids, || {
                let gateway = &handle(gateway, "gateway")?.inner;
                gateway.connection_ids(instance)?;
                Ok(equic_ids(Maker::Of(Arc::downgrade(gateway), instance)))
            })
        }
    })
}

/// Makes a generator of connection IDs of `length` bytes, 8 to 20, that say `server_id`, 0 to 8 bytes. At least
/// eight bytes are for what else is in an ID. It takes a copy of the ring. What a gateway can check is made by
/// `equic_gateway_ids`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_new(
    ring: *const equic_ring,
    length: usize,
    server_id: *const u8,
    server_id_len: usize,
    ids: *mut *mut equic_ids,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
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

/// Writes a connection ID that was not given out before. `length` has to be that of `equic_ids_new`, or
/// EQUIC_ID_LENGTH for those of `equic_gateway_ids`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_generate(
    ids: *const equic_ids,
    id: *mut u8,
    length: usize,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let ids = unsafe { handle(ids, "ids") }?;
        let expected = ids.length();
        if id.is_null() || length != expected {
            return Err(Failure::argument(format!("the connection IDs have {expected} bytes")));
        }
        let made = match &ids.0 {
            Maker::Copy(generator) => generator.generate(),
            Maker::Of(gateway, instance) => of(gateway, *instance)?.generate(),
        };
        // SAFETY: there is room for as many; the contract of the API.
        unsafe { std::ptr::copy_nonoverlapping(made.as_bytes().as_ptr(), id, expected) };
        Ok(())
    })
}

/// Checks that a server of this service made a connection ID: EQUIC_OK, EQUIC_ERROR_PROOF_MALFORMED,
/// EQUIC_ERROR_PROOF_UNKNOWN_KEY (from before a restart, or too old) or EQUIC_ERROR_PROOF_FORGED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_check(
    ids: *const equic_ids,
    id: *const u8,
    length: usize,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let (ids, id) = unsafe { (handle(ids, "ids")?, bytes_at(id, length, "id")?) };
        match &ids.0 {
            Maker::Copy(generator) => generator.open(id),
            Maker::Of(gateway, instance) => of(gateway, *instance)?.open(id),
        }?;
        Ok(())
    })
}

/// Takes a ring whose keys were rotated: IDs are made with its current key from now on. For those of
/// `equic_ids_new`: others follow their gateway.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ids_set_ring(
    ids: *const equic_ids,
    ring: *const equic_ring,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let (ids, ring) = unsafe { (handle(ids, "ids")?, handle(ring, "ring")?) };
        let Maker::Copy(generator) = &ids.0 else {
            let message = "these IDs are a gateway's, and follow its keys by themselves";
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
        // SAFETY: the contract of the API: one of ours, for the last time.
        drop(unsafe { Box::from_raw(ids) });
    }
}
