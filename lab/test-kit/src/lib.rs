//! Helpers that the tests of several crates share. Only tests depend on this crate. Helpers that
//! need no other crate are in `equic-testing`.
//!
//! * [`mod@bench`]: a made-up run of the benchmark;
//! * [`commands`]: runs the commands `equic` and `equic-lab`, and waits for their output;
//! * [`http3`]: HTTP/3 servers in the background, and an admission that records its calls;
//! * [`token`]: a gateway in user space.

#![forbid(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "commands")]
pub mod commands;
#[cfg(feature = "http3")]
pub mod http3;
#[cfg(feature = "token")]
pub mod token;
