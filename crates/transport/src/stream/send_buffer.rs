//! Stores bytes to send until the peer has acknowledged them (RFC 9000 s.2.2, s.13.3).

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use crate::lazy::Buffer;
use crate::ranges::RangeSet;

/// Size of the segments in which small writes are gathered, in bytes.
const SEGMENT: usize = 16 * 1024;

/// Data to send on one stream, or at one level of CRYPTO data. Offsets count from the start of the
/// stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct SendBuffer {
    /// Stream offset at which `segments[0]` begins. All data below it is acknowledged and released.
    base: u64,
    segments: VecDeque<Bytes>,
    /// Offset at which each segment ends, to find the segment that contains an offset.
    ends: VecDeque<u64>,
    /// Index of the segment from which data was last copied. It only speeds up the next lookup.
    last: usize,
    /// The last segment, while small writes are still added to it.
    tail: BytesMut,
    /// Offset after all written data.
    end: u64,
    /// Offset after all data that was sent at least once.
    sent: u64,
    acked: RangeSet,
    /// Number of bytes in the ranges of `acked`: acknowledged data that follows data which is not.
    ahead: u64,
    lost: RangeSet,
}

impl Buffer for SendBuffer {
    fn at(offset: u64) -> SendBuffer {
        SendBuffer { base: offset, end: offset, sent: offset, ..SendBuffer::default() }
    }

    fn empty_at(&self) -> Option<u64> {
        self.is_done().then_some(self.base)
    }
}

impl SendBuffer {
    /// Returns the offset after all written data.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the offset below which the peer has acknowledged all data.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns true if the peer has acknowledged all of `range`.
    pub(crate) fn has_all(&self, range: Range<u64>) -> bool {
        self.acked.gaps(range).next().is_none()
    }

    /// Returns the offset after all data that was sent at least once.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of bytes in the buffer, including acknowledged bytes that are kept
    /// because earlier bytes are not acknowledged.
    pub(crate) fn buffered(&self) -> u64 {
        self.end - self.base
    }

    /// Returns the number of bytes in the buffer that the peer has acknowledged. They are kept only
    /// because earlier bytes are not acknowledged.
    pub(crate) fn acked_ahead(&self) -> u64 {
        self.ahead
    }

    /// Returns true if the peer has acknowledged all written data.
    pub(crate) fn is_done(&self) -> bool {
        self.base == self.end
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        if self.segments.is_empty() {
            (self.segments, self.ends) = (VecDeque::new(), VecDeque::new());
        }
        self.acked.shrink();
        self.lost.shrink();
    }

    /// Returns true if there is data to send: lost data, or new data below the offset `limit`.
    pub(crate) fn wants_to_send(&self, limit: u64) -> bool {
        !self.lost.is_empty() || self.sent < self.end.min(limit)
    }

    /// Appends a copy of `data`.
    pub(crate) fn write(&mut self, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            if self.tail.capacity() == self.tail.len() {
                self.seal();
                self.tail.reserve(SEGMENT.min(rest.len().next_power_of_two().max(512)));
            }
            let count = rest.len().min(self.tail.capacity() - self.tail.len());
            self.tail.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
            self.end += count as u64;
        }
    }

    /// Appends `data` without copying it.
    pub(crate) fn write_bytes(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.seal();
        self.end += data.len() as u64;
        self.ends.push_back(self.end);
        self.segments.push_back(data);
    }

    /// Closes the last segment, so that no more writes are added to it.
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.segments.push_back(self.tail.split().freeze());
            self.ends.push_back(self.end);
        }
        self.tail = BytesMut::new();
    }

    /// Returns the offset at which the next range from [`SendBuffer::next`] will begin.
    pub(crate) fn next_offset(&self) -> u64 {
        self.lost.min().unwrap_or(self.sent)
    }

    /// Takes the next range of offsets to send, of at most `max` bytes. Lost data comes first. New
    /// data is only taken below the offset `limit`. The range then counts as sent.
    pub(crate) fn next(&mut self, max: usize, limit: u64) -> Option<Range<u64>> {
        let max = max as u64;
        if max == 0 {
            return None;
        }
        if let Some(lost) = self.lost.first() {
            let range = lost.start..lost.end.min(lost.start.saturating_add(max));
            self.lost.remove(range.clone());
            return Some(range);
        }
        let range = self.sent..self.end.min(limit).min(self.sent.saturating_add(max));
        if range.is_empty() {
            return None;
        }
        self.sent = range.end;
        Some(range)
    }

    /// Copies data from `offset` on into `buffer`. The copied range must be between
    /// [`SendBuffer::base`] and [`SendBuffer::end`]. Returns the number of bytes copied.
    // RFC 9000 s.2.2 #2
    pub(crate) fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.copy_from(self.ends.partition_point(|end| *end <= offset), offset, buffer).0
    }

    /// Like [`SendBuffer::copy`], but faster if the data directly follows the data that was last
    /// copied.
    #[inline(always)]
    pub(crate) fn copy_next(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        let near = |at: &usize| {
            let begun = at.checked_sub(1).and_then(|before| self.ends.get(before));
            begun.is_none_or(|begun| *begun <= offset)
                && self.ends.get(*at).is_none_or(|end| offset < *end)
                && *at <= self.ends.len()
        };
        let found = [self.last, self.last + 1].into_iter().find(near);
        let index = found.unwrap_or_else(|| self.ends.partition_point(|end| *end <= offset));
        let (count, last) = self.copy_from(index, offset, buffer);
        self.last = last;
        count
    }

    /// Copies data from `offset` on, which is in the segment with the index `index`. Returns the
    /// number of bytes copied, and the index of the segment that contains the last of them.
    #[inline]
    fn copy_from(&self, mut index: usize, offset: u64, buffer: &mut [u8]) -> (usize, usize) {
        if offset < self.base {
            return (0, index);
        }
        let (mut filled, mut last) = (0, index);
        let start = index.checked_sub(1).map_or(self.base, |before| self.ends[before]);
        let mut skip = (offset - start) as usize;
        while filled < buffer.len() {
            let segment: &[u8] = match self.segments.get(index) {
                Some(segment) => segment,
                None if index == self.segments.len() => &self.tail,
                None => break,
            };
            let Some(part) = segment.get(skip..) else { break };
            let count = part.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&part[..count]);
            filled += count;
            last = index;
            (index, skip) = (index + 1, 0);
        }
        (filled, last)
    }

    /// Records that the peer has acknowledged a range of offsets.
    pub(crate) fn on_acked(&mut self, range: Range<u64>) {
        let range = range.start.max(self.base)..range.end.min(self.sent);
        if range.is_empty() {
            return;
        }
        self.lost.remove(range.clone());
        let alone = self.acked.min().is_none_or(|next| range.end < next);
        if range.start == self.base && alone {
            // The acknowledged range begins at the base, and no acknowledged data directly follows
            // it.
            return self.release(range.end);
        }
        self.ahead += self.acked.insert(range);
        let Some(front) = self.acked.first().filter(|front| front.start <= self.base) else {
            return;
        };
        self.acked.pop_min();
        self.ahead -= front.end - front.start;
        self.release(front.end);
    }

    fn release(&mut self, to: u64) {
        while let (Some(segment), Some(end)) = (self.segments.front_mut(), self.ends.front()) {
            if *end > to {
                segment.advance((to - self.base) as usize);
                self.base = to;
                return;
            }
            self.base = *end;
            self.segments.pop_front();
            self.ends.pop_front();
            self.last = self.last.saturating_sub(1);
        }
        self.tail.advance((to - self.base) as usize);
        self.base = to;
        if self.tail.is_empty() {
            self.tail = BytesMut::new();
        }
    }

    /// Records that a range of offsets was lost. [`SendBuffer::next`] will return the range again.
    pub(crate) fn on_lost(&mut self, range: Range<u64>) {
        let range = range.start.max(self.base)..range.end.min(self.sent);
        let missing: Vec<Range<u64>> = self.acked.gaps(range).collect();
        for gap in missing {
            self.lost.insert(gap);
        }
    }

    /// Marks the first `bytes` bytes of the unacknowledged data as lost, so that they are sent
    /// again.
    pub(crate) fn on_first_lost(&mut self, bytes: u64) {
        self.on_lost(self.base..self.base.saturating_add(bytes));
    }

    /// Discards all data, because the stream was reset.
    pub(crate) fn clear(&mut self) {
        *self = SendBuffer::at(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    // RFC 9000 s.2.2 #2, s.13.3 #6
    #[test]
    fn stream_send_buffer_repairs_every_loss() {
        let mut rng = StdRng::seed_from_u64(0x5eed);
        for _ in 0..60 {
            let length = rng.random_range(1..200_000u64);
            let (mut buffer, mut got) = (SendBuffer::default(), RangeSet::new());
            let mut in_flight: Vec<Range<u64>> = Vec::new();
            while !(buffer.end() == length && buffer.is_done()) {
                if buffer.end() < length && rng.random_bool(0.4) {
                    let end = length.min(buffer.end() + rng.random_range(1..30_000));
                    let data: Vec<u8> = (buffer.end()..end).map(byte).collect();
                    if rng.random_bool(0.5) {
                        buffer.write(&data);
                    } else {
                        buffer.write_bytes(data.into());
                    }
                }
                for _ in 0..rng.random_range(0..8) {
                    let max = rng.random_range(1..1500);
                    let Some(range) = buffer.next(max, u64::MAX) else { break };
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    assert_eq!(buffer.copy(range.start, &mut bytes), bytes.len());
                    assert!(range.clone().map(byte).eq(bytes.iter().copied()), "{range:?}");
                    bytes.fill(0);
                    assert_eq!(buffer.copy_next(range.start, &mut bytes), bytes.len());
                    assert!(range.clone().map(byte).eq(bytes), "{range:?}");
                    in_flight.push(range);
                }
                while in_flight.len() > rng.random_range(0..30) {
                    let range = in_flight.swap_remove(rng.random_range(0..in_flight.len()));
                    match rng.random_range(0..3) {
                        0 => buffer.on_lost(range),
                        // The range is declared lost, but then it is acknowledged.
                        1 => {
                            buffer.on_lost(range.clone());
                            got.insert(range.clone());
                            buffer.on_acked(range);
                        }
                        _ => {
                            got.insert(range.clone());
                            buffer.on_acked(range);
                        }
                    }
                    assert_eq!(buffer.acked_ahead(), buffer.acked.covered());
                }
            }
            assert_eq!(got.iter().collect::<Vec<_>>(), vec![0..length]);
            assert_eq!((buffer.buffered(), buffer.segments.len()), (0, 0));
            assert_eq!(buffer.acked_ahead(), 0);
        }
    }

    // RFC 9000 s.13.3 #4
    #[test]
    fn flow_control_new_data_waits_and_lost_data_does_not() {
        let mut buffer = SendBuffer::default();
        buffer.write(&[7; 100]);
        assert_eq!(buffer.next(60, 50), Some(0..50));
        assert_eq!(buffer.next(60, 50), None);
        assert!(!buffer.wants_to_send(50));
        buffer.on_lost(10..30);
        assert!(buffer.wants_to_send(50));
        assert_eq!(buffer.next(15, 50), Some(10..25));
        assert_eq!(buffer.next(60, 50), Some(25..30));
        assert_eq!(buffer.next(60, 80), Some(50..80));
        buffer.on_first_lost(u64::MAX);
        assert_eq!(buffer.next(1000, 80), Some(0..80));
        buffer.on_acked(0..10);
        buffer.on_acked(20..30);
        buffer.on_first_lost(30);
        assert_eq!((buffer.next(99, 80), buffer.next(99, 80)), (Some(10..20), Some(30..40)));
        assert_eq!(buffer.next(99, 80), None);
    }

    #[test]
    fn stream_send_buffer_small_writes_share_a_segment() {
        let mut buffer = SendBuffer::default();
        for _ in 0..1000 {
            buffer.write(b"x");
        }
        assert!(buffer.segments.len() <= 2, "{}", buffer.segments.len());
        buffer.clear();
        assert!(buffer.is_done() && buffer.end() == 1000);
    }
}
