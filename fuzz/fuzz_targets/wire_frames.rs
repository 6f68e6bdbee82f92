//! Any bytes as the payload of a packet. A parsed value must be the same after it is written and
//! parsed again, and nothing may panic.
//!
//!     cargo +nightly fuzz run wire_frames fuzz/corpus/wire_frames fuzz/seeds/wire_frames
#![no_main]

#[allow(dead_code, reason = "each target holds one of the laws")]
#[path = "../../crates/wire/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::frames(data));
