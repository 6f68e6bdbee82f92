//! Data that the application has taken from a stream, together with its memory.

use std::ops::Range;

use super::pages::{Owner, Page, Pages};

/// A page of memory, and the range of its bytes that contains data.
#[derive(Debug)]
pub(super) struct Piece {
    pub page: Page,
    pub range: Range<usize>,
}

/// Data of a stream, in order, that the application has taken without a copy
/// ([`Streams::read_pieces`](super::Streams::read_pieces)). Return it with
/// [`Streams::take_back`](super::Streams::take_back), so that its pages are reused.
#[derive(Debug, Default)]
pub struct Pieces {
    list: Vec<Piece>,
    /// Connection that received the data, and to which the pages return. If `None`, the pages
    /// belong to no pool and are freed.
    owner: Option<Owner>,
}

impl Pieces {
    /// Returns the data as contiguous chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().map(|Piece { page, range }| &page[range.clone()])
    }

    /// Prepares for `count` more pages of the connection `owner`. Frees pages of any other
    /// connection.
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

    /// Returns the pages to the connection that received them. If `pages` belongs to another
    /// connection, the pages are freed.
    pub(super) fn give_back(&mut self, pages: &mut Pages) {
        let own = self.owner == pages.owner();
        self.list.drain(..).filter(|_| own).for_each(|piece| pages.put(piece.page));
    }
}
