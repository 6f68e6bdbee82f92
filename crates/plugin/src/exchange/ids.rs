//! A set type for plugin IDs.

use super::frame::MAX_OFFERS;

/// A set of plugin IDs, as one bit for each possible plugin ID.
#[derive(Debug, Default)]
pub(super) struct Ids([u64; MAX_OFFERS as usize / 64]);

impl Ids {
    fn place(plugin: u64) -> (usize, u64) {
        ((plugin % MAX_OFFERS) as usize / 64, 1 << (plugin % 64))
    }

    pub(super) fn insert(&mut self, plugin: u64) {
        let (word, bit) = Ids::place(plugin);
        self.0[word] |= bit;
    }

    pub(super) fn contains(&self, plugin: u64) -> bool {
        let (word, bit) = Ids::place(plugin);
        self.0[word] & bit != 0
    }
}
