//! Frames of RFC 10069 from the peer. A path ID above the limit that was sent to the peer is an
//! error of the peer. A path ID that was already removed is not an error, because the frame may be
//! late (s.4).

use equic_wire::ConnectionId;
use equic_wire::frame::{Frame, NewConnectionId, PathAck};

use super::super::Connection;
use super::super::space::{PathId, SpaceId};
use super::{PathState, PathStatus};
use crate::Timestamp;
use crate::cid::NewId;
use crate::violation::Violation;

impl Connection {
    /// Processes a frame of a packet that was sent to `dcid`. Returns false if multipath was not
    /// negotiated, or if the frame does not belong to it.
    pub(in crate::connection) fn on_path_frame(
        &mut self,
        now: Timestamp,
        dcid: ConnectionId,
        frame: &Frame<'_>,
    ) -> bool {
        if !self.speaks_multipath() {
            return false;
        }
        let outcome = match frame {
            Frame::PathAck(ack) => self.on_path_ack(now, ack),
            Frame::PathAbandon(abandon) => self.checked(abandon.path_id, |connection| {
                connection.on_path_abandon(now, abandon.path_id, abandon.error_code);
                Ok(())
            }),
            Frame::PathStatusAvailable(status) => {
                let sequence = status.sequence_number.get();
                self.on_path_status(status.path_id, PathStatus::Available, sequence)
            }
            Frame::PathStatusBackup(status) => {
                let sequence = status.sequence_number.get();
                self.on_path_status(status.path_id, PathStatus::Backup, sequence)
            }
            Frame::PathNewConnectionId(new) => self.on_path_new_id(now, new.path_id, &new.new),
            Frame::PathRetireConnectionId(retire) => {
                let sequence = retire.sequence_number.get();
                self.checked(retire.path_id, |connection| {
                    connection.on_retire_connection_id(now, retire.path_id, sequence, dcid);
                    Ok(())
                })
            }
            Frame::MaxPathId(max) => self.on_max_path_id(*max),
            Frame::PathsBlocked(max) => self.on_paths_blocked(*max),
            Frame::PathCidsBlocked(blocked) => {
                let next = blocked.next_sequence_number.get();
                self.checked(blocked.path_id, |connection| {
                    let local = connection.ids.local_of(blocked.path_id);
                    let known = local.is_none_or(|local| next <= local.next_sequence());
                    known.then_some(()).ok_or(Violation::PathCidsBlockedSequence)
                })
            }
            _ => return false,
        };
        if let Err(violation) = outcome {
            self.fail(now, violation);
        }
        true
    }

    /// Returns the state of the path ID in a frame, or an error if the peer may not use that path
    /// ID.
    fn path_state(&self, id: PathId) -> Result<PathState, Violation> {
        let state = self.multipath.as_ref().map_or(PathState::Forbidden, |paths| paths.state(id));
        match state {
            PathState::Forbidden => Err(Violation::PathIdLimit),
            state => Ok(state),
        }
    }

    /// Calls `act` for a frame about a path ID that may be used. Does nothing if the path was
    /// removed.
    fn checked(
        &mut self,
        id: PathId,
        act: impl FnOnce(&mut Connection) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        match self.path_state(id)? {
            PathState::Gone => Ok(()),
            _ => act(self),
        }
    }

    fn on_path_ack(&mut self, now: Timestamp, ack: &PathAck<'_>) -> Result<(), Violation> {
        let id = SpaceId::Data(ack.path_id);
        self.checked(ack.path_id, |connection| {
            if connection.spaces.get(id).is_none() {
                return Err(Violation::AckOfUnsentPacket);
            }
            connection.process_ack(now, id, &ack.ack);
            Ok(())
        })
    }

    fn on_path_status(
        &mut self,
        id: PathId,
        status: PathStatus,
        sequence: u64,
    ) -> Result<(), Violation> {
        self.checked(id, |connection| {
            if let Some(paths) = &mut connection.multipath {
                paths.on_peer_wish(id, status, sequence);
            }
            Ok(())
        })
    }

    fn on_path_new_id(
        &mut self,
        now: Timestamp,
        path: PathId,
        new: &NewConnectionId,
    ) -> Result<(), Violation> {
        self.path_state(path)?;
        self.on_new_connection_id(now, path, new);
        Ok(())
    }

    /// Processes a connection ID of the peer for a path that is not abandoned.
    pub(in crate::connection) fn take_new_id(
        &mut self,
        path: PathId,
        new: &NewConnectionId,
    ) -> Result<(), Violation> {
        let id = NewId {
            sequence: new.sequence_number().get(),
            id: new.connection_id(),
            token: new.reset_token(),
        };
        // RFC 10069 s.3.2.1: a connection ID is never issued for two path IDs.
        if self.ids.is_of_another(id.id, path) {
            return Err(Violation::ConnectionIdReused);
        }
        match self.ids.remote_of_mut(path) {
            Some(remote) => remote.on_new(id, new.retire_prior_to().get()),
            None => Ok(()),
        }
    }

    fn on_max_path_id(&mut self, max: PathId) -> Result<(), Violation> {
        let Some(paths) = &mut self.multipath else { return Ok(()) };
        if !paths.on_max_path_id(max) {
            return Err(Violation::MaxPathIdReduced);
        }
        self.allow_path_ids();
        Ok(())
    }

    /// Processes a PATHS_BLOCKED frame. The application's setting limits the number of paths, so
    /// the frame does not raise it. The limit on path IDs rises when paths are removed.
    fn on_paths_blocked(&mut self, max: PathId) -> Result<(), Violation> {
        let allowed = self.multipath.as_ref().is_some_and(|paths| max <= paths.local_max);
        allowed.then_some(()).ok_or(Violation::PathsBlockedLimit)
    }
}
