//! The real XDP program, through BPF_PROG_TEST_RUN, and the reference model on any sequence of
//! frames: the same verdict on each, and the same counts in the end. Needs root. `packets/fuzz.rs`
//! says what an input is, `fuzz/seeds/program` has some:
//!
//!     cargo +nightly fuzz run program fuzz/corpus/program fuzz/seeds/program
#![no_main]

// The machinery of the gateway's own tests.
#[path = "../../crates/gateway-model/tests/packets/mod.rs"]
mod packets;

use libfuzzer_sys::fuzz_target;
use std::sync::{LazyLock, Mutex};

// Loading takes a second: once will do.
static CHECKER: LazyLock<Mutex<packets::fuzz::Checker>> = LazyLock::new(Mutex::default);

fuzz_target!(|data: &[u8]| {
    let mut checker = CHECKER.lock().expect("a panic ends the fuzzer");
    if let Err(how) = checker.check(data) {
        panic!("program and model disagree: {how}");
    }
});
