//! C functions for the reasons why packets passed or were dropped, and for the packet counters.

use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

use ::equic_gateway::Reason;

use crate::arguments::{give, handle, text};
use crate::error::{Failure, boundary, boundary_or, c_text, equic_error};
use crate::service::equic_service;

/// Number of packets to one service with one reason, since the gateway was loaded.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct equic_counts {
    /// Packets with this reason.
    pub packets: u64,
    /// UDP payload of these packets, in bytes.
    pub bytes: u64,
    /// Packets that were really dropped. Packets in a dry run, and those that the gateway answered,
    /// do not count.
    pub dropped: u64,
}

/// Names and meanings of the reasons, as C strings.
static TEXTS: LazyLock<Vec<(CString, CString)>> = LazyLock::new(|| {
    Reason::all().map(|reason| (c_text(reason.name()), c_text(reason.meaning()))).collect()
});

/// Returns the number of reasons. They are numbered from 0. Later versions only add reasons.
#[unsafe(no_mangle)]
pub extern "C" fn equic_reason_count() -> u32 {
    boundary_or(0, || Ok(Reason::all().len() as u32))
}

/// Returns a reason's name as in reports: "quota", "small_initial", ... Returns NULL if there is no
/// such reason. The string must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn equic_reason_name(reason: u32) -> *const c_char {
    let name =
        || Ok(TEXTS.get(reason as usize).map_or(std::ptr::null(), |(name, _)| name.as_ptr()));
    boundary_or(std::ptr::null(), name)
}

/// Returns the meaning of a reason in one line, or NULL if there is no such reason. The string must
/// not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn equic_reason_meaning(reason: u32) -> *const c_char {
    let meaning =
        || Ok(TEXTS.get(reason as usize).map_or(std::ptr::null(), |(_, meaning)| meaning.as_ptr()));
    boundary_or(std::ptr::null(), meaning)
}

/// Returns 1 if packets with this reason are dropped (in a dry run: would be dropped), otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn equic_reason_drops(reason: u32) -> c_int {
    boundary_or(0, || Ok(Reason::from_number(reason).is_some_and(Reason::drops).into()))
}

/// Returns the number of the reason of that name, or -1 if there is no such reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_reason_find(name: *const c_char) -> c_int {
    boundary_or(-1, || {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let name = unsafe { text(name, "name") }?;
        let unknown = |()| {
            Failure::new(equic_error::EQUIC_ERROR_NOT_FOUND, format!("there is no reason `{name}`"))
        };
        Ok(name.parse::<Reason>().map_err(unknown)?.number() as c_int)
    })
}

/// Counts the packets to a service with this reason. Returns EQUIC_ERROR_NOT_FOUND if there is no
/// such reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_counter(
    service: *const equic_service,
    reason: u32,
    counts: *mut equic_counts,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
        let service = unsafe { handle(service, "service") }?;
        let unknown = || {
            Failure::new(equic_error::EQUIC_ERROR_NOT_FOUND, format!("there is no reason {reason}"))
        };
        let reason = Reason::from_number(reason).ok_or_else(unknown)?;
        let rows = service.gateway()?.control()?.counters()?;
        let row = rows.iter().find(|row| row.reason == reason && row.service == service.name());
        let found = row.map_or_else(equic_counts::default, |row| equic_counts {
            packets: row.packets,
            bytes: row.bytes,
            dropped: row.dropped,
        });
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(counts, found) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn reasons_have_numbers_names_and_meanings() {
        let count = equic_reason_count();
        assert!(count > 20);
        for number in 0..count {
            // SAFETY: `number` is below the number of reasons, so the name is not NULL.
            let name = unsafe { CStr::from_ptr(equic_reason_name(number)) };
            // SAFETY: NUL-terminated.
            assert_eq!(unsafe { equic_reason_find(name.as_ptr()) }, number as c_int);
            assert!(!equic_reason_meaning(number).is_null());
        }
        assert_eq!(equic_reason_drops(Reason::Quota.number()), 1);
        assert_eq!(equic_reason_drops(Reason::New.number()), 0);
        for number in [count, u32::MAX] {
            assert!(equic_reason_name(number).is_null() && equic_reason_meaning(number).is_null());
            assert_eq!(equic_reason_drops(number), 0);
        }
        // SAFETY: a string literal, and NULL.
        unsafe {
            assert_eq!(equic_reason_find(c"nonsense".as_ptr()), -1);
            assert_eq!(equic_reason_find(std::ptr::null()), -1);
        }
    }
}
