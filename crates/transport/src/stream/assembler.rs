//! Reassembles bytes that arrive in any order, so that they can be read in order (RFC 9000 s.2.2).

use std::collections::VecDeque;
use std::ops::Range;

use super::pages::{PAGE, Page, Pages};
use super::pieces::{Piece, Pieces};
use super::place::BEFORE;
use crate::lazy::Buffer;
use crate::ranges::RangeSet;

/// Number of gaps in a stream's data that are always permitted, even if little data has arrived.
const FREE_GAPS: usize = 64;

/// Above `FREE_GAPS`, the data may have one gap for each block of this many bytes that wait to be
/// read. If packets are lost, whole datagrams lie between two gaps. So only an attacker that splits
/// the data exceeds this limit.
const BYTES_PER_GAP: u64 = 512;

/// Error: the data would create too many gaps. The packet with the data must be treated as lost.
/// The peer then sends the data again, and it is accepted once the gaps are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFragmented;

/// Reassembles the data of one stream, or of one level of CRYPTO data. Offsets count from the start
/// of the stream. The methods take memory from the connection's [`Pages`], and return it to them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assembler {
    /// Stream offset of the first byte of `pages[0]`, a multiple of [`PAGE`].
    base: u64,
    pages: VecDeque<Option<Page>>,
    /// Stream offset up to which the application has read all bytes.
    read: u64,
    /// Ranges of offsets whose bytes have arrived and have not been read.
    waiting: RangeSet,
    /// Number of bytes that have arrived and have not been read: those in `waiting`.
    buffered: u64,
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
    /// Returns the stream offset of the next byte to read. It is also the number of bytes read so
    /// far.
    pub(crate) fn read_offset(&self) -> u64 {
        self.read
    }

    /// Returns the number of bytes that have arrived and have not been read.
    pub(crate) fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Returns the number of bytes that can be read now.
    pub(crate) fn readable(&self) -> u64 {
        match self.waiting.first() {
            Some(first) if first.start == self.read => first.end - first.start,
            _ => 0,
        }
    }

    /// Returns the memory that the pages and ranges take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.pages.iter().flatten().count() * PAGE
            + self.pages.capacity() * size_of::<Option<Page>>()
            + self.waiting.len() * size_of::<Range<u64>>()
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink();
    }

    /// Inserts data and returns how many of its bytes are new. Repeated data is not compared with
    /// the earlier data, as RFC 9000 s.2.2 #1 permits.
    ///
    /// # Errors
    /// [`TooFragmented`] if the data would create too many gaps. Nothing has changed in that case.
    pub(crate) fn insert(
        &mut self,
        pages: &mut Pages,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, TooFragmented> {
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
            self.copy_in(pages, start, &data[(start - offset) as usize..]);
        }
        Ok(fresh)
    }

    /// Appends data that directly follows all received data. Returns false, and changes nothing, if
    /// the data does not follow directly, or if earlier data is missing.
    #[inline]
    pub(crate) fn append(&mut self, pages: &mut Pages, offset: u64, data: &[u8]) -> bool {
        if !self.extend(offset, data.len() as u64) {
            return false;
        }
        self.copy_in(pages, offset, data);
        true
    }

    /// Records data that directly follows all received data, under the same conditions as
    /// [`Assembler::append`].
    #[inline]
    fn extend(&mut self, offset: u64, length: u64) -> bool {
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
        true
    }

    /// Returns memory for `length` bytes of the stream at `offset`, which must directly follow all
    /// received data. The memory begins [`BEFORE`] bytes earlier, where there may be unread data.
    /// Returns `None` if the memory is not all in one allocated page, or if earlier data is
    /// missing.
    #[inline]
    pub(crate) fn place(&mut self, offset: u64, length: usize) -> Option<&mut [u8]> {
        let goes_on = match self.waiting.first() {
            None => offset == self.read,
            Some(first) => {
                first.start == self.read && first.end == offset && self.waiting.len() == 1
            }
        };
        let at = offset.checked_sub(self.base)? as usize;
        let (index, within) = (at / PAGE, at % PAGE);
        let (start, end) = (within.checked_sub(BEFORE)?, within.checked_add(length)?);
        if !goes_on || end > PAGE {
            return None;
        }
        self.pages.get_mut(index)?.as_mut()?.get_mut(start..end)
    }

    /// Records that data was written to the memory that [`Assembler::place`] returned.
    #[inline]
    pub(crate) fn append_placed(&mut self, offset: u64, length: usize) {
        let goes_on = self.extend(offset, length as u64);
        debug_assert!(goes_on, "`place` must have checked that the data continues");
    }

    fn copy_in(&mut self, pages: &mut Pages, offset: u64, mut data: &[u8]) {
        let mut at = (offset - self.base) as usize;
        while !data.is_empty() {
            let (index, within) = (at / PAGE, at % PAGE);
            if index >= self.pages.len() {
                self.pages.resize_with(index + 1, || None);
            }
            let page = self.pages[index].get_or_insert_with(|| pages.take());
            let count = data.len().min(PAGE - within);
            page[within..within + count].copy_from_slice(&data[..count]);
            data = &data[count..];
            at += count;
        }
    }

    /// Returns contiguous bytes that can be read next. The result is empty if no bytes can be read.
    pub(crate) fn chunk(&self) -> &[u8] {
        let within = (self.read - self.base) as usize;
        let count = self.readable().min((PAGE - within) as u64) as usize;
        match self.pages.front() {
            Some(Some(page)) if count > 0 => &page[within..within + count],
            _ => &[],
        }
    }

    /// Records that `count` bytes of [`Assembler::chunk`] were read.
    pub(crate) fn consume(&mut self, pages: &mut Pages, count: usize) {
        if let Some(page) = self.advance(count) {
            pages.put(page);
        }
        if self.buffered == 0 {
            // A stream whose data was all read must hold no memory.
            self.give_back(pages);
            self.base = self.read - self.read % PAGE as u64;
        }
    }

    /// Records that `count` bytes of [`Assembler::chunk`] were read. Returns the page of these
    /// bytes if the whole page has been read.
    fn advance(&mut self, count: usize) -> Option<Page> {
        let count = count.min(self.chunk().len());
        self.read += count as u64;
        self.buffered -= count as u64;
        self.waiting.remove_below(self.read);
        if self.read - self.base < PAGE as u64 {
            return None;
        }
        self.base += PAGE as u64;
        self.pages.pop_front().flatten()
    }

    /// Reads data into `buffer`. Returns the number of bytes read.
    pub(crate) fn read(&mut self, pages: &mut Pages, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        self.drain(pages, buffer.len(), |chunk| {
            buffer[filled..filled + chunk.len()].copy_from_slice(chunk);
            filled += chunk.len();
        })
    }

    /// Passes up to `limit` bytes of data to `take`, in contiguous chunks. Returns the number of
    /// bytes passed.
    pub(crate) fn drain(
        &mut self,
        pages: &mut Pages,
        limit: usize,
        mut take: impl FnMut(&[u8]),
    ) -> usize {
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
            self.consume(pages, length);
        }
        count
    }

    /// Moves up to `limit` bytes of data to `to`, together with their pages. Returns the number of
    /// bytes moved.
    ///
    /// If a page also contains data that is not read now, the data must be copied. That happens
    /// only for the first data of a call. Otherwise the data is left for the next call, which may
    /// be able to move it without a copy.
    pub(crate) fn take(&mut self, pages: &mut Pages, limit: usize, to: &mut Pieces) -> usize {
        let there = self.readable().min(limit as u64) as usize;
        to.expect(pages.owner(), there.div_ceil(PAGE) + 1);
        let mut count = 0;
        while count < limit {
            let length = self.chunk().len().min(limit - count);
            if length == 0 {
                break;
            }
            let start = (self.read - self.base) as usize;
            let range = start..start + length;
            let alone = range.end == PAGE || self.buffered == length as u64;
            if !alone && count > 0 {
                // Leave the data for the next call, which then begins at the start of the page.
                break;
            }
            count += length;
            let page = if alone {
                let full = self.advance(length);
                full.or_else(|| self.pages.pop_front().flatten())
            } else {
                let mut copy = pages.take();
                copy[range.clone()].copy_from_slice(&self.chunk()[..length]);
                self.advance(length);
                Some(copy)
            };
            if let Some(page) = page {
                to.push(Piece { page, range });
            }
        }
        if self.buffered == 0 {
            self.give_back(pages);
            self.base = self.read - self.read % PAGE as u64;
        }
        count
    }

    /// Discards all received data of the stream, because the stream was reset or stopped.
    pub(crate) fn clear(&mut self, pages: &mut Pages) {
        self.give_back(pages);
        *self = Assembler { base: self.base, read: self.read, ..Assembler::default() };
    }

    fn give_back(&mut self, pages: &mut Pages) {
        for page in std::mem::take(&mut self.pages).into_iter().flatten() {
            pages.put(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::PagePool;
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    fn data(range: Range<u64>) -> Vec<u8> {
        range.map(byte).collect()
    }

    // RFC 9000 s.2.2 #1
    #[test]
    fn stream_assembler_any_order_any_overlap_any_read_sizes() {
        let mut rng = StdRng::seed_from_u64(0x5eed);
        let (pool, mut placed) = (PagePool::new(), 0);
        for _ in 0..40 {
            // Another connection of the same pool must not see the data of the first connection.
            let mut others = pool.for_another();
            let used: Vec<Page> = (0..8).map(|_| others.take()).collect();
            for mut page in used {
                page.fill(0xdb);
                others.put(page);
            }
            let length = rng.random_range(1..60_000u64);
            let mut frames = Vec::new();
            let mut at = 0;
            while at < length {
                let end = (at + rng.random_range(1..1500)).min(length);
                let again = if rng.random() { rng.random_range(0..30) } else { 0 };
                frames.push(at.saturating_sub(again)..end);
                at = end;
            }
            if rng.random() {
                frames.shuffle(&mut rng);
            }
            let (mut assembler, mut out) = (Assembler::default(), Vec::new());
            let (mut pages, mut pieces) = (pool.for_another(), Pieces::default());
            let pages = &mut pages;
            for frame in frames {
                let (start, frame) = (frame.start, data(frame));
                let mut place = assembler.place(start, frame.len()).filter(|_| rng.random());
                let used = rng.random_bool(0.7);
                if let Some(place) = &mut place {
                    // A packet that cannot be decrypted leaves arbitrary bytes in this memory. They
                    // must never be read.
                    place[BEFORE..].copy_from_slice(&if used {
                        frame.clone()
                    } else {
                        vec![0xee; frame.len()]
                    });
                }
                if place.is_some() && used {
                    assembler.append_placed(start, frame.len());
                    placed += 1;
                } else {
                    assembler.insert(pages, start, &frame).unwrap();
                }
                let limit = rng.random_range(0..9000);
                match rng.random_range(0..4) {
                    0 => {
                        let mut buffer = vec![0; limit];
                        let count = assembler.read(pages, &mut buffer);
                        out.extend_from_slice(&buffer[..count]);
                    }
                    1 => {
                        let before = out.len();
                        let count = assembler.take(pages, limit, &mut pieces);
                        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
                        assert_eq!(out.len(), before + count);
                        if rng.random_bool(0.8) {
                            pieces.give_back(pages);
                        }
                        pieces = Pieces::default();
                    }
                    _ => {}
                }
            }
            let mut rest = vec![0; length as usize];
            let count = assembler.read(pages, &mut rest);
            out.extend_from_slice(&rest[..count]);
            assert_eq!(out, data(0..length));
            assert_eq!((assembler.buffered(), assembler.memory()), (0, 0));
        }
        assert!(placed > 20, "{placed}");
    }

    /// The memory that one connection has used must not show its data to another connection. The
    /// data is read, taken or discarded, and the other connection's data arrives out of order.
    #[test]
    fn stream_assembler_has_no_data_of_other_connections() {
        let pool = PagePool::new();
        let (mut own, mut other) = (pool.for_another(), pool.for_another());
        let (own, other) = (&mut own, &mut other);
        for end in ["read", "taken", "cleared"] {
            let (mut first, mut pieces) = (Assembler::default(), Pieces::default());
            first.insert(own, first.read_offset(), &[0xdb; 3 * PAGE]).unwrap();
            match end {
                "read" => assert_eq!(first.drain(own, usize::MAX, |_| ()), 3 * PAGE),
                "taken" => {
                    assert_eq!(first.take(own, usize::MAX, &mut pieces), 3 * PAGE);
                    assert_eq!(pool.count(), 0, "the pages are in use");
                    pieces.give_back(own);
                }
                _ => first.clear(own),
            }
            assert_eq!(pool.count(), 3, "{end}");
            let mut second = Assembler::default();
            for offset in [0, 2 * PAGE as u64, PAGE as u64] {
                second.insert(other, offset + 9, b"mine").unwrap();
            }
            assert_eq!(pool.count(), 0, "{end}: the same pages are used again");
            for page in second.pages.iter().flatten() {
                assert!(page.iter().all(|byte| *byte != 0xdb), "{end}");
            }
            second.clear(other);
            assert_eq!(pool.count(), 3);
        }
    }

    // RFC 9000 s.21.7 #1
    #[test]
    fn stream_assembler_tiny_frames_cost_no_more_than_the_window() {
        let window = 1 << 20;
        let (mut assembler, pages) = (Assembler::default(), &mut Pages::default());
        let mut refused = 0;
        for offset in (1..window).step_by(2) {
            refused += u64::from(assembler.insert(pages, offset, &[0]).is_err());
        }
        assert!(refused > window / 4, "{refused}");
        assert!(assembler.memory() < window as usize + 2 * PAGE, "{}", assembler.memory());
        // Data that was rejected must be accepted when it fills the gaps.
        for offset in (0..window).step_by(1024) {
            assembler.insert(pages, offset, &[0; 1024]).unwrap();
        }
        assert_eq!(assembler.readable(), window);
    }

    #[test]
    fn stream_assembler_loss_of_every_other_datagram_is_no_fragmentation() {
        let (mut assembler, pages) = (Assembler::default(), &mut Pages::default());
        for number in (1..20_000u64).step_by(2) {
            assembler.insert(pages, number * 1200, &[0; 1200]).unwrap();
        }
        assert_eq!(assembler.buffered(), 10_000 * 1200);
    }

    #[test]
    fn stream_assembler_ignores_what_was_read() {
        let (mut assembler, pages) = (Assembler::default(), &mut Pages::default());
        assert_eq!(assembler.insert(pages, 0, b"hello"), Ok(5));
        let mut buffer = [0; 3];
        assert_eq!(assembler.read(pages, &mut buffer), 3);
        assert_eq!(assembler.insert(pages, 0, b"HELLO!"), Ok(1));
        assert_eq!(assembler.readable(), 3);
        assembler.clear(pages);
        assert_eq!((assembler.readable(), assembler.read_offset()), (0, 3));
    }

    /// Whole pages must be moved without a copy. Data that shares a page with unread data must be
    /// copied, and a separate call must return it.
    #[test]
    fn stream_assembler_data_is_taken_with_its_memory() {
        let pool = PagePool::new();
        let (mut assembler, mut pages) = (Assembler::default(), pool.for_another());
        let pages = &mut pages;
        assembler.insert(pages, 0, &data(0..3 * PAGE as u64 + 100)).unwrap();
        let places: Vec<_> = assembler.pages.iter().flatten().map(|page| page.as_ptr()).collect();
        let mut pieces = Pieces::default();
        assert_eq!(
            assembler.take(pages, 2 * PAGE + 50, &mut pieces),
            2 * PAGE,
            "whole pages are moved first"
        );
        let taken: Vec<_> = pieces.iter().map(<[u8]>::as_ptr).collect();
        assert_eq!(taken[..], places[..2]);
        pieces.give_back(pages);
        assert_eq!(assembler.take(pages, 50, &mut pieces), 50);
        let copied: Vec<_> = pieces.iter().map(<[u8]>::as_ptr).collect();
        assert_ne!(copied[0], places[2], "the page contains unread data");
        pieces.give_back(pages);
        assert_eq!(assembler.take(pages, usize::MAX, &mut pieces), PAGE + 50);
        let pointers: Vec<_> = pieces.iter().map(<[u8]>::as_ptr).collect();
        assert_eq!(
            pointers,
            [places[2].wrapping_add(50), places[3]],
            "the pages contain no other data"
        );
        let bytes: Vec<u8> = pieces.iter().flatten().copied().collect();
        assert_eq!(bytes, data(2 * PAGE as u64 + 50..3 * PAGE as u64 + 100));
        assert_eq!((assembler.buffered(), assembler.memory()), (0, 0));
        assert_eq!(assembler.insert(pages, 3 * PAGE as u64 + 100, b"next"), Ok(4));
        assert_eq!(assembler.chunk(), b"next");
        // Pages must not return to a connection that has not received their data.
        let mut other = pool.for_another();
        pieces.give_back(&mut other);
        assembler.clear(pages);
        pages.shrink();
        assert_eq!(pool.count(), 2, "only pages of this connection return to the pool");
    }
}
