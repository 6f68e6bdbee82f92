//! Decides whether a test may be skipped. `crates/capi/tests/c` has the same rule in C and in sh,
//! and `bindings/` has it in Go and Python.

use std::ffi::OsStr;

/// Returns true in continuous integration, where no test may be skipped.
#[must_use]
pub fn in_ci() -> bool {
    is_set(std::env::var_os("CI").as_deref())
}

/// Returns true if this value of `CI` is neither empty nor `0` nor `false`.
#[must_use]
pub fn is_set(ci: Option<&OsStr>) -> bool {
    ci.is_some_and(|value| !["", "0", "false"].iter().any(|no| value == *no))
}
