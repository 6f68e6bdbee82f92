//! Stream data that is sent on every path ([`Scheduler::Redundant`](super::Scheduler)), or on those
//! that a hook selects. A piece that was sent on one path waits for each of the others until it is
//! sent there or acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use equic_wire::frame::Stream;
use equic_wire::{StreamId, Writer};

use super::super::Connection;
use super::super::paths::PathKey;
use super::super::space::{FrameList, SentFrame};
use super::super::write::{MIN_STREAM, varint};
use super::Scheduler;
use crate::operation::Operation;

/// Maximum number of pieces that wait for a path. If the path is slower, the oldest pieces are not
/// sent on it.
const MAX_PIECES: usize = 1024;

/// Pieces that another path has carried and that this path must carry as well.
#[derive(Debug)]
pub(super) struct Copies {
    path: PathKey,
    pieces: VecDeque<(StreamId, Range<u64>, bool)>,
}

impl Copies {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl Connection {
    /// Queues a piece for other paths, after it was sent on `path` for the first time or again
    /// after a loss.
    pub(in crate::connection) fn copy_to_others(
        &mut self,
        path: PathKey,
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    ) {
        let usual = self.config.scheduler == Scheduler::Redundant;
        let asks = self.hooks.is_hooked(Operation::CopyStreamData);
        if !usual && !asks || self.multipath.is_none() {
            return;
        }
        let order = self.schedule();
        if let Some(paths) = &mut self.multipath {
            // Copies for a path that was removed or does not work are dropped. The other paths
            // carry the data anyway.
            paths.copies.retain(|copies| order.contains(copies.path));
        }
        for key in order.iter().filter(|key| *key != path) {
            let input = (path, key, id.as_varint().get(), range.end - range.start);
            if !self.decide(Operation::CopyStreamData, input, usual) {
                continue;
            }
            let Some(paths) = &mut self.multipath else { return };
            let place = paths.copies.iter().position(|copies| copies.path == key);
            let place = place.unwrap_or_else(|| {
                paths.copies.push(Copies { path: key, pieces: VecDeque::new() });
                paths.copies.len() - 1
            });
            let pieces = &mut paths.copies[place].pieces;
            if pieces.len() == MAX_PIECES {
                pieces.pop_front();
            }
            pieces.push_back((id, range.clone(), fin));
        }
    }

    /// Returns true if an unacknowledged piece waits for this path. Drops acknowledged pieces.
    pub(in crate::connection) fn has_copies(&mut self, path: PathKey) -> bool {
        let Some(paths) = &mut self.multipath else { return false };
        let Some(copies) = paths.copies.iter_mut().find(|copies| copies.path == path) else {
            return false;
        };
        while let Some((id, range, fin)) = copies.pieces.front() {
            if self.streams.unacked(*id, range.clone(), *fin).is_some() {
                return true;
            }
            copies.pieces.pop_front();
        }
        false
    }

    /// Writes pieces that other paths have carried.
    pub(in crate::connection) fn write_copies(
        &mut self,
        path: PathKey,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        while self.has_copies(path) {
            let Some(paths) = &mut self.multipath else { return };
            let found = paths.copies.iter_mut().find(|copies| copies.path == path);
            let Some(pieces) = found.map(|copies| &mut copies.pieces) else { return };
            let remaining = writer.remaining();
            let Some((id, range, fin)) = pieces.pop_front() else { return };
            let Some((range, fin)) = self.streams.unacked(id, range, fin) else { continue };
            let header = Stream::header_len(id, varint(range.start), Some(remaining));
            let room = remaining.saturating_sub(header) as u64;
            let end = range.end.min(range.start.saturating_add(room));
            let whole = end == range.end;
            if remaining < MIN_STREAM || end <= range.start && !(fin && range.is_empty()) {
                pieces.push_front((id, range, fin));
                return;
            }
            if !whole {
                // The rest of the piece waits, because the other path uses larger datagrams.
                pieces.push_front((id, end..range.end, fin));
            }
            let (range, fin) = (range.start..end, fin && whole);
            let len = (range.end - range.start) as usize;
            let offset = varint(range.start);
            let written = Stream::write_header(writer, id, offset, Some(len), fin)
                .and_then(|()| self.write_stream_data(writer, id, range.start, len));
            if written.is_err() {
                return;
            }
            frames.push(SentFrame::Stream { id, range, fin });
        }
    }
}
