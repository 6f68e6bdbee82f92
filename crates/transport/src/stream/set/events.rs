//! Events of streams that the application was not told of yet.

use std::collections::BTreeSet;

use super::StreamEvent;

/// A set of events, in their order. One alone, which is what a stream in use has most of the time, takes no
/// allocation.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// None if there is no event, or more than one.
    only: Option<StreamEvent>,
    /// Empty, or all of them.
    several: BTreeSet<StreamEvent>,
}

impl Events {
    /// Adds an event, unless it is there.
    pub(super) fn insert(&mut self, event: StreamEvent) {
        match self.only {
            Some(only) if only == event => {}
            Some(only) => {
                self.only = None;
                self.several.extend([only, event]);
            }
            None if self.several.is_empty() => self.only = Some(event),
            None => drop(self.several.insert(event)),
        }
    }

    /// Takes out the first event in the order of [`StreamEvent`]; none: there are no more.
    pub(super) fn pop_first(&mut self) -> Option<StreamEvent> {
        self.only.take().or_else(|| self.several.pop_first())
    }

    /// Gives back memory that no event is in.
    pub(super) fn rest(&mut self) {
        if self.several.is_empty() {
            self.several = BTreeSet::new();
        }
    }

    /// Number of events.
    pub(super) fn len(&self) -> usize {
        usize::from(self.only.is_some()) + self.several.len()
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::{Direction, StreamId, VarInt};

    use super::*;

    #[test]
    fn they_come_once_and_in_their_order_however_many_there_are() {
        let id = StreamId::from(VarInt::from_u32(4));
        let all = [
            StreamEvent::Opened(Direction::Bidirectional),
            StreamEvent::Readable(id),
            StreamEvent::Writable(id),
        ];
        for count in 0..=all.len() {
            let mut events = Events::default();
            for event in all[..count].iter().rev().chain(&all[..count]) {
                events.insert(*event);
            }
            assert_eq!(events.len(), count);
            let told: Vec<StreamEvent> = std::iter::from_fn(|| events.pop_first()).collect();
            assert_eq!(told, all[..count]);
            assert_eq!(events.len(), 0);
            events.insert(all[0]);
            assert_eq!((events.pop_first(), events.pop_first()), (Some(all[0]), None));
        }
    }
}
