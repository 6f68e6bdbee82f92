//! Choices of hooks among paths, and their bounds: one that names no path, or one that cannot be used, counts for nothing,
//! and no path that costs nothing goes without data for longer than a second because of a hook. Each of that is counted
//! ([`Stats`](super::super::Stats)) and named ([`Event::ChoiceOverruled`]).

use super::super::bounds::PATIENCE;
use super::super::paths::PathKey;
use super::super::presence::Presence;
use super::super::send::Target;
use super::super::send_plain::PASSED_OVER_BUT_CHOICE;
use super::super::space::SpaceId;
use super::super::{Connection, Event, Transmit};
use super::scheduler::Order;
use crate::Timestamp;
use crate::operation::Operation;
use crate::path::BASE_SIZE;

/// Reason for which a hook's choice of a path does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overruled {
    /// It names a path that there is not.
    NoSuchPath,
    /// It names a path on which nothing can be sent; or, for data, one that seems not to work while another does.
    NotUsable,
    /// It has left out a path for a second that had room for data that waited.
    Starves,
}

impl std::fmt::Display for Overruled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Overruled::NoSuchPath => "the hook chose a path that does not exist",
            Overruled::NotUsable => "the hook chose a path that cannot be used",
            Overruled::Starves => "the hook did not use a path that has room for the waiting data",
        })
    }
}

/// Overruled choices that the application was told of, and paths that hooks leave out.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Each is told once.
    told: Vec<(Operation, Overruled)>,
    /// Paths that have had room for data that waited, and since when; at most one entry for each path.
    left_out: Vec<(PathKey, Timestamp)>,
    /// Choice of a hook that still holds.
    held: Held,
}

/// A hook's choice of a path, for datagrams that it is not asked about.
#[derive(Debug, Default)]
struct Held {
    /// The path; none: nothing has been chosen, or its room is used up.
    path: Option<PathKey>,
    /// Moment of the choice. It does not hold beyond, because what it was made from changes with time.
    at: Timestamp,
    /// Number of datagrams for which it still holds ([`Field::ChoiceHolds`](crate::operation::Field::ChoiceHolds)).
    datagrams: u64,
}

impl Held {
    /// The path, if the choice holds for one more datagram.
    fn holds(&self, now: Timestamp) -> Option<PathKey> {
        self.path.filter(|_| self.datagrams > 0 && self.at == now)
    }

    /// As [`Held::holds`], and counts one datagram off.
    fn take(&mut self, now: Timestamp) -> Option<PathKey> {
        let path = self.holds(now)?;
        self.datagrams -= 1;
        Some(path)
    }
}

impl Watch {
    /// Data goes on a path, or could not.
    fn fed(&mut self, path: PathKey) {
        self.left_out.retain(|(left, _)| *left != path);
    }
}

impl Connection {
    /// The next datagram on a path that may carry data; the paths that were asked for room are `asked`.
    pub(super) fn datagram_with_data(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
        asked: &mut Order,
    ) -> Option<Transmit> {
        if hooks.is_hooked(self, Operation::SelectPath)
            && let Some((key, _)) = self.held_choice(now)
            && let Some(transmit) = self.plain_data_on(hooks, now, key, buffer)
        {
            self.use_choice(1);
            return Some(transmit);
        }
        let usual = self.schedule();
        // There is nothing to choose from.
        usual.first()?;
        if !hooks.is_hooked(self, Operation::SelectPath) {
            *asked = usual;
            return usual.iter().find_map(|key| self.data_on(hooks, now, key, buffer));
        }
        loop {
            let Some(key) = self.choose_path(hooks, usual) else {
                usual.iter().for_each(|key| asked.add(key));
                return usual.iter().find_map(|key| self.chosen_data_on(hooks, now, key, buffer));
            };
            // Named once more though it has no room: the hook wants to wait for it.
            if asked.contains(key) {
                break;
            }
            asked.add(key);
            if let Some(transmit) = self.chosen_data_on(hooks, now, key, buffer) {
                return Some(transmit);
            }
            let waits = self.waits_for_path(usual);
            if let Some(paths) = &mut self.multipath {
                paths.watch.held = Held::default();
                if !waits {
                    paths.watch.left_out.clear();
                }
            }
            if !waits {
                return None;
            }
        }
        let starved = self.starved(now, asked)?;
        self.overrule(Operation::SelectPath, Overruled::Starves);
        asked.add(starved);
        self.data_on(hooks, now, starved, buffer)
    }

    /// The next datagram on a path that a hook has chosen, if it is one for the short way. None: the long way finds all as it
    /// would without this one.
    fn plain_data_on(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        key: PathKey,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if buffer.len() < usize::from(BASE_SIZE)
            || !hooks.may_pass_over(self, PASSED_OVER_BUT_CHOICE)
            || !self.is_plain()
        {
            return None;
        }
        let (place, mtu) = self.plain_room_on(now, key)?;
        let size = usize::from(mtu).min(buffer.len());
        let transmit = self.write_plain_datagram(now, place, &mut buffer[..size])?;
        self.on_data_sent(key);
        Some(transmit)
    }

    /// The next datagram on a path that a hook has chosen, or has left to the scheduler, on whichever way it goes.
    fn chosen_data_on(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        key: PathKey,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let plain = self.plain_data_on(hooks, now, key, buffer);
        plain.or_else(|| self.data_on(hooks, now, key, buffer))
    }

    /// The choice of a hook that holds without its being asked, and for how many datagrams.
    pub(in crate::connection) fn held_choice(&self, now: Timestamp) -> Option<(PathKey, usize)> {
        let held = &self.multipath.as_ref()?.watch.held;
        let key = held.holds(now).filter(|key| self.objection(*key).is_none())?;
        Some((key, usize::try_from(held.datagrams).unwrap_or(usize::MAX)))
    }

    /// Counts datagrams that were sent off those that a choice holds for.
    pub(in crate::connection) fn use_choice(&mut self, datagrams: usize) {
        if let Some(paths) = &mut self.multipath {
            let held = &mut paths.watch.held;
            held.datagrams = held.datagrams.saturating_sub(datagrams as u64);
        }
    }

    fn data_on(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        key: PathKey,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let transmit = self.datagram_on(hooks, now, Target { path: key, shared: true }, buffer)?;
        self.on_data_sent(key);
        Some(transmit)
    }

    /// A datagram leaves on a path that the scheduler or a hook has chosen.
    pub(in crate::connection) fn on_data_sent(&mut self, key: PathKey) {
        if let Some(paths) = &mut self.multipath {
            paths.last = Some(key);
            paths.watch.fed(key);
        }
    }

    /// The path that hooks choose; none: the order is `usual`.
    fn choose_path(&mut self, hooks: impl Presence, usual: Order) -> Option<PathKey> {
        let first = usual.first()?;
        let now = self.now;
        let held = self.multipath.as_mut().and_then(|paths| paths.watch.held.take(now));
        if let Some(key) = held.filter(|key| self.objection(*key).is_none()) {
            return Some(key);
        }
        self.hold_choice(0);
        let mut held = None;
        hooks.decide_within(self, Operation::SelectPath, (), first, |connection, key| {
            match connection.objection(key) {
                Some(objection) => connection.overrule(Operation::SelectPath, objection),
                None => held = Some(key),
            }
            held.unwrap_or(first)
        });
        if let Some(paths) = &mut self.multipath {
            (paths.watch.held.path, paths.watch.held.at) = (held, now);
        }
        held
    }

    /// Has the choice that a hook makes now hold for so many more datagrams of this moment.
    pub(in crate::connection) fn hold_choice(&mut self, datagrams: u64) {
        if let Some(paths) = &mut self.multipath {
            paths.watch.held.datagrams = datagrams;
        }
    }

    /// Number of datagrams for which the latest choice of a hook still holds.
    pub(in crate::connection) fn choice_holds(&self) -> u64 {
        self.multipath.as_ref().map_or(0, |paths| paths.watch.held.datagrams)
    }

    /// Reason for which data does not go on a path that a hook has chosen: it cannot, or the path is a suspect one while
    /// there is another.
    fn objection(&self, key: PathKey) -> Option<Overruled> {
        let Some(path) = self.paths.get(key) else { return Some(Overruled::NoSuchPath) };
        let holds = self.is_candidate(path)
            && (!path.is_suspect() || self.candidates().all(|one| one.suspect));
        (!holds).then_some(Overruled::NotUsable)
    }

    /// True if something waits that any path may carry.
    fn waits_for_path(&mut self, order: Order) -> bool {
        self.pending().is_for_any_path() || order.iter().any(|key| self.has_copies(key))
    }

    /// A path that was left out for too long, of those that have room and that nobody wants spared. Data waits, and no path
    /// of `asked` has room for it.
    fn starved(&mut self, now: Timestamp, asked: &Order) -> Option<PathKey> {
        let paths = self.multipath.as_ref()?;
        let has_room = |key| self.paths.get(key).is_some_and(|path| path.room(now) > 0);
        let left_out = self.candidates().filter(|one| {
            let spared = one.suspect || one.backup || paths.cost(one.id) > 0;
            !spared && !asked.contains(one.key) && has_room(one.key)
        });
        let mut order = Order::default();
        left_out.for_each(|one| order.add(one.key));
        let watch = &mut self.multipath.as_mut()?.watch;
        watch.left_out.retain(|(key, _)| order.contains(*key));
        for key in order.iter() {
            if !watch.left_out.iter().any(|(left, _)| *left == key) {
                watch.left_out.push((key, now));
            }
        }
        let long = watch.left_out.iter().find(|(_, since)| now.since(*since) >= PATIENCE);
        long.map(|(key, _)| *key)
    }

    /// Counts that a hook's choice did not hold, and tells the application so the first time.
    pub(super) fn overrule(&mut self, operation: Operation, why: Overruled) {
        match why {
            Overruled::Starves => self.stats.paths_starved += 1,
            Overruled::NoSuchPath | Overruled::NotUsable => self.stats.path_choices_refused += 1,
        }
        let Some(paths) = &mut self.multipath else { return };
        if !paths.watch.told.contains(&(operation, why)) {
            paths.watch.told.push((operation, why));
            self.events.push_back(Event::ChoiceOverruled(operation, why));
        }
    }

    /// True if acknowledgements of packet number space `id` are to be sent on this path, which is one of several.
    pub(in crate::connection) fn acks_go_of_paths(
        &mut self,
        hooks: impl Presence,
        id: SpaceId,
        path: PathKey,
    ) -> bool {
        let Some(usual) = self.ack_path(id) else { return false };
        let bound = |connection: &mut Connection, key: PathKey| {
            let objection = match connection.paths.get(key) {
                None => Overruled::NoSuchPath,
                Some(path) if connection.may_carry(path) => return key,
                Some(_) => Overruled::NotUsable,
            };
            connection.overrule(Operation::SelectACKPath, objection);
            usual
        };
        hooks.decide_within(self, Operation::SelectACKPath, (id, usual), usual, bound) == path
    }
}
