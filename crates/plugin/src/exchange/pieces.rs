//! A bundle, or its preamble, that comes in pieces, in any order. The memory is that of the bytes and an eighth of them, whatever the
//! pieces are like; the time of a piece is in proportion to its length.

/// A bundle of which the pieces come in any order.
#[derive(Debug)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// A bit for each byte that is there.
    there: Vec<u64>,
    /// Bytes that are there.
    count: usize,
}

/// A piece differs from what came before, first at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction(pub(super) usize);

impl Pieces {
    pub(super) fn new(size: usize) -> Pieces {
        Pieces { bytes: vec![0; size], there: vec![0; size.div_ceil(64)], count: 0 }
    }

    /// Takes a piece that lies within the bundle.
    pub(super) fn insert(&mut self, offset: usize, piece: &[u8]) -> Result<(), Contradiction> {
        for (at, byte) in (offset..self.bytes.len()).zip(piece) {
            let (word, bit) = (&mut self.there[at / 64], 1 << (at % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.bytes[at] = *byte;
                self.count += 1;
            } else if self.bytes[at] != *byte {
                return Err(Contradiction(at));
            }
        }
        Ok(())
    }

    /// Bytes of memory that it takes, which are there from the first piece on.
    pub(super) fn memory(&self) -> usize {
        Pieces::room(self.bytes.len())
    }

    /// Bytes of memory that a bundle of this size takes.
    pub(super) fn room(size: usize) -> usize {
        size.saturating_add(8 * size.div_ceil(64))
    }

    /// Bytes that are there.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The bundle, once it is whole.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        (self.count == self.bytes.len()).then(|| std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_and_twice() {
        let whole: Vec<u8> = (0..200).map(|at| at as u8).collect();
        let mut pieces = Pieces::new(200);
        for at in (0..200).rev().step_by(7) {
            assert_eq!(pieces.take(), None);
            pieces.insert(at, &whole[at..(at + 9).min(200)]).unwrap();
        }
        pieces.insert(0, &whole[..10]).unwrap();
        assert_eq!(pieces.count(), 200);
        assert_eq!(pieces.insert(5, &[5, 6, 8]), Err(Contradiction(7)));
        assert_eq!(pieces.take(), Some(whole));
    }
}
