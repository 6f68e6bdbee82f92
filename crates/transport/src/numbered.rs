//! A small ordered map with numbers as keys.

/// An ordered map from numbers to values. It is made for a few entries. It takes only the memory
/// that its entries need, whereas a `BTreeMap` allocates a node for eleven entries. Inserting or
/// removing an entry takes time linear in the number of entries.
#[derive(Debug, Clone)]
pub(crate) struct Numbered<V> {
    entries: Vec<(u64, V)>,
}

impl<V> Default for Numbered<V> {
    fn default() -> Numbered<V> {
        Numbered { entries: Vec::new() }
    }
}

impl<V> Numbered<V> {
    /// Creates a map with one value.
    pub(crate) fn with(number: u64, value: V) -> Numbered<V> {
        Numbered { entries: vec![(number, value)] }
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&number, |(own, _)| *own)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the map has no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value with this number.
    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        self.place(number).ok().map(|at| &self.entries[at].1)
    }

    /// Like [`Numbered::get`], but returns a mutable reference.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        self.place(number).ok().map(|at| &mut self.entries[at].1)
    }

    /// Returns true if there is a value with this number.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.place(number).is_ok()
    }

    /// Inserts a value. Returns the previous value with this number.
    pub(crate) fn insert(&mut self, number: u64, value: V) -> Option<V> {
        match self.place(number) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (number, value));
                None
            }
        }
    }

    /// Removes the value with this number and returns it.
    pub(crate) fn remove(&mut self, number: u64) -> Option<V> {
        let at = self.place(number).ok()?;
        let (_, value) = self.entries.remove(at);
        self.release_spare();
        Some(value)
    }

    /// Removes and returns the value with the lowest number.
    pub(crate) fn pop_first(&mut self) -> Option<(u64, V)> {
        let first = (!self.entries.is_empty()).then(|| self.entries.remove(0));
        self.release_spare();
        first
    }

    /// Removes and returns the values with numbers below `end`, in ascending order.
    pub(crate) fn take_below(&mut self, end: u64) -> Vec<(u64, V)> {
        let rest = self.entries.split_off(self.entries.partition_point(|(own, _)| *own < end));
        std::mem::replace(&mut self.entries, rest)
    }

    /// Removes and returns all values, in ascending order of their numbers.
    pub(crate) fn take_all(&mut self) -> Vec<(u64, V)> {
        std::mem::take(&mut self.entries)
    }

    /// Returns all numbers and values, in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &V)> {
        self.entries.iter().map(|(number, value)| (*number, value))
    }

    /// Returns all numbers, in ascending order.
    pub(crate) fn numbers(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.entries.iter().map(|(number, _)| *number)
    }

    /// Returns all values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// Like [`Numbered::values`], but returns mutable references.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Releases the memory that is unused after a removal.
    fn release_spare(&mut self) {
        if self.entries.is_empty() {
            self.entries = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn numbered_map_is_ordered() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut numbered, mut tree) = (Numbered::default(), BTreeMap::new());
        for step in 0..20_000 {
            let number = rng.random_range(0..12);
            match rng.random_range(0..8) {
                0..3 => assert_eq!(numbered.insert(number, step), tree.insert(number, step)),
                3..5 => assert_eq!(numbered.remove(number), tree.remove(&number)),
                5 => assert_eq!(numbered.pop_first(), tree.pop_first()),
                6 => {
                    let rest = tree.split_off(&number);
                    let below: Vec<(u64, i32)> =
                        std::mem::replace(&mut tree, rest).into_iter().collect();
                    assert_eq!(numbered.take_below(number), below);
                }
                _ => assert_eq!(numbered.get_mut(number), tree.get_mut(&number)),
            }
            assert_eq!((numbered.len(), numbered.is_empty()), (tree.len(), tree.is_empty()));
            assert_eq!(numbered.contains(number), tree.contains_key(&number));
            assert_eq!(numbered.get(number), tree.get(&number));
            assert!(numbered.iter().eq(tree.iter().map(|(number, value)| (*number, value))));
            assert!(
                numbered.values().eq(tree.values()) && numbered.numbers().eq(tree.keys().copied())
            );
        }
        assert!(numbered.take_all().into_iter().eq(tree));
        assert!(numbered.is_empty());
    }

    #[test]
    fn numbered_map_without_entries_takes_no_memory() {
        let mut numbered = Numbered::with(3, [0; 100]);
        numbered.insert(4, [1; 100]);
        assert!(numbered.remove(3).is_some() && numbered.remove(3).is_none());
        assert!(numbered.entries.capacity() > 0);
        assert_eq!(numbered.pop_first(), Some((4, [1; 100])));
        assert_eq!(numbered.entries.capacity(), 0);
        numbered.insert(5, [2; 100]);
        numbered.take_below(6);
        assert_eq!(numbered.entries.capacity(), 0);
    }
}
