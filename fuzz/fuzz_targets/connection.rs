//! An unprotected connection and a peer that needs no keys. The peer sends packets that always
//! open, with any content and in any order, from the first packet on. This target gets deeper into
//! the handshake than `hostile_peer` and is faster, but it has no hooks. The driver is a test of
//! the transport. It describes the format of the input and the properties that must hold:
//!
//!     cargo +nightly fuzz run connection fuzz/corpus/connection fuzz/seeds/connection
#![no_main]

#[allow(dead_code, reason = "the test looks at what came of an input")]
#[path = "../../crates/transport/tests/unprotected/mod.rs"]
mod unprotected;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = unprotected::play(data);
});
