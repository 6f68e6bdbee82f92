//! Sent frames of streams: the next one, and the acknowledgment and loss of earlier ones.

use std::cmp::Reverse;
use std::ops::{Bound, Range};
use std::time::Duration;

use equic_wire::frame::Stream as Frame;
use equic_wire::{Direction, StreamId, VarInt, Writer};

use super::{Control, DIRECTIONS, Stream, StreamEvent, Streams, at};
use crate::Timestamp;
use crate::stream::send::{Piece, SendHalf};

/// A piece whose STREAM frame was written, and of which stream it is.
pub(crate) struct WrittenPiece {
    pub id: StreamId,
    pub piece: Piece,
    /// The frame had room; else nothing is written.
    pub fits: bool,
    /// True if this stream has more to send.
    pub more: bool,
}

/// Most bytes that a stream sends before it is another's turn, unless that is less than a packet has room for: about
/// as many as a TLS record holds.
const MAX_TURN: u64 = 16 << 10;

/// Bytes that a stream sends before the turn of one of `others`. Packets in a row of one stream cost both ends less
/// than packets of a stream each. But all have their turn within a quarter of what the path has in flight, and so of
/// a round trip: small streams must not wait for large ones on a slow path.
pub(super) fn turn(in_flight_room: u64, others: u64) -> u64 {
    (in_flight_room / (4 * (others + 1))).min(MAX_TURN)
}

impl Stream {
    /// Counts the bytes that were never sent in the sum of all streams.
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
        // Not by the connection's room: it may come while the stream waits.
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

    /// Updates the count of a stream's bytes that were never sent.
    pub(super) fn count_unsent(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.count_unsent(&mut self.unsent);
        }
    }

    /// True if a stream has data to send that the peer's limits allow.
    pub(crate) fn wants_to_send(&self) -> bool {
        let room = self.send_window.room();
        let wants = |id: &StreamId| {
            let half = self.streams.get(id).and_then(|stream| stream.send.as_ref());
            half.is_some_and(|half| half.wants_to_send(room))
        };
        // Mostly the first does, and no other need be looked for.
        let first = self.queue.first_key_value().and_then(|(_, queue)| queue.front());
        first.is_some_and(wants) || self.queue.values().flatten().any(wants)
    }

    /// The next piece of data to send, of the stream whose turn it is; `max` says how many bytes of
    /// data have room in a frame of that stream at that offset. The piece counts as sent.
    pub(crate) fn next_piece(
        &mut self,
        max: impl Fn(StreamId, u64) -> usize,
    ) -> Option<(StreamId, Piece)> {
        self.next_piece_and(max, |_, _, _| ()).map(|(id, piece, ())| (id, piece))
    }

    /// As [`Streams::next_piece`], and writes the STREAM frame of the piece.
    #[inline]
    pub(crate) fn write_piece(
        &mut self,
        writer: &mut Writer<'_>,
        max: impl Fn(StreamId, u64) -> usize,
    ) -> Option<WrittenPiece> {
        let left = self.send_window.room();
        let written = self.next_piece_and(max, |id, piece, half| {
            let more = half.wants_to_send(left.saturating_sub(piece.fresh));
            let Range { start, end } = piece.range;
            let (len, offset) = ((end - start) as usize, VarInt::new(start).unwrap_or_default());
            let header = Frame::write_header(writer, id, offset, Some(len), piece.fin);
            let Ok(bytes) = header.and_then(|()| writer.reserve(len)) else {
                return (false, more);
            };
            let copied = half.copy_next(start, bytes);
            debug_assert_eq!(copied, len, "what is sent is there");
            (true, more)
        });
        let (id, piece, (fits, more)) = written?;
        Some(WrittenPiece { id, piece, fits, more })
    }

    /// As [`Streams::next_piece`]; `and` is shown the piece and whose it is.
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
                // Mostly that is enough: to look for a place in the middle takes longer.
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
                    // It is first again until its turn is over; who had nothing that may go is behind the others.
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

    /// Like [`Streams::next_piece`], for this stream. Returns `None` if it has nothing that can be sent.
    pub(crate) fn next_piece_of(
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
        // It keeps its place among those that wait; an empty one is passed over there.
        Some((id, piece))
    }

    /// Lets the peer send more than its window would: on a stream, or on all together.
    pub(crate) fn raise_limit(&mut self, stream: Option<StreamId>, limit: u64) -> Control {
        match stream {
            None => Control::MaxData(self.receive_window.raise(limit)),
            Some(id) => {
                let raised = self.receive_half(id).map_or(limit, |half| half.raise(limit));
                Control::MaxStreamData(id, raised)
            }
        }
    }

    /// Copies the bytes of a piece.
    pub(crate) fn copy(&self, id: StreamId, offset: u64, buffer: &mut [u8]) -> usize {
        let half = self.streams.get(&id).and_then(|stream| stream.send.as_ref());
        half.map_or(0, |half| half.copy(offset, buffer))
    }

    /// Returns the part of a sent piece that was not acknowledged. `None` if all was, or if the stream has ended.
    pub(crate) fn unacked(
        &self,
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    ) -> Option<(Range<u64>, bool)> {
        self.streams.get(&id)?.send.as_ref()?.unacked(range, fin)
    }

    /// True if a control frame may be due.
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

    /// A control frame to send, if one is due. It counts as sent.
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
                // A stream that is not read must not take the whole window of the connection, because the others would
                // never continue.
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

    /// The application could not open a stream: STREAMS_BLOCKED, once a limit.
    pub(crate) fn want_streams(&mut self, direction: Direction) {
        let index = at(direction);
        let limit = self.may_open[index];
        if self.opened[index] >= limit && self.told_blocked[index] != Some(limit) {
            self.told_blocked[index] = Some(limit);
            self.wanted.push(Control::StreamsBlocked(direction, limit));
        }
    }

    /// The peer has a piece.
    pub(crate) fn on_piece_acked(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(half) = &mut stream.send else { return };
        let (was_done, before) = (half.is_done(), half.buffered());
        half.set_capacity(self.send_capacity, self.config.streams.most_of_a_stream());
        half.on_acked(range, fin);
        let (is_done, waiting) = (half.is_done(), half.buffered());
        let wanted = stream.wants_room && half.writable().is_ok();
        self.buffered = (self.buffered + waiting).saturating_sub(before);
        // A stream that the others leave no room has its own to wait for: see `shared_room`.
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

    /// A piece did not get there.
    pub(crate) fn on_piece_lost(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        if let Ok(half) = self.send_half(id) {
            half.on_lost(range, fin);
            self.enqueue(id);
        }
    }

    /// The peer has a control frame.
    pub(crate) fn on_control_acked(&mut self, control: Control) {
        if let Control::Reset(id, ..) = control
            && let Ok(half) = self.send_half(id)
        {
            half.on_reset_acked();
            self.remove_if_done(id);
        }
    }

    /// A control frame did not get there: what is still true is sent again (RFC 9000 s.13.3).
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
