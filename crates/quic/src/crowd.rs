//! Crowds: many connections between the same two sockets. They share a congestion window, and take
//! turns.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use equic_transport::Timestamp;
use equic_transport::driver::{Share, SharedWindow};

use crate::cell::{Cell, State};

/// From this many connections to one address on, they share a window. Fewer connections cannot
/// overwhelm the two sockets, and each keeps its own window.
const MANY: usize = 32;

/// Number of counters. A hash of the peer's address selects the counter of a connection.
const COUNTERS: usize = 8192;

/// From this many connections in one counter on, connections to one address form a crowd. Ten
/// thousand clients with different addresses then have no crowds, each of which would take a
/// hundred bytes. When a crowd becomes large, only a few earlier connections are outside of it.
const SOME: u32 = 8;

/// Maximum number of turns of connections that send now and then, between two turns of connections
/// that send without a pause. Thousands of small exchanges then cannot stop a download.
const PASSED: u8 = 8;

/// The membership of a connection among those to the same address.
#[derive(Default)]
pub(crate) struct Member {
    /// Index of the connection's counter in [`Crowds::counters`], plus 1. `None` if the connection
    /// is not counted. A connection that migrates keeps its counter.
    counter: Option<NonZeroU16>,
    /// Index of the connection's crowd in [`Crowds::crowds`], plus 1. `None` if it is in no crowd.
    crowd: Option<NonZeroU32>,
    share: Share,
    /// True if the connection is in the list of those that wait for their turn.
    pub waits: bool,
    /// True if the connection still had data to send after its last turn.
    bulk: bool,
}

/// The connections of a socket, grouped by the address of their peer.
#[derive(Default)]
pub(crate) struct Crowds {
    hasher: RandomState,
    /// Number of connections for each hash. Empty before the first connection.
    counters: Vec<u32>,
    numbers: HashMap<SocketAddr, NonZeroU32>,
    crowds: Vec<Crowd>,
    unused: Vec<NonZeroU32>,
    /// Numbers of the crowds in which connections wait for their turn.
    waiting: Vec<NonZeroU32>,
}

/// The connections to one address.
struct Crowd {
    address: SocketAddr,
    members: usize,
    /// Window and waiting lists. `None` if the crowd never had [`MANY`] connections.
    shared: Option<Box<Shared>>,
}

struct Shared {
    window: SharedWindow,
    /// Connections that wait because their last turn was too short for their data, in the order of
    /// their requests.
    bulk: VecDeque<Arc<Cell>>,
    /// The other connections that wait. Their turn comes first, so that a small answer does not
    /// wait for all connections that send without a pause.
    fresh: VecDeque<Arc<Cell>>,
    /// Number of turns of `fresh` connections since the last turn of a `bulk` connection.
    passed: u8,
}

impl Shared {
    fn new(datagram: u16) -> Shared {
        let (bulk, fresh) = Default::default();
        Shared { window: SharedWindow::new(datagram), bulk, fresh, passed: 0 }
    }

    /// Returns `true` if a connection waits for its turn.
    fn is_waited_for(&self) -> bool {
        !(self.bulk.is_empty() && self.fresh.is_empty())
    }

    /// Removes and returns the connection that has the next turn.
    fn next(&mut self) -> Option<Arc<Cell>> {
        let passes = self.bulk.is_empty() || self.passed < PASSED;
        if passes && let Some(cell) = self.fresh.pop_front() {
            self.passed = self.passed.saturating_add(1);
            return Some(cell);
        }
        self.passed = 0;
        self.bulk.pop_front()
    }
}

/// The right of a connection to send now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The connection does not share a window.
    Alone,
    /// The connection shares a window, and may now send this number of bytes.
    Now(usize),
    /// The connection shares a window, and other connections send first.
    Later,
}

/// Returns `true` if the current remote address is validated. A peer that forges the address of
/// another host therefore does not share a window with that host's connections, and takes none of
/// their turns.
fn is_validated(state: &State) -> bool {
    state.connection.validated_address() == Some(state.connection.remote_address())
}

impl Crowds {
    /// Counts the bytes that a connection has in flight, and returns whether it may send. `first`
    /// is true if the connection comes from the front of the waiting list.
    pub(crate) fn begin(&mut self, state: &mut State, now: Timestamp, first: bool) -> Turn {
        let number = match state.member.crowd {
            Some(number) => number,
            None if !self.is_crowded(&state.member) || !is_validated(state) => return Turn::Alone,
            None => self.join(state),
        };
        let crowd = &mut self.crowds[index(number)];
        if crowd.members < MANY && crowd.shared.is_none() {
            return Turn::Alone;
        }
        if crowd.address != state.connection.remote_address() {
            self.leave_crowd(state);
            return self.begin(state, now, first);
        }
        let mtu = state.connection.current_mtu();
        let shared = crowd.shared.get_or_insert_with(|| Box::new(Shared::new(mtu)));
        state.connection.driver().count_in(now, &mut shared.window, &mut state.member.share);
        let turn = (first || !shared.is_waited_for()) && shared.window.has_room(now);
        if turn {
            state.connection.driver().take_turn(&shared.window);
            Turn::Now(usize::try_from(shared.window.turn()).unwrap_or(usize::MAX))
        } else {
            state.connection.driver().hold_back();
            Turn::Later
        }
    }

    /// Completes the turn that [`Crowds::begin`] returned. `more` is true if the connection has
    /// more to send and waits for its next turn.
    pub(crate) fn end(
        &mut self,
        cell: &Arc<Cell>,
        state: &mut State,
        now: Timestamp,
        (turn, more): (Turn, bool),
    ) {
        let Some(number) = state.member.crowd else { return };
        let Some(shared) = &mut self.crowds[index(number)].shared else { return };
        state.connection.driver().count_in(now, &mut shared.window, &mut state.member.share);
        state.connection.driver().end_turn();
        if turn != Turn::Later {
            state.member.bulk = more || state.connection.application_waits();
        }
        let waits = more || state.connection.driver().is_held_back();
        if waits && !std::mem::replace(&mut state.member.waits, true) {
            if !shared.is_waited_for() {
                self.waiting.push(number);
            }
            let list = if state.member.bulk { &mut shared.bulk } else { &mut shared.fresh };
            list.push_back(Arc::clone(cell));
        }
    }

    /// Returns `true` if a connection waits and its crowd's window has room.
    pub(crate) fn may_go(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|number| {
            let shared = &self.crowds[index(*number)].shared;
            shared.as_ref().is_some_and(|shared| shared.window.is_open())
        })
    }

    /// Removes and returns the next waiting connection of a crowd whose window has room.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Arc<Cell>> {
        for at in 0..self.waiting.len() {
            let number = self.waiting[at];
            let Some(shared) = &mut self.crowds[index(number)].shared else { continue };
            if !shared.window.has_room(now) {
                continue;
            }
            let cell = shared.next();
            if !shared.is_waited_for() {
                self.waiting.swap_remove(at);
            }
            if cell.is_some() {
                return cell;
            }
        }
        None
    }

    /// Counts a new connection.
    pub(crate) fn enter(&mut self, state: &mut State) {
        self.counters.resize(COUNTERS, 0);
        let hash = self.hasher.hash_one(state.connection.remote_address());
        let counter = (hash % COUNTERS as u64) as u16;
        self.counters[usize::from(counter)] += 1;
        state.member = Member { counter: NonZeroU16::new(counter + 1), ..Member::default() };
        if self.is_crowded(&state.member) && is_validated(state) {
            self.join(state);
        }
    }

    /// Returns `true` if there are probably other connections to the same address. Different
    /// addresses can have the same counter.
    fn is_crowded(&self, member: &Member) -> bool {
        let counter = member.counter.and_then(|counter| self.counters.get(at(counter)));
        counter.is_some_and(|count| *count >= SOME)
    }

    /// Adds a connection to the crowd of its peer's address, and returns the crowd's number.
    fn join(&mut self, state: &mut State) -> NonZeroU32 {
        let address = state.connection.remote_address();
        let number = *self.numbers.entry(address).or_insert_with(|| {
            let crowd = Crowd { address, members: 0, shared: None };
            if let Some(number) = self.unused.pop() {
                self.crowds[index(number)] = crowd;
                return number;
            }
            self.crowds.push(crowd);
            NonZeroU32::MIN.saturating_add(self.crowds.len() as u32 - 1)
        });
        self.crowds[index(number)].members += 1;
        (state.member.crowd, state.member.share, state.member.waits) =
            (Some(number), Share::default(), false);
        number
    }

    /// Removes a connection that is closed.
    pub(crate) fn leave(&mut self, state: &mut State) {
        if let Some(counter) = state.member.counter.take() {
            self.counters[at(counter)] -= 1;
        }
        self.leave_crowd(state);
    }

    /// Removes a connection that is closed or has migrated from its crowd.
    fn leave_crowd(&mut self, state: &mut State) {
        let Some(number) = state.member.crowd.take() else { return };
        state.connection.driver().send_alone();
        let crowd = &mut self.crowds[index(number)];
        crowd.members -= 1;
        if let Some(shared) = &mut crowd.shared {
            shared.window.leave(&mut state.member.share);
        }
        if crowd.members == 0 {
            self.numbers.remove(&crowd.address);
            self.waiting.retain(|waiting| *waiting != number);
            crowd.shared = None;
            self.unused.push(number);
        }
        if self.numbers.is_empty() {
            // No connection refers to a crowd now, so the memory is freed.
            (self.numbers, self.crowds, self.unused) = Default::default();
        }
    }

    /// Returns the number of crowds.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns `true` if no connection is counted and no memory is allocated for crowds.
    #[cfg(test)]
    pub(crate) fn are_empty(&self) -> bool {
        self.counters.iter().all(|count| *count == 0) && self.crowds.capacity() == 0
    }
}

fn at(counter: NonZeroU16) -> usize {
    usize::from(counter.get() - 1)
}

fn index(crowd: NonZeroU32) -> usize {
    crowd.get() as usize - 1
}
