//! A trace in Mahimahi's format: it is one or an error, and what leaves by it leaves in order.
#![no_main]

#[path = "../../crates/net/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::trace(data));
