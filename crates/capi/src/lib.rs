//! libequic: the eQUIC gateway for programs in C, and for languages that can call C functions.
//!
//! The library has two APIs on top of the crate `equic-gateway`. The generated header
//! `include/equic.h` describes both:
//! * the API of the eQUIC paper, with the type `equic_t`: `paper/mod.rs`. It prints to stderr, and
//!   ends the process on errors;
//! * an API with handles and error codes, which does neither: `gateway.rs` (start there),
//!   `join.rs`, `options.rs`, `control.rs`, `service.rs`, `counters.rs`, `retry.rs`, `ids.rs`.
//!
//! Both use `error.rs` (error codes, messages, and protection against panics that would unwind into
//! C) and `arguments.rs` (checked arguments from C). `versioned.rs` is for structures of options. `examples/equic_header.rs` writes the headers,
//! and `tests/header.rs` compares them with the committed ones. The C tests are in `tests/c/`, and
//! the Makefile in this crate runs them.
#![allow(non_camel_case_types, reason = "types and error codes carry their C names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the top of the header has the rules for all functions: examples/equic_header.rs"
)]

mod arguments;

mod versioned;

// The order of the modules determines the order of the declarations in equic.h.
mod error;

mod paper;

mod options;

mod gateway;

mod join;

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
pub use join::*;
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

/// Returns the version of the loaded library, such as "0.1.0". EQUIC_VERSION is that of the header.
/// The string must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn equic_version() -> *const c_char {
    VERSION.as_ptr()
}
