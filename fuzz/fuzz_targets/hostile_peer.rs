//! A connection, and a peer that has the real keys and does what the input says. The peer sends
//! datagrams of any bytes, frames of any bytes in packets that open, changed handshakes, and
//! replays. It also changes addresses, and lets time pass. The driver is a test of the transport.
//! It describes the format of the input and the properties that must hold:
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
