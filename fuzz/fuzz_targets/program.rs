//! Runs the real XDP program, with BPF_PROG_TEST_RUN, and the reference model on any sequence of
//! frames. Both must give the same verdict on each frame, and the same counters at the end. The
//! target needs root. `packets/fuzz.rs` documents the input format, and `fuzz/seeds/program` has
//! examples:
//!
//!     cargo +nightly fuzz run program fuzz/corpus/program fuzz/seeds/program
#![no_main]

// The target shares this module with the tests of the gateway.
#[path = "../../lab/gateway-model/tests/packets/mod.rs"]
mod packets;

use libfuzzer_sys::fuzz_target;
use std::sync::{LazyLock, Mutex};

// The XDP program is loaded only once, because loading takes a second.
static CHECKER: LazyLock<Mutex<packets::fuzz::Checker>> = LazyLock::new(Mutex::default);

fuzz_target!(|data: &[u8]| {
    let mut checker = CHECKER.lock().expect("a panic ends the fuzzer");
    if let Err(how) = checker.check(data) {
        panic!("program and model disagree: {how}");
    }
});
