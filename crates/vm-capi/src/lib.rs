//! libequic_vm: the bytecode engine for programs in C and everything that speaks C's calling convention.
//!
//! A layer over the crate `equic-vm`, described in the generated header `include/equic_vm.h`: `helpers.rs` (functions of
//! the host that programs call), `program.rs` (loading), `instance.rs` (memory and calls). Below them `error.rs`: codes,
//! the thread's last message, and the boundary that no panic crosses. `examples/equic_vm_header.rs` prints the header,
//! `tests/header.rs` compares it with the committed one; the tests in C are in `tests/c/`, run by the Makefile here.
#![allow(non_camel_case_types, reason = "types and error codes carry their C names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the requirements on callers are stated once for all functions, at the top of the header: examples/equic_vm_header.rs"
)]

// In the header's order, which is the order of these lines.
mod error;

mod helpers;

mod program;

mod instance;

pub use error::{equic_vm_error, equic_vm_last_error_message};
pub use helpers::*;
pub use instance::*;
pub use program::*;
