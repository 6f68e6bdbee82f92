//! Proptest strategies that generate every legal value.

use equic_wire::frame::{AckRange, EcnCounts};
use equic_wire::packet::LongKind;
use equic_wire::{
    ConnectionId, Direction, KnownVersion, PacketNumber, ResetToken, StreamCount, StreamId, VarInt,
    VarIntLen,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Generates integers of every encoded length, including the smallest and the largest of each
/// length.
pub(crate) fn varint() -> impl Strategy<Value = VarInt> {
    let edge = |value: u64| Just(VarInt::new(value).unwrap());
    let up_to =
        |len: VarIntLen| (0..=len.max().get()).prop_map(|value| VarInt::new(value).unwrap());
    prop_oneof![
        up_to(VarIntLen::One),
        up_to(VarIntLen::Two),
        up_to(VarIntLen::Four),
        up_to(VarIntLen::Eight),
        prop_oneof![edge(0), edge(63), edge(64), edge(16_383), edge(16_384)],
        prop_oneof![edge((1 << 30) - 1), edge(1 << 30), edge((1 << 62) - 1)],
    ]
}

pub(crate) fn stream_id() -> impl Strategy<Value = StreamId> {
    varint().prop_map(StreamId::from)
}

pub(crate) fn stream_count() -> impl Strategy<Value = StreamCount> {
    varint().prop_map(|count| StreamCount::new(count.get()).unwrap_or(StreamCount::MAX))
}

pub(crate) fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Bidirectional), Just(Direction::Unidirectional)]
}

pub(crate) fn connection_id(
    len: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = ConnectionId> {
    vec(any::<u8>(), len).prop_map(|id| ConnectionId::new(&id).unwrap())
}

pub(crate) fn reset_token() -> impl Strategy<Value = ResetToken> {
    any::<[u8; 16]>().prop_map(ResetToken)
}

pub(crate) fn bytes(len: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), len)
}

pub(crate) fn version() -> impl Strategy<Value = KnownVersion> {
    prop_oneof![Just(KnownVersion::V1), Just(KnownVersion::V2)]
}

/// Returns the packet type with this index. Only an Initial packet uses the token.
pub(crate) fn long_kind<'a>(index: u8, token: &'a [u8]) -> LongKind<'a> {
    match index % 3 {
        0 => LongKind::Initial { token },
        1 => LongKind::ZeroRtt,
        _ => LongKind::Handshake,
    }
}

pub(crate) fn ecn() -> impl Strategy<Value = Option<EcnCounts>> {
    let counts = (varint(), varint(), varint());
    option::of(counts.prop_map(|(ect0, ect1, ce)| EcnCounts { ect0, ect1, ce }))
}

/// Generates ACK ranges in descending order, with a gap between any two.
pub(crate) fn ack_ranges() -> impl Strategy<Value = Vec<AckRange>> {
    let step = prop_oneof![0..4u64, 0..200u64, 0..1_000_000u64];
    (varint(), vec((step.clone(), step), 1..40)).prop_map(|(largest, steps)| {
        let mut next = Some(largest.get());
        let mut ranges = Vec::new();
        for (length, gap) in steps {
            let Some(largest) = next else { break };
            let smallest = largest.saturating_sub(length);
            let number = |n| PacketNumber::new(n).unwrap();
            ranges.push(AckRange::new(number(smallest), number(largest)).unwrap());
            next = smallest.checked_sub(gap + 2);
        }
        ranges
    })
}
