//! The compiler: operations to x86-64, one after the other, without optimising across them.
//!
//! * `asm`: bytes of instructions. `x64`: operations to instructions. `division`: the longer ones.
//! * `code`: memory that is executable and never writable at the same time.
//! * `enter`: what compiled code and Rust share, and how each calls the other.
//!
//! # Registers
//!
//! | BPF | x86-64 | | |
//! |---|---|---|---|
//! | r0 | rax | base of the sandbox | r12 |
//! | r1 to r5 | rdi rsi rdx rcx r8 | what is left of the budget | r9 |
//! | r6 to r9 | rbx r13 r14 r15 | `State` | r10 |
//! | r10 | rbp | scratch | r11 |
//!
//! A program writes the registers on the left only. Every access to its memory is `[r12 + r11]` with r11
//! masked right before, or `[r12 + rbp + constant]` with the constant within the frames.

mod asm;
mod code;
mod division;
mod enter;
mod x64;

pub(crate) use code::Compiled;
pub(crate) use enter::{Shims, StateFor};
