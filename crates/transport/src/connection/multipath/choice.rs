//! Path choices of hooks and their limits. A choice of a path that does not exist or cannot be used
//! is ignored. A hook cannot keep a path without cost idle for more than a second while data waits.
//! Both cases are counted ([`Stats`](super::super::Stats)) and reported
//! ([`Event::ChoiceOverruled`]).

use super::super::bounds::PATIENCE;
use super::super::budget::Target;
use super::super::paths::PathKey;
use super::super::presence::Presence;
use super::super::{Connection, Event, Transmit};
use super::scheduler::Order;
use crate::Timestamp;
use crate::operation::Operation;

/// Reason for which a hook's choice of a path was overruled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overruled {
    /// The path does not exist.
    NoSuchPath,
    /// The path cannot be used. For data, this includes a path that seems not to work while another
    /// works.
    NotUsable,
    /// For one second, the hook did not choose a path that had room for waiting data.
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

/// Overruled choices that were reported to the application, and paths that hooks leave out.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Cases already reported. Each is reported once.
    told: Vec<(Operation, Overruled)>,
    /// Paths that hooks leave out although they have room for waiting data, with the time since
    /// when. At most one entry per path.
    left_out: Vec<(PathKey, Timestamp)>,
    /// The latest choice of a hook, if it still applies.
    held: Held,
}

/// A hook's choice of a path that applies to several datagrams.
#[derive(Debug, Default)]
struct Held {
    /// The path. `None` if nothing was chosen, or if the path has no more room.
    path: Option<PathKey>,
    /// Time of the choice. The choice applies only at this time, because its inputs change with
    /// time.
    at: Timestamp,
    /// Number of further datagrams to which it applies
    /// ([`Field::ChoiceHolds`](crate::operation::Field::ChoiceHolds)).
    datagrams: u64,
}

impl Held {
    /// Returns the path if the choice applies to another datagram.
    fn holds(&self, now: Timestamp) -> Option<PathKey> {
        self.path.filter(|_| self.datagrams > 0 && self.at == now)
    }

    /// Variant of [`Held::holds`] that also counts the datagram.
    fn take(&mut self, now: Timestamp) -> Option<PathKey> {
        let path = self.holds(now)?;
        self.datagrams -= 1;
        Some(path)
    }
}

impl Watch {
    /// Records that the path carried data or could not carry any, so it is no longer left out.
    fn fed(&mut self, path: PathKey) {
        self.left_out.retain(|(left, _)| *left != path);
    }
}

impl Connection {
    /// Returns the next datagram on a path that may carry data. Adds the paths that were checked
    /// for room to `asked`.
    pub(super) fn datagram_with_data(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
        asked: &mut Order,
    ) -> Option<Transmit> {
        if hooks.is_hooked(self, Operation::SelectPath)
            && let Some((key, _)) = self.held_choice(now)
            && let Some(transmit) = self.next_stream_datagram(hooks, now, Some(key), buffer)
        {
            self.use_choice(1);
            return Some(transmit);
        }
        let usual = self.schedule();
        // Returns if no path can carry data.
        usual.first()?;
        if !hooks.is_hooked(self, Operation::SelectPath) {
            *asked = usual;
            return usual.iter().find_map(|key| self.data_on(hooks, now, key, buffer));
        }
        loop {
            let Some(key) = self.choose_path(hooks, usual) else {
                usual.iter().for_each(|key| asked.add(key));
                return usual.iter().find_map(|key| self.data_on(hooks, now, key, buffer));
            };
            // The hook names a path again that has no room, so it wants to wait for that path.
            if asked.contains(key) {
                break;
            }
            asked.add(key);
            if let Some(transmit) = self.data_on(hooks, now, key, buffer) {
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

    /// Returns the path of a choice that still applies, and the number of datagrams to which it
    /// applies.
    pub(in crate::connection) fn held_choice(&self, now: Timestamp) -> Option<(PathKey, usize)> {
        let held = &self.multipath.as_ref()?.watch.held;
        let key = held.holds(now).filter(|key| self.objection(*key).is_none())?;
        Some((key, usize::try_from(held.datagrams).unwrap_or(usize::MAX)))
    }

    /// Counts datagrams that were sent under a choice.
    pub(in crate::connection) fn use_choice(&mut self, datagrams: usize) {
        if let Some(paths) = &mut self.multipath {
            let held = &mut paths.watch.held;
            held.datagrams = held.datagrams.saturating_sub(datagrams as u64);
        }
    }

    /// Returns the next datagram on a path that a hook or the scheduler has chosen.
    fn data_on(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        key: PathKey,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        // Without a hook, the early exit was tried before.
        if hooks.is_hooked(self, Operation::SelectPath)
            && let Some(transmit) = self.next_stream_datagram(hooks, now, Some(key), buffer)
        {
            return Some(transmit);
        }
        let transmit = self.datagram_on(hooks, now, Target { path: key, shared: true }, buffer)?;
        self.on_data_sent(key);
        Some(transmit)
    }

    /// Records that a datagram was sent on a path that the scheduler or a hook has chosen.
    pub(in crate::connection) fn on_data_sent(&mut self, key: PathKey) {
        if let Some(paths) = &mut self.multipath {
            paths.last = Some(key);
            paths.watch.fed(key);
        }
    }

    /// Returns the path that hooks choose. `None` selects the order `usual`.
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

    /// Makes the choice that a hook is making apply to `datagrams` further datagrams at this time.
    pub(in crate::connection) fn hold_choice(&mut self, datagrams: u64) {
        if let Some(paths) = &mut self.multipath {
            paths.watch.held.datagrams = datagrams;
        }
    }

    /// Returns the number of further datagrams to which the latest choice of a hook applies.
    pub(in crate::connection) fn choice_holds(&self) -> u64 {
        self.multipath.as_ref().map_or(0, |paths| paths.watch.held.datagrams)
    }

    /// Returns why data cannot be sent on a path that a hook has chosen: the path does not exist,
    /// cannot be used, or seems not to work while another does.
    fn objection(&self, key: PathKey) -> Option<Overruled> {
        let Some(path) = self.paths.get(key) else { return Some(Overruled::NoSuchPath) };
        let holds = self.is_candidate(path)
            && (!path.is_suspect() || self.candidates().all(|one| one.suspect));
        (!holds).then_some(Overruled::NotUsable)
    }

    /// Returns true if there is content to send that any path may carry.
    fn waits_for_path(&mut self, order: Order) -> bool {
        self.pending().is_for_any_path() || order.iter().any(|key| self.has_copies(key))
    }

    /// Returns a path that was left out for too long. It has room, costs nothing, and neither end
    /// wants it as backup. Called if data waits and no path in `asked` has room for it.
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

    /// Counts an overruled choice of a hook, and reports the first case to the application.
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

    /// Limits a hook's choice of the path for acknowledgements. `usual` is the path without hooks.
    pub(in crate::connection) fn bound_ack_path(
        &mut self,
        usual: PathKey,
        key: PathKey,
    ) -> PathKey {
        if !self.speaks_multipath() {
            // Other paths than the active one carry only frames that probe them (RFC 9000 s.9.1).
            return self.path().key();
        }
        let objection = match self.paths.get(key) {
            None => Overruled::NoSuchPath,
            Some(path) if self.may_carry(path) => return key,
            Some(_) => Overruled::NotUsable,
        };
        self.overrule(Operation::SelectACKPath, objection);
        usual
    }
}
