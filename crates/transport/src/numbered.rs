//! Few things, each by a number.

/// A map from numbers to a handful of values, in the order of the numbers. It takes as much memory as they need, where a
/// tree has room for eleven in its first node and keeps it when they are gone. Each change costs as much as there are.
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
    /// With one value.
    pub(crate) fn with(number: u64, value: V) -> Numbered<V> {
        Numbered { entries: vec![(number, value)] }
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&number, |(own, _)| *own)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value with this number.
    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        self.place(number).ok().map(|at| &self.entries[at].1)
    }

    /// As [`Numbered::get`], to be changed.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        self.place(number).ok().map(|at| &mut self.entries[at].1)
    }

    /// True if there is one with this number.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.place(number).is_ok()
    }

    /// Adds a value; returns the one that had the number before.
    pub(crate) fn insert(&mut self, number: u64, value: V) -> Option<V> {
        match self.place(number) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (number, value));
                None
            }
        }
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<V> {
        let at = self.place(number).ok()?;
        let (_, value) = self.entries.remove(at);
        self.shrink();
        Some(value)
    }

    /// Takes out the one with the lowest number.
    pub(crate) fn pop_first(&mut self) -> Option<(u64, V)> {
        let first = (!self.entries.is_empty()).then(|| self.entries.remove(0));
        self.shrink();
        first
    }

    /// Takes out those with numbers below `end`, from the lowest up.
    pub(crate) fn take_below(&mut self, end: u64) -> Vec<(u64, V)> {
        let rest = self.entries.split_off(self.entries.partition_point(|(own, _)| *own < end));
        std::mem::replace(&mut self.entries, rest)
    }

    /// Takes all out, from the lowest up.
    pub(crate) fn take_all(&mut self) -> Vec<(u64, V)> {
        std::mem::take(&mut self.entries)
    }

    /// All, from the lowest up.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &V)> {
        self.entries.iter().map(|(number, value)| (*number, value))
    }

    /// All numbers, from the lowest up.
    pub(crate) fn numbers(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.entries.iter().map(|(number, _)| *number)
    }

    /// All values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// As [`Numbered::values`], to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn rest(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Memory of what is gone goes, too.
    fn shrink(&mut self) {
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
    fn it_is_a_map_in_the_order_of_its_numbers() {
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
    fn nothing_takes_no_memory() {
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
