//! The rule by which tests may be skipped. All crates' tests have this file; crates/capi/tests/c has the rule in C
//! and in sh.

use std::ffi::OsStr;

/// True if this is continuous integration, where nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    is_set(std::env::var_os("CI").as_deref())
}

/// The rule: `CI` is set, and neither empty nor `0` nor `false`.
pub(crate) fn is_set(ci: Option<&OsStr>) -> bool {
    ci.is_some_and(|value| !["", "0", "false"].iter().any(|no| value == *no))
}
