//! Fuzzes a connection without packet protection. Its peer needs no keys, so each of its packets
//! can be decrypted, from the first one on. The peer sends packets of any content in any order.
//! This target reaches more of the handshake than `hostile_peer` and is faster, but does not test
//! hooks. The code that runs an input is part of the transport's tests. It documents the input
//! format and the properties that must hold:
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
