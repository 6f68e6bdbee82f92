//! Fuzzes the parser of Mahimahi traces. A trace must give an error or parse, and the packets that
//! a parsed trace delivers must stay in order.
#![no_main]

#[path = "../../lab/net/tests/support/laws.rs"]
mod laws;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| laws::trace(data));
