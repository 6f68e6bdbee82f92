//! The compiler: operations to machine code, one after the other, without optimising across them.
//!
//! * `compile`: what is the same on every machine; `x64` and `a64`: operations to instructions of x86-64 and of
//!   AArch64, and where BPF's registers are there.
//! * `code`: memory that is executable and never writable at the same time.
//! * `enter`: what compiled code and Rust share, and how each calls the other.
//!
//! `none` stands for all of them on machines that there is no compiler for.

#[cfg(target_arch = "aarch64")]
mod a64;
mod code;
mod compile;
mod enter;
#[cfg(target_arch = "x86_64")]
mod x64;

#[cfg(target_arch = "aarch64")]
use a64::A64 as Machine;
#[cfg(target_arch = "x86_64")]
use x64::X64 as Machine;

pub(crate) use code::Compiled;
pub(crate) use enter::{Ready, Shims};
