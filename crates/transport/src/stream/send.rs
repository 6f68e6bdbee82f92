//! The sending part of a stream (RFC 9000 s.3.1).

use std::ops::Range;

use bytes::Bytes;

use super::flow::SendWindow;
use super::send_buffer::SendBuffer;

/// State of the sending part of a stream: figure 2 of RFC 9000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The application may write.
    Send,
    /// The application has ended it; not all is acknowledged.
    DataSent,
    /// All is acknowledged.
    DataReceived,
    /// The stream was reset. The peer has not acknowledged it.
    ResetSent,
    /// The peer knows.
    ResetReceived,
}

/// Reason for which the application cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    /// Buffers are full, or the peer allows no more: wait until it is writable.
    Blocked,
    /// The peer wants no more (STOP_SENDING), with this application error code.
    Stopped(u64),
    /// It was ended or reset before.
    Closed,
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteError::Blocked => {
                f.write_str("there is no room to write: wait until it is writable")
            }
            WriteError::Stopped(code) => {
                write!(f, "the peer wants no more of the stream (STOP_SENDING, error {code:#x})")
            }
            WriteError::Closed => f.write_str("the stream was finished or reset before"),
        }
    }
}

impl std::error::Error for WriteError {}

/// A piece to put into a STREAM frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offsets in the stream.
    pub range: Range<u64>,
    /// True if the stream ends with this piece.
    pub fin: bool,
    /// Number of the piece's bytes never sent before: those count against the connection's window.
    pub fresh: u64,
}

/// The sending part of a stream.
#[derive(Debug, Clone)]
pub(super) struct SendHalf {
    state: SendState,
    buffer: SendBuffer,
    window: SendWindow,
    /// Bytes that may wait here for the network, unacknowledged.
    capacity: u64,
    /// Bytes that may be kept here, with those that are acknowledged and stand behind others that are not.
    most: u64,
    /// State of the stream's FIN.
    fin: Fin,
    reset: Option<u64>,
    stopped: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fin {
    Open,
    ToSend,
    InFlight,
    Acked,
}

impl SendHalf {
    /// Gives back memory that nothing is in.
    pub(super) fn shrink(&mut self) {
        self.buffer.shrink();
    }

    /// A fresh one: the peer's limit, and how much may wait to be sent.
    pub(super) fn new(window: SendWindow, capacity: u64) -> SendHalf {
        SendHalf {
            state: SendState::Send,
            buffer: SendBuffer::default(),
            window,
            capacity,
            most: capacity,
            fin: Fin::Open,
            reset: None,
            stopped: None,
        }
    }

    /// The state of the sending part.
    #[cfg(any(test, feature = "qlog"))]
    pub(super) fn state(&self) -> SendState {
        self.state
    }

    /// True if the sending part has reached a final state.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, SendState::DataReceived | SendState::ResetReceived)
    }

    /// Sets how many bytes may wait here. While lost data keeps acknowledged data from being released, up to `most`
    /// bytes may wait, so that the path can still be filled.
    pub(super) fn set_capacity(&mut self, capacity: u64, most: u64) {
        (self.capacity, self.most) = (capacity, most.max(capacity));
    }

    /// Bytes kept for the network.
    pub(super) fn buffered(&self) -> u64 {
        self.buffer.buffered()
    }

    /// Number of bytes that the application may write now.
    ///
    /// # Errors
    /// Reason for which nothing may be written.
    pub(super) fn writable(&self) -> Result<u64, WriteError> {
        match (self.state, self.stopped) {
            (_, Some(code)) => Err(WriteError::Stopped(code)),
            (SendState::Send, None) => match self.room() {
                0 => Err(WriteError::Blocked),
                room => Ok(room),
            },
            _ => Err(WriteError::Closed),
        }
    }

    fn room(&self) -> u64 {
        let capacity = (self.capacity + self.buffer.acked_ahead()).min(self.most);
        capacity.saturating_sub(self.buffered())
    }

    /// Bytes that the peer's limit of this stream lets out beyond what was written.
    pub(super) fn credit(&self) -> u64 {
        self.window.limit().saturating_sub(self.buffer.end())
    }

    /// Bytes that were written and never sent.
    pub(super) fn unsent(&self) -> u64 {
        self.buffer.end() - self.buffer.sent()
    }

    /// Those of them that the stream's own limit lets out.
    pub(super) fn unsent_free(&self) -> u64 {
        self.unsent().min(self.window.room())
    }

    /// Writes a copy of as much of `data` as there is room for; how many bytes.
    ///
    /// # Errors
    /// As [`SendHalf::writable`].
    pub(super) fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        let room = usize::try_from(self.writable()?).unwrap_or(usize::MAX);
        let count = data.len().min(room);
        self.buffer.write(&data[..count]);
        Ok(count)
    }

    /// As [`SendHalf::write`], without copying; what was written is taken off `data`.
    ///
    /// # Errors
    /// As [`SendHalf::writable`].
    pub(super) fn write_bytes(&mut self, data: &mut Bytes) -> Result<usize, WriteError> {
        let room = usize::try_from(self.writable()?).unwrap_or(usize::MAX);
        let part = data.split_to(data.len().min(room));
        let count = part.len();
        self.buffer.write_bytes(part);
        Ok(count)
    }

    /// The application has written all.
    ///
    /// # Errors
    /// [`WriteError::Stopped`] and [`WriteError::Closed`].
    pub(super) fn finish(&mut self) -> Result<(), WriteError> {
        match self.writable() {
            Ok(_) | Err(WriteError::Blocked) => {
                (self.state, self.fin) = (SendState::DataSent, Fin::ToSend);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Resets the stream with an application error code. Returns true if RESET_STREAM must be sent.
    pub(super) fn reset(&mut self, code: u64) -> bool {
        if !matches!(self.state, SendState::Send | SendState::DataSent) {
            return false;
        }
        self.buffer.clear();
        self.reset = Some(code);
        (self.state, self.fin) = (SendState::ResetSent, Fin::Open);
        true
    }

    /// Code and final size for RESET_STREAM, until the peer has it.
    pub(super) fn reset_frame(&self) -> Option<(u64, u64)> {
        let code = self.reset.filter(|_| self.state == SendState::ResetSent)?;
        Some((code, self.sent_end()))
    }

    fn sent_end(&self) -> u64 {
        // Data that was discarded unsent does not count (RFC 9000 s.4.5).
        self.window.used()
    }

    /// STOP_SENDING came: whether the stream should be reset with the same code
    /// (RFC 9000 s.3.5), which is done.
    pub(super) fn on_stop(&mut self, code: u64) -> bool {
        if self.stopped.is_some() || self.is_done() {
            return false;
        }
        self.stopped = Some(code);
        self.reset(code)
    }

    /// MAX_STREAM_DATA came: whether that makes something sendable.
    pub(super) fn on_max_data(&mut self, limit: u64) -> bool {
        self.window.raise(limit) && self.buffer.end() > self.buffer.sent()
    }

    /// The flow control of this stream.
    pub(super) fn window(&mut self) -> &mut SendWindow {
        &mut self.window
    }

    /// True if the stream's own limit is all that keeps new data from being sent, and the peer was not told.
    pub(super) fn is_blocked_untold(&self) -> bool {
        self.buffer.end() > self.buffer.sent() && self.window.is_blocked_untold()
    }

    /// True if there is a piece to send, with `connection_room` bytes left in the connection's window.
    pub(super) fn wants_to_send(&self, connection_room: u64) -> bool {
        matches!(self.state, SendState::Send | SendState::DataSent)
            && (self.buffer.wants_to_send(self.limit(connection_room)) || self.fin_alone())
    }

    fn limit(&self, connection_room: u64) -> u64 {
        self.window.limit().min(self.buffer.sent().saturating_add(connection_room))
    }

    /// True if only the stream's end (FIN) is left to send.
    fn fin_alone(&self) -> bool {
        self.fin == Fin::ToSend && self.buffer.sent() == self.buffer.end()
    }

    /// Offset in the stream at which the next piece begins.
    pub(super) fn next_offset(&self) -> u64 {
        self.buffer.next_offset()
    }

    /// The next piece of at most `max` bytes; it counts as sent.
    pub(super) fn next(&mut self, max: usize, connection_room: u64) -> Option<Piece> {
        if !self.wants_to_send(connection_room) {
            return None;
        }
        let before = self.buffer.sent();
        let limit = self.limit(connection_room);
        let range = match self.buffer.next(max, limit) {
            Some(range) => range,
            None if self.fin_alone() => self.buffer.end()..self.buffer.end(),
            None => return None,
        };
        let fresh = self.buffer.sent() - before;
        self.window.on_sent(fresh);
        let fin = self.fin == Fin::ToSend && range.end == self.buffer.end();
        if fin {
            self.fin = Fin::InFlight;
        }
        Some(Piece { range, fin, fresh })
    }

    /// Copies the bytes of a piece.
    pub(super) fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.buffer.copy(offset, buffer)
    }

    /// As [`SendHalf::copy`], of the piece that comes next.
    #[inline]
    pub(super) fn copy_next(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        self.buffer.copy_next(offset, buffer)
    }

    /// Part of a piece of sent data that the peer does not have yet.
    pub(super) fn unacked(&self, range: Range<u64>, fin: bool) -> Option<(Range<u64>, bool)> {
        if !matches!(self.state, SendState::Send | SendState::DataSent) {
            return None;
        }
        let range = range.start.max(self.buffer.base())..range.end;
        let fin = fin && self.fin == Fin::InFlight;
        if range.is_empty() {
            return fin.then_some((range.end..range.end, true));
        }
        (!self.buffer.has_all(range.clone())).then_some((range, fin))
    }

    /// The peer has this piece.
    pub(super) fn on_acked(&mut self, range: Range<u64>, fin: bool) {
        if !matches!(self.state, SendState::Send | SendState::DataSent) {
            return;
        }
        self.buffer.on_acked(range);
        if fin {
            self.fin = Fin::Acked;
        }
        if self.fin == Fin::Acked && self.buffer.is_done() {
            self.state = SendState::DataReceived;
        }
    }

    /// This piece did not get there.
    pub(super) fn on_lost(&mut self, range: Range<u64>, fin: bool) {
        if !matches!(self.state, SendState::Send | SendState::DataSent) {
            return;
        }
        self.buffer.on_lost(range);
        if fin && self.fin == Fin::InFlight {
            self.fin = Fin::ToSend;
        }
    }

    /// The peer has the RESET_STREAM.
    pub(super) fn on_reset_acked(&mut self) {
        if self.state == SendState::ResetSent {
            self.state = SendState::ResetReceived;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1 << 20;

    fn half() -> SendHalf {
        SendHalf::new(SendWindow::new(100), 150)
    }

    #[test]
    fn stream_send_write_finish_acknowledge() {
        let mut half = half();
        assert_eq!(half.write(b"hello"), Ok(5));
        half.finish().unwrap();
        assert_eq!(half.write(b"more"), Err(WriteError::Closed));
        let first = half.next(3, ROOM).unwrap();
        assert_eq!(first, Piece { range: 0..3, fin: false, fresh: 3 });
        let second = half.next(100, ROOM).unwrap();
        assert_eq!(second, Piece { range: 3..5, fin: true, fresh: 2 });
        assert_eq!(half.next(100, ROOM), None);
        half.on_acked(3..5, true);
        half.on_lost(0..3, false);
        assert_eq!(half.next(100, ROOM), Some(Piece { range: 0..3, fin: false, fresh: 0 }));
        assert!(!half.is_done());
        half.on_acked(0..3, false);
        assert_eq!(half.state(), SendState::DataReceived);
    }

    #[test]
    fn stream_send_lost_fin_is_sent_again() {
        let mut half = half();
        half.finish().unwrap();
        let end = Piece { range: 0..0, fin: true, fresh: 0 };
        assert_eq!((half.next(9, ROOM), half.next(9, ROOM)), (Some(end.clone()), None));
        half.on_lost(0..0, true);
        assert_eq!(half.next(9, 0), Some(end), "the end needs no room");
        half.on_acked(0..0, true);
        assert!(half.is_done());
    }

    #[test]
    fn flow_control_both_windows_hold() {
        let mut half = half();
        assert_eq!(half.write(&[0; 200]), Ok(150));
        assert_eq!(half.write(&[0]), Err(WriteError::Blocked));
        assert_eq!(half.next(1000, 60).unwrap().range, 0..60);
        assert!(!half.wants_to_send(0) && !half.is_blocked_untold());
        assert_eq!(half.next(1000, ROOM).unwrap().range, 60..100);
        assert!(half.is_blocked_untold() && !half.wants_to_send(ROOM));
        assert_eq!(half.window().blocked(), Some(100));
        assert!(half.on_max_data(120));
        assert_eq!(half.next(1000, ROOM).unwrap().range, 100..120);
        half.on_acked(0..60, false);
        assert_eq!(half.writable(), Ok(60));
    }

    #[test]
    fn stream_send_reset_counts_what_was_sent() {
        let mut half = half();
        half.write(&[0; 90]).unwrap();
        half.next(30, ROOM).unwrap();
        assert!(half.reset(7) && !half.reset(8));
        assert_eq!(half.reset_frame(), Some((7, 30)));
        assert_eq!((half.buffered(), half.next(100, ROOM)), (0, None));
        half.on_lost(0..30, false);
        assert!(!half.wants_to_send(ROOM));
        half.on_reset_acked();
        assert!(half.is_done() && half.reset_frame().is_none());
    }

    #[test]
    fn stream_send_stops_on_stop_sending() {
        let mut half = half();
        half.write(&[0; 10]).unwrap();
        assert!(half.on_stop(5) && !half.on_stop(5));
        assert_eq!(half.write(b"x"), Err(WriteError::Stopped(5)));
        assert_eq!(half.reset_frame(), Some((5, 0)));
        let mut done = SendHalf::new(SendWindow::new(0), 1);
        done.finish().unwrap();
        done.next(1, 0).unwrap();
        done.on_acked(0..0, true);
        assert!(!done.on_stop(5), "all is there already");
    }
}
