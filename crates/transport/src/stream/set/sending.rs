//! Frames that streams send: which frame is next, and what follows from the acknowledgment or loss
//! of earlier frames.

use std::cmp::Reverse;
use std::ops::{Bound, Range};
use std::time::Duration;

use equic_wire::frame::Stream as Frame;
use equic_wire::{Direction, StreamId, VarInt, Writer};

use super::{Control, DIRECTIONS, Stream, StreamEvent, Streams, at};
use crate::Timestamp;
use crate::stream::send::{Piece, SendHalf};

/// A piece of stream data that was written into a packet as a STREAM frame.
pub(crate) struct WrittenPiece {
    pub id: StreamId,
    pub piece: Piece,
    /// True if the STREAM frame fitted into the packet. Otherwise nothing was written.
    pub fits: bool,
    /// True if this stream has more to send.
    pub more: bool,
}

/// Largest number of bytes that a stream sends before the next stream has its turn: about the size
/// of a TLS record. A stream always sends at least one packet in its turn.
const MAX_TURN: u64 = 16 << 10;

/// Returns the number of bytes that a stream sends in its turn, if `others` other streams have data
/// to send.
///
/// If consecutive packets carry data of one stream, both ends have less work than if the packets
/// alternate between streams. But all streams have their turn within a quarter of the bytes in
/// flight on the path, and so within a quarter of a round trip. Otherwise small streams would have
/// to wait for large ones on a slow path.
pub(super) fn turn(in_flight_room: u64, others: u64) -> u64 {
    (in_flight_room / (4 * (others + 1))).min(MAX_TURN)
}

/// Writes a piece as a STREAM frame. Returns whether it fits, and whether the stream has more to
/// send within `room` bytes of the connection's limit.
#[inline(always)]
fn write_frame(
    writer: &mut Writer<'_>,
    id: StreamId,
    piece: &Piece,
    half: &mut SendHalf,
    room: u64,
) -> (bool, bool) {
    let more = half.wants_to_send(room);
    let Range { start, end } = piece.range;
    let (len, offset) = ((end - start) as usize, VarInt::new(start).unwrap_or_default());
    let header = Frame::write_header(writer, id, offset, Some(len), piece.fin);
    let Ok(bytes) = header.and_then(|()| writer.reserve(len)) else {
        return (false, more);
    };
    let copied = half.copy_next(start, bytes);
    debug_assert_eq!(copied, len, "sent data is in the buffer");
    (true, more)
}

impl Stream {
    /// Updates what this stream contributes to the sum of bytes that were never sent.
    #[inline]
    fn count_unsent(&mut self, sum: &mut u64) {
        let send = self.send.as_ref().filter(|_| self.queued);
        let unsent = send.map_or(0, SendHalf::unsent);
        *sum = *sum + unsent - self.unsent;
        self.unsent = unsent;
    }
}

impl Streams {
    pub(super) fn enqueue(&mut self, id: StreamId) {
        // Do not consider the connection's limit here. It may be raised while the stream is in the
        // queue.
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(half) = &mut stream.send else { return };
        if half.is_blocked_untold() {
            self.blocked.insert(id);
        }
        if !stream.queued && half.wants_to_send(u64::MAX) {
            stream.queued = true;
            self.queue.entry(Reverse(stream.priority)).or_default().push_back(id);
        }
        stream.count_unsent(&mut self.unsent);
    }

    /// Updates what a stream contributes to the sum of bytes that were never sent.
    pub(super) fn count_unsent(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.count_unsent(&mut self.unsent);
        }
    }

    /// Returns true if a stream has data to send that the peer's limits permit.
    pub(crate) fn wants_to_send(&self) -> bool {
        let room = self.send_window.room();
        let wants = |id: &StreamId| {
            let half = self.streams.get(id).and_then(|stream| stream.send.as_ref());
            half.is_some_and(|half| half.wants_to_send(room))
        };
        // Usually the first stream in the queue can send, so no other stream must be checked.
        let first = self.queue.first_key_value().and_then(|(_, queue)| queue.front());
        first.is_some_and(wants) || self.queue.values().flatten().any(wants)
    }

    /// Takes the next piece of data to send, from the stream whose turn it is, and writes it as a
    /// STREAM frame. `max` returns how many bytes of data fit into a STREAM frame, given its stream
    /// and offset. The piece then counts as sent.
    #[inline]
    pub(crate) fn write_piece(
        &mut self,
        writer: &mut Writer<'_>,
        max: impl Fn(StreamId, u64) -> usize,
    ) -> Option<WrittenPiece> {
        let left = self.send_window.room();
        let written = self.next_piece_and(max, |id, piece, half| {
            write_frame(writer, id, piece, half, left.saturating_sub(piece.fresh))
        });
        let (id, piece, (fits, more)) = written?;
        Some(WrittenPiece { id, piece, fits, more })
    }

    /// Like [`Streams::write_piece`], for the stream `id`. Returns `None` if this stream has
    /// nothing to send.
    pub(crate) fn write_piece_of(
        &mut self,
        id: StreamId,
        writer: &mut Writer<'_>,
        max: impl Fn(StreamId, u64) -> usize,
    ) -> Option<WrittenPiece> {
        let (id, piece) = self.next_piece_of(id, max)?;
        let left = self.send_window.room();
        let half = self.streams.get_mut(&id)?.send.as_mut()?;
        let (fits, more) = write_frame(writer, id, &piece, half, left);
        Some(WrittenPiece { id, piece, fits, more })
    }

    /// Takes the next piece as [`Streams::write_piece`] does, without writing it.
    #[cfg(test)]
    pub(super) fn next_piece(
        &mut self,
        max: impl Fn(StreamId, u64) -> usize,
    ) -> Option<(StreamId, Piece)> {
        self.next_piece_and(max, |_, _, _| ()).map(|(id, piece, ())| (id, piece))
    }

    /// Takes the next piece, and passes it and its stream to `and`.
    // RFC 9000 s.19.9 #1
    #[inline(always)]
    fn next_piece_and<T>(
        &mut self,
        max: impl Fn(StreamId, u64) -> usize,
        and: impl FnOnce(StreamId, &Piece, &mut SendHalf) -> T,
    ) -> Option<(StreamId, Piece, T)> {
        let room = self.send_window.room();
        let mut tried: Option<Reverse<i32>> = None;
        loop {
            let next = match tried {
                // Try the first queue before a lookup of the next one. The first is usually enough,
                // and a lookup from the middle of the tree takes longer.
                None => self.queue.iter_mut().next(),
                Some(last) => {
                    self.queue.range_mut((Bound::Excluded(last), Bound::Unbounded)).next()
                }
            };
            let (&priority, queue) = next?;
            for _ in 0..queue.len() {
                let Some(id) = queue.pop_front() else { break };
                let Some(stream) = self.streams.get_mut(&id) else { continue };
                let Some(half) = stream.send.as_mut() else { continue };
                let space = max(id, half.next_offset());
                let piece = if space > 0 { half.next(space, room) } else { None };
                stream.queued = half.wants_to_send(u64::MAX);
                if stream.queued {
                    // A stream stays first in the queue until its turn is over. A stream that had
                    // nothing to send moves to the end of the queue.
                    let sent = piece.as_ref().map(|piece| piece.range.end - piece.range.start);
                    let others = queue.len() as u64;
                    let keeps = sent.is_some_and(|sent| {
                        let left = match self.turn {
                            Some((last, left)) if last == id => left,
                            _ => turn(self.in_flight_room, others),
                        };
                        self.turn = Some((id, left.saturating_sub(sent)));
                        left > sent
                    });
                    if keeps {
                        queue.push_front(id);
                    } else {
                        self.turn = None;
                        queue.push_back(id);
                    }
                }
                if half.is_blocked_untold() {
                    self.blocked.insert(id);
                }
                if let Some(piece) = piece {
                    self.send_window.on_sent(piece.fresh);
                    let then = and(id, &piece, half);
                    stream.count_unsent(&mut self.unsent);
                    return Some((id, piece, then));
                }
                stream.count_unsent(&mut self.unsent);
            }
            if queue.is_empty() {
                self.queue.remove(&priority);
            }
            tried = Some(priority);
        }
    }

    /// Takes the next piece of the stream `id`. Returns `None` if this stream has nothing that can
    /// be sent.
    pub(super) fn next_piece_of(
        &mut self,
        id: StreamId,
        max: impl Fn(StreamId, u64) -> usize,
    ) -> Option<(StreamId, Piece)> {
        let room = self.send_window.room();
        let half = self.streams.get_mut(&id)?.send.as_mut()?;
        let space = max(id, half.next_offset());
        let piece = if space > 0 { half.next(space, room)? } else { return None };
        self.send_window.on_sent(piece.fresh);
        self.count_unsent(id);
        // The stream stays where it is in the queue. If it has nothing more to send, it is skipped
        // at its next turn.
        Some((id, piece))
    }

    /// Raises the flow control limit of a stream, or of the connection if `stream` is `None`, above
    /// the value that the window would permit. Returns the frame that announces the limit.
    pub(crate) fn raise_limit(&mut self, stream: Option<StreamId>, limit: u64) -> Control {
        match stream {
            None => Control::MaxData(self.receive_window.raise(limit)),
            Some(id) => {
                let raised = self.receive_half(id).map_or(limit, |half| half.raise(limit));
                Control::MaxStreamData(id, raised)
            }
        }
    }

    /// Copies stream data from `offset` on into `buffer`.
    pub(crate) fn copy(&self, id: StreamId, offset: u64, buffer: &mut [u8]) -> usize {
        let half = self.streams.get(&id).and_then(|stream| stream.send.as_ref());
        half.map_or(0, |half| half.copy(offset, buffer))
    }

    /// Returns the part of a sent piece that the peer has not acknowledged. Returns `None` if the
    /// peer has acknowledged all of the piece, or if the stream has ended.
    pub(crate) fn unacked(
        &self,
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    ) -> Option<(Range<u64>, bool)> {
        self.streams.get(&id)?.send.as_ref()?.unacked(range, fin)
    }

    /// Returns true if a control frame about streams may have to be sent.
    #[inline(always)]
    pub fn has_control(&self) -> bool {
        !self.resets.is_empty()
            || !self.stops.is_empty()
            || !self.updates.is_empty()
            || !self.blocked.is_empty()
            || !self.wanted.is_empty()
            || self.max_data_due
            || self.max_streams_due.contains(&true)
            || !self.queue.is_empty() && self.send_window.is_blocked_untold()
    }

    /// Takes the next control frame about streams to send, or returns `None`. The frame then counts
    /// as sent.
    pub(crate) fn next_control(&mut self, now: Timestamp, rtt: Duration) -> Option<Control> {
        if let Some(wanted) = self.wanted.pop() {
            return Some(wanted);
        }
        while let Some(id) = self.resets.pop_first() {
            if let Some((code, size)) = self.send_half(id).ok().and_then(|h| h.reset_frame()) {
                return Some(Control::Reset(id, code, size));
            }
        }
        while let Some(id) = self.stops.pop_first() {
            if let Some(code) = self.receive_half(id).ok().and_then(|half| half.stop_code()) {
                return Some(Control::Stop(id, code));
            }
        }
        if std::mem::take(&mut self.max_data_due) {
            return Some(Control::MaxData(self.receive_window.update(now, rtt)));
        }
        while let Some(id) = self.updates.pop_first() {
            if let Ok(half) = self.receive_half(id)
                && half.wants_update()
            {
                let limit = half.update(now, rtt);
                // The connection's window must be larger than that of a stream. Otherwise a stream
                // that is not read could fill the connection's window, and the other streams could
                // not continue.
                let size = half.window_size();
                self.max_data_due |= self.receive_window.ensure(2 * size);
                return Some(Control::MaxStreamData(id, limit));
            }
        }
        for direction in DIRECTIONS {
            let index = at(direction);
            if std::mem::take(&mut self.max_streams_due[index]) {
                self.peer_may_open[index] = self.peer_ended[index] + self.concurrency(index);
                return Some(Control::MaxStreams(direction, self.peer_may_open[index]));
            }
        }
        self.next_blocked()
    }

    fn next_blocked(&mut self) -> Option<Control> {
        while let Some(id) = self.blocked.pop_first() {
            if let Ok(half) = self.send_half(id)
                && half.is_blocked_untold()
                && let Some(limit) = half.window().blocked()
            {
                return Some(Control::StreamDataBlocked(id, limit));
            }
        }
        if !self.queue.is_empty()
            && let Some(limit) = self.send_window.blocked()
        {
            return Some(Control::DataBlocked(limit));
        }
        None
    }

    /// Queues a STREAMS_BLOCKED frame, because the application could not open a stream. For each
    /// limit of the peer, this is done only once.
    pub(crate) fn want_streams(&mut self, direction: Direction) {
        let index = at(direction);
        let limit = self.may_open[index];
        if self.opened[index] >= limit && self.told_blocked[index] != Some(limit) {
            self.told_blocked[index] = Some(limit);
            self.wanted.push(Control::StreamsBlocked(direction, limit));
        }
    }

    /// Records that the peer has acknowledged a piece of stream data.
    pub(crate) fn on_piece_acked(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(half) = &mut stream.send else { return };
        let (was_done, before) = (half.is_done(), half.buffered());
        half.set_capacity(self.send_capacity, self.config.streams.most_of_a_stream());
        half.on_acked(range, fin);
        let (is_done, waiting) = (half.is_done(), half.buffered());
        let wanted = stream.wants_room && half.writable().is_ok();
        self.buffered = (self.buffered + waiting).saturating_sub(before);
        // Even if other streams use all of the room for the connection, a stream may always use its
        // own share: see `shared_room`.
        if wanted && self.shared_room(waiting) > 0 {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.wants_room = false;
            }
            self.events.insert(StreamEvent::Writable(id));
        }
        if !self.waiting.is_empty() && self.buffered <= self.waiting_for {
            self.wake_waiting();
        }
        if is_done && !was_done {
            self.events.insert(StreamEvent::Finished(id));
            self.remove_if_done(id);
        }
    }

    /// Records that a piece of stream data was lost.
    pub(crate) fn on_piece_lost(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        if let Ok(half) = self.send_half(id) {
            half.on_lost(range, fin);
            self.enqueue(id);
        }
    }

    /// Records that the peer has acknowledged a control frame.
    pub(crate) fn on_control_acked(&mut self, control: Control) {
        if let Control::Reset(id, ..) = control
            && let Ok(half) = self.send_half(id)
        {
            half.on_reset_acked();
            self.remove_if_done(id);
        }
    }

    /// Records that a control frame was lost. If its content still applies, it is sent again (RFC
    /// 9000 s.13.3).
    pub(crate) fn on_control_lost(&mut self, control: Control) {
        match control {
            Control::Reset(id, ..) => drop(self.resets.insert(id)),
            Control::Stop(id, _) => drop(self.stops.insert(id)),
            Control::MaxData(limit) => self.max_data_due |= limit == self.receive_window.limit(),
            Control::MaxStreamData(id, limit) => {
                if let Ok(half) = self.receive_half(id) {
                    half.on_update_lost(limit);
                    self.updates.insert(id);
                }
            }
            Control::MaxStreams(direction, limit) => {
                let index = at(direction);
                self.max_streams_due[index] |= limit == self.peer_may_open[index];
            }
            Control::DataBlocked(limit) => self.send_window.on_blocked_lost(limit),
            Control::StreamDataBlocked(id, limit) => {
                if let Ok(half) = self.send_half(id) {
                    half.window().on_blocked_lost(limit);
                    self.blocked.insert(id);
                }
            }
            Control::StreamsBlocked(direction, limit) => {
                let told = &mut self.told_blocked[at(direction)];
                *told = told.filter(|told| *told != limit);
            }
        }
    }
}
