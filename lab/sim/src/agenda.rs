//! The queue of future events of a simulation. It has at most one entry per event source, because a
//! source has at most one scheduled time, which can be changed at any time. The size of the queue
//! therefore depends on the number of sources, and not on the number of packets in flight.
//!
//! A source is a port of a link, an agent, or the recorder. Entries are ordered by time. Entries
//! with the same time are ordered by when they were set.

use crate::time::Time;

/// Marks a source that has no entry in the heap.
const NOWHERE: u32 = u32::MAX;
/// Number of children of each node of the heap. With four children the heap is flat, and the
/// children of a node fit into two cache lines.
const BRANCHES: usize = 4;

#[derive(Clone, Copy)]
struct Entry {
    at: Time,
    /// Number that orders entries with the same time: the entry with the smaller number fires
    /// first.
    sequence: u64,
    source: u32,
}

impl Entry {
    fn key(&self) -> (Time, u64) {
        (self.at, self.sequence)
    }
}

/// The queue of future events; see the documentation of this module.
#[derive(Default)]
pub(crate) struct Agenda {
    heap: Vec<Entry>,
    /// For each source, the index of its entry in the heap.
    places: Vec<u32>,
    sequence: u64,
    /// The event source that fired last. If it is scheduled again, its entry gets a new sequence
    /// number, even for the same time.
    firing: Option<u32>,
}

impl Agenda {
    /// Creates an event queue with this number of sources, which are numbered from 0. None of them
    /// is scheduled.
    pub(crate) fn new(sources: usize) -> Agenda {
        Agenda { places: vec![NOWHERE; sources], ..Agenda::default() }
    }

    /// Adds an event source that is not scheduled, and returns its number.
    pub(crate) fn add(&mut self) -> u32 {
        self.places.push(NOWHERE);
        (self.places.len() - 1) as u32
    }

    /// Returns the number of event sources, scheduled or not.
    pub(crate) fn sources(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the number of event sources that are scheduled.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the time of the first entry, or `None` if no source is scheduled.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Returns the time and the source of the first entry, or `None` if the queue is empty. Before
    /// the next call, the caller must call [`Agenda::set`] for the returned source.
    pub(crate) fn fire(&mut self) -> Option<(Time, u32)> {
        let first = self.heap.first()?;
        debug_assert!(
            self.firing.is_none(),
            "`set` must be called for the source that fired before the next event is taken"
        );
        self.firing = Some(first.source);
        Some((first.at, first.source))
    }

    /// Schedules the next event of a source. `None` removes the source's entry. If the time does
    /// not change, the entry keeps its place among entries of the same time.
    pub(crate) fn set(&mut self, source: u32, at: Option<Time>) {
        let place = self.places[source as usize];
        let fired = self.firing == Some(source);
        if fired {
            self.firing = None;
        }
        match at {
            None if place == NOWHERE => {}
            None => self.remove(place as usize),
            Some(at) if place == NOWHERE => {
                let entry = self.enter(source, at);
                self.heap.push(entry);
                self.up(self.heap.len() - 1);
            }
            Some(at) => {
                let place = place as usize;
                let before = self.heap[place];
                if before.at == at && !fired {
                    return;
                }
                self.heap[place] = self.enter(source, at);
                if at < before.at {
                    self.up(place);
                } else {
                    self.down(place);
                }
            }
        }
    }

    fn enter(&mut self, source: u32, at: Time) -> Entry {
        self.sequence += 1;
        Entry { at, sequence: self.sequence, source }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.places[gone.source as usize] = NOWHERE;
        if place < self.heap.len() {
            self.up(place);
            let source = self.heap[place].source;
            self.down(self.places[source as usize] as usize);
        }
    }

    fn up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / BRANCHES;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * BRANCHES + 1;
            let children = first..self.heap.len().min(first + BRANCHES);
            let Some(least) = children.min_by_key(|child| self.heap[*child].key()) else { break };
            if entry.key() <= self.heap[least].key() {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.source as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agenda_fires_equal_times_in_order_of_insertion() {
        let mut agenda = Agenda::new(4);
        for source in [2, 0, 3, 1] {
            agenda.set(source, Some(Time::from_nanos(5)));
        }
        // Setting the same time again must keep the order.
        agenda.set(2, Some(Time::from_nanos(5)));
        let mut order = Vec::new();
        while let Some((_, source)) = agenda.fire() {
            order.push(source);
            // The first source is scheduled again for the same time. It must fire after the others.
            let again = order.len() == 1;
            agenda.set(source, again.then_some(Time::from_nanos(5)));
        }
        assert_eq!(order, [2, 0, 3, 1, 2]);
    }

    proptest! {
        /// Random operations must give the same result as a list that is searched for its smallest
        /// entry.
        #[test]
        fn agenda_order_matches_a_model(
            steps in proptest::collection::vec((0..40u32, proptest::option::of(0..30u64)), 1..400),
        ) {
            let mut agenda = Agenda::new(40);
            let mut model: BTreeMap<u32, (Time, u64)> = BTreeMap::new();
            for (sequence, (source, at)) in steps.into_iter().enumerate() {
                let at = at.map(Time::from_nanos);
                agenda.set(source, at);
                match at {
                    None => drop(model.remove(&source)),
                    Some(at) if model.get(&source).is_some_and(|entry| entry.0 == at) => {}
                    Some(at) => drop(model.insert(source, (at, sequence as u64))),
                }
                prop_assert_eq!(agenda.next(), model.values().map(|entry| entry.0).min());
                // Every fifth step fires the first entry.
                if sequence % 5 == 0 && let Some((at, fired)) = agenda.fire() {
                    let first = model.iter().min_by_key(|(_, entry)| **entry);
                    prop_assert_eq!(first.map(|(source, entry)| (entry.0, *source)), Some((at, fired)));
                    model.remove(&fired);
                    agenda.set(fired, None);
                }
            }
        }
    }
}
