//! Sets of numbers, stored as ranges. The transport uses them for example for packet numbers to
//! acknowledge, and for offsets of bytes that were received or lost.

use std::ops::Range;

/// A set of `u64`, stored as sorted, disjoint, non-adjacent half-open ranges.
///
/// Most changes affect the first or last range and do not change the number of ranges. They cost a
/// few comparisons. Any other change costs a binary search, and moves the ranges above it in
/// memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RangeSet {
    ranges: Vec<(u64, u64)>,
}

impl RangeSet {
    /// Returns an empty set.
    pub(crate) const fn new() -> RangeSet {
        RangeSet { ranges: Vec::new() }
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.ranges.shrink_to_fit();
    }

    /// Returns the number of ranges in the set.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns how many numbers are in the set.
    pub(crate) fn covered(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the smallest number in the set.
    pub(crate) fn min(&self) -> Option<u64> {
        self.ranges.first().map(|range| range.0)
    }

    /// Returns the largest number in the set.
    pub(crate) fn max(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.1 - 1)
    }

    /// Returns the lowest range of the set.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.ranges.first().map(|&(start, end)| start..end)
    }

    /// Returns the ranges of the set in ascending order.
    pub(crate) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + Clone + '_ {
        self.ranges.iter().map(|&(start, end)| start..end)
    }

    /// Returns true if the last range of the set contains all of `range`. This is a quick check
    /// that ignores the other ranges.
    #[inline]
    pub(crate) fn ends_with(&self, range: Range<u64>) -> bool {
        self.ranges.last().is_some_and(|last| last.0 <= range.start && range.end <= last.1)
    }

    /// Returns true if `number` is in the set.
    #[inline(always)]
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.ranges.last().is_some_and(|last| number < last.1) && self.has_below_end(number)
    }

    /// Like [`RangeSet::contains`], for a number that is below the end of the last range.
    fn has_below_end(&self, number: u64) -> bool {
        let above = self.ranges.partition_point(|range| range.1 <= number);
        self.ranges.get(above).is_some_and(|range| range.0 <= number)
    }

    /// Returns true if the set contains a number of `range` or a number adjacent to it. Inserting
    /// `range` then does not increase the number of ranges.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        let at = self.ranges.partition_point(|have| have.1 < range.start);
        self.ranges.get(at).is_some_and(|have| have.0 <= range.end)
    }

    /// Returns true if the set contains a number of `range`.
    pub(crate) fn intersects(&self, range: Range<u64>) -> bool {
        let at = self.ranges.partition_point(|have| have.1 <= range.start);
        self.ranges.get(at).is_some_and(|have| have.0 < range.end)
    }

    /// Extends the last range by `count` numbers if it ends at `start`. Returns false, and changes
    /// nothing, if it does not.
    #[inline]
    pub(crate) fn extend(&mut self, start: u64, count: u64) -> bool {
        match self.ranges.last_mut() {
            Some(last) if last.1 == start => {
                last.1 += count;
                true
            }
            _ => false,
        }
    }

    /// Inserts one number. Returns true if it was not in the set.
    pub(crate) fn insert_one(&mut self, number: u64) -> bool {
        self.insert(number..number + 1) > 0
    }

    /// Inserts a range. Returns how many of its numbers were not in the set.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let Some(last) = self.ranges.last_mut().filter(|last| range.start <= last.1) else {
            self.ranges.push((range.start, range.end));
            return range.end - range.start;
        };
        if range.start < last.0 {
            return self.insert_below(range);
        }
        // The new range continues the last range of the set, or overlaps it.
        let fresh = range.end.saturating_sub(last.1);
        last.1 += fresh;
        fresh
    }

    /// Inserts a non-empty range that begins before the last range.
    fn insert_below(&mut self, range: Range<u64>) -> u64 {
        // Existing ranges that overlap or touch the new range are merged with it.
        let first = self.ranges.partition_point(|have| have.1 < range.start);
        let last = self.ranges.partition_point(|have| have.0 <= range.end);
        let touched = &self.ranges[first..last];
        let (mut start, mut end, mut known) = (range.start, range.end, 0);
        for have in touched {
            let overlap = have.1.min(range.end).saturating_sub(have.0.max(range.start));
            known += overlap;
            start = start.min(have.0);
            end = end.max(have.1);
        }
        match touched.len() {
            0 => self.ranges.insert(first, (start, end)),
            1 => self.ranges[first] = (start, end),
            _ => drop(self.ranges.splice(first..last, [(start, end)])),
        }
        range.end - range.start - known
    }

    /// Removes a range of numbers from the set.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() || self.ranges.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|have| have.1 <= range.start);
        let last = self.ranges.partition_point(|have| have.0 < range.end);
        if first >= last {
            return;
        }
        let below = (self.ranges[first].0, range.start);
        let above = (range.end, self.ranges[last - 1].1);
        let left = [below, above].into_iter().filter(|(start, end)| start < end);
        self.ranges.splice(first..last, left);
    }

    /// Removes all numbers below `number` from the set.
    pub(crate) fn remove_below(&mut self, number: u64) {
        if let Some(first) = self.ranges.first_mut()
            && first.1 > number
        {
            first.0 = first.0.max(number);
            return;
        }
        let gone = self.ranges.partition_point(|have| have.1 <= number);
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(number);
        }
    }

    /// Removes the lowest range from the set and returns it.
    pub(crate) fn pop_min(&mut self) -> Option<Range<u64>> {
        if self.ranges.is_empty() {
            return None;
        }
        let (start, end) = self.ranges.remove(0);
        Some(start..end)
    }

    /// Returns the parts of `range` that are not in the set, in ascending order.
    pub(crate) fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|have| have.1 <= range.start);
        let mut next = range.start;
        let mut inside = self.ranges[first..].iter();
        std::iter::from_fn(move || {
            while next < range.end {
                let Some(&(start, end)) = inside.next() else {
                    let gap = next..range.end;
                    next = range.end;
                    return Some(gap);
                };
                let gap = next..start.min(range.end);
                next = end;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use std::collections::BTreeSet;

    fn check(set: &RangeSet, model: &BTreeSet<u64>) {
        let numbers: Vec<u64> = set.iter().flatten().collect();
        assert_eq!(numbers, model.iter().copied().collect::<Vec<_>>());
        assert_eq!(set.covered(), model.len() as u64);
        assert!(set.ranges.iter().all(|(start, end)| start < end), "{set:?}");
        assert!(
            set.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0),
            "adjacent ranges: {set:?}"
        );
        assert_eq!((set.min(), set.max()), (model.first().copied(), model.last().copied()));
    }

    #[test]
    fn ranges_agree_with_a_set_of_numbers() {
        let seed = 0x5eed;
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..300 {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for _ in 0..60 {
                let start = rng.random_range(0..80u64);
                let range = start..start + rng.random_range(0..12u64);
                match rng.random_range(0..10) {
                    0..=3 => {
                        let fresh = range.clone().filter(|n| model.insert(*n)).count() as u64;
                        assert_eq!(set.insert(range), fresh);
                    }
                    4..=5 => assert_eq!(set.insert_one(start), model.insert(start)),
                    6..=7 => {
                        model.retain(|n| !range.contains(n));
                        set.remove(range);
                    }
                    8 => {
                        model.retain(|n| *n >= start / 2);
                        set.remove_below(start / 2);
                    }
                    _ => {
                        let gaps: Vec<u64> = set.gaps(range.clone()).flatten().collect();
                        let missing: Vec<u64> =
                            range.clone().filter(|n| !model.contains(n)).collect();
                        assert_eq!(gaps, missing);
                        assert_eq!(set.contains(start), model.contains(&start));
                        let next = model.last().map_or(0, |last| last + 1);
                        assert!(!set.extend(next + 1, 1) && !set.extend(next.wrapping_sub(1), 1));
                        assert_eq!(set.extend(next, 1), !model.is_empty() && model.insert(next));
                        let all = start..start + 5;
                        let inside = all.clone().any(|n| model.contains(&n));
                        assert_eq!(set.intersects(all.clone()), inside);
                        let beside = start > 0 && model.contains(&(start - 1));
                        let touches = inside || beside || model.contains(&all.end);
                        assert_eq!(set.touches(all), touches);
                        let last = set.iter().last();
                        let inside = last
                            .is_some_and(|last| last.start <= range.start && range.end <= last.end);
                        assert_eq!(set.ends_with(range), inside);
                    }
                }
                check(&set, &model);
            }
        }
    }

    #[test]
    fn ranges_lowest_is_removed_whole() {
        let mut set = RangeSet::new();
        set.insert(10..20);
        set.insert(1..3);
        assert_eq!((set.pop_min(), set.pop_min(), set.pop_min()), (Some(1..3), Some(10..20), None));
    }
}
