//! Processes received frames about streams.

use equic_wire::{Direction, StreamId};

use super::{FrameError, Stream, StreamEvent, Streams, at};
use crate::stream::pages::Pages;
use crate::stream::receive::{ReceiveError, ReceiveHalf};
use crate::stream::send::SendHalf;
use crate::violation::Violation;

impl Streams {
    /// Finds the stream that a frame is for, and opens the stream if the peer may open it. Returns
    /// false if the stream has ended.
    fn of_frame(&mut self, id: StreamId, sends: bool) -> Result<bool, FrameError> {
        let direction = at(id.direction());
        let ours = id.initiator() == self.side;
        // RFC 9000 s.19: the frame is for a direction in which this unidirectional stream carries
        // no data.
        if id.direction() == Direction::Unidirectional && ours == sends {
            return Err(FrameError::Close(Violation::StreamDirection));
        }
        if ours {
            if id.index() >= self.opened[direction] {
                return Err(FrameError::Close(Violation::StreamNotOpened));
            }
            return Ok(self.streams.contains_key(&id));
        }
        if id.index() >= self.peer_may_open[direction] {
            return Err(FrameError::Close(Violation::StreamLimit));
        }
        // RFC 9000 s.3.2 #1: opening a stream also opens all streams of its type with lower IDs.
        while self.peer_opened[direction] <= id.index() {
            let index = self.peer_opened[direction];
            if let Some(new) = StreamId::new(!self.side, id.direction(), index) {
                let stream = self.make(new);
                self.streams.insert(new, stream);
            }
            self.peer_opened[direction] += 1;
            self.check_limit(direction);
            self.events.insert(StreamEvent::Opened(id.direction()));
        }
        Ok(self.streams.contains_key(&id))
    }

    pub(super) fn room(&self) -> u64 {
        self.receive_window.limit().saturating_sub(self.received)
    }

    /// Processes a STREAM frame.
    ///
    /// # Errors
    /// [`FrameError`] if the frame cannot be accepted.
    pub(crate) fn on_stream(
        &mut self,
        id: StreamId,
        offset: u64,
        data: &[u8],
        fin: bool,
    ) -> Result<(), FrameError> {
        let room = self.room();
        // The common case: the data directly follows the received data of a stream that is open.
        if let Some(stream) = self.streams.get_mut(&id)
            && let Some(half) = &mut stream.receive
            && !fin
            && half.on_next_data(&mut self.pages, offset, data, room)
        {
            self.received += data.len() as u64;
            self.events.insert(StreamEvent::Readable(id));
            return Ok(());
        }
        self.on_receive(id, |half, pages, room| half.on_data(pages, offset, data, fin, room))
    }

    /// Processes a RESET_STREAM frame from the peer.
    ///
    /// # Errors
    /// [`FrameError`] if the frame cannot be accepted.
    pub(crate) fn on_reset(
        &mut self,
        id: StreamId,
        code: u64,
        size: u64,
    ) -> Result<(), FrameError> {
        self.on_receive(id, |half, pages, room| half.on_reset(pages, code, size, room))
    }

    // RFC 9000 s.4.4 #1
    fn on_receive(
        &mut self,
        id: StreamId,
        take: impl FnOnce(&mut ReceiveHalf, &mut Pages, u64) -> Result<u64, ReceiveError>,
    ) -> Result<(), FrameError> {
        // The ID of a stream with a receiving part was checked when the stream was opened, so it
        // need not be checked again for each frame.
        let known = self.streams.get(&id).is_some_and(|stream| stream.receive.is_some());
        if !known && !self.of_frame(id, true)? {
            return Ok(());
        }
        let room = self.room();
        let stream = self.streams.get_mut(&id).map(Box::as_mut);
        let Some(Stream { send, receive: Some(half), .. }) = stream else { return Ok(()) };
        let used = take(half, &mut self.pages, room)?;
        let (readable, released) = (half.is_readable(), half.take_released());
        let over = half.is_done() && send.as_ref().is_none_or(SendHalf::is_done);
        self.received += used;
        self.give_back(released);
        if readable {
            self.events.insert(StreamEvent::Readable(id));
        }
        if over {
            self.remove_if_done(id);
        }
        Ok(())
    }

    /// Processes a STOP_SENDING frame.
    ///
    /// # Errors
    /// [`FrameError`] if the frame cannot be accepted.
    pub(crate) fn on_stop(&mut self, id: StreamId, code: u64) -> Result<(), FrameError> {
        if self.of_frame(id, false)?
            && self.with_send_half(id, |half| half.on_stop(code)) == Ok(true)
        {
            self.resets.insert(id);
            self.events.insert(StreamEvent::Stopped(id, code));
        }
        Ok(())
    }

    /// Processes a MAX_STREAM_DATA frame.
    ///
    /// # Errors
    /// [`FrameError`] if the frame cannot be accepted.
    pub(crate) fn on_max_stream_data(
        &mut self,
        id: StreamId,
        limit: u64,
    ) -> Result<(), FrameError> {
        if self.of_frame(id, false)? {
            self.on_max_stream_data_known(id, limit);
        }
        Ok(())
    }

    pub(super) fn on_max_stream_data_known(&mut self, id: StreamId, limit: u64) {
        if self.send_half(id).is_ok_and(|half| half.on_max_data(limit)) {
            self.blocked.remove(&id);
            self.enqueue(id);
        }
        if self.waiting.remove(&id) {
            self.events.insert(StreamEvent::Writable(id));
        }
    }

    /// Processes a STREAM_DATA_BLOCKED frame. Only its stream ID is checked.
    ///
    /// # Errors
    /// [`FrameError`] if the frame cannot be accepted.
    pub(crate) fn on_stream_data_blocked(&mut self, id: StreamId) -> Result<(), FrameError> {
        self.of_frame(id, true).map(drop)
    }

    /// Processes a MAX_DATA frame.
    pub(crate) fn on_max_data(&mut self, limit: u64) {
        if self.send_window.raise(limit) {
            self.wake_waiting();
        }
    }

    /// Processes a MAX_STREAMS frame.
    // RFC 9000 s.4.6 #4, s.19.11 #2
    pub(crate) fn on_max_streams(&mut self, direction: Direction, limit: u64) {
        let may = &mut self.may_open[at(direction)];
        if limit > *may {
            *may = limit;
            self.events.insert(StreamEvent::Available(direction));
        }
    }
}
