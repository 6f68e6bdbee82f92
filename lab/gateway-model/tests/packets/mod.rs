//! Helpers that all tests of the XDP program share.
//!
//! `frame` and `quic` build packets. A `script::Script` has a configuration and steps (packets,
//! waits, external changes). It runs on one of two `subject::Subject`s: the reference model, or
//! `program::Program`, which is the real XDP program under BPF_PROG_TEST_RUN. `random` generates
//! scripts from a seed, `fuzz` runs inputs that are sequences of bytes, and `rows` has the packet
//! tables. Start with `script`.

// Every test program compiles this module, but none uses all of it.
#![allow(dead_code)]

pub(crate) mod fuzz;
pub(crate) mod program;
pub(crate) mod quic;
pub(crate) mod random;
pub(crate) mod rows;
pub(crate) mod script;
pub(crate) mod subject;

use equic_testing::ci;
pub(crate) use equic_testing::frame;

/// Prints why the calling test cannot run. In CI, where no test may be skipped, panics with this
/// reason instead.
pub(crate) fn skip(test: &str, why: &str) {
    let message = format!("SKIPPED {test}: {why}");
    assert!(!ci::in_ci(), "{message} (CI is set: nothing may be skipped)");
    eprintln!("\n!!! {message} !!!\n");
}

/// Returns true if the test can load XDP programs.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid(2) has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
