//! Parses any bytes as transport parameters. Nothing may panic. A parsed value must be the same
//! after it is written and parsed again.
//!
//!     cargo +nightly fuzz run wire_transport_parameters fuzz/corpus/wire_transport_parameters fuzz/seeds/wire_transport_parameters
#![no_main]

#[allow(dead_code, reason = "each target holds one of the laws")]
#[path = "../../crates/wire/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::transport_parameters(data));
