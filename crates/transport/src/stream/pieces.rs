//! Data that was read, with the memory it is in.

use std::ops::Range;

use super::pages::{Owner, Page, Pages};

/// Bytes in a page.
#[derive(Debug)]
pub(super) struct Piece {
    pub page: Page,
    pub range: Range<usize>,
}

/// Data of a stream, in order, that was taken out of it without a copy ([`Streams::read_pieces`](super::Streams::read_pieces)).
/// Its memory is used again if it goes back by [`Streams::take_back`](super::Streams::take_back).
#[derive(Debug, Default)]
pub struct Pieces {
    list: Vec<Piece>,
    /// Whose pages they are.
    owner: Option<Owner>,
}

impl Pieces {
    /// The data, piece by piece.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().map(|Piece { page, range }| &page[range.clone()])
    }

    /// Of this owner from now on, and with room for so many more.
    pub(super) fn expect(&mut self, owner: Option<Owner>, count: usize) {
        if self.owner != owner {
            self.list.clear();
            self.owner = owner;
        }
        self.list.reserve(count);
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.list.push(piece);
    }

    /// Gives the memory back, if it is from there, and lets go of it otherwise.
    pub(super) fn give_back(&mut self, pages: &mut Pages) {
        let own = self.owner == pages.owner();
        self.list.drain(..).filter(|_| own).for_each(|piece| pages.put(piece.page));
    }
}
