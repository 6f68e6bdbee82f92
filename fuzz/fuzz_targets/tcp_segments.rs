//! Segments of any content from a peer of the simulator's TCP. The receiving end must not panic,
//! and must not send without end.
#![no_main]

#[path = "../../crates/tcp/tests/support/hostile.rs"]
mod hostile;

use equic_tcp::{Segment, TcpConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let _ = Segment::parse(rest, 0);
    let config = TcpConfig {
        sack: first & 1 == 0,
        timestamps: first & 2 == 0,
        ecn: first & 4 == 0,
        ..TcpConfig::default()
    };
    hostile::drive(&config, 1 << 20, rest);
});
