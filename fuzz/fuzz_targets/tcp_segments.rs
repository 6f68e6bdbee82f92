//! Fuzzes the simulator's TCP with a peer that sends segments of any content. The receiver must not
//! panic, and must not send segments forever.
#![no_main]

#[path = "../../lab/tcp/tests/support/hostile.rs"]
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
