//! Parses any bytes as a UDP payload. Nothing may panic. A parsed value must be the same after it
//! is written and parsed again.
#![no_main]

#[allow(dead_code, reason = "each target holds one of the laws")]
#[path = "../../crates/wire/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::datagram(data));
