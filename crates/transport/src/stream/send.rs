//! The sending part of a stream: its data, its flow control and its states (RFC 9000 s.3.1).

use std::ops::Range;

use bytes::Bytes;

use super::flow::SendWindow;
use super::send_buffer::SendBuffer;

/// The state of the sending part of a stream (RFC 9000 figure 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The application may write to the stream.
    Send,
    /// The application has finished the stream, and the peer has not acknowledged all data.
    DataSent,
    /// The peer has acknowledged all data.
    DataReceived,
    /// The stream was reset, and the peer has not acknowledged the reset.
    ResetSent,
    /// The peer has acknowledged the reset.
    ResetReceived,
}

/// The reason why the application cannot write to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The send buffers are full, or the peer's flow control limits permit no more data. Wait until
    /// the stream is writable.
    Blocked,
    /// The peer wants no more data (STOP_SENDING), with this application error code.
    Stopped(u64),
    /// The stream was already finished or reset.
    Closed,
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteError::Blocked => {
                f.write_str("the stream has no room for data: wait until it is writable")
            }
            WriteError::Stopped(code) => {
                write!(f, "the peer wants no more data (STOP_SENDING, error {code:#x})")
            }
            WriteError::Closed => f.write_str("the stream is already finished or reset"),
        }
    }
}

impl std::error::Error for WriteError {}

/// A range of stream data that one STREAM frame carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Range of the stream's offsets that the piece covers.
    pub range: Range<u64>,
    /// True if the stream ends with this piece.
    pub fin: bool,
    /// Number of bytes of the piece that have never been sent before. Only these use the
    /// connection's flow control window.
    pub fresh: u64,
}

/// The sending part of a stream.
#[derive(Debug, Clone)]
pub(super) struct SendHalf {
    state: SendState,
    buffer: SendBuffer,
    window: SendWindow,
    /// Number of bytes that may wait in the buffer for their acknowledgment.
    capacity: u64,
    /// Number of bytes that the buffer may hold in total. This includes acknowledged bytes that are
    /// kept because earlier bytes are not acknowledged.
    most: u64,
    /// State of the stream's end (FIN): open, to be sent, in flight, or acknowledged.
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
    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        self.buffer.shrink();
    }

    /// Creates the sending part of a stream. `window` has the peer's limit. `capacity` is the
    /// number of bytes that may wait to be sent or acknowledged.
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

    /// Returns the state of the sending part.
    #[cfg(any(test, feature = "qlog"))]
    pub(super) fn state(&self) -> SendState {
        self.state
    }

    /// Returns true if the sending part has reached a final state.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, SendState::DataReceived | SendState::ResetReceived)
    }

    /// Sets how many bytes may wait in the buffer: `capacity`, or up to `most` while earlier data
    /// is lost. Acknowledged data after the lost data cannot be released then, so the larger limit
    /// keeps the path filled.
    pub(super) fn set_capacity(&mut self, capacity: u64, most: u64) {
        (self.capacity, self.most) = (capacity, most.max(capacity));
    }

    /// Returns the number of bytes in the send buffer of this stream.
    pub(super) fn buffered(&self) -> u64 {
        self.buffer.buffered()
    }

    /// Returns the number of bytes that the application may write now.
    ///
    /// # Errors
    /// [`WriteError`], with the reason why nothing may be written.
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

    /// Returns how many more bytes the peer's limit for this stream permits, after all bytes that
    /// were written.
    pub(super) fn credit(&self) -> u64 {
        self.window.limit().saturating_sub(self.buffer.end())
    }

    /// Returns the number of bytes that the application has written and that were never sent.
    pub(super) fn unsent(&self) -> u64 {
        self.buffer.end() - self.buffer.sent()
    }

    /// Returns how many of the bytes that were never sent are within the peer's limit for this
    /// stream.
    pub(super) fn unsent_free(&self) -> u64 {
        self.unsent().min(self.window.room())
    }

    /// Copies as much of `data` into the buffer as there is room for. Returns the number of bytes
    /// copied.
    ///
    /// # Errors
    /// Fails like [`SendHalf::writable`].
    pub(super) fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        let room = usize::try_from(self.writable()?).unwrap_or(usize::MAX);
        let count = data.len().min(room);
        self.buffer.write(&data[..count]);
        Ok(count)
    }

    /// Like [`SendHalf::write`], but keeps a reference to the data and does not copy it. Removes
    /// the written bytes from `data`.
    ///
    /// # Errors
    /// Fails like [`SendHalf::writable`].
    pub(super) fn write_bytes(&mut self, data: &mut Bytes) -> Result<usize, WriteError> {
        let room = usize::try_from(self.writable()?).unwrap_or(usize::MAX);
        let part = data.split_to(data.len().min(room));
        let count = part.len();
        self.buffer.write_bytes(part);
        Ok(count)
    }

    /// Finishes the stream, because the application has written all data.
    ///
    /// # Errors
    /// [`WriteError::Stopped`] or [`WriteError::Closed`].
    // RFC 9000 s.4.5 #2
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
    // RFC 9000 s.11.2 #1, s.3.3 #2
    pub(super) fn reset(&mut self, code: u64) -> bool {
        if !matches!(self.state, SendState::Send | SendState::DataSent) {
            return false;
        }
        self.buffer.clear();
        self.reset = Some(code);
        (self.state, self.fin) = (SendState::ResetSent, Fin::Open);
        true
    }

    /// Returns the error code and the final size for a RESET_STREAM frame. Returns `None` if no
    /// such frame is needed, for example because the peer has acknowledged the reset.
    // RFC 9000 s.13.3 #1
    pub(super) fn reset_frame(&self) -> Option<(u64, u64)> {
        let code = self.reset.filter(|_| self.state == SendState::ResetSent)?;
        Some((code, self.sent_end()))
    }

    fn sent_end(&self) -> u64 {
        // Data that the reset discards before it was sent does not count toward the final size (RFC
        // 9000 s.4.5).
        self.window.used()
    }

    /// Processes a STOP_SENDING frame: resets the stream with the same code (RFC 9000 s.3.5 #2 #4).
    /// Returns true if RESET_STREAM must be sent.
    pub(super) fn on_stop(&mut self, code: u64) -> bool {
        if self.stopped.is_some() || self.is_done() {
            return false;
        }
        self.stopped = Some(code);
        self.reset(code)
    }

    /// Processes a MAX_STREAM_DATA frame. Returns true if the limit was reached before, and more
    /// data can now be sent.
    pub(super) fn on_max_data(&mut self, limit: u64) -> bool {
        self.window.raise(limit) && self.buffer.end() > self.buffer.sent()
    }

    /// Returns the flow control window of this stream.
    pub(super) fn window(&mut self) -> &mut SendWindow {
        &mut self.window
    }

    /// Returns true if only the peer's limit for this stream prevents new data from being sent, and
    /// this was not yet reported to the peer.
    pub(super) fn is_blocked_untold(&self) -> bool {
        self.buffer.end() > self.buffer.sent() && self.window.is_blocked_untold()
    }

    /// Returns true if there is stream data or a FIN to send. `connection_room` is the number of
    /// bytes that the connection's window still permits.
    // RFC 9000 s.2.2 #3, s.3.3 #1 #2
    pub(super) fn wants_to_send(&self, connection_room: u64) -> bool {
        matches!(self.state, SendState::Send | SendState::DataSent)
            && (self.buffer.wants_to_send(self.limit(connection_room)) || self.fin_alone())
    }

    // RFC 9000 s.4.1 #1, s.19.10 #3
    fn limit(&self, connection_room: u64) -> u64 {
        self.window.limit().min(self.buffer.sent().saturating_add(connection_room))
    }

    /// Returns true if only the stream's FIN is left to send.
    fn fin_alone(&self) -> bool {
        self.fin == Fin::ToSend && self.buffer.sent() == self.buffer.end()
    }

    /// Returns the stream offset at which the next piece begins.
    pub(super) fn next_offset(&self) -> u64 {
        self.buffer.next_offset()
    }

    /// Takes the next piece of stream data to send, of at most `max` bytes. The piece then counts
    /// as sent.
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

    /// Copies stream data from `offset` on into `buffer`.
    pub(super) fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.buffer.copy(offset, buffer)
    }

    /// Like [`SendHalf::copy`], for the piece that [`SendHalf::next`] returned last.
    #[inline(always)]
    pub(super) fn copy_next(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        self.buffer.copy_next(offset, buffer)
    }

    /// Returns the part of a sent piece of stream data that the peer has not acknowledged, or
    /// `None` if the peer has acknowledged all of it.
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

    /// Records that the peer has acknowledged this range of stream data, and the end of the stream
    /// if `fin` is true.
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

    /// Records that this range of stream data was lost, and the end of the stream if `fin` is true.
    pub(super) fn on_lost(&mut self, range: Range<u64>, fin: bool) {
        if !matches!(self.state, SendState::Send | SendState::DataSent) {
            return;
        }
        self.buffer.on_lost(range);
        if fin && self.fin == Fin::InFlight {
            self.fin = Fin::ToSend;
        }
    }

    /// Records that the peer has acknowledged the RESET_STREAM frame.
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

    // RFC 9000 s.3.3 #1, s.4.5 #2
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
        assert_eq!(half.next(9, 0), Some(end), "the FIN needs no room");
        half.on_acked(0..0, true);
        assert!(half.is_done());
    }

    // RFC 9000 s.2.2 #3, s.4.1 #1, s.19.9 #1, s.19.10 #3
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

    // RFC 9000 s.3.3 #2, s.13.3 #1
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

    // RFC 9000 s.3.5 #2 #4, s.11.2 #1
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
        assert!(!done.on_stop(5), "all data is acknowledged");
    }
}
