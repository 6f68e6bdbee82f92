//! Reassembles a bundle, or its preamble, from pieces that arrive in any order.
//!
//! A buffer takes the memory of the bundle plus one eighth, however the bundle is cut into pieces.
//! Each byte is copied once, when it first arrives. A byte that arrives again is neither copied nor
//! compared, so a piece without new bytes costs one test for each 64 bytes. If two pieces
//! contradict each other, the one that arrived first counts. The hash of the whole bundle decides
//! later whether it was right.

/// A buffer for a bundle whose pieces arrive in any order.
#[derive(Debug)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// One bit for each byte of the bundle, set once that byte has arrived.
    received: Vec<u64>,
    /// Number of bytes that have arrived.
    count: usize,
}

impl Pieces {
    pub(super) fn new(size: usize) -> Pieces {
        Pieces { bytes: vec![0; size], received: vec![0; size.div_ceil(64)], count: 0 }
    }

    /// Adds a piece, and ignores the part of it beyond the end of the bundle. Returns the number of
    /// its bytes that had not arrived before.
    pub(super) fn insert(&mut self, offset: usize, piece: &[u8]) -> usize {
        let end = offset.saturating_add(piece.len()).min(self.bytes.len());
        let (mut at, before) = (offset, self.count);
        while at < end {
            let (word, first) = (at / 64, at % 64);
            let length = (end - at).min(64 - first);
            let all = u64::MAX >> (64 - length) << first;
            let new = all & !self.received[word];
            self.received[word] |= new;
            self.count += new.count_ones() as usize;
            if new == all {
                let from = at - offset;
                self.bytes[at..at + length].copy_from_slice(&piece[from..from + length]);
            } else {
                // This loop runs once for each byte that has not arrived before.
                let mut left = new;
                while left != 0 {
                    let at = 64 * word + left.trailing_zeros() as usize;
                    self.bytes[at] = piece[at - offset];
                    left &= left - 1;
                }
            }
            at += length;
        }
        self.count - before
    }

    /// Returns the memory that this buffer takes, in bytes. The buffer is allocated when it is
    /// created.
    pub(super) fn memory(&self) -> usize {
        Pieces::room(self.bytes.len())
    }

    /// Returns the memory that a buffer for a bundle of this size takes, in bytes.
    pub(super) fn room(size: usize) -> usize {
        size.saturating_add(8 * size.div_ceil(64))
    }

    /// Returns the number of different bytes that have arrived.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bundle if it is complete, otherwise `None`.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        (self.count == self.bytes.len()).then(|| std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn whole(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 31 % 251) as u8).collect()
    }

    #[test]
    fn pieces_may_arrive_in_any_order_and_twice() {
        let whole = whole(200);
        let mut pieces = Pieces::new(200);
        for at in (0..200).rev().step_by(7) {
            assert_eq!(pieces.take(), None);
            pieces.insert(at, &whole[at..(at + 9).min(200)]);
        }
        assert_eq!(pieces.insert(0, &whole[..10]), 3);
        assert_eq!(pieces.count(), 200);
        assert_eq!(pieces.take(), Some(whole));
    }

    #[test]
    fn pieces_that_have_arrived_are_not_copied_again() {
        let whole = whole(1_000);
        let mut pieces = Pieces::new(1_000);
        assert_eq!(pieces.insert(100, &whole[100..900]), 800);
        // These bytes differ from the first ones, so the comparison at the end fails if they are
        // copied.
        let other = [0xff; 1_000];
        for (at, length) in [(100, 800), (500, 1), (101, 63), (128, 64), (836, 64), (163, 600)] {
            assert_eq!(pieces.insert(at, &other[..length]), 0, "{at} {length}");
        }
        // This piece overlaps an earlier one by one byte, so only 100 of its bytes are copied.
        assert_eq!(pieces.insert(0, &whole[..101]), 100);
        assert_eq!(pieces.insert(890, &whole[890..]), 100);
        assert_eq!(pieces.take(), Some(whole));
    }

    /// However a bundle is cut into pieces, each of its bytes must be copied exactly once.
    #[test]
    fn pieces_of_any_length_are_copied_once() {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..200 {
            let size = rng.random_range(1..700);
            let whole = whole(size);
            let mut pieces = Pieces::new(size);
            let mut copied = 0;
            while pieces.count() < size {
                let at = rng.random_range(0..size);
                let most = [1, 5, 64, 130, size][rng.random_range(0..5)];
                let end = size.min(at + rng.random_range(0..=most));
                copied += pieces.insert(at, &whole[at..end]);
                assert_eq!(copied, pieces.count());
            }
            assert_eq!(pieces.take(), Some(whole));
        }
        // Bytes beyond the end of the bundle must be ignored.
        let mut pieces = Pieces::new(65);
        assert_eq!((pieces.insert(64, &[1, 2]), pieces.insert(usize::MAX, &[1])), (1, 0));
    }
}
