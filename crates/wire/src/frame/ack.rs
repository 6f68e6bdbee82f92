//! ACK frames (RFC 9000 s.19.3).

use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType};
use crate::cursor::{BufferFull, Counter, Reader, Sink, Writer};
use crate::{PacketNumber, PathId, VarInt};
use core::time::Duration;

frame_types! {
    /// ACK without ECN counts.
    ACK = 0x02, "ACK",
        Rules::USUAL.packets(IN_INITIAL | IN_HANDSHAKE | IN_ONE_RTT).with(NOT_ELICITING);
    /// ACK with ECN counts.
    ACK_ECN = 0x03, "ACK",
        Rules::USUAL.packets(IN_INITIAL | IN_HANDSHAKE | IN_ONE_RTT).with(NOT_ELICITING);
}

/// An ACK frame. No range goes below zero, and at least one packet number is missing between two
/// ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    largest: PacketNumber,
    delay: VarInt,
    first_range: VarInt,
    range_count: VarInt,
    /// The Gap and ACK Range Length fields of all ranges after the first, `range_count` pairs. They
    /// are checked when the frame is read.
    ranges: &'a [u8],
    ecn: Option<EcnCounts>,
}

/// Total number of packets received with each ECN codepoint (RFC 9000 s.19.3.2).
// RFC 9000 s.19.3 #1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// ECT(0).
    pub ect0: VarInt,
    /// ECT(1).
    pub ect1: VarInt,
    /// ECN-CE.
    pub ce: VarInt,
}

/// Packet numbers from `smallest` to `largest`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckRange {
    smallest: PacketNumber,
    largest: PacketNumber,
}

/// The ranges of an ACK frame, the largest first.
#[derive(Clone, Debug)]
pub struct AckRanges<'a> {
    next: Option<AckRange>,
    rest: Reader<'a>,
}

/// Result of writing an ACK frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenAck {
    /// Number of ranges in the frame, counted from the first. The others did not fit.
    pub ranges: usize,
}

impl AckRange {
    /// Creates a range. Returns `None` if `smallest` is larger than `largest`.
    pub fn new(smallest: PacketNumber, largest: PacketNumber) -> Option<Self> {
        (smallest <= largest).then_some(AckRange { smallest, largest })
    }

    /// Returns the range that ends at `largest` and begins `length` numbers before it.
    fn below(largest: PacketNumber, length: VarInt) -> Option<Self> {
        let smallest = largest.as_varint().checked_sub(length.get())?.into();
        Some(AckRange { smallest, largest })
    }

    /// Returns the next lower range, with `gap + 1` missing numbers between the two ranges (RFC
    /// 9000 s.19.3.1).
    fn after(self, gap: VarInt, length: VarInt) -> Option<Self> {
        let missing = gap.get().checked_add(2)?;
        let largest = self.smallest.as_varint().checked_sub(missing)?.into();
        AckRange::below(largest, length)
    }

    /// Returns the Gap field between this range and the next lower one, `next`. Returns `None` if
    /// the ranges touch or are not in descending order.
    fn gap_to(self, next: AckRange) -> Option<VarInt> {
        self.smallest.as_varint().checked_sub(next.largest.get().checked_add(2)?)
    }

    /// The smallest number in the range.
    pub const fn smallest(&self) -> PacketNumber {
        self.smallest
    }

    /// The largest number in the range.
    pub const fn largest(&self) -> PacketNumber {
        self.largest
    }

    /// The ACK Range Length: the number of packets in the range, minus one.
    fn length(self) -> VarInt {
        self.largest.as_varint().checked_sub(self.smallest.get()).unwrap_or(VarInt::ZERO)
    }

    /// Returns `true` if the range contains `number`.
    pub fn contains(&self, number: PacketNumber) -> bool {
        self.smallest <= number && number <= self.largest
    }
}

impl<'a> Ack<'a> {
    /// Reads all fields of an ACK frame after its type. An extension whose ACK frames have the same
    /// fields can use this function, too.
    ///
    /// # Errors
    /// Fails if the bytes end inside the frame, or if a range goes below zero.
    pub fn read_fields(reader: &mut Reader<'a>, with_ecn: bool) -> Result<Self, FrameErrorKind> {
        let largest = PacketNumber::from(reader.varint()?);
        let delay = reader.varint()?;
        let range_count = reader.varint()?;
        let first_range = reader.varint()?;
        let negative = FrameErrorKind::NegativePacketNumber;
        let mut range = AckRange::below(largest, first_range).ok_or(negative)?;
        let before = reader.rest();
        // A large `range_count` cannot cause a long loop, because each range takes at least two
        // bytes of the input.
        for _ in 0..range_count.get() {
            let gap = reader.varint()?;
            let length = reader.varint()?;
            range = range.after(gap, length).ok_or(negative)?;
        }
        let len = before.len().saturating_sub(reader.len());
        let ranges = before.get(..len).unwrap_or_default();
        let ecn = if with_ecn { Some(EcnCounts::read(reader)?) } else { None };
        Ok(Ack { largest, delay, first_range, range_count, ranges, ecn })
    }

    /// The largest packet number acknowledged.
    pub const fn largest(&self) -> PacketNumber {
        self.largest
    }

    /// The ACK Delay field, in units of 2^ack_delay_exponent microseconds.
    pub const fn raw_delay(&self) -> VarInt {
        self.delay
    }

    /// Returns the ACK Delay as a duration, given the peer's `ack_delay_exponent` (RFC 9000
    /// s.19.3). A delay that does not fit into a `Duration` becomes the largest `Duration`.
    pub fn delay(&self, exponent: u8) -> Duration {
        let factor = 1u64.checked_shl(exponent.into()).unwrap_or(u64::MAX);
        Duration::from_micros(self.delay.get().saturating_mul(factor))
    }

    /// The ECN counts, or `None` if the frame has none.
    pub const fn ecn(&self) -> Option<EcnCounts> {
        self.ecn
    }

    /// Number of ranges in the frame, including the first.
    pub const fn range_count(&self) -> u64 {
        self.range_count.get().saturating_add(1)
    }

    /// Returns the ranges, from the largest packet numbers to the smallest.
    pub fn ranges(&self) -> AckRanges<'a> {
        AckRanges {
            next: AckRange::below(self.largest, self.first_range),
            rest: Reader::new(self.ranges),
        }
    }

    pub(super) const fn frame_type(&self) -> FrameType {
        if self.ecn.is_some() { FrameType::ACK_ECN } else { FrameType::ACK }
    }

    pub(super) fn fields(&self) -> Fields<'a> {
        Fields::of([Field::new("acked_ranges", FieldValue::Ack(*self))])
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.frame_type().0)?;
        self.encode_fields(sink)
    }

    /// Writes all fields of the frame after its type. A PATH_ACK frame ends with the same fields.
    pub(super) fn encode_fields(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.largest.as_varint())?;
        sink.varint(self.delay)?;
        sink.varint(self.range_count)?;
        sink.varint(self.first_range)?;
        sink.bytes(self.ranges)?;
        self.ecn.map_or(Ok(()), |ecn| ecn.encode(sink))
    }
}

impl Iterator for AckRanges<'_> {
    type Item = AckRange;

    fn next(&mut self) -> Option<AckRange> {
        let range = self.next?;
        self.next = match (self.rest.varint(), self.rest.varint()) {
            (Ok(gap), Ok(length)) => range.after(gap, length),
            _ => None,
        };
        Some(range)
    }
}

impl core::iter::FusedIterator for AckRanges<'_> {}

impl EcnCounts {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let ect0 = reader.varint()?;
        let ect1 = reader.varint()?;
        Ok(EcnCounts { ect0, ect1, ce: reader.varint()? })
    }

    fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.ect0)?;
        sink.varint(self.ect1)?;
        sink.varint(self.ce)
    }
}

/// Writes an ACK frame with as many of `ranges` as fit, beginning with the first. The ranges must
/// be in descending order, with at least one missing number between any two. At the first range
/// that breaks this rule, the frame ends. `delay` is in units of 2^ack_delay_exponent microseconds,
/// with the exponent of this endpoint.
///
/// # Errors
/// Fails if `ranges` is empty, or if not even the first range fits. Nothing is written then.
pub fn write_ack(
    writer: &mut Writer<'_>,
    ranges: impl IntoIterator<Item = AckRange, IntoIter: Clone>,
    delay: VarInt,
    ecn: Option<EcnCounts>,
) -> Result<WrittenAck, BufferFull> {
    write_ack_of(writer, None, ranges, delay, ecn)
}

/// Writes an ACK frame, or a PATH_ACK frame if `path_id` is given.
pub(super) fn write_ack_of(
    writer: &mut Writer<'_>,
    path_id: Option<PathId>,
    ranges: impl IntoIterator<Item = AckRange, IntoIter: Clone>,
    delay: VarInt,
    ecn: Option<EcnCounts>,
) -> Result<WrittenAck, BufferFull> {
    let mut ranges = ranges.into_iter();
    let first = ranges.next().ok_or(BufferFull)?;
    let fixed = Counter::of(|counter| {
        encode_head(counter, path_id, ecn.is_some())?;
        counter.varint(first.largest.as_varint())?;
        counter.varint(delay)?;
        counter.varint(first.length())?;
        ecn.map_or(Ok(()), |ecn| ecn.encode(counter))
    });
    let room = writer.remaining().checked_sub(fixed).ok_or(BufferFull)?;
    let count = count_that_fits(first, ranges.clone(), room).ok_or(BufferFull)?;
    writer.atomically(|writer| {
        encode_head(writer, path_id, ecn.is_some())?;
        writer.varint(first.largest.as_varint())?;
        writer.varint(delay)?;
        writer.varint(VarInt::try_from(count).map_err(|_| BufferFull)?)?;
        writer.varint(first.length())?;
        let mut previous = first;
        for range in ranges.take(count) {
            writer.varint(previous.gap_to(range).ok_or(BufferFull)?)?;
            writer.varint(range.length())?;
            previous = range;
        }
        ecn.map_or(Ok(()), |ecn| ecn.encode(writer))?;
        Ok(WrittenAck { ranges: count.saturating_add(1) })
    })
}

/// Writes the frame type and, in a PATH_ACK frame, the path ID.
fn encode_head(
    sink: &mut impl Sink,
    path_id: Option<PathId>,
    with_ecn: bool,
) -> Result<(), BufferFull> {
    let frame_type = match (path_id, with_ecn) {
        (None, false) => FrameType::ACK,
        (None, true) => FrameType::ACK_ECN,
        (Some(_), false) => FrameType::PATH_ACK,
        (Some(_), true) => FrameType::PATH_ACK_ECN,
    };
    sink.varint(frame_type.0)?;
    path_id.map_or(Ok(()), |path_id| sink.varint(path_id.as_varint()))
}

/// Returns how many of `ranges`, beginning with the first, fit into `room` bytes together with the
/// ACK Range Count field. Returns `None` if not even that field fits.
fn count_that_fits(
    first: AckRange,
    ranges: impl Iterator<Item = AckRange>,
    room: usize,
) -> Option<usize> {
    room.checked_sub(1)?;
    let mut previous = first;
    let mut count = 0usize;
    let mut taken = 0usize;
    for range in ranges {
        let Some(gap) = previous.gap_to(range) else { break };
        let with_it = count.saturating_add(1);
        let Ok(field) = VarInt::try_from(with_it) else { break };
        taken =
            taken.saturating_add(gap.encoded_len()).saturating_add(range.length().encoded_len());
        if taken.saturating_add(field.encoded_len()) > room {
            break;
        }
        count = with_it;
        previous = range;
    }
    Some(count)
}
