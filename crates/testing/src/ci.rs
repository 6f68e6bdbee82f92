//! Decides whether a test may be skipped. The same rule is in crates/gateway/tests/support/ci.rs.

use std::ffi::OsStr;

/// Returns `true` in continuous integration (CI), where no test may be skipped.
#[must_use]
pub fn in_ci() -> bool {
    is_set(std::env::var_os("CI").as_deref())
}

/// Returns whether this value of the variable `CI` means yes. An empty value, `0` and `false` mean
/// no.
#[must_use]
pub fn is_set(ci: Option<&OsStr>) -> bool {
    ci.is_some_and(|value| !["", "0", "false"].iter().any(|no| value == *no))
}
