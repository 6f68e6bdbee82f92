//! The receiving part of a stream: its data, its flow control and its states (RFC 9000 s.3.2).

use std::time::Duration;

use super::assembler::{Assembler, TooFragmented};
use super::flow::ReceiveWindow;
use super::pages::Pages;
use super::pieces::Pieces;
use crate::Timestamp;

/// The state of the receiving part of a stream (RFC 9000 figure 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveState {
    /// Data arrives, and the final size is unknown.
    Receive,
    /// The final size is known, and data is still missing.
    SizeKnown,
    /// All data has arrived, and the application has not read all of it.
    DataReceived,
    /// The application has read all data.
    DataRead,
    /// The peer has reset the stream, and the application has not been notified.
    ResetReceived,
    /// The peer has reset the stream, and the application has been notified.
    ResetRead,
}

/// The reason why data or a reset from the peer is rejected: the peer broke a rule, or the data is
/// too fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    /// The peer sent more data than a flow control limit permits: FLOW_CONTROL_ERROR.
    FlowControl,
    /// The peer changed the final size of the stream, or sent data beyond it: FINAL_SIZE_ERROR (RFC
    /// 9000 s.4.5).
    FinalSize,
    /// The data would create too many gaps. The packet with the data must be treated as lost.
    TooFragmented,
}

impl From<TooFragmented> for ReceiveError {
    fn from(_: TooFragmented) -> ReceiveError {
        ReceiveError::TooFragmented
    }
}

/// The result of a read by the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes of the stream were read.
    Bytes(usize),
    /// The stream has no data that can be read now.
    Blocked,
    /// All data of the stream has been read before.
    Finished,
    /// The peer reset the stream with this application error code.
    Reset(u64),
}

/// The receiving part of a stream.
#[derive(Debug, Clone)]
pub(super) struct ReceiveHalf {
    state: ReceiveState,
    assembler: Assembler,
    window: ReceiveWindow,
    /// Highest stream offset at which the peer has sent a byte. The flow control limits apply to
    /// it.
    highest: u64,
    final_size: Option<u64>,
    reset: Option<u64>,
    /// Error code of the STOP_SENDING frame, if the application wants no more data.
    stopped: Option<u64>,
    /// Number of bytes of the connection's receive window that this stream has released so far.
    released: u64,
    /// True if the last MAX_STREAM_DATA frame was lost.
    update_lost: bool,
}

impl ReceiveHalf {
    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        self.assembler.shrink();
    }

    /// Creates the receiving part of a stream with its flow control window. Other methods get the
    /// connection's [`Pages`] as an argument.
    pub(super) fn new(window: ReceiveWindow) -> ReceiveHalf {
        ReceiveHalf {
            state: ReceiveState::Receive,
            assembler: Assembler::default(),
            window,
            highest: 0,
            final_size: None,
            reset: None,
            stopped: None,
            released: 0,
            update_lost: false,
        }
    }

    /// Returns the state of the receiving part.
    #[cfg(any(test, feature = "qlog"))]
    pub(super) fn state(&self) -> ReceiveState {
        self.state
    }

    /// Returns true if the receiving part has reached a final state.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, ReceiveState::DataRead | ReceiveState::ResetRead)
    }

    /// Returns true if a read would return something: data, the end of the stream, or a reset.
    pub(super) fn is_readable(&self) -> bool {
        match self.state {
            ReceiveState::Receive | ReceiveState::SizeKnown => self.assembler.readable() > 0,
            ReceiveState::DataReceived | ReceiveState::ResetReceived => true,
            ReceiveState::DataRead | ReceiveState::ResetRead => false,
        }
    }

    /// Returns the memory that the receiving part has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.assembler.memory()
    }

    /// Returns the number of bytes that wait to be read, whether or not earlier bytes are missing.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> u64 {
        self.assembler.buffered()
    }

    /// Processes STREAM data without FIN, if it directly follows all received data and is within
    /// the limits. This is the fast path. Otherwise returns false and changes nothing, and the
    /// caller must call [`ReceiveHalf::on_data`].
    #[inline]
    pub(super) fn on_next_data(
        &mut self,
        pages: &mut Pages,
        offset: u64,
        data: &[u8],
        connection_room: u64,
    ) -> bool {
        let length = data.len() as u64;
        let plain = self.state == ReceiveState::Receive
            && self.stopped.is_none()
            && offset == self.highest
            && length > 0
            && length <= connection_room
            && length <= self.window.limit().saturating_sub(offset)
            && self.assembler.append(pages, offset, data);
        if plain {
            self.highest += length;
        }
        plain
    }

    /// Returns the offset after all received data, where the next data is likely to begin.
    pub(super) fn next_offset(&self) -> u64 {
        self.highest
    }

    /// Like [`Assembler::place`], returns memory for bytes that directly follow all received data.
    /// Returns `None` if the flow control limits do not permit these bytes, or if the bytes must be
    /// copied.
    #[inline]
    pub(super) fn place(&mut self, length: usize, connection_room: u64) -> Option<&mut [u8]> {
        let (offset, bytes) = (self.highest, length as u64);
        let plain = self.state == ReceiveState::Receive
            && self.stopped.is_none()
            && bytes <= connection_room
            && bytes <= self.window.limit().saturating_sub(offset);
        if plain { self.assembler.place(offset, length) } else { None }
    }

    /// Records that bytes were written to the memory that [`ReceiveHalf::place`] has returned.
    /// There must be no other call in between.
    #[inline]
    pub(super) fn on_placed(&mut self, length: usize) {
        self.assembler.append_placed(self.highest, length);
        self.highest += length as u64;
    }

    /// Processes a STREAM frame. `connection_room` is the number of bytes that the connection's
    /// window still permits. Returns how many of these bytes the frame has used.
    ///
    /// # Errors
    /// [`ReceiveError`]. Nothing has changed in that case.
    pub(super) fn on_data(
        &mut self,
        pages: &mut Pages,
        offset: u64,
        data: &[u8],
        fin: bool,
        connection_room: u64,
    ) -> Result<u64, ReceiveError> {
        let end = offset.checked_add(data.len() as u64).ok_or(ReceiveError::FlowControl)?;
        let used = self.check(end, fin, connection_room)?;
        match self.state {
            ReceiveState::Receive | ReceiveState::SizeKnown if self.stopped.is_none() => {
                self.assembler.insert(pages, offset, data)?;
            }
            // The stream was stopped or reset, so the data itself is dropped. Only its range of
            // offsets matters (RFC 9000 s.3.5).
            _ => {}
        }
        self.highest += used;
        if fin && self.final_size.is_none() {
            self.final_size = Some(end);
            if self.state == ReceiveState::Receive {
                self.state = ReceiveState::SizeKnown;
            }
        }
        self.settle();
        Ok(used)
    }

    /// Checks that the peer may send data up to the offset `end`. Returns how many bytes of the
    /// connection's window the data would use.
    // RFC 9000 s.4.5 #1
    fn check(&self, end: u64, fin: bool, connection_room: u64) -> Result<u64, ReceiveError> {
        let known = self.final_size;
        // RFC 9000 s.4.5: the final size must not change, and no data may exceed it.
        if known.is_some_and(|size| end > size || fin && end != size) || fin && end < self.highest {
            return Err(ReceiveError::FinalSize);
        }
        let used = end.saturating_sub(self.highest);
        if end > self.window.limit() || used > connection_room {
            return Err(ReceiveError::FlowControl);
        }
        Ok(used)
    }

    fn settle(&mut self) {
        if self.state == ReceiveState::SizeKnown {
            let there = self.assembler.read_offset() + self.assembler.readable();
            if self.stopped.is_some() {
                // The application will not read the data, so the stream ends as soon as its final
                // size is known.
                self.state = ReceiveState::DataRead;
            } else if self.final_size == Some(there) {
                self.state = ReceiveState::DataReceived;
            }
        }
    }

    /// Processes a RESET_STREAM frame. Returns how many bytes of the connection's window the frame
    /// has used, as [`ReceiveHalf::on_data`] does.
    ///
    /// # Errors
    /// `FlowControl` and `FinalSize`.
    pub(super) fn on_reset(
        &mut self,
        pages: &mut Pages,
        code: u64,
        final_size: u64,
        connection_room: u64,
    ) -> Result<u64, ReceiveError> {
        let used = self.check(final_size, true, connection_room)?;
        self.highest += used;
        self.final_size = Some(final_size);
        match self.state {
            ReceiveState::Receive | ReceiveState::SizeKnown => {
                self.assembler.clear(pages);
                self.reset = Some(code);
                let told = self.stopped.is_some();
                self.state =
                    if told { ReceiveState::ResetRead } else { ReceiveState::ResetReceived };
            }
            // RFC 9000 s.3.2: all data has arrived, so the reset can be ignored.
            _ => {}
        }
        Ok(used)
    }

    /// Returns how many bytes of the connection's receive window were released since the last call.
    /// Bytes are released when the application reads them, or when they are discarded.
    pub(super) fn take_released(&mut self) -> u64 {
        let given_up = self.stopped.is_some() || self.reset.is_some();
        let released = if given_up { self.highest } else { self.assembler.read_offset() };
        released - std::mem::replace(&mut self.released, released)
    }

    /// Reads data of the stream into `buffer`.
    pub(super) fn read(&mut self, pages: &mut Pages, buffer: &mut [u8]) -> ReadOutcome {
        self.read_with(|assembler| assembler.read(pages, buffer))
    }

    /// Appends up to `limit` bytes of the stream to `buffer`. Reserves memory only for bytes that
    /// have arrived.
    pub(super) fn read_to(
        &mut self,
        pages: &mut Pages,
        buffer: &mut Vec<u8>,
        limit: usize,
    ) -> ReadOutcome {
        self.read_with(|assembler| {
            let there = usize::try_from(assembler.readable()).unwrap_or(usize::MAX);
            buffer.reserve(there.min(limit));
            assembler.drain(pages, limit, |chunk| buffer.extend_from_slice(chunk))
        })
    }

    /// Takes up to `limit` bytes of the stream together with their memory.
    pub(super) fn read_pieces(
        &mut self,
        pages: &mut Pages,
        limit: usize,
        to: &mut Pieces,
    ) -> ReadOutcome {
        self.read_with(|assembler| assembler.take(pages, limit, to))
    }

    fn read_with(&mut self, read: impl FnOnce(&mut Assembler) -> usize) -> ReadOutcome {
        match self.state {
            ReceiveState::ResetReceived | ReceiveState::ResetRead => {
                self.state = ReceiveState::ResetRead;
                return ReadOutcome::Reset(self.reset.unwrap_or_default());
            }
            ReceiveState::DataRead => return ReadOutcome::Finished,
            _ => {}
        }
        let count = read(&mut self.assembler);
        self.window.on_read(count as u64);
        let over = self.final_size == Some(self.assembler.read_offset());
        match (count, over && self.state == ReceiveState::DataReceived) {
            (0, true) => {
                self.state = ReceiveState::DataRead;
                ReadOutcome::Finished
            }
            (0, false) => ReadOutcome::Blocked,
            (count, _) => ReadOutcome::Bytes(count),
        }
    }

    /// Stops receiving, because the application wants no more data. Returns true if a STOP_SENDING
    /// frame with `code` must be sent.
    pub(super) fn stop(&mut self, pages: &mut Pages, code: u64) -> bool {
        let open = matches!(self.state, ReceiveState::Receive | ReceiveState::SizeKnown);
        if self.stopped.is_some() || self.is_done() {
            return false;
        }
        self.stopped = Some(code);
        self.assembler.clear(pages);
        match self.state {
            ReceiveState::DataReceived => self.state = ReceiveState::DataRead,
            ReceiveState::ResetReceived => self.state = ReceiveState::ResetRead,
            _ => self.settle(),
        }
        open
    }

    /// Returns the error code for a STOP_SENDING frame. Returns `None` if no such frame is needed,
    /// for example because the final size is known.
    pub(super) fn stop_code(&self) -> Option<u64> {
        self.stopped.filter(|_| self.state == ReceiveState::Receive)
    }

    /// Returns true if a MAX_STREAM_DATA frame should be sent to raise the limit. No such frame is
    /// needed if the final size is known (RFC 9000 s.3.2).
    // RFC 9000 s.4.2 #1, s.13.3 #2
    pub(super) fn wants_update(&self) -> bool {
        self.state == ReceiveState::Receive
            && self.stopped.is_none()
            && (self.update_lost || self.window.wants_update())
    }

    /// Returns the current size of the receive window in bytes.
    pub(super) fn window_size(&self) -> u64 {
        self.window.size()
    }

    /// Raises the stream's limit. Returns the new limit, which the caller sends in a
    /// MAX_STREAM_DATA frame.
    pub(super) fn update(&mut self, now: Timestamp, rtt: Duration) -> u64 {
        self.update_lost = false;
        self.window.update(now, rtt)
    }

    /// Raises the peer's limit to `limit`, if that is higher than the current limit. Returns the
    /// limit that then applies.
    pub(super) fn raise(&mut self, limit: u64) -> u64 {
        self.window.raise(limit)
    }

    /// Records that a MAX_STREAM_DATA frame with this limit was lost.
    pub(super) fn on_update_lost(&mut self, limit: u64) {
        self.update_lost |= limit == self.window.limit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1 << 20;

    fn half() -> ReceiveHalf {
        ReceiveHalf::new(ReceiveWindow::new(100, 1000))
    }

    #[test]
    fn stream_receive_data_then_fin() {
        let mut half = half();
        assert_eq!(half.on_data(&mut Pages::default(), 5, b"world", true, ROOM), Ok(10));
        assert_eq!((half.state(), half.is_readable()), (ReceiveState::SizeKnown, false));
        assert_eq!(half.read(&mut Pages::default(), &mut [0; 9]), ReadOutcome::Blocked);
        assert_eq!(half.on_data(&mut Pages::default(), 0, b"hello", false, ROOM), Ok(0));
        assert_eq!(half.state(), ReceiveState::DataReceived);
        let mut buffer = [0; 20];
        assert_eq!(half.read(&mut Pages::default(), &mut buffer), ReadOutcome::Bytes(10));
        assert_eq!(&buffer[..10], b"helloworld");
        assert_eq!(half.read(&mut Pages::default(), &mut buffer), ReadOutcome::Finished);
        assert!(half.is_done() && !half.wants_update());
        // Data that arrives again must have no effect.
        assert_eq!(half.on_data(&mut Pages::default(), 0, b"hello", false, ROOM), Ok(0));
    }

    /// Data in order must take the fast path. All other data must take the slow path, which reports
    /// why data is rejected.
    #[test]
    fn stream_receive_fast_path_takes_only_contiguous_data() {
        let mut half = half();
        assert!(
            !half.on_next_data(&mut Pages::default(), 5, b"later", ROOM),
            "earlier data is missing"
        );
        assert!(half.on_next_data(&mut Pages::default(), 0, b"hello", ROOM) && half.is_readable());
        assert!(
            !half.on_next_data(&mut Pages::default(), 0, b"hello", ROOM),
            "the data is repeated"
        );
        assert!(!half.on_next_data(&mut Pages::default(), 5, b"", ROOM), "the frame is empty");
        assert!(
            !half.on_next_data(&mut Pages::default(), 5, b"world", 4),
            "more than the connection's window"
        );
        assert!(
            !half.on_next_data(&mut Pages::default(), 5, &[0; 96], ROOM),
            "more than the stream's window"
        );
        assert_eq!(half.on_data(&mut Pages::default(), 20, b"beyond", false, ROOM), Ok(21));
        assert!(
            !half.on_next_data(&mut Pages::default(), 5, b"world", ROOM),
            "later data has arrived"
        );
        assert!(
            !half.on_next_data(&mut Pages::default(), 26, b"!", ROOM),
            "earlier data is missing"
        );
        assert_eq!(half.on_data(&mut Pages::default(), 5, &[b'.'; 15], false, ROOM), Ok(0));
        let mut buffer = [0; 99];
        assert_eq!(half.read(&mut Pages::default(), &mut buffer), ReadOutcome::Bytes(26));
        assert_eq!(&buffer[..26], b"hello...............beyond");
        assert!(half.on_next_data(&mut Pages::default(), 26, b"after all was read", ROOM));
        half.on_data(&mut Pages::default(), 44, b"", true, ROOM).unwrap();
        assert!(
            !half.on_next_data(&mut Pages::default(), 44, b"!", ROOM),
            "the final size is known"
        );
        assert_eq!(half.read(&mut Pages::default(), &mut buffer), ReadOutcome::Bytes(18));
        assert_eq!(half.read(&mut Pages::default(), &mut buffer), ReadOutcome::Finished);
        let mut half = self::half();
        assert_eq!(half.on_data(&mut Pages::default(), 5, b"later", false, ROOM), Ok(10));
        assert!(
            !half.on_next_data(&mut Pages::default(), 10, b"!", ROOM),
            "earlier data is missing"
        );
        let mut half = self::half();
        half.stop(&mut Pages::default(), 1);
        assert!(
            !half.on_next_data(&mut Pages::default(), 0, b"hello", ROOM),
            "the stream was stopped"
        );
    }

    #[test]
    fn stream_receive_empty_fin() {
        let mut half = half();
        assert_eq!(half.on_data(&mut Pages::default(), 0, b"", true, ROOM), Ok(0));
        assert!(half.is_readable());
        assert_eq!(half.read(&mut Pages::default(), &mut [0]), ReadOutcome::Finished);
    }

    // RFC 9000 s.4.2 #1
    #[test]
    fn flow_control_limits_of_a_stream() {
        let mut half = half();
        assert_eq!(
            half.on_data(&mut Pages::default(), 90, &[0; 11], false, ROOM),
            Err(ReceiveError::FlowControl)
        );
        assert_eq!(
            half.on_data(&mut Pages::default(), 0, &[0; 10], false, 9),
            Err(ReceiveError::FlowControl)
        );
        assert_eq!(
            half.on_data(&mut Pages::default(), u64::MAX, &[0; 10], false, ROOM),
            Err(ReceiveError::FlowControl)
        );
        assert_eq!(
            half.on_reset(&mut Pages::default(), 1, 101, ROOM),
            Err(ReceiveError::FlowControl)
        );
        assert_eq!(half.on_data(&mut Pages::default(), 0, &[0; 100], false, 100), Ok(100));
    }

    // RFC 9000 s.4.5 #3 #4
    #[test]
    fn stream_receive_final_size_is_final() {
        let mut half = half();
        half.on_data(&mut Pages::default(), 0, &[0; 50], false, ROOM).unwrap();
        assert_eq!(
            half.on_data(&mut Pages::default(), 0, &[0; 40], true, ROOM),
            Err(ReceiveError::FinalSize)
        );
        assert_eq!(half.on_reset(&mut Pages::default(), 1, 49, ROOM), Err(ReceiveError::FinalSize));
        half.on_data(&mut Pages::default(), 50, &[0; 10], true, ROOM).unwrap();
        assert_eq!(
            half.on_data(&mut Pages::default(), 60, &[0], false, ROOM),
            Err(ReceiveError::FinalSize)
        );
        assert_eq!(
            half.on_data(&mut Pages::default(), 40, &[0; 10], true, ROOM),
            Err(ReceiveError::FinalSize)
        );
        assert_eq!(half.on_reset(&mut Pages::default(), 1, 61, ROOM), Err(ReceiveError::FinalSize));
        // All data has arrived, so the reset must have no effect.
        assert_eq!(half.on_reset(&mut Pages::default(), 1, 60, ROOM), Ok(0));
        assert_eq!(half.read(&mut Pages::default(), &mut [0; 60]), ReadOutcome::Bytes(60));
    }

    #[test]
    fn stream_receive_reset_is_reported_once() {
        let mut half = half();
        half.on_data(&mut Pages::default(), 0, &[0; 20], false, ROOM).unwrap();
        assert_eq!(half.on_reset(&mut Pages::default(), 7, 30, ROOM), Ok(10));
        assert_eq!(half.buffered(), 0);
        assert!(half.is_readable());
        assert_eq!(half.read(&mut Pages::default(), &mut [0; 9]), ReadOutcome::Reset(7));
        assert!(half.is_done());
    }

    #[test]
    fn stream_receive_stopped_data_is_not_kept() {
        let mut half = half();
        half.on_data(&mut Pages::default(), 0, &[0; 20], false, ROOM).unwrap();
        assert!(half.stop(&mut Pages::default(), 9) && !half.stop(&mut Pages::default(), 9));
        assert_eq!((half.take_released(), half.stop_code()), (20, Some(9)));
        assert_eq!(half.on_data(&mut Pages::default(), 20, &[0; 30], false, ROOM), Ok(30));
        assert_eq!((half.take_released(), half.take_released()), (30, 0));
        assert_eq!(half.buffered(), 0);
        half.on_reset(&mut Pages::default(), 0, 60, ROOM).unwrap();
        assert!(half.is_done() && half.stop_code().is_none());
    }

    #[test]
    fn flow_control_gaps_of_a_stopped_stream_are_released() {
        let mut half = half();
        half.on_data(&mut Pages::default(), 0, &[0; 10], false, ROOM).unwrap();
        half.on_data(&mut Pages::default(), 40, &[0; 10], false, ROOM).unwrap();
        half.read(&mut Pages::default(), &mut [0; 4]);
        assert_eq!(half.take_released(), 4);
        half.on_reset(&mut Pages::default(), 1, 60, ROOM).unwrap();
        assert_eq!((half.take_released(), half.take_released()), (56, 0));
    }

    #[test]
    fn flow_control_lost_update_is_sent_again_if_it_is_the_last() {
        let mut half = half();
        half.on_data(&mut Pages::default(), 0, &[0; 80], false, ROOM).unwrap();
        half.read(&mut Pages::default(), &mut [0; 80]);
        assert!(half.wants_update());
        let limit = half.update(Timestamp::START, Duration::ZERO);
        assert_eq!((limit, half.wants_update()), (180, false));
        half.on_update_lost(100);
        assert!(!half.wants_update());
        half.on_update_lost(180);
        assert!(half.wants_update());
    }
}
