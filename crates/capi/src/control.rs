//! C functions that change a running gateway: its settings, and its deny and allow lists.

use std::ffi::c_char;
use std::time::Duration;

use ::equic_gateway::{IpNet, parse_prefix};

use crate::arguments::{handle, text};
use crate::error::{Failure, Result, boundary, equic_error};
use crate::gateway::equic_gateway;

/// Changes a setting of a running gateway, like `equic gateway set KEY=VALUE`. `key` is for example
/// "max_connections", or "web.max_connections" for only the service "web". `value` is written as in
/// the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_set(
    gateway: *const equic_gateway,
    key: *const c_char,
    value: *const c_char,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (gateway, key, value) =
            unsafe { (handle(gateway, "gateway")?, text(key, "key")?, text(value, "value")?) };
        gateway.inner.control()?.set(key, value)?;
        Ok(())
    })
}

/// Drops every packet from `prefix` to the gateway's services. `prefix` is an address or a prefix:
/// "192.0.2.7", "2001:db8::/32". The entry lasts for `milliseconds`, or until `equic_forget` if
/// that is 0. If several prefixes match an address, the longest decides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_deny(
    gateway: *const equic_gateway,
    prefix: *const c_char,
    milliseconds: u64,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (gateway, prefix) = unsafe { (handle(gateway, "gateway")?, self::prefix(prefix)?) };
        Ok(gateway.inner.control()?.deny(prefix, expiry(milliseconds))?)
    })
}

/// Exempts a source from quotas and rates. The arguments are as for `equic_deny`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_allow(
    gateway: *const equic_gateway,
    prefix: *const c_char,
    milliseconds: u64,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (gateway, prefix) = unsafe { (handle(gateway, "gateway")?, self::prefix(prefix)?) };
        Ok(gateway.inner.control()?.allow(prefix, expiry(milliseconds))?)
    })
}

/// Removes a prefix from the deny and allow lists. Returns EQUIC_ERROR_NOT_FOUND if it is in
/// neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_forget(
    gateway: *const equic_gateway,
    prefix: *const c_char,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (gateway, prefix) = unsafe { (handle(gateway, "gateway")?, self::prefix(prefix)?) };
        if gateway.inner.control()?.forget(prefix)? {
            return Ok(());
        }
        let message = format!(
            "{prefix} is neither denied nor allowed: pass the same prefix length with which the address was listed"
        );
        Err(Failure::new(equic_error::EQUIC_ERROR_NOT_FOUND, message))
    })
}

/// # Safety
/// `prefix` must be NULL or NUL-terminated.
unsafe fn prefix(prefix: *const c_char) -> Result<IpNet> {
    // SAFETY: the caller upholds the `# Safety` section of this function.
    let text = unsafe { text(prefix, "prefix") }?;
    parse_prefix(text).map_err(|error| Failure::argument(error.to_string()))
}

fn expiry(milliseconds: u64) -> Option<Duration> {
    (milliseconds != 0).then(|| Duration::from_millis(milliseconds))
}
