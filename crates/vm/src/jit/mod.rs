//! The compiler, which translates a program to machine code. It translates each instruction
//! separately, without optimisations across instructions.
//!
//! * `compile`: the machine-independent part; `x64` and `a64`: machine instructions and register
//!   assignment for x86-64 and AArch64.
//! * `code`: memory for code, which is never executable and writable at the same time.
//! * `enter`: the state that compiled code and Rust share, and calls between them.
//!
//! On machines without a compiler, `none` replaces all of them.

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
