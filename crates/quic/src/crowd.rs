//! Connections between the same two sockets, which are many: they share a window, and take turns.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use equic_transport::Timestamp;
use equic_transport::driver::{Share, SharedWindow};

use crate::cell::{Cell, State};

/// Connections to one address from which on they share a window. Fewer cannot overwhelm what two sockets have in common,
/// and are as if they were alone.
const MANY: usize = 32;

/// Counters of connections by a hash of the peer's address.
const COUNTERS: usize = 8192;

/// Connections in one counter from which on those to one address are in a crowd of their own. So ten thousand clients with
/// an address each have no crowds, which would take a hundred bytes each; and few are outside when their crowd becomes large.
const SOME: u32 = 8;

/// Turns of connections that send now and then for which those that send without a pause wait at most: thousands of small
/// exchanges do not bring a download to a halt.
const PASSED: u8 = 8;

/// A connection among those to the same address.
#[derive(Default)]
pub(crate) struct Member {
    /// Number of its counter in [`Crowds::counters`], from 1 on; none: it is not counted. A connection that moves stays in it.
    counter: Option<NonZeroU16>,
    /// Number of its crowd in [`Crowds::crowds`], from 1 on; none: it is in no crowd yet.
    crowd: Option<NonZeroU32>,
    share: Share,
    /// True if it is in the list of connections that wait for their turn.
    pub waits: bool,
    /// True if it had data left to send after its last turn.
    bulk: bool,
}

/// Connections of a socket, by the address of their peer.
#[derive(Default)]
pub(crate) struct Crowds {
    hasher: RandomState,
    /// Empty: there was no connection yet.
    counters: Vec<u32>,
    numbers: HashMap<SocketAddr, NonZeroU32>,
    crowds: Vec<Crowd>,
    unused: Vec<NonZeroU32>,
    /// Numbers of crowds in which connections wait for their turn.
    waiting: Vec<NonZeroU32>,
}

/// Connections to one address.
struct Crowd {
    address: SocketAddr,
    members: usize,
    /// Window and waiting list; none: there were never [`MANY`] connections.
    shared: Option<Box<Shared>>,
}

struct Shared {
    window: SharedWindow,
    /// Connections that have data to send and no room for it, in the order in which they asked: those for which their last turn
    /// was too short.
    bulk: VecDeque<Arc<Cell>>,
    /// The others. Their turn comes before, so that a small answer does not wait for all who send without a pause.
    fresh: VecDeque<Arc<Cell>>,
    /// Turns of fresh ones since the last of another.
    passed: u8,
}

impl Shared {
    fn new(datagram: u16) -> Shared {
        let (bulk, fresh) = Default::default();
        Shared { window: SharedWindow::new(datagram), bulk, fresh, passed: 0 }
    }

    /// True if a connection waits for its turn.
    fn is_waited_for(&self) -> bool {
        !(self.bulk.is_empty() && self.fresh.is_empty())
    }

    /// Takes out the connection whose turn is next.
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

/// Whether a connection of a crowd may send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The connection shares no window.
    Alone,
    /// The connection shares a window, and it is its turn to send so many bytes.
    Now(usize),
    /// The connection shares a window, and other connections are before it.
    Later,
}

/// True if the peer has proved that it receives where the connection sends to. Who only claims another host's address shares
/// no window with that host's connections, and takes no turns of theirs.
fn is_validated(state: &State) -> bool {
    state.connection.validated_address() == Some(state.connection.remote_address())
}

impl Crowds {
    /// Counts the bytes that a connection has in flight and says whether it may send. `first`: it comes from the front of
    /// the waiting list.
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

    /// Ends what [`Crowds::begin`] began with this result. `more`: the connection has more to send, and waits for its next turn.
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

    /// True if a connection waits and its crowd's window has room.
    pub(crate) fn may_go(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|number| {
            let shared = &self.crowds[index(*number)].shared;
            shared.as_ref().is_some_and(|shared| shared.window.is_open())
        })
    }

    /// Takes out the next connection that waits in a crowd whose window has room.
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

    /// True if there are other connections to the same address, as far as the counters can tell.
    fn is_crowded(&self, member: &Member) -> bool {
        let counter = member.counter.and_then(|counter| self.counters.get(at(counter)));
        counter.is_some_and(|count| *count >= SOME)
    }

    /// Adds a connection to the crowd of its peer's address; returns the crowd's number.
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

    /// A connection is over.
    pub(crate) fn leave(&mut self, state: &mut State) {
        if let Some(counter) = state.member.counter.take() {
            self.counters[at(counter)] -= 1;
        }
        self.leave_crowd(state);
    }

    /// Takes a connection that is over or has moved out of its crowd.
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
            // Nothing names a crowd any more: the memory of as many as there were at once goes back.
            (self.numbers, self.crowds, self.unused) = Default::default();
        }
    }

    /// Number of crowds.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// True if no connection is counted, and nothing is kept for any.
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
