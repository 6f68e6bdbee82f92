//! Bytes that arrive in any order, out again in order (RFC 9000 s.2.2).

use std::collections::VecDeque;
use std::ops::Range;

use super::pages::{PAGE, Page, PagePool};
use crate::ranges::RangeSet;
use crate::rested::Buffer;

/// Gaps that are always allowed, however little has arrived.
const FREE_GAPS: usize = 64;

/// Beyond those, one gap for so many bytes waiting. Loss leaves whole datagrams between gaps, so
/// only somebody who cuts the data up to cost memory gets there.
const BYTES_PER_GAP: u64 = 512;

/// The data would leave more gaps than it is worth. The packet it came in is to be treated as lost:
/// the peer will send it again, when the gaps are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFragmented;

/// Reassembles one stream, or one level of CRYPTO data. Offsets count from the stream's start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assembler {
    /// Offset of `pages[0]`, a multiple of [`PAGE`].
    base: u64,
    pages: VecDeque<Option<Page>>,
    /// Offset below which the application has read everything.
    read: u64,
    /// Ranges that have arrived and were not read.
    waiting: RangeSet,
    /// Bytes in `waiting`.
    buffered: u64,
    /// Pool that pages are taken from and returned to.
    pool: PagePool,
}

impl Buffer for Assembler {
    fn at(offset: u64) -> Assembler {
        let base = offset - offset % PAGE as u64;
        Assembler { base, read: offset, ..Assembler::default() }
    }

    fn empty_at(&self) -> Option<u64> {
        (self.buffered == 0).then_some(self.read)
    }
}

impl Assembler {
    /// With its memory from a pool; the default's is the allocator's.
    pub(crate) fn with_pool(pool: PagePool) -> Assembler {
        Assembler { pool, ..Assembler::default() }
    }

    /// Offset of the next byte to be read: the number of bytes read so far.
    pub(crate) fn read_offset(&self) -> u64 {
        self.read
    }

    /// Bytes that have arrived and were not read.
    #[cfg(test)]
    pub(crate) fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Bytes that can be read now.
    pub(crate) fn readable(&self) -> u64 {
        match self.waiting.first() {
            Some(first) if first.start == self.read => first.end - first.start,
            _ => 0,
        }
    }

    /// Bytes of memory it holds.
    pub(crate) fn memory(&self) -> usize {
        self.pages.iter().flatten().count() * PAGE
            + self.pages.capacity() * size_of::<Option<Page>>()
            + self.waiting.len() * size_of::<Range<u64>>()
    }

    /// Gives back memory that has nothing in it.
    pub(crate) fn rest(&mut self) {
        self.waiting.rest();
    }

    /// Takes in data; how much of it is new. What arrived before is not compared with what comes
    /// again (RFC 9000 s.2.2 allows either).
    ///
    /// # Errors
    /// [`TooFragmented`]; nothing has changed then.
    pub(crate) fn insert(&mut self, offset: u64, data: &[u8]) -> Result<u64, TooFragmented> {
        let end = offset.saturating_add(data.len() as u64);
        let start = offset.max(self.read);
        if start >= end {
            return Ok(0);
        }
        let gaps = self.waiting.len();
        if gaps >= FREE_GAPS
            && gaps as u64 > FREE_GAPS as u64 + self.buffered / BYTES_PER_GAP
            && !self.waiting.touches(start..end)
        {
            return Err(TooFragmented);
        }
        let fresh = self.waiting.insert(start..end);
        self.buffered += fresh;
        if fresh > 0 {
            self.copy_in(start, &data[(start - offset) as usize..]);
        }
        Ok(fresh)
    }

    /// Takes in data that goes on where all that has arrived ends, if nothing before that is missing; false, and nothing
    /// done: something is.
    #[inline]
    pub(crate) fn append(&mut self, offset: u64, data: &[u8]) -> bool {
        let length = data.len() as u64;
        match self.waiting.min() {
            None if offset == self.read && length > 0 => {
                self.waiting.insert(offset..offset + length);
            }
            Some(first) if first == self.read && self.waiting.len() == 1 => {
                if !self.waiting.extend(offset, length) {
                    return false;
                }
            }
            _ => return false,
        }
        self.buffered += length;
        self.copy_in(offset, data);
        true
    }

    fn copy_in(&mut self, offset: u64, mut data: &[u8]) {
        let mut at = (offset - self.base) as usize;
        while !data.is_empty() {
            let (index, within) = (at / PAGE, at % PAGE);
            if index >= self.pages.len() {
                self.pages.resize_with(index + 1, || None);
            }
            let page = self.pages[index].get_or_insert_with(|| self.pool.take());
            let count = data.len().min(PAGE - within);
            page[within..within + count].copy_from_slice(&data[..count]);
            data = &data[count..];
            at += count;
        }
    }

    /// The next bytes to read, as many as lie side by side; empty when there are none.
    pub(crate) fn chunk(&self) -> &[u8] {
        let within = (self.read - self.base) as usize;
        let count = self.readable().min((PAGE - within) as u64) as usize;
        match self.pages.front() {
            Some(Some(page)) if count > 0 => &page[within..within + count],
            _ => &[],
        }
    }

    /// `count` bytes of [`Assembler::chunk`] were read.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.chunk().len());
        self.read += count as u64;
        self.buffered -= count as u64;
        self.waiting.remove_below(self.read);
        if self.read - self.base == PAGE as u64 {
            self.base += PAGE as u64;
            if let Some(page) = self.pages.pop_front().flatten() {
                self.pool.put(page);
            }
        }
        if self.buffered == 0 {
            // Idle streams hold no memory.
            self.give_back();
            self.base = self.read - self.read % PAGE as u64;
        }
    }

    /// Reads into `buffer`; how many bytes.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        self.drain(buffer.len(), |chunk| {
            buffer[filled..filled + chunk.len()].copy_from_slice(chunk);
            filled += chunk.len();
        })
    }

    /// Hands out up to `limit` bytes, piece by piece; how many.
    pub(crate) fn drain(&mut self, limit: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < limit {
            let chunk = self.chunk();
            let chunk = &chunk[..chunk.len().min(limit - count)];
            if chunk.is_empty() {
                break;
            }
            take(chunk);
            let length = chunk.len();
            count += length;
            self.consume(length);
        }
        count
    }

    /// Gives up all that has arrived, for a stream that was reset or is not wanted.
    pub(crate) fn clear(&mut self) {
        self.give_back();
        let pool = std::mem::take(&mut self.pool);
        *self = Assembler { base: self.base, read: self.read, pool, ..Assembler::default() };
    }

    fn give_back(&mut self) {
        for page in std::mem::take(&mut self.pages).into_iter().flatten() {
            self.pool.put(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    fn data(range: Range<u64>) -> Vec<u8> {
        range.map(byte).collect()
    }

    #[test]
    fn any_order_any_overlap_any_read_sizes() {
        let mut rng = StdRng::seed_from_u64(0x5eed);
        let pool = PagePool::new();
        for _ in 0..40 {
            // Of others, whose data must not show.
            (0..8).for_each(|_| pool.put(Box::new([0xdb; PAGE])));
            let length = rng.random_range(1..60_000u64);
            let mut frames = Vec::new();
            let mut at = 0;
            while at < length {
                let end = (at + rng.random_range(1..1500)).min(length);
                frames.push(at.saturating_sub(rng.random_range(0..30))..end);
                at = end;
            }
            frames.shuffle(&mut rng);
            let (mut assembler, mut out) = (Assembler::with_pool(pool.clone()), Vec::new());
            for frame in frames {
                assembler.insert(frame.start, &data(frame)).unwrap();
                if rng.random_bool(0.5) {
                    let mut buffer = vec![0; rng.random_range(0..5000)];
                    let count = assembler.read(&mut buffer);
                    out.extend_from_slice(&buffer[..count]);
                }
            }
            let mut rest = vec![0; length as usize];
            let count = assembler.read(&mut rest);
            out.extend_from_slice(&rest[..count]);
            assert_eq!(out, data(0..length));
            assert_eq!((assembler.buffered(), assembler.memory()), (0, 0));
        }
    }

    /// Data that one connection received is not in the memory that another gets, read or given up, in order or not.
    #[test]
    fn nothing_of_one_connection_is_in_the_memory_of_another() {
        let pool = PagePool::new();
        let other = pool.for_another();
        let mut first = Assembler::with_pool(pool.clone());
        for end in ["read", "cleared"] {
            first.insert(first.read_offset(), &[0xdb; 3 * PAGE]).unwrap();
            match end {
                "read" => assert_eq!(first.drain(usize::MAX, |_| ()), 3 * PAGE),
                _ => first.clear(),
            }
            assert_eq!(pool.count(), 3, "{end}");
            let mut second = Assembler::with_pool(other.clone());
            for offset in [0, 2 * PAGE as u64, PAGE as u64] {
                second.insert(offset + 9, b"mine").unwrap();
            }
            assert_eq!(pool.count(), 0, "{end}: the same pages");
            for page in second.pages.iter().flatten() {
                assert!(page.iter().all(|byte| *byte != 0xdb), "{end}");
            }
            first = Assembler::with_pool(pool.clone());
            second.clear();
            assert_eq!(pool.count(), 3);
        }
    }

    #[test]
    fn tiny_frames_far_apart_cost_no_more_than_the_window() {
        let window = 1 << 20;
        let mut assembler = Assembler::default();
        let mut refused = 0;
        for offset in (1..window).step_by(2) {
            refused += u64::from(assembler.insert(offset, &[0]).is_err());
        }
        assert!(refused > window / 4, "{refused}");
        assert!(assembler.memory() < window as usize + 2 * PAGE, "{}", assembler.memory());
        // What was refused is taken when it fills the gaps.
        for offset in (0..window).step_by(1024) {
            assembler.insert(offset, &[0; 1024]).unwrap();
        }
        assert_eq!(assembler.readable(), window);
    }

    #[test]
    fn losing_every_other_datagram_is_no_fragmentation() {
        let mut assembler = Assembler::default();
        for number in (1..20_000u64).step_by(2) {
            assembler.insert(number * 1200, &[0; 1200]).unwrap();
        }
        assert_eq!(assembler.buffered(), 10_000 * 1200);
    }

    #[test]
    fn what_was_read_does_not_come_again() {
        let mut assembler = Assembler::default();
        assert_eq!(assembler.insert(0, b"hello"), Ok(5));
        let mut buffer = [0; 3];
        assert_eq!(assembler.read(&mut buffer), 3);
        assert_eq!(assembler.insert(0, b"HELLO!"), Ok(1));
        assert_eq!(assembler.readable(), 3);
        assembler.clear();
        assert_eq!((assembler.readable(), assembler.read_offset()), (0, 3));
    }
}
