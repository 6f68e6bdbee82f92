//! For authors of protocol plugins, and for tests of plugins:
//!
//! * [`compile`]: C to an object, by clang;
//! * [`Network`]: a client and a server in one thread and virtual time, over a link of `equic-net`; the same seed
//!   gives the same run.
//!
//! The command `equic plugin` is built on this crate.

#![forbid(unsafe_code)]

mod clang;
mod network;

pub use clang::{BuildError, compile, compile_with, flags};
pub use network::{Beginning, End, Network, Prepare, StartError, Stuck};
