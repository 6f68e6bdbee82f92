//! Connections between the same two sockets, which are many: they share a window, and take turns.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use equic_transport::Timestamp;
use equic_transport::congestion::{Share, SharedWindow};

use crate::cell::{Cell, State};

/// Connections to one address from which on they share a window. Fewer cannot overwhelm what two sockets have in common,
/// and are as if they were alone.
const MANY: usize = 32;

/// A connection among those to the same address.
#[derive(Default)]
pub(crate) struct Member {
    /// Index of its crowd in [`Crowds::crowds`]; none: it is in no crowd yet.
    crowd: Option<u32>,
    share: Share,
    /// True if it is in the list of connections that wait for their turn.
    pub waits: bool,
}

/// Connections of a socket, by the address of their peer.
#[derive(Default)]
pub(crate) struct Crowds {
    numbers: HashMap<SocketAddr, u32>,
    crowds: Vec<Crowd>,
    unused: Vec<u32>,
    /// Indices of crowds in which connections wait for their turn.
    waiting: Vec<u32>,
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
    /// Connections that have data to send and no room for it, in the order in which they asked.
    waiting: VecDeque<Arc<Cell>>,
}

/// Whether a connection of a crowd may send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The connection shares no window.
    Alone,
    /// The connection shares a window, and it is its turn.
    Now,
    /// The connection shares a window, and other connections are before it.
    Later,
}

impl Crowds {
    /// Counts the bytes that a connection has in flight and says whether it may send. `first`: it comes from the front of
    /// the waiting list.
    pub(crate) fn begin(&mut self, state: &mut State, now: Timestamp, first: bool) -> Turn {
        let number = match state.member.crowd {
            Some(number) => number,
            None => self.join(state),
        };
        let crowd = &mut self.crowds[number as usize];
        if crowd.members < MANY && crowd.shared.is_none() {
            return Turn::Alone;
        }
        if crowd.address != state.connection.remote_address() {
            self.leave(state);
            return self.begin(state, now, first);
        }
        let mtu = state.connection.current_mtu();
        let shared = crowd.shared.get_or_insert_with(|| {
            Box::new(Shared { window: SharedWindow::new(mtu), waiting: VecDeque::new() })
        });
        state.connection.count_in(now, &mut shared.window, &mut state.member.share);
        let turn = (first || shared.waiting.is_empty()) && shared.window.has_room(now);
        if turn {
            state.connection.take_turn(&shared.window);
            Turn::Now
        } else {
            state.connection.hold_back();
            Turn::Later
        }
    }

    /// Ends a connection's turn. `more`: it has more to send, and waits for its next turn.
    pub(crate) fn end(&mut self, cell: &Arc<Cell>, state: &mut State, now: Timestamp, more: bool) {
        let Some(number) = state.member.crowd else { return };
        let Some(shared) = &mut self.crowds[number as usize].shared else { return };
        state.connection.count_in(now, &mut shared.window, &mut state.member.share);
        state.connection.end_turn();
        let waits = more || state.connection.is_held_back();
        if waits && !std::mem::replace(&mut state.member.waits, true) {
            if shared.waiting.is_empty() {
                self.waiting.push(number);
            }
            shared.waiting.push_back(Arc::clone(cell));
        }
    }

    /// True if a connection waits and its crowd's window has room.
    pub(crate) fn may_go(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|number| {
            let shared = &self.crowds[*number as usize].shared;
            shared.as_ref().is_some_and(|shared| shared.window.is_open())
        })
    }

    /// Takes out the next connection that waits in a crowd whose window has room.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Arc<Cell>> {
        for at in 0..self.waiting.len() {
            let number = self.waiting[at];
            let Some(shared) = &mut self.crowds[number as usize].shared else { continue };
            if !shared.window.has_room(now) {
                continue;
            }
            let cell = shared.waiting.pop_front();
            if shared.waiting.is_empty() {
                self.waiting.swap_remove(at);
            }
            if cell.is_some() {
                return cell;
            }
        }
        None
    }

    /// Adds a connection that is new or has moved to the crowd of its peer's address; returns the crowd's index.
    pub(crate) fn join(&mut self, state: &mut State) -> u32 {
        let address = state.connection.remote_address();
        let number = *self.numbers.entry(address).or_insert_with(|| {
            let crowd = Crowd { address, members: 0, shared: None };
            if let Some(number) = self.unused.pop() {
                self.crowds[number as usize] = crowd;
                return number;
            }
            self.crowds.push(crowd);
            (self.crowds.len() - 1) as u32
        });
        self.crowds[number as usize].members += 1;
        state.member = Member { crowd: Some(number), ..Member::default() };
        number
    }

    /// Takes a connection that is over or has moved out of its crowd.
    pub(crate) fn leave(&mut self, state: &mut State) {
        let Some(number) = state.member.crowd.take() else { return };
        let crowd = &mut self.crowds[number as usize];
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
    }
}
