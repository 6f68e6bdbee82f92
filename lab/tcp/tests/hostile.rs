//! Sends arbitrary segments to one end of a connection, which must stay within its limits.
//! `PROPTEST_CASES` sets the number of cases.

#[path = "support/hostile.rs"]
mod hostile;

use equic_tcp::TcpConfig;
use proptest::prelude::*;

/// Number of bytes that each end has to send.
const WRITTEN: u64 = 1 << 20;

proptest! {
    // No file of failures is written: a failure prints its input, so that a regression test can be
    // added.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One end of a connection gets arbitrary segments. It must store only a limited number of
    /// out-of-order ranges. It must not have more data outstanding than was written, and must not
    /// send it in segments that are too small.
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

/// Arbitrary segments must establish connections and reach most functions of an end. Otherwise the
/// other tests with arbitrary segments would prove nothing.
#[test]
fn hostile_segments_reach_every_state() {
    let mut state = 1u64;
    let (mut lost, mut spurious, mut ahead, mut reductions) = (0, 0, 0, 0);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..24 * 100)
            .map(|_| {
                // Marsaglia's xorshift generates the random numbers. Any other generator would be
                // good enough, too.
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
