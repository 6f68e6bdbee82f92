//! Writes the frames of multipath, including connection IDs of other paths.

use equic_wire::Writer;
use equic_wire::frame::{
    Frame, NewConnectionId, PathAbandon, PathCidsBlocked, PathNewConnectionId,
    PathRetireConnectionId, PathStatus as StatusFrame,
};

use super::super::Connection;
use super::super::space::{FrameList, PathFrame, PathId, SentFrame, SpaceId};
use super::super::write::varint;
use super::PathStatus;

impl Connection {
    /// Returns true if frames of RFC 10069 can be sent: both ends support multipath, and the
    /// handshake is complete.
    pub(in crate::connection) fn speaks_multipath(&self) -> bool {
        self.multipath.is_some() && self.handshake.is_complete()
    }

    /// Writes PATH_ABANDON, PATH_STATUS_AVAILABLE, PATH_STATUS_BACKUP, MAX_PATH_ID, PATHS_BLOCKED
    /// and PATH_CIDS_BLOCKED frames that wait.
    pub(in crate::connection) fn write_path_frames(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        while let Some((sent, frame)) = self.next_path_frame() {
            if self.write_frame(id, &frame, writer).is_err() {
                return;
            }
            self.on_path_frame_written(sent);
            frames.push(SentFrame::Multipath(sent));
        }
    }

    /// Returns the most urgent frame that waits.
    fn next_path_frame(&self) -> Option<(PathFrame, Frame<'static>)> {
        let paths = self.multipath.as_ref()?;
        let ends = paths.list.iter().filter_map(|record| Some((record.id, record.abandon?)));
        if let Some((path_id, abandon)) = ends.into_iter().find(|(_, abandon)| abandon.due) {
            let frame = Frame::PathAbandon(PathAbandon { path_id, error_code: abandon.code });
            return Some((PathFrame::Abandon(path_id), frame));
        }
        let wishes = paths.list.iter().filter(|record| record.wish_due);
        if let Some((path_id, (status, sequence))) =
            wishes.filter_map(|record| Some((record.id, record.wish?))).next()
        {
            let frame = StatusFrame { path_id, sequence_number: varint(sequence) };
            let frame = match status {
                PathStatus::Available => Frame::PathStatusAvailable(frame),
                PathStatus::Backup => Frame::PathStatusBackup(frame),
            };
            return Some((PathFrame::Status(path_id, sequence), frame));
        }
        if paths.max_due {
            return Some((
                PathFrame::MaxPathId(paths.local_max),
                Frame::MaxPathId(paths.local_max),
            ));
        }
        let (path_id, sequence) = paths.blocked?;
        let frame = match sequence {
            None => Frame::PathsBlocked(path_id),
            Some(next) => {
                let next_sequence_number = varint(next);
                Frame::PathCidsBlocked(PathCidsBlocked { path_id, next_sequence_number })
            }
        };
        Some((PathFrame::Blocked, frame))
    }

    fn on_path_frame_written(&mut self, sent: PathFrame) {
        let Some(paths) = &mut self.multipath else { return };
        match sent {
            PathFrame::Abandon(id) => {
                let record = paths.record_mut(id);
                if let Some(abandon) = record.and_then(|record| record.abandon.as_mut()) {
                    abandon.due = false;
                }
            }
            PathFrame::Status(id, _) => {
                if let Some(record) = paths.record_mut(id) {
                    record.wish_due = false;
                }
            }
            PathFrame::MaxPathId(_) => paths.max_due = false,
            PathFrame::Blocked => paths.blocked = None,
        }
    }

    /// Writes PATH_NEW_CONNECTION_ID and PATH_RETIRE_CONNECTION_ID frames for paths other than path
    /// 0.
    pub(in crate::connection) fn write_path_ids(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        let records = self.multipath.iter().flat_map(|paths| &paths.list);
        let mut paths = [PathId::ZERO; super::MOST_PATH_IDS];
        paths.iter_mut().zip(records).for_each(|(place, record)| *place = record.id);
        for path_id in paths.into_iter().filter(|id| *id != PathId::ZERO) {
            if !self.write_new_ids(path_id, id, writer, frames) {
                return;
            }
            while let Some(sequence) =
                self.ids.remote_of_mut(path_id).and_then(|remote| remote.next_to_retire())
            {
                let sequence_number = varint(sequence);
                let retire = PathRetireConnectionId { path_id, sequence_number };
                let frame = Frame::PathRetireConnectionId(retire);
                if self.write_frame(id, &frame, writer).is_err() {
                    self.on_retirement_lost(path_id, sequence);
                    return;
                }
                frames.push(SentFrame::RetireConnectionId(path_id, sequence));
            }
        }
    }

    /// Writes the new connection IDs of a path. Returns true if all of them had room.
    fn write_new_ids(
        &mut self,
        path_id: PathId,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) -> bool {
        while let Some(local) = self.ids.local_of_mut(path_id)
            && let Some(new) = local.next_to_announce()
        {
            let (sequence, retire) = (new.sequence, local.retire_prior_to(new.sequence));
            let frame = NewConnectionId::new(varint(sequence), varint(retire), new.id, new.token);
            let frame =
                frame.map(|new| Frame::PathNewConnectionId(PathNewConnectionId { path_id, new }));
            let written = frame.map(|frame| self.write_frame(id, &frame, writer));
            if !matches!(written, Some(Ok(()))) {
                self.on_new_id_lost(path_id, sequence);
                return false;
            }
            frames.push(SentFrame::NewConnectionId(path_id, sequence));
        }
        true
    }

    /// Processes the loss of a frame that announced one of our connection IDs.
    pub(in crate::connection) fn on_new_id_lost(&mut self, path: PathId, sequence: u64) {
        if let Some(local) = self.ids.local_of_mut(path) {
            local.on_lost(sequence);
        }
    }

    /// Processes the loss of a frame that retired one of the peer's connection IDs.
    pub(in crate::connection) fn on_retirement_lost(&mut self, path: PathId, sequence: u64) {
        if let Some(remote) = self.ids.remote_of_mut(path) {
            remote.on_lost(sequence);
        }
    }
}
