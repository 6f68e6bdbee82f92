//! Operations on streams that the application calls.

use std::cmp::Reverse;
use std::collections::VecDeque;

use bytes::Bytes;
use equic_wire::{Direction, StreamId};

use super::{MIN_SHARE, Stream, StreamError, StreamEvent, Streams, at, own_room};
use crate::stream::pieces::Pieces;
use crate::stream::receive::ReadOutcome;
use crate::stream::send::{SendHalf, WriteError};

impl Streams {
    /// Opens a stream. Returns `None` if the peer's limit on the number of streams is reached. When
    /// the peer raises the limit, [`StreamEvent::Available`] follows.
    // RFC 9000 s.2.1 #1, s.4.6 #2, s.19.11 #3
    pub(crate) fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let index = self.opened[at(direction)];
        if index >= self.may_open[at(direction)] {
            return None;
        }
        let id = StreamId::new(self.side, direction, index)?;
        self.opened[at(direction)] += 1;
        let stream = self.make(id);
        self.streams.insert(id, stream);
        Some(id)
    }

    /// Returns the next stream that the peer has opened, or `None` if there is no new one.
    pub(crate) fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        let index = self.accepted[at(direction)];
        if index >= self.peer_opened[at(direction)] {
            return None;
        }
        self.accepted[at(direction)] += 1;
        StreamId::new(!self.side, direction, index)
    }

    /// Takes the oldest stream event, or returns `None`.
    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_first()
    }

    /// Writes as much of `data` to a stream as there is room for. Returns the number of bytes
    /// written.
    ///
    /// # Errors
    /// [`StreamError`], with the reason why nothing was written. After [`WriteError::Blocked`],
    /// [`StreamEvent::Writable`] follows.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        self.write_with(id, |half, room| half.write(&data[..data.len().min(room)]))
    }

    /// Like [`Streams::write`], but keeps a reference to the data and does not copy it. Removes the
    /// written bytes from `data`.
    ///
    /// # Errors
    /// Fails like [`Streams::write`].
    pub fn write_bytes(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, StreamError> {
        // The data is not longer than the room, so all of it is written.
        self.write_with(id, |half, room| half.write_bytes(&mut data.split_to(data.len().min(room))))
    }

    fn write_with(
        &mut self,
        id: StreamId,
        write: impl FnOnce(&mut SendHalf, usize) -> Result<usize, WriteError>,
    ) -> Result<usize, StreamError> {
        let common = self.common_room();
        let stream = self.streams.get_mut(&id).map(Box::as_mut);
        let Some(Stream { send: Some(half), wants_room, .. }) = stream else {
            return Err(StreamError::Unknown);
        };
        half.set_capacity(self.send_capacity, self.config.streams.most_of_a_stream());
        let before = half.buffered();
        let room = common.max(own_room(before));
        let written = match half.writable() {
            Ok(_) if room == 0 => Err(WriteError::Blocked),
            Ok(own) => write(half, usize::try_from(room.min(own)).unwrap_or(usize::MAX)),
            Err(error) => Err(error),
        };
        *wants_room |= written == Err(WriteError::Blocked);
        self.buffered += half.buffered() - before;
        self.enqueue(id);
        let written = written?;
        self.written += written as u64;
        Ok(written)
    }

    /// Returns the number of bytes that the application has written to streams since the last call
    /// of this method.
    pub(crate) fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }

    /// Returns how many bytes, up to `want`, the application can write now without a long wait in
    /// the buffer. Use this to avoid producing data that would only wait.
    ///
    /// * Bytes that the peer's limits permit can be written.
    /// * Beyond these limits, `ahead` bytes of all streams together can be written in advance.
    /// * At most `most` bytes wait in all streams together. The limits of
    ///   [`StreamConfig`](super::StreamConfig) also apply.
    ///
    /// # Errors
    /// [`StreamError`], with the reason why nothing can be written. After [`WriteError::Blocked`],
    /// [`StreamEvent::Writable`] follows.
    pub fn sendable(
        &mut self,
        id: StreamId,
        want: u64,
        most: u64,
        ahead: u64,
    ) -> Result<u64, StreamError> {
        let (capacity, most_kept) = (self.send_capacity, self.config.streams.most_of_a_stream());
        let half = self.send_half(id)?;
        half.set_capacity(capacity, most_kept);
        let own = match half.writable() {
            Err(WriteError::Blocked) => 0,
            other => other?,
        };
        let credit = half.credit();
        let room = most.saturating_sub(self.buffered);
        let open = self.send_window.room();
        // Add up the unsent bytes of all streams only if the result can matter. The sum is never
        // more than the number of bytes in the buffers.
        let is_open = credit.min(open.saturating_sub(self.buffered)) >= want;
        let (unsent, claimed) = if is_open { (0, 0) } else { self.unsent() };
        let credit = credit.min(open.saturating_sub(claimed));
        let sendable = own.min(room).min(credit.max(ahead.saturating_sub(unsent))).min(want);
        // A full buffer makes room by one packet at a time. Without this check, the application
        // would produce a small piece of data for each packet.
        let is_full = own < want.min(capacity / 4) || room < want.min(MIN_SHARE);
        if is_full || sendable == 0 {
            self.waiting.insert(id);
            self.waiting_for = most / 4 * 3;
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.wants_room = true;
            }
            return Err(WriteError::Blocked.into());
        }
        Ok(sendable)
    }

    /// Returns the number of bytes of all streams that were written and never sent. The second
    /// number counts those of them that are within the limits of their streams, so that only the
    /// connection's limit can block them. The other bytes do not reduce the room for other streams.
    fn unsent(&self) -> (u64, u64) {
        let halves = self.streams.values().filter_map(|stream| stream.send.as_ref());
        halves.fold((0, 0), |(all, free), half| (all + half.unsent(), free + half.unsent_free()))
    }

    /// Returns the number of bytes that were written and never sent, in all streams that have
    /// something to send.
    pub(crate) fn bytes_unsent(&self) -> u64 {
        debug_assert_eq!(self.unsent, self.sum_unsent(), "the stored sum is correct");
        self.unsent
    }

    pub(super) fn sum_unsent(&self) -> u64 {
        let waiting = self.queue.values().flatten();
        waiting.filter_map(|id| self.bytes_unsent_of(*id)).sum()
    }

    /// Returns the number of streams that [`Streams::wants_to_send`] may have to check. A caller
    /// can charge a plugin for this work.
    pub(crate) fn looked_at_to_send(&self) -> usize {
        // If the connection's limit permits more data, the first stream in the queue can send.
        if self.send_window.room() > 0 { 1 } else { self.queue.values().map(VecDeque::len).sum() }
    }

    /// Returns the number of bytes of this stream that were written and never sent. Returns `None`
    /// if there is no such stream, or if this end does not send on it.
    pub(crate) fn bytes_unsent_of(&self, id: StreamId) -> Option<u64> {
        self.streams.get(&id)?.send.as_ref().map(SendHalf::unsent)
    }

    /// Finishes a stream, because the application has written all data.
    ///
    /// # Errors
    /// Fails if the stream was finished or reset before, or if the peer wants no more data.
    pub fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.send_half(id)?.finish()?;
        self.enqueue(id);
        Ok(())
    }

    /// Resets the sending part of a stream with an application error code.
    ///
    /// # Errors
    /// Fails if there is no such stream, or if its sending part has already ended.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.with_send_half(id, |half| half.reset(code))? {
            return Err(StreamError::Write(WriteError::Closed));
        }
        self.resets.insert(id);
        Ok(())
    }

    /// Sets a stream's priority. Data of streams with higher priority is sent first; the default is
    /// 0.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        let before = Reverse(std::mem::replace(&mut stream.priority, priority));
        if stream.queued
            && let Some(queue) = self.queue.get_mut(&before)
        {
            stream.queued = false;
            queue.retain(|queued| *queued != id);
            self.enqueue(id);
        }
        Ok(())
    }

    /// Returns the priority of a stream.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn priority(&self, id: StreamId) -> Result<i32, StreamError> {
        self.streams.get(&id).map(|stream| stream.priority).ok_or(StreamError::Unknown)
    }

    /// Reads data of a stream into `buffer`.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn read(&mut self, id: StreamId, buffer: &mut [u8]) -> Result<ReadOutcome, StreamError> {
        let (half, pages) = self.receive_half_with_pages(id)?;
        let outcome = half.read(pages, buffer);
        self.after_outcome(id, outcome);
        Ok(outcome)
    }

    /// Appends up to `limit` bytes of a stream to `buffer`. Reserves memory only for bytes that
    /// have arrived.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn read_to(
        &mut self,
        id: StreamId,
        buffer: &mut Vec<u8>,
        limit: usize,
    ) -> Result<ReadOutcome, StreamError> {
        let (half, pages) = self.receive_half_with_pages(id)?;
        let outcome = half.read_to(pages, buffer, limit);
        self.after_outcome(id, outcome);
        Ok(outcome)
    }

    /// Reads up to `limit` bytes of a stream without a copy, by moving their pages to `to`. When
    /// the data is no longer needed, return the pages with [`Streams::take_back`]. This may return
    /// fewer than `limit` bytes although more data is available. The next read then begins at the
    /// start of a page.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn read_pieces(
        &mut self,
        id: StreamId,
        limit: usize,
        to: &mut Pieces,
    ) -> Result<ReadOutcome, StreamError> {
        let (half, pages) = self.receive_half_with_pages(id)?;
        let outcome = half.read_pieces(pages, limit, to);
        self.after_outcome(id, outcome);
        Ok(outcome)
    }

    /// Takes back pages that [`Streams::read_pieces`] has returned, to use them for data that
    /// arrives later. Afterwards, `pieces` is empty.
    pub fn take_back(&mut self, pieces: &mut Pieces) {
        pieces.give_back(&mut self.pages);
    }

    /// Stops receiving on a stream, because the application wants no more data. The peer gets the
    /// application error code in a STOP_SENDING frame.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), StreamError> {
        let (half, pages) = self.receive_half_with_pages(id)?;
        if half.stop(pages, code) {
            self.stops.insert(id);
        }
        self.after_reading(id);
        Ok(())
    }

    fn after_outcome(&mut self, id: StreamId, outcome: ReadOutcome) {
        // If there was nothing to read, no state has changed.
        if outcome != ReadOutcome::Blocked {
            self.after_reading(id);
        }
    }

    fn after_reading(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id).map(Box::as_mut);
        let Some(Stream { send, receive: Some(half), .. }) = stream else { return };
        let (released, update) = (half.take_released(), half.wants_update());
        let over = half.is_done() && send.as_ref().is_none_or(SendHalf::is_done);
        self.give_back(released);
        if update {
            self.updates.insert(id);
        }
        if over {
            self.remove_if_done(id);
        }
    }
}
