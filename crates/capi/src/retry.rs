//! C functions for key rings, and for the Retry tokens that a gateway makes with its key ring. They
//! only need a ring: that of a joined gateway, or a copy. With a copy, they need no gateway, no
//! kernel support and no privileges.
//!
//! The ring of a joined gateway has a weak reference to the gateway and reads its keys at each
//! call, so callers need not handle key rotation. If the server joined through a socket, checking a
//! token costs a system call.

use std::borrow::Cow;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::slice;
use std::sync::{Arc, Weak};

use equic_token::{Clock, ConnectionId, KeyRing, RetryToken, RingError, SealError, TokenError};
use libc::{sockaddr, socklen_t};

use crate::arguments::{give, handle, peer};
use crate::error::{Failure, Result, boundary, equic_error};
use crate::gateway::{Inner, equic_gateway};
use equic_error::*;

/// The clock by which Retry tokens expire.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_clock {
    /// CLOCK_MONOTONIC: gateway and servers are on the same machine.
    EQUIC_CLOCK_MONOTONIC = 0,
    /// Time since the Unix epoch: gateway and servers are on machines whose clocks agree within two
    /// seconds.
    EQUIC_CLOCK_UNIX = 1,
}

/// Keys that a gateway and its servers share. Everyone who has them can create tokens and
/// connection IDs.
pub struct equic_ring(Keys);

enum Keys {
    /// A key ring that this process generated or read. It does not change.
    Copy(KeyRing),
    /// The current key ring of a gateway, read at each call.
    Of(Weak<Inner>),
}

impl equic_ring {
    /// Returns the current keys of the ring.
    pub(crate) fn keys(&self) -> Result<Cow<'_, KeyRing>> {
        match &self.0 {
            Keys::Copy(ring) => Ok(Cow::Borrowed(ring)),
            Keys::Of(gateway) => {
                let gateway = gateway.upgrade().ok_or_else(|| {
                    Failure::new(EQUIC_ERROR_CLOSED, "the gateway of this ring was closed")
                })?;
                gateway.key_ring().map(Cow::Owned)
            }
        }
    }
}

/// Values that a server must send to a client that presented a Retry token (RFC 9000 s.7.3). Bytes
/// after a length are zero.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct equic_retry_proof {
    /// The transport parameter original_destination_connection_id.
    pub original_dcid: [u8; 20],
    /// The transport parameter retry_source_connection_id: the packet's Destination Connection ID.
    pub retry_scid: [u8; 20],
    /// Length of `original_dcid` in bytes.
    pub original_dcid_len: u8,
    /// Length of `retry_scid` in bytes.
    pub retry_scid_len: u8,
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Failure {
        let code = match error {
            TokenError::NewToken => EQUIC_ERROR_NEW_TOKEN,
            TokenError::Malformed => EQUIC_ERROR_PROOF_MALFORMED,
            TokenError::UnknownEpoch => EQUIC_ERROR_PROOF_UNKNOWN_KEY,
            TokenError::Forged => EQUIC_ERROR_PROOF_FORGED,
            TokenError::Expired => EQUIC_ERROR_PROOF_EXPIRED,
            TokenError::Early => EQUIC_ERROR_PROOF_EARLY,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<RingError> for Failure {
    fn from(error: RingError) -> Failure {
        let code = match error {
            RingError::Random => EQUIC_ERROR_SYSTEM,
            _ => EQUIC_ERROR_INVALID_ARGUMENT,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Failure {
        Failure::argument(error.to_string())
    }
}

/// Returns a slice of bytes that the C program passed.
///
/// # Safety
/// `bytes` must be NULL, or point to `length` readable bytes that live for `'a`.
pub(crate) unsafe fn bytes_at<'a>(bytes: *const u8, length: usize, name: &str) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || length > isize::MAX as usize {
        return Err(Failure::argument(format!("`{name}` is NULL or too long")));
    }
    // SAFETY: the pointer is not NULL, the length is below the limit, and the caller upholds the `#
    // Safety` section of this function.
    Ok(unsafe { slice::from_raw_parts(bytes, length) })
}

/// # Safety
/// As for [`bytes_at`].
unsafe fn id_at(bytes: *const u8, length: usize, name: &str) -> Result<ConnectionId> {
    // SAFETY: the caller upholds the `# Safety` section of this function.
    let bytes = unsafe { bytes_at(bytes, length, name) }?;
    ConnectionId::new(bytes).map_err(|_| {
        Failure::argument(format!(
            "`{name}` has more than 20 bytes, which is the maximum for a connection ID"
        ))
    })
}

/// Writes the handle that `make` returns to `place`, or NULL if `make` fails.
///
/// # Safety
/// `place` must be NULL or valid for a write.
pub(crate) unsafe fn give_handle<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T>,
) -> Result<()> {
    if place.is_null() {
        return Err(Failure::argument("the pointer to the place for the new handle is NULL"));
    }
    // SAFETY: the pointer is not NULL, and the caller upholds the `# Safety` section of this
    // function.
    unsafe { place.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: the pointer is not NULL, and the caller upholds the `# Safety` section of this
    // function.
    unsafe { place.write(made) };
    Ok(())
}

/// Generates a ring with one key and a clock (enum equic_clock), for servers that send Retry
/// packets themselves. A gateway generates its own ring and gives it to servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ring_generate(
    clock: c_int,
    ring: *mut *mut equic_ring,
) -> equic_error {
    let make = || {
        let clock = if clock == equic_clock::EQUIC_CLOCK_MONOTONIC as c_int {
            Clock::Monotonic
        } else if clock == equic_clock::EQUIC_CLOCK_UNIX as c_int {
            Clock::Unix
        } else {
            return Err(Failure::argument(format!("no clock has the number {clock}")));
        };
        Ok(equic_ring(Keys::Copy(KeyRing::generate(clock)?)))
    };
    // SAFETY: the caller follows the pointer rules in equic.h.
    boundary(|| unsafe { give_handle(ring, make) })
}

/// Reads a ring of 128 bytes that a gateway has issued (docs/retry.md s.2). Returns
/// EQUIC_ERROR_INVALID_ARGUMENT if the bytes are not a ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ring_read(
    bytes: *const u8,
    length: usize,
    ring: *mut *mut equic_ring,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe {
            give_handle(ring, || {
                let ring = KeyRing::from_bytes(bytes_at(bytes, length, "bytes")?)?;
                Ok(equic_ring(Keys::Copy(ring)))
            })
        }
    })
}

/// Returns the key ring of a gateway that this process has loaded, or has joined with
/// EQUIC_TOKEN_CHECK_GATEWAY_KEYS or `issue_ids`. It is not a copy: each call uses the current keys
/// of the gateway, or of the next gateway after that one is joined. So the caller need not handle
/// key rotation. Checking a token with it needs a system call. After `equic_gateway_close`, calls
/// with the ring return EQUIC_ERROR_CLOSED, and the caller must still release it with
/// `equic_ring_free`.
///
/// Returns EQUIC_ERROR_NOT_FOUND if this process joined the gateway without asking for the ring, or
/// if the gateway did not give it: it gives the ring only to users who may serve all services. On
/// failure, *ring is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_ring(
    gateway: *const equic_gateway,
    ring: *mut *mut equic_ring,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe {
            give_handle(ring, || {
                let gateway = &handle(gateway, "gateway")?.inner;
                gateway.key_ring()?;
                Ok(equic_ring(Keys::Of(Arc::downgrade(gateway))))
            })
        }
    })
}

/// Writes the current ring as 128 bytes, for other processes. The bytes are secret.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ring_write(
    ring: *const equic_ring,
    bytes: *mut u8,
    length: usize,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let ring = unsafe { handle(ring, "ring") }?;
        if bytes.is_null() || length < KeyRing::LEN {
            return Err(Failure::argument("the buffer for a ring needs room for 128 bytes"));
        }
        let content = ring.keys()?.to_bytes();
        // SAFETY: equic.h requires that `bytes` has room for the ring.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), bytes, KeyRing::LEN) };
        Ok(())
    })
}

/// Overwrites the keys of a ring, and releases it. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_ring_free(ring: *mut equic_ring) {
    if !ring.is_null() {
        // SAFETY: this library created the handle, and equic.h requires that the caller frees it
        // only once.
        drop(unsafe { Box::from_raw(ring) });
    }
}

/// Checks the token of an Initial packet from `client` with Destination Connection ID `dcid`, by
/// the clock of the ring. With EQUIC_OK, the client's address is validated, and `proof` has the
/// values for the server's transport parameters. Otherwise the address is not validated, and
/// `proof` is unchanged:
/// EQUIC_ERROR_NEW_TOKEN: the token is from a NEW_TOKEN frame, so the server must validate it.
/// EQUIC_ERROR_PROOF_MALFORMED, _UNKNOWN_KEY, _FORGED, _EXPIRED, _EARLY: the server may close the
/// connection with INVALID_TOKEN.
/// EQUIC_ERROR_CLOSED, EQUIC_ERROR_SYSTEM: the ring is that of a gateway (`equic_gateway_ring`) and
/// cannot be read.
/// EQUIC_ERROR_NOT_FOUND: the ring is that of a gateway, and the next gateway, which this process
/// has joined, does not give its ring.
/// Do not call it for a packet without a token: the gateway did not send a Retry packet to its
/// client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_retry_verify(
    ring: *const equic_ring,
    client: *const sockaddr,
    client_len: socklen_t,
    dcid: *const u8,
    dcid_len: usize,
    token: *const u8,
    token_len: usize,
    proof: *mut equic_retry_proof,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (ring, client, dcid, token) = unsafe {
            (
                handle(ring, "ring")?.keys()?,
                peer(client, client_len)?,
                bytes_at(dcid, dcid_len, "dcid")?,
                bytes_at(token, token_len, "token")?,
            )
        };
        let token = RetryToken::open(&ring, ring.now(), client, dcid, token)?;
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(proof, told(&token)) };
        Ok(())
    })
}

fn told(token: &RetryToken) -> equic_retry_proof {
    let mut proof = equic_retry_proof::default();
    let (original, retry) = (token.original.as_bytes(), token.retry_source.as_bytes());
    proof.original_dcid[..original.len()].copy_from_slice(original);
    proof.retry_scid[..retry.len()].copy_from_slice(retry);
    // A connection ID has at most 20 bytes.
    (proof.original_dcid_len, proof.retry_scid_len) = (original.len() as u8, retry.len() as u8);
    proof
}

/// Creates the token of a Retry packet, 80 bytes long, for servers that send Retry packets
/// themselves. `original_dcid` is the Destination Connection ID of the client's packet,
/// `retry_scid` the Source Connection ID of the Retry packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_retry_seal(
    ring: *const equic_ring,
    client: *const sockaddr,
    client_len: socklen_t,
    original_dcid: *const u8,
    original_dcid_len: usize,
    retry_scid: *const u8,
    retry_scid_len: usize,
    token: *mut u8,
    token_room: usize,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (ring, client, original, retry): (_, SocketAddr, _, _) = unsafe {
            (
                handle(ring, "ring")?.keys()?,
                peer(client, client_len)?,
                id_at(original_dcid, original_dcid_len, "original_dcid")?,
                id_at(retry_scid, retry_scid_len, "retry_scid")?,
            )
        };
        if token.is_null() || token_room < RetryToken::LEN {
            return Err(Failure::argument("the buffer for a Retry token needs room for 80 bytes"));
        }
        let sealed = RetryToken::new(client, original, retry, ring.now()).seal(&ring)?;
        // SAFETY: equic.h requires that `token` has room for the sealed token.
        unsafe { std::ptr::copy_nonoverlapping(sealed.as_ptr(), token, sealed.len()) };
        Ok(())
    })
}
