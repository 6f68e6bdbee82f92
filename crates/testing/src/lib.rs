//! Helpers that the tests of several crates share. Only tests depend on this crate. It depends on
//! no other crate, so that every crate can use it. Helpers that need other crates are in
//! `equic-test-kit`.
//!
//! * [`ci`]: whether a test may be skipped;
//! * [`frame`]: Ethernet frames.

#![forbid(unsafe_code)]

pub mod ci;
pub mod frame;
