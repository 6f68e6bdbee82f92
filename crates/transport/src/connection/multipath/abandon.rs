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

/// Probe timeouts for which a path is kept in mind after the peer's PATH_ABANDON.
const PATIENCE: u32 = 3;

impl Connection {
    /// Nothing is sent on a path any more; the peer is told `code`, the application `why`.
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
        let give_up = if works { now + self.pto(SpaceId::Data(id)) } else { now };
        let Some(record) = self.multipath.as_mut().and_then(|paths| paths.record_mut(id)) else {
            return;
        };
        let told = record.used;
        let give_up = Some(give_up);
        record.wish_due = false;
        record.abandon =
            Some(Abandon { code, due: true, acked: false, heard: None, give_up, patience });
        self.paths.iter_mut().filter(|path| path.id() == id).for_each(|path| path.abandon());
        // RFC 10069 s.3.4: all of the peer's IDs are retired with it, without a frame for each.
        if let Some(remote) = self.ids.remote_of_mut(id) {
            remote.forget_all();
        }
        if let Some(local) = self.ids.local_of_mut(id) {
            local.close();
        }
        if let Some(space) = self.space(SpaceId::Data(id)) {
            space.probe(0);
            // RFC 10069 s.3.4.3: what is not acknowledged yet is, promptly.
            space.received.ask();
        }
        self.leave_active(id);
        if told {
            self.tell_of_path(Event::PathClosed(id, why));
        }
    }

    /// Makes another path the active one, if this one was.
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

    /// PATH_ABANDON came.
    pub(super) fn on_path_abandon(&mut self, now: Timestamp, id: PathId, why: TransportErrorCode) {
        let Some(paths) = &self.multipath else { return };
        let only = paths.open_ids().all(|open| open == id);
        match paths.state(id) {
            PathState::Used if only => {
                // RFC 10069 s.3.4. Ours to say so: on this path, as there is no other.
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

    /// A path on which the peer does not answer, while there are others: it is closed. False: it stays.
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

    /// Time at which something is to be done about an abandoned path.
    pub(in crate::connection) fn path_timer(&self) -> Option<Timestamp> {
        self.multipath.as_ref().and_then(|paths| paths.timer())
    }

    /// A moment of [`Connection::path_timer`] may have come.
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

    /// Declares lost what is in flight on an abandoned path: it is sent again on others.
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

    /// Both ends know of a path's end, and what was late has come: nothing is kept of it.
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
