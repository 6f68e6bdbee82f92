//! The rule for skipping tests. It is the same as in crates/gateway/tests/support/ci.rs.

use std::ffi::OsStr;

/// Returns true in continuous integration, where no test may be skipped.
#[must_use]
pub fn in_ci() -> bool {
    is_set(std::env::var_os("CI").as_deref())
}

/// Returns true if `CI` has this value and it means yes: neither empty nor `0` nor `false`.
#[must_use]
pub fn is_set(ci: Option<&OsStr>) -> bool {
    ci.is_some_and(|value| !["", "0", "false"].iter().any(|no| value == *no))
}
