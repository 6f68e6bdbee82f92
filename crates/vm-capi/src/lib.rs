//! libequic_vm: the bytecode engine for programs in C, and for languages that can call C functions.
//!
//! The library is a layer on top of the crate `equic-vm`. The generated header `include/equic_vm.h`
//! describes it:
//! * `helpers.rs`: functions of the host that programs may call;
//! * `program.rs`: loading programs;
//! * `instance.rs`: the memory of programs, and calls.
//!
//! All of them use `error.rs`, which has the error codes, the last error message of each thread,
//! and the protection against panics that would unwind into C. `examples/equic_vm_header.rs` prints
//! the header, and `tests/header.rs` compares it with the committed one. The C tests are in
//! `tests/c/`, and the Makefile in this crate runs them.
#![allow(non_camel_case_types, reason = "types and error codes carry their C names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the requirements on callers are stated once for all functions, at the top of the header: examples/equic_vm_header.rs"
)]

// The order of the modules determines the order of the declarations in equic_vm.h.
mod error;

mod helpers;

mod program;

mod instance;

pub use error::{equic_vm_error, equic_vm_last_error_message};
pub use helpers::*;
pub use instance::*;
pub use program::*;
