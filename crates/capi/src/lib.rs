//! libequic: the eQUIC gateway for programs in C and everything that speaks C's calling convention.
//!
//! Two APIs over the crate `equic-gateway`, both described in the generated header `include/equic.h`:
//! * the paper's, `equic_t`: `paper/mod.rs`. It prints to stderr and ends the process on errors;
//! * handles and error codes, which does neither: `gateway.rs` (start there), `options.rs`,
//!   `control.rs`, `service.rs`, `counters.rs`, `retry.rs`, `ids.rs`.
//!
//! Below both: `error.rs` (codes, messages, the boundary no panic crosses) and `arguments.rs` (what
//! C hands in, checked). `examples/equic_header.rs` prints the header, `tests/header.rs` compares it with
//! the committed one; the tests in C are in `tests/c/`, run by the Makefile here.
#![allow(non_camel_case_types, reason = "types and error codes carry their C names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "what callers must keep is said once, for all functions, at the top of the header: examples/equic_header.rs"
)]

mod arguments;

// In the header's order, which is the order of these lines.
mod error;

mod paper;

mod options;

mod gateway;

mod service;

mod control;

mod counters;

mod retry;

mod ids;

pub use control::*;
pub use counters::*;
pub use error::{equic_error, equic_last_error_log, equic_last_error_message, equic_strerror};
pub use gateway::*;
pub use ids::*;
pub use options::*;
pub use paper::*;
pub use retry::*;
pub use service::*;

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// The version of the library that runs, as "0.1.0"; EQUIC_VERSION is the header's. Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn equic_version() -> *const c_char {
    VERSION.as_ptr()
}
