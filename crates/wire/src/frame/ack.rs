//! ACK frames (RFC 9000 s.19.3).

use super::{FrameErrorKind, FrameType};
use crate::cursor::{BufferFull, Counter, Reader, Sink, Writer};
use crate::{PacketNumber, PathId, VarInt};
use core::time::Duration;

/// Packets received, by number. No range goes below zero, and none touches the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    largest: PacketNumber,
    delay: VarInt,
    first_range: VarInt,
    range_count: VarInt,
    /// Gap and ACK Range Length, `range_count` times, checked.
    ranges: &'a [u8],
    ecn: Option<EcnCounts>,
}

/// Packets received with each ECN codepoint, in all (RFC 9000 s.19.3.2).
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
    /// Ranges that are in the frame; those behind them did not fit.
    pub ranges: usize,
}

impl AckRange {
    /// `None` if `smallest` is the larger.
    pub fn new(smallest: PacketNumber, largest: PacketNumber) -> Option<Self> {
        (smallest <= largest).then_some(AckRange { smallest, largest })
    }

    /// The range whose largest is `largest` and that goes on for `length` more numbers below it.
    fn below(largest: PacketNumber, length: VarInt) -> Option<Self> {
        let smallest = largest.as_varint().checked_sub(length.get())?.into();
        Some(AckRange { smallest, largest })
    }

    /// The range after this one: `gap` and one more numbers between them (RFC 9000 s.19.3.1).
    fn after(self, gap: VarInt, length: VarInt) -> Option<Self> {
        let missing = gap.get().checked_add(2)?;
        let largest = self.smallest.as_varint().checked_sub(missing)?.into();
        AckRange::below(largest, length)
    }

    /// The Gap between this range and `next`; `None` if they touch or are not in order.
    fn gap_to(self, next: AckRange) -> Option<VarInt> {
        self.smallest.as_varint().checked_sub(next.largest.get().checked_add(2)?)
    }

    /// The smallest number in it.
    pub const fn smallest(&self) -> PacketNumber {
        self.smallest
    }

    /// The largest number in it.
    pub const fn largest(&self) -> PacketNumber {
        self.largest
    }

    /// The ACK Range Length: one less than there are numbers in it.
    fn length(self) -> VarInt {
        self.largest.as_varint().checked_sub(self.smallest.get()).unwrap_or(VarInt::ZERO)
    }

    /// True if the range contains `number`.
    pub fn contains(&self, number: PacketNumber) -> bool {
        self.smallest <= number && number <= self.largest
    }
}

impl<'a> Ack<'a> {
    /// Reads what is behind the type of an ACK frame; extensions with ACK frames of their own
    /// have the same fields.
    ///
    /// # Errors
    /// The bytes end inside it, or a range goes below zero.
    pub fn read_fields(reader: &mut Reader<'a>, with_ecn: bool) -> Result<Self, FrameErrorKind> {
        let largest = PacketNumber::from(reader.varint()?);
        let delay = reader.varint()?;
        let range_count = reader.varint()?;
        let first_range = reader.varint()?;
        let negative = FrameErrorKind::NegativePacketNumber;
        let mut range = AckRange::below(largest, first_range).ok_or(negative)?;
        let before = reader.rest();
        // However many there are said to be: each takes two bytes at least.
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

    /// The ACK Delay, by the ack_delay_exponent of the peer (RFC 9000 s.19.3); what would not fit is
    /// cut to the largest there is.
    pub fn delay(&self, exponent: u8) -> Duration {
        let factor = 1u64.checked_shl(exponent.into()).unwrap_or(u64::MAX);
        Duration::from_micros(self.delay.get().saturating_mul(factor))
    }

    /// The ECN counts, if the frame has them.
    pub const fn ecn(&self) -> Option<EcnCounts> {
        self.ecn
    }

    /// Number of ranges in the frame, the first included.
    pub const fn range_count(&self) -> u64 {
        self.range_count.get().saturating_add(1)
    }

    /// The ranges, the largest first.
    pub fn ranges(&self) -> AckRanges<'a> {
        AckRanges {
            next: AckRange::below(self.largest, self.first_range),
            rest: Reader::new(self.ranges),
        }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = if self.ecn.is_some() { FrameType::ACK_ECN } else { FrameType::ACK };
        sink.varint(frame_type.0)?;
        self.encode_fields(sink)
    }

    /// Everything behind the type, which a PATH_ACK frame has too.
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

/// Writes an ACK frame with as many of `ranges` as fit, from the first. They come the largest first,
/// with at least one number missing between any two; the frame ends where they do not. `delay` is in
/// units of 2^ack_delay_exponent microseconds, by this endpoint's exponent.
///
/// # Errors
/// Not even the first range fits, or there is none; nothing is written then.
pub fn write_ack(
    writer: &mut Writer<'_>,
    ranges: impl IntoIterator<Item = AckRange, IntoIter: Clone>,
    delay: VarInt,
    ecn: Option<EcnCounts>,
) -> Result<WrittenAck, BufferFull> {
    write_ack_of(writer, None, ranges, delay, ecn)
}

/// Writes an ACK frame, or with `path_id` a PATH_ACK frame.
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

/// The type, and the path ID of a PATH_ACK frame.
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

/// Number of the first of `ranges` that fit into `room` bytes with the field that counts them; `None` if not
/// even that field fits.
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
