//! Stream events that were not reported to the application yet.

use std::collections::BTreeSet;

use super::StreamEvent;

/// An ordered set of stream events. A single event, which is the common case, needs no allocation.
#[derive(Debug, Default)]
pub(super) enum Events {
    #[default]
    None,
    Only(StreamEvent),
    Several(BTreeSet<StreamEvent>),
}

impl Events {
    /// Adds an event, unless the set already contains it.
    pub(super) fn insert(&mut self, event: StreamEvent) {
        match self {
            Events::None => *self = Events::Only(event),
            Events::Only(only) if *only == event => {}
            Events::Only(only) => *self = Events::Several([*only, event].into()),
            Events::Several(several) => drop(several.insert(event)),
        }
    }

    /// Takes the first event in the order of [`StreamEvent`], or returns `None` if there are no
    /// events.
    pub(super) fn pop_first(&mut self) -> Option<StreamEvent> {
        match self {
            Events::None => None,
            Events::Only(only) => {
                let only = *only;
                *self = Events::None;
                Some(only)
            }
            Events::Several(several) => {
                let first = several.pop_first();
                if several.is_empty() {
                    *self = Events::None;
                }
                first
            }
        }
    }

    /// Returns the number of events.
    pub(super) fn len(&self) -> usize {
        match self {
            Events::None => 0,
            Events::Only(_) => 1,
            Events::Several(several) => several.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::{Direction, StreamId, VarInt};

    use super::*;

    #[test]
    fn stream_events_come_once_and_in_order() {
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
