//! An end stays within its limits, whatever it receives. `PROPTEST_CASES` sets the number of cases.

#[path = "support/hostile.rs"]
mod hostile;

use equic_tcp::TcpConfig;
use proptest::prelude::*;

/// Bytes that each end has to send.
const WRITTEN: u64 = 1 << 20;

proptest! {
    // A failure prints its input. Add a regression test for it.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// An end stores a bounded number of out-of-order ranges, and has no more data outstanding than
    /// it was given, in segments that are not too small.
    #[test]
    fn hostile_segments_neither_panic_nor_grow_memory(
        bytes in proptest::collection::vec(any::<u8>(), 0..24 * 200),
        sack: bool,
        timestamps: bool,
    ) {
        let config = TcpConfig { sack, timestamps, ..TcpConfig::default() };
        for end in hostile::drive(&config, WRITTEN, &bytes) {
            let stats = end.stats();
            prop_assert!(stats.outstanding as u64 <= WRITTEN / 52 + 1, "{stats:?}");
            prop_assert!(stats.out_of_order <= 16_384, "{stats:?}");
            prop_assert!(stats.in_flight <= WRITTEN, "{stats:?}");
        }
    }
}

/// The random steps reach connections, and much of what these can do. Otherwise the test above
/// would prove nothing.
#[test]
fn hostile_segments_reach_every_state() {
    let mut state = 1u64;
    let (mut lost, mut spurious, mut ahead, mut reductions) = (0, 0, 0, 0);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..24 * 100)
            .map(|_| {
                // Marsaglia's xorshift. Any generator would be sufficient.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        for end in hostile::drive(&TcpConfig::default(), WRITTEN, &bytes) {
            let stats = end.stats();
            lost += stats.lost;
            spurious += stats.spurious;
            reductions += stats.reductions;
            ahead += stats.out_of_order;
        }
    }
    assert!(
        lost > 1_000 && spurious > 10 && reductions > 5 && ahead > 50,
        "{lost} {spurious} {reductions} {ahead}"
    );
}
