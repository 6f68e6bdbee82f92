//! Parses any bytes as the frames in the payload of a packet. Nothing may panic. A parsed value
//! must be the same after it is written and parsed again.
//!
//!     cargo +nightly fuzz run wire_frames fuzz/corpus/wire_frames fuzz/seeds/wire_frames
#![no_main]

#[allow(dead_code, reason = "each target holds one of the laws")]
#[path = "../../crates/wire/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::frames(data));
