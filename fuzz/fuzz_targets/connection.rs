//! A connection without protection, and a peer that needs no keys: packets that open, of any content and
//! in any order, from the first on. Deeper than `hostile_peer` in the handshake, without its hooks, and
//! faster. Its driver, which says what an input is and what must hold, is the transport's own test:
//!
//!     cargo +nightly fuzz run connection fuzz/corpus/connection fuzz/seeds/connection
#![no_main]

#[allow(dead_code, reason = "the test looks at what came of an input")]
#[path = "../../crates/transport/tests/unprotected/mod.rs"]
mod unprotected;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| drop(unprotected::play(data)));
