//! A trace in Mahimahi's format. It must parse or give an error, and packets that leave by the
//! trace must stay in order.
#![no_main]

#[path = "../../crates/net/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::trace(data));
