//! What the application does with streams.

use bytes::Bytes;
use equic_wire::{Direction, StreamId};

use super::{StreamError, StreamEvent, Streams, at};
use crate::stream::receive::ReadOutcome;
use crate::stream::send::{SendHalf, WriteError};

impl Streams {
    /// Opens a stream; none: the peer allows no more now, [`StreamEvent::Available`] will say when.
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
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

    /// The next stream that the peer opened.
    pub fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        let index = self.accepted[at(direction)];
        if index >= self.peer_opened[at(direction)] {
            return None;
        }
        self.accepted[at(direction)] += 1;
        StreamId::new(!self.side, direction, index)
    }

    /// What happened since the last call, one at a time.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_first()
    }

    /// Writes as much of `data` as there is room for.
    ///
    /// # Errors
    /// Why nothing was written; after [`WriteError::Blocked`] comes [`StreamEvent::Writable`].
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        self.write_with(id, |half| half.write(data))
    }

    /// As [`Streams::write`], without copying; what was written is taken off `data`.
    ///
    /// # Errors
    /// As [`Streams::write`].
    pub fn write_bytes(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, StreamError> {
        self.write_with(id, |half| half.write_bytes(data))
    }

    fn write_with(
        &mut self,
        id: StreamId,
        write: impl FnOnce(&mut SendHalf) -> Result<usize, WriteError>,
    ) -> Result<usize, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        let half = stream.send.as_mut().ok_or(StreamError::Unknown)?;
        let written = write(half);
        stream.wants_room |= written == Err(WriteError::Blocked);
        self.enqueue(id);
        Ok(written?)
    }

    /// The application has written all.
    ///
    /// # Errors
    /// When it has said so before, or the peer wants no more.
    pub fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.send_half(id)?.finish()?;
        self.enqueue(id);
        Ok(())
    }

    /// Gives up sending, with an application error code.
    ///
    /// # Errors
    /// When there is nothing to give up.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), StreamError> {
        if !self.send_half(id)?.reset(code) {
            return Err(StreamError::Write(WriteError::Closed));
        }
        self.resets.insert(id);
        Ok(())
    }

    /// Who goes first: 0 to 255, the lower the earlier; 127 unless told.
    ///
    /// # Errors
    /// When there is no such stream.
    pub fn set_urgency(&mut self, id: StreamId, urgency: u8) -> Result<(), StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        let before = std::mem::replace(&mut stream.urgency, urgency);
        if stream.queued
            && let Some(queue) = self.queue.get_mut(&before)
        {
            stream.queued = false;
            queue.retain(|queued| *queued != id);
            self.enqueue(id);
        }
        Ok(())
    }

    /// Reads into `buffer`.
    ///
    /// # Errors
    /// When there is no such stream.
    pub fn read(&mut self, id: StreamId, buffer: &mut [u8]) -> Result<ReadOutcome, StreamError> {
        let outcome = self.receive_half(id)?.read(buffer);
        self.after_outcome(id, outcome);
        Ok(outcome)
    }

    /// Appends up to `limit` bytes to `buffer`, which takes room for no more than have arrived.
    ///
    /// # Errors
    /// When there is no such stream.
    pub fn read_to(
        &mut self,
        id: StreamId,
        buffer: &mut Vec<u8>,
        limit: usize,
    ) -> Result<ReadOutcome, StreamError> {
        let outcome = self.receive_half(id)?.read_to(buffer, limit);
        self.after_outcome(id, outcome);
        Ok(outcome)
    }

    /// The application wants no more, with an application error code.
    ///
    /// # Errors
    /// When there is no such stream.
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), StreamError> {
        if self.receive_half(id)?.stop(code) {
            self.stops.insert(id);
        }
        self.after_reading(id);
        Ok(())
    }

    fn after_outcome(&mut self, id: StreamId, outcome: ReadOutcome) {
        // Where there was nothing to read, nothing has changed.
        if outcome != ReadOutcome::Blocked {
            self.after_reading(id);
        }
    }

    fn after_reading(&mut self, id: StreamId) {
        self.release(id);
        if self.receive_half(id).is_ok_and(|half| half.wants_update()) {
            self.updates.insert(id);
        }
        self.remove_if_done(id);
    }
}
