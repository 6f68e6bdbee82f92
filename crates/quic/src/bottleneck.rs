//! Bottleneck groups: many connections between the same two sockets. They share a bottleneck, so
//! they share a congestion window and take turns.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use equic_transport::driver::{Share, SharedWindow};
use equic_transport::{Connection, Timestamp};

/// From this many connections to one address on, they share a window. Fewer connections cannot
/// overwhelm the two sockets, and each keeps its own window.
const GROUP_THRESHOLD: usize = 32;

/// Number of counters. A hash of the peer's address selects the counter of a connection.
const COUNTERS: usize = 8192;

/// From this many connections in one counter on, connections to one address form a group. Ten
/// thousand clients with different addresses then have no groups, each of which would take a
/// hundred bytes. When a group becomes large, only a few earlier connections are outside of it.
const COUNTER_THRESHOLD: u32 = 8;

/// Maximum number of turns of connections that send now and then, between two turns of connections
/// that send without a pause. Thousands of small exchanges then cannot stop a download.
const MAX_INTERACTIVE_TURNS: u8 = 8;

/// The membership of a connection in the group of its peer's address.
#[derive(Default)]
pub(crate) struct Membership {
    /// Index of the connection's counter in [`BottleneckGroups::counters`], plus 1. `None` if the
    /// connection is not counted. A connection that migrates keeps its counter.
    counter: Option<NonZeroU16>,
    /// Index of the connection's group in [`BottleneckGroups::groups`], plus 1. `None` if it is in
    /// no group.
    group: Option<NonZeroU32>,
    share: Share,
    /// True if the connection is in the list of those that wait for their turn.
    pub waits: bool,
    /// True if the connection still had data to send after its last turn.
    bulk: bool,
}

/// The connections of a socket, grouped by the address of their peer. `C` is the type of a
/// connection that waits for its turn.
pub(crate) struct BottleneckGroups<C> {
    hasher: RandomState,
    /// Number of connections for each hash. Empty before the first connection.
    counters: Vec<u32>,
    numbers: HashMap<SocketAddr, NonZeroU32>,
    groups: Vec<Group<C>>,
    unused: Vec<NonZeroU32>,
    /// Numbers of the groups in which connections wait for their turn.
    waiting: Vec<NonZeroU32>,
}

impl<C> Default for BottleneckGroups<C> {
    fn default() -> BottleneckGroups<C> {
        BottleneckGroups {
            hasher: RandomState::default(),
            counters: Vec::new(),
            numbers: HashMap::new(),
            groups: Vec::new(),
            unused: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

/// The connections to one address.
struct Group<C> {
    address: SocketAddr,
    members: usize,
    /// Window and waiting lists. `None` if the group never had [`GROUP_THRESHOLD`] connections.
    shared: Option<Box<Shared<C>>>,
}

struct Shared<C> {
    window: SharedWindow,
    /// Connections that wait because their last turn was too short for their data, in the order of
    /// their requests.
    bulk: VecDeque<Arc<C>>,
    /// The other connections that wait. Their turn comes first, so that a small answer does not
    /// wait for all connections that send without a pause.
    interactive: VecDeque<Arc<C>>,
    /// Number of turns of `interactive` connections since the last turn of a `bulk` connection.
    interactive_turns: u8,
}

impl<C> Shared<C> {
    fn new(datagram: u16) -> Shared<C> {
        let (bulk, interactive) = Default::default();
        Shared { window: SharedWindow::new(datagram), bulk, interactive, interactive_turns: 0 }
    }

    /// Returns `true` if a connection waits for its turn.
    fn is_waited_for(&self) -> bool {
        !(self.bulk.is_empty() && self.interactive.is_empty())
    }

    /// Removes and returns the connection that has the next turn.
    fn next(&mut self) -> Option<Arc<C>> {
        let prefers_interactive =
            self.bulk.is_empty() || self.interactive_turns < MAX_INTERACTIVE_TURNS;
        if prefers_interactive && let Some(next) = self.interactive.pop_front() {
            self.interactive_turns = self.interactive_turns.saturating_add(1);
            return Some(next);
        }
        self.interactive_turns = 0;
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
fn is_validated(connection: &Connection) -> bool {
    connection.validated_address() == Some(connection.remote_address())
}

impl<C> BottleneckGroups<C> {
    /// Counts the bytes that a connection has in flight, and returns whether it may send. `first`
    /// is true if the connection comes from the front of the waiting list.
    pub(crate) fn begin(
        &mut self,
        connection: &mut Connection,
        membership: &mut Membership,
        now: Timestamp,
        first: bool,
    ) -> Turn {
        let number = match membership.group {
            Some(number) => number,
            None if !self.is_counter_high(membership) || !is_validated(connection) => {
                return Turn::Alone;
            }
            None => self.join(connection, membership),
        };
        let group = &mut self.groups[index(number)];
        if group.members < GROUP_THRESHOLD && group.shared.is_none() {
            return Turn::Alone;
        }
        if group.address != connection.remote_address() {
            self.leave_group(connection, membership);
            return self.begin(connection, membership, now, first);
        }
        let mtu = connection.current_mtu();
        let shared = group.shared.get_or_insert_with(|| Box::new(Shared::new(mtu)));
        connection.driver().count_in(now, &mut shared.window, &mut membership.share);
        let turn = (first || !shared.is_waited_for()) && shared.window.has_room(now);
        if turn {
            connection.driver().take_turn(&shared.window);
            Turn::Now(usize::try_from(shared.window.turn()).unwrap_or(usize::MAX))
        } else {
            connection.driver().hold_back();
            Turn::Later
        }
    }

    /// Completes the turn that [`BottleneckGroups::begin`] returned. `more` is true if the
    /// connection has more to send and waits for its next turn. The group then keeps a clone of
    /// `waiter` until that turn.
    pub(crate) fn end(
        &mut self,
        waiter: &Arc<C>,
        connection: &mut Connection,
        membership: &mut Membership,
        now: Timestamp,
        turn: Turn,
        more: bool,
    ) {
        let Some(number) = membership.group else { return };
        let Some(shared) = &mut self.groups[index(number)].shared else { return };
        connection.driver().count_in(now, &mut shared.window, &mut membership.share);
        connection.driver().end_turn();
        if turn != Turn::Later {
            membership.bulk = more || connection.application_waits();
        }
        let waits = more || connection.driver().is_held_back();
        if waits && !std::mem::replace(&mut membership.waits, true) {
            if !shared.is_waited_for() {
                self.waiting.push(number);
            }
            let list = if membership.bulk { &mut shared.bulk } else { &mut shared.interactive };
            list.push_back(Arc::clone(waiter));
        }
    }

    /// Returns `true` if a connection waits and its group's window has room.
    pub(crate) fn may_go(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|number| {
            let shared = &self.groups[index(*number)].shared;
            shared.as_ref().is_some_and(|shared| shared.window.is_open())
        })
    }

    /// Removes and returns the next waiting connection of a group whose window has room.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Arc<C>> {
        for at in 0..self.waiting.len() {
            let number = self.waiting[at];
            let Some(shared) = &mut self.groups[index(number)].shared else { continue };
            if !shared.window.has_room(now) {
                continue;
            }
            let next = shared.next();
            if !shared.is_waited_for() {
                self.waiting.swap_remove(at);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Counts a new connection.
    pub(crate) fn enter(&mut self, connection: &Connection, membership: &mut Membership) {
        self.counters.resize(COUNTERS, 0);
        let hash = self.hasher.hash_one(connection.remote_address());
        let counter = (hash % COUNTERS as u64) as u16;
        self.counters[usize::from(counter)] += 1;
        *membership = Membership { counter: NonZeroU16::new(counter + 1), ..Membership::default() };
        if self.is_counter_high(membership) && is_validated(connection) {
            self.join(connection, membership);
        }
    }

    /// Returns `true` if there are probably other connections to the same address. Different
    /// addresses can have the same counter.
    fn is_counter_high(&self, membership: &Membership) -> bool {
        let counter = membership.counter.and_then(|counter| self.counters.get(at(counter)));
        counter.is_some_and(|count| *count >= COUNTER_THRESHOLD)
    }

    /// Adds a connection to the group of its peer's address, and returns the group's number.
    fn join(&mut self, connection: &Connection, membership: &mut Membership) -> NonZeroU32 {
        let address = connection.remote_address();
        let number = *self.numbers.entry(address).or_insert_with(|| {
            let group = Group { address, members: 0, shared: None };
            if let Some(number) = self.unused.pop() {
                self.groups[index(number)] = group;
                return number;
            }
            self.groups.push(group);
            NonZeroU32::MIN.saturating_add(self.groups.len() as u32 - 1)
        });
        self.groups[index(number)].members += 1;
        (membership.group, membership.share, membership.waits) =
            (Some(number), Share::default(), false);
        number
    }

    /// Removes a connection that is closed.
    pub(crate) fn leave(&mut self, connection: &mut Connection, membership: &mut Membership) {
        if let Some(counter) = membership.counter.take() {
            self.counters[at(counter)] -= 1;
        }
        self.leave_group(connection, membership);
    }

    /// Removes a connection that is closed or has migrated from its group.
    fn leave_group(&mut self, connection: &mut Connection, membership: &mut Membership) {
        let Some(number) = membership.group.take() else { return };
        connection.driver().send_alone();
        let group = &mut self.groups[index(number)];
        group.members -= 1;
        if let Some(shared) = &mut group.shared {
            shared.window.leave(&mut membership.share);
        }
        if group.members == 0 {
            self.numbers.remove(&group.address);
            self.waiting.retain(|waiting| *waiting != number);
            group.shared = None;
            self.unused.push(number);
        }
        if self.numbers.is_empty() {
            // No connection refers to a group now, so the memory is freed.
            (self.numbers, self.groups, self.unused) = Default::default();
        }
    }

    /// Returns the number of groups.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns `true` if no connection is counted and no memory is allocated for groups.
    #[cfg(test)]
    pub(crate) fn are_empty(&self) -> bool {
        self.counters.iter().all(|count| *count == 0) && self.groups.capacity() == 0
    }
}

fn at(counter: NonZeroU16) -> usize {
    usize::from(counter.get() - 1)
}

fn index(group: NonZeroU32) -> usize {
    group.get() as usize - 1
}
