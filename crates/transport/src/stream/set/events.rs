//! Events of streams that the application was not told of yet.

use std::collections::{BTreeSet, VecDeque};

use super::StreamEvent;

/// So many events are kept in a list; with more of them it would take too long to put one in its middle.
const FEW: usize = 128;

/// A set of events, in their order. One alone, which is what a stream in use has most of the time, takes no
/// allocation, and a few of them no more than one: streams that take turns come in their order, so that most are put at the
/// list's end.
#[derive(Debug, Default)]
pub(super) enum Events {
    #[default]
    None,
    Only(StreamEvent),
    /// In their order, at most [`FEW`].
    Few(VecDeque<StreamEvent>),
    Many(BTreeSet<StreamEvent>),
}

impl Events {
    /// Adds an event, unless it is there.
    pub(super) fn insert(&mut self, event: StreamEvent) {
        match self {
            Events::None => *self = Events::Only(event),
            Events::Only(only) if *only == event => {}
            Events::Only(only) => {
                *self = Events::Few([(*only).min(event), (*only).max(event)].into());
            }
            Events::Few(few) => {
                let last = few.back().is_none_or(|last| *last < event);
                let place = if last { Err(few.len()) } else { few.binary_search(&event) };
                match place {
                    Ok(_) => {}
                    Err(at) if few.len() < FEW => few.insert(at, event),
                    Err(_) => *self = Events::Many(few.drain(..).chain([event]).collect()),
                }
            }
            Events::Many(many) => drop(many.insert(event)),
        }
    }

    /// Takes out the first event in the order of [`StreamEvent`]; none: there are no more.
    pub(super) fn pop_first(&mut self) -> Option<StreamEvent> {
        match self {
            Events::None => None,
            Events::Only(only) => {
                let only = *only;
                *self = Events::None;
                Some(only)
            }
            Events::Few(few) => few.pop_front(),
            Events::Many(many) => {
                let first = many.pop_first();
                if many.is_empty() {
                    *self = Events::None;
                }
                first
            }
        }
    }

    /// Gives back memory that no event is in.
    pub(super) fn rest(&mut self) {
        if self.len() == 0 {
            *self = Events::None;
        }
    }

    /// Number of events.
    pub(super) fn len(&self) -> usize {
        match self {
            Events::None => 0,
            Events::Only(_) => 1,
            Events::Few(few) => few.len(),
            Events::Many(many) => many.len(),
        }
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

    #[test]
    fn a_few_and_many_are_the_same_set() {
        use rand::{Rng, SeedableRng, rngs::StdRng};
        let mut rng = StdRng::seed_from_u64(0x5eed);
        for most in [3, FEW, 3 * FEW] {
            let (mut events, mut set) = (Events::default(), BTreeSet::new());
            for _ in 0..20 * FEW {
                if rng.random_ratio(3, 4) {
                    let id = StreamId::from(VarInt::from_u32(rng.random_range(0..most as u32)));
                    events.insert(StreamEvent::Readable(id));
                    set.insert(StreamEvent::Readable(id));
                } else {
                    assert_eq!(events.pop_first(), set.pop_first());
                }
                assert_eq!(events.len(), set.len());
            }
            let rest: Vec<StreamEvent> = std::iter::from_fn(|| events.pop_first()).collect();
            assert!(rest.into_iter().eq(set));
        }
    }
}
