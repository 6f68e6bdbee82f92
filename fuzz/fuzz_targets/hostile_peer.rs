//! Fuzzes a connection whose peer has the real keys and does what the input says. The peer sends
//! datagrams of any bytes, correctly protected packets with any bytes as frames, modified
//! handshakes, and replays. It also changes addresses, and lets time pass. The code that runs an
//! input is part of the transport's tests. It documents the input format and the properties that
//! must hold:
//!
//!     cargo +nightly fuzz run hostile_peer fuzz/corpus/hostile_peer fuzz/seeds/hostile_peer
#![no_main]

#[allow(dead_code, reason = "the test makes inputs of its own, and looks at what came of them")]
#[path = "../../crates/transport/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = hostile::play(data);
});
