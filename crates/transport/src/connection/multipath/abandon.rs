//! The end of a path (RFC 10069 s.3.4). Each end sends PATH_ABANDON on another path. After the
//! first PATH_ABANDON, nothing is sent on the path. Data that was in flight there is declared lost
//! after a probe timeout, and is sent on other paths. Late packets of the peer are processed and
//! acknowledged until three probe timeouts after its PATH_ABANDON.

use equic_wire::TransportErrorCode;

use super::super::space::{PathId, SpaceId};
use super::super::{Connection, Event};
use super::{Abandon, PathState};
use crate::Timestamp;
use crate::operation::Operation;
use crate::violation::Condition;

/// Number of probe timeouts for which a path is kept after the peer's PATH_ABANDON.
const PATIENCE: u32 = 3;

impl Connection {
    /// Stops sending on a path. PATH_ABANDON carries `code`, and the application's event carries
    /// `why`.
    pub(in crate::connection) fn abandon_path(
        &mut self,
        now: Timestamp,
        id: PathId,
        code: TransportErrorCode,
        why: TransportErrorCode,
    ) {
        let patience = self.longest_pto() * PATIENCE;
        // If the path does not work, no acknowledgement can arrive on it.
        let path = self.paths.current(id);
        let works = path.is_some_and(|path| path.is_validated() && !path.is_suspect());
        let give_up = if works { now + self.space_pto(SpaceId::Data(id)) } else { now };
        let Some(record) = self.multipath.as_mut().and_then(|paths| paths.record_mut(id)) else {
            return;
        };
        let told = record.used;
        let give_up = Some(give_up);
        record.wish_due = false;
        record.abandon =
            Some(Abandon { code, due: true, acked: false, heard: None, give_up, patience });
        self.paths.iter_mut().filter(|path| path.id() == id).for_each(|path| path.abandon());
        // RFC 10069 s.3.4: this also retires all connection IDs of the peer for the path, without a
        // frame for each.
        if let Some(remote) = self.ids.remote_of_mut(id) {
            remote.forget_all();
        }
        if let Some(local) = self.ids.local_of_mut(id) {
            local.close();
        }
        if let Some(space) = self.space(SpaceId::Data(id)) {
            space.probe(0);
            // RFC 10069 s.3.4.3: unacknowledged packets are acknowledged promptly.
            space.received.ask();
        }
        self.leave_active(id);
        if told {
            self.tell_of_path(Event::PathClosed(id, why));
        }
    }

    /// Makes another path the active one, if this path was active.
    fn leave_active(&mut self, id: PathId) {
        if self.path().id() != id {
            return;
        }
        let open = self.paths.iter().find(|path| path.is_current() && !path.is_abandoned());
        if let Some(key) = self.best_path().or(open.map(|path| path.key())) {
            self.paths.set_active(key);
            self.tell_of_move();
        }
    }

    /// Processes a PATH_ABANDON frame.
    pub(super) fn on_path_abandon(&mut self, now: Timestamp, id: PathId, why: TransportErrorCode) {
        let Some(paths) = &self.multipath else { return };
        let only = paths.open_ids().all(|open| open == id);
        match paths.state(id) {
            PathState::Used if only => {
                // RFC 10069 s.3.4: the error is sent on this path, because there is no other.
                return self.fail(now, Condition::LastPathAbandoned);
            }
            PathState::Used | PathState::Unused => {
                self.abandon_path(now, id, TransportErrorCode::NO_ERROR, why);
            }
            PathState::Abandoned => {}
            PathState::Gone | PathState::Forbidden => return,
        }
        let record = self.multipath.as_mut().and_then(|paths| paths.record_mut(id));
        if let Some(abandon) = record.and_then(|record| record.abandon.as_mut()) {
            abandon.heard.get_or_insert(now);
        }
    }

    /// Closes a path on which the peer does not answer, if there are others. Returns false if the
    /// path is kept.
    pub(in crate::connection) fn abandon_silent(&mut self, now: Timestamp, id: PathId) -> bool {
        let Some(paths) = &self.multipath else { return false };
        let others = paths.open_ids().any(|open| open != id);
        if !others || paths.state(id) != PathState::Used {
            return false;
        }
        let reachable = self.ids.remote_of(id).is_some_and(|ids| ids.sequences().next().is_some());
        let code = if reachable {
            TransportErrorCode::PATH_UNSTABLE_OR_POOR
        } else {
            TransportErrorCode::NO_CID_AVAILABLE_FOR_PATH
        };
        self.abandon_path(now, id, code, code);
        true
    }

    /// Returns the time of the next action for an abandoned path.
    pub(in crate::connection) fn path_timer(&self) -> Option<Timestamp> {
        self.multipath.as_ref().and_then(|paths| paths.timer())
    }

    /// Performs the actions for abandoned paths that are due.
    pub(in crate::connection) fn on_path_timer(&mut self, now: Timestamp) {
        while let Some(paths) = &mut self.multipath
            && let Some(record) = paths.list.iter_mut().find(|record| {
                let of = |abandon: Abandon| {
                    [abandon.give_up, abandon.over()].into_iter().flatten().min()
                };
                record.abandon.and_then(of).is_some_and(|at| at <= now)
            })
            && let Some(abandon) = &mut record.abandon
        {
            let id = record.id;
            let over = abandon.over().is_some_and(|at| at <= now);
            let given_up = abandon.give_up.take().is_none();
            if !given_up {
                self.give_up_path(id);
            }
            if over {
                self.forget_path(id);
            }
        }
    }

    /// Declares everything in flight on an abandoned path lost. It is sent again on other paths.
    fn give_up_path(&mut self, id: PathId) {
        let space = SpaceId::Data(id);
        let given_up = self.space(space).map(|space| space.loss.give_up_all());
        for (number, packet) in given_up.into_iter().flatten() {
            self.stats.packets_lost += 1;
            self.notify(Operation::PacketLost, (space, number, packet.size, packet.content.path));
            #[cfg(feature = "qlog")]
            self.log_lost(space, number, &packet);
            self.send_again(space, number, false, &packet.content.frames);
        }
    }

    /// Removes all state of a path, after both ends have abandoned it and late packets have had
    /// time to arrive.
    fn forget_path(&mut self, id: PathId) {
        self.spaces.remove(id);
        while let Some(path) = self.paths.remove_of(id) {
            self.notify(Operation::PathRemoved, path.key());
        }
        self.ids.remove_path(id);
        if let Some(keys) = self.keys.one_rtt_mut() {
            keys.forget_path(id);
        }
        if let Some(paths) = &mut self.multipath {
            paths.remove(id);
        }
        self.allow_path_ids();
    }
}
