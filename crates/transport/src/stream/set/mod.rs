//! All streams of a connection: opening them, their limits, flow control of the connection, and the
//! order in which streams send (RFC 9000 s.2.1, s.4).
//!
//! * `application.rs`: calls of the application;
//! * `events.rs`: events for the application;
//! * `peer.rs`: received frames; `placed.rs`: packets that are decrypted directly into a stream's
//!   buffer;
//! * `sending.rs`: sent frames, and their acknowledgment and loss.

mod application;
mod events;
mod peer;
mod placed;
mod sending;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use equic_wire::{Direction, Side, StreamId};

use self::events::Events;
use self::placed::Expected;
pub(crate) use self::sending::WrittenPiece;
use super::flow::{ReceiveWindow, SendWindow};
use super::pages::Pages;
#[cfg(feature = "qlog")]
use super::receive::ReceiveState;
use super::receive::{ReceiveError, ReceiveHalf};
#[cfg(feature = "qlog")]
use super::send::SendState;
use super::send::{SendHalf, WriteError};
use crate::connection::TransportConfig;
use crate::violation::Violation;

/// One value for bidirectional and one for unidirectional streams.
type PerDirection<T> = [T; 2];

const DIRECTIONS: [Direction; 2] = [Direction::Bidirectional, Direction::Unidirectional];

fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bidirectional => 0,
        Direction::Unidirectional => 1,
    }
}

/// Limits that this end sets for streams. Its transport parameters tell the peer their initial
/// values.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StreamConfig {
    /// Number of bidirectional streams that the peer may have open at the same time. Default: 100.
    pub max_streams_bidi: u64,
    /// Number of unidirectional streams that the peer may have open at the same time. Default: 100.
    pub max_streams_uni: u64,
    /// Initial receive window of a stream, in bytes. Default: 256 KiB.
    pub stream_window: u64,
    /// Largest receive window of a stream, in bytes. A window grows with the rate at which the
    /// application reads. Default: 64 MiB, which is enough for 1 Gb/s with a round-trip time of 300
    /// ms, because a sender uses up to three quarters of the window before a higher limit reaches
    /// it.
    pub max_stream_window: u64,
    /// Initial receive window of the connection, in bytes. Default: 512 KiB.
    pub connection_window: u64,
    /// Largest receive window of the connection, in bytes. It limits the received data that this
    /// end stores for a peer. The window becomes this large only if the application reads at a high
    /// rate. Default: 64 MiB.
    pub max_connection_window: u64,
    /// Number of bytes of a stream that may wait to be sent or acknowledged. Default: 1 MiB.
    pub send_buffer: u64,
    /// Upper limit for the growth of `send_buffer`, in bytes. A stream cannot send more than its
    /// buffer in a round trip, so the buffer grows if the path holds more bytes in flight. The same
    /// limit applies to acknowledged data that is kept because earlier data is lost. Default: 64
    /// MiB.
    pub max_send_buffer: u64,
    /// Number of bytes of all streams of the connection together that may wait to be sent or
    /// acknowledged. A stream may always hold 16 KiB, even above this limit. So if a peer does not
    /// read some of its streams, the other streams still make progress. The effective limit is at
    /// least `send_buffer`. Default: 64 MiB.
    pub connection_send_buffer: u64,
}

crate::setters! {
    StreamConfig {
        with_max_streams_bidi => max_streams_bidi: u64,
        with_max_streams_uni => max_streams_uni: u64,
        with_stream_window => stream_window: u64,
        with_max_stream_window => max_stream_window: u64,
        with_connection_window => connection_window: u64,
        with_max_connection_window => max_connection_window: u64,
        with_send_buffer => send_buffer: u64,
        with_max_send_buffer => max_send_buffer: u64,
        with_connection_send_buffer => connection_send_buffer: u64,
    }
}

impl Default for StreamConfig {
    fn default() -> StreamConfig {
        StreamConfig {
            max_streams_bidi: 100,
            max_streams_uni: 100,
            stream_window: 256 * 1024,
            max_stream_window: 64 << 20,
            connection_window: 512 * 1024,
            max_connection_window: 64 << 20,
            send_buffer: 1 << 20,
            max_send_buffer: 64 << 20,
            connection_send_buffer: 64 << 20,
        }
    }
}

impl StreamConfig {
    /// Returns the largest number of bytes of a stream that may wait, however many bytes the path
    /// holds in flight.
    fn most_of_a_stream(&self) -> u64 {
        self.max_send_buffer.min(self.connection_send_buffer).max(self.send_buffer)
    }
}

/// The peer's limits for streams, from its transport parameters (RFC 9000 s.18.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PeerLimits {
    /// Limit for the data on the connection, in bytes: `initial_max_data`.
    pub max_data: u64,
    /// Limit for the bidirectional streams that the peer opens:
    /// `initial_max_stream_data_bidi_local`.
    pub max_stream_data_bidi_local: u64,
    /// Limit for the bidirectional streams that this end opens:
    /// `initial_max_stream_data_bidi_remote`.
    pub max_stream_data_bidi_remote: u64,
    /// Limit for each unidirectional stream: `initial_max_stream_data_uni`.
    pub max_stream_data_uni: u64,
    /// Number of bidirectional streams that this end may open: `initial_max_streams_bidi`.
    pub max_streams_bidi: u64,
    /// Number of unidirectional streams that this end may open: `initial_max_streams_uni`.
    pub max_streams_uni: u64,
}

/// A stream event for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The peer has opened a stream of this direction.
    /// [`Connection::accept`](crate::Connection::accept) returns it.
    Opened(Direction),
    /// The stream has data to read, or it has ended.
    Readable(StreamId),
    /// The application can write to the stream again.
    Writable(StreamId),
    /// The peer has acknowledged all data of the stream, and the end of the stream.
    Finished(StreamId),
    /// The peer wants no more data on the stream, with this application error code.
    Stopped(StreamId, u64),
    /// More streams of this direction can be opened, because the peer has raised its limit.
    Available(Direction),
}

/// The reason why an operation on a stream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream has ended or was never opened, or it does not have the part (sending or
    /// receiving) that the operation needs.
    Unknown,
    /// The application cannot write to the stream now.
    Write(WriteError),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Unknown => {
                f.write_str("the stream has ended, was never opened, or has no such direction")
            }
            StreamError::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<WriteError> for StreamError {
    fn from(error: WriteError) -> StreamError {
        StreamError::Write(error)
    }
}

/// The reason why a received frame cannot be accepted. The connection must be closed, or the packet
/// must be treated as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The frame is a connection error: the connection must be closed.
    Close(Violation),
    /// The data would create too many gaps, so the packet must be treated as lost: see
    /// [`ReceiveError::TooFragmented`].
    TooFragmented,
}

impl From<ReceiveError> for FrameError {
    fn from(error: ReceiveError) -> FrameError {
        match error {
            ReceiveError::FlowControl => FrameError::Close(Violation::FlowControl),
            ReceiveError::FinalSize => FrameError::Close(Violation::FinalSize),
            ReceiveError::TooFragmented => FrameError::TooFragmented,
        }
    }
}

/// A frame about streams, other than a STREAM frame, that this end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Control {
    /// RESET_STREAM with the error code and the final size.
    Reset(StreamId, u64, u64),
    /// STOP_SENDING with the error code.
    Stop(StreamId, u64),
    /// MAX_DATA with the limit.
    MaxData(u64),
    /// MAX_STREAM_DATA with the stream and the limit.
    MaxStreamData(StreamId, u64),
    /// MAX_STREAMS with the limit.
    MaxStreams(Direction, u64),
    /// DATA_BLOCKED with the limit.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED with the stream and the limit.
    StreamDataBlocked(StreamId, u64),
    /// STREAMS_BLOCKED with the limit.
    StreamsBlocked(Direction, u64),
}

#[derive(Debug)]
struct Stream {
    send: Option<SendHalf>,
    receive: Option<ReceiveHalf>,
    /// Priority of the stream. Streams with higher priority send first. Streams with the same
    /// priority take turns.
    priority: i32,
    /// True if the stream is in the queue of streams that have something to send.
    queued: bool,
    /// Number of this stream's bytes that the sum [`Streams::unsent`] includes.
    unsent: u64,
    /// True if a write was blocked. The application must then be notified when it can write again.
    wants_room: bool,
}

/// Largest number of streams whose unused memory is released when their connection becomes idle.
const MOST_RESTING: usize = 16;

/// The streams of a connection.
#[derive(Debug)]
pub struct Streams {
    side: Side,
    config: Arc<TransportConfig>,
    /// Memory pages for the data that the streams receive.
    pages: Pages,
    peer: PeerLimits,
    /// Streams are boxed, because a node of the tree has room for eleven entries even if the
    /// connection has only one stream. Boxes are also cheap to move when an earlier entry is
    /// removed.
    streams: BTreeMap<StreamId, Box<Stream>>,
    /// Number of streams that this end has opened, and number of streams that it may open.
    opened: PerDirection<u64>,
    may_open: PerDirection<u64>,
    told_blocked: PerDirection<Option<u64>>,
    /// STREAMS_BLOCKED frames to send: at most one for each limit that the peer has set.
    wanted: Vec<Control>,
    /// Three counts for each direction: streams that the peer has opened, streams that it may open,
    /// and streams that it has opened and that have ended.
    peer_opened: PerDirection<u64>,
    peer_may_open: PerDirection<u64>,
    peer_ended: PerDirection<u64>,
    accepted: PerDirection<u64>,
    receive_window: ReceiveWindow,
    /// Number of bytes that the peer has sent of those that the connection's receive window
    /// permits.
    received: u64,
    /// Prediction of which STREAM frame the next packet carries.
    expected: Expected,
    send_window: SendWindow,
    /// Number of bytes of a stream that may wait to be sent or acknowledged: at least `send_buffer`
    /// of the configuration.
    send_capacity: u64,
    /// Number of bytes of all streams that wait to be sent or acknowledged.
    buffered: u64,
    /// Number of bytes that the application has written since the last call of
    /// [`Streams::take_written`].
    written: u64,
    /// Streams to which the application wants to write more when data can be sent: see
    /// [`Streams::sendable`].
    waiting: BTreeSet<StreamId>,
    /// The streams in `waiting` are notified when at most this number of bytes waits in all
    /// streams.
    waiting_for: u64,
    /// Streams that have something to send, by priority, the highest first. Streams with the same
    /// priority take turns at sending.
    queue: BTreeMap<Reverse<i32>, VecDeque<StreamId>>,
    /// Number of bytes in the queued streams that the application has written and that were never
    /// sent. The sum is stored, because plugins may read it many times for each packet.
    unsent: u64,
    /// The stream that sent last, and the number of bytes that it may still send before the next
    /// stream has its turn.
    turn: Option<(StreamId, u64)>,
    /// Number of bytes that may be in flight on the path, or 0 if it is unknown.
    in_flight_room: u64,
    /// Streams for which a RESET_STREAM frame must be sent. The sets after this one are for other
    /// frames.
    resets: BTreeSet<StreamId>,
    stops: BTreeSet<StreamId>,
    updates: BTreeSet<StreamId>,
    blocked: BTreeSet<StreamId>,
    max_data_due: bool,
    max_streams_due: PerDirection<bool>,
    events: Events,
}

impl Streams {
    /// Sets the page store from which the streams take memory for received data from now on.
    pub(crate) fn set_pages(&mut self, pages: Pages) {
        self.pages = pages;
    }

    /// Takes the page store out of these streams, to pass it on to streams that replace them.
    pub(crate) fn take_pages(&mut self) -> Pages {
        std::mem::take(&mut self.pages)
    }

    /// Creates the state for a connection without streams. The peer's limits are set later, with
    /// its transport parameters.
    pub(crate) fn new(side: Side, transport: Arc<TransportConfig>) -> Streams {
        let config = &transport.streams;
        let window = ReceiveWindow::new(config.connection_window, config.max_connection_window);
        Streams {
            side,
            pages: Pages::default(),
            peer: PeerLimits::default(),
            streams: BTreeMap::new(),
            opened: [0; 2],
            may_open: [0; 2],
            told_blocked: [None; 2],
            wanted: Vec::new(),
            peer_opened: [0; 2],
            peer_may_open: [config.max_streams_bidi, config.max_streams_uni],
            peer_ended: [0; 2],
            accepted: [0; 2],
            receive_window: window,
            received: 0,
            expected: Expected::default(),
            send_window: SendWindow::default(),
            send_capacity: config.send_buffer,
            buffered: 0,
            written: 0,
            waiting: BTreeSet::new(),
            waiting_for: 0,
            queue: BTreeMap::new(),
            unsent: 0,
            turn: None,
            in_flight_room: 0,
            resets: BTreeSet::new(),
            stops: BTreeSet::new(),
            updates: BTreeSet::new(),
            blocked: BTreeSet::new(),
            max_data_due: false,
            max_streams_due: [false; 2],
            events: Events::default(),
            config: transport,
        }
    }

    /// Applies the stream limits in the peer's transport parameters. These are at first the
    /// parameters remembered for 0-RTT, and later the actual ones. The actual limits are never
    /// lower (RFC 9000 s.7.4.1); the caller checks that.
    pub(crate) fn set_peer_limits(&mut self, limits: PeerLimits) {
        self.peer = limits;
        self.send_window.raise(limits.max_data);
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let limit = self.peer_stream_limit(id);
            self.on_max_stream_data_known(id, limit);
        }
        for (direction, limit) in
            DIRECTIONS.into_iter().zip([limits.max_streams_bidi, limits.max_streams_uni])
        {
            self.on_max_streams(direction, limit);
        }
    }

    fn peer_stream_limit(&self, id: StreamId) -> u64 {
        match (id.direction(), id.initiator() == self.side) {
            (Direction::Unidirectional, _) => self.peer.max_stream_data_uni,
            (Direction::Bidirectional, true) => self.peer.max_stream_data_bidi_remote,
            (Direction::Bidirectional, false) => self.peer.max_stream_data_bidi_local,
        }
    }

    fn make(&self, id: StreamId) -> Box<Stream> {
        let ours = id.initiator() == self.side;
        let both = id.direction() == Direction::Bidirectional;
        let send = (ours || both).then(|| {
            SendHalf::new(SendWindow::new(self.peer_stream_limit(id)), self.send_capacity)
        });
        let receive = (!ours || both).then(|| {
            let window = &self.config.streams;
            let window = ReceiveWindow::new(window.stream_window, window.max_stream_window);
            ReceiveHalf::new(window)
        });
        Box::new(Stream { send, receive, priority: 0, queued: false, unsent: 0, wants_room: false })
    }

    /// Sets how many bytes may be in flight on the path. The same number of bytes of a stream may
    /// wait, so that the path limits the stream's rate, not the buffer.
    pub(crate) fn set_in_flight_room(&mut self, bytes: u64) {
        let config = &self.config.streams;
        self.in_flight_room = bytes;
        self.send_capacity = bytes.min(config.most_of_a_stream()).max(config.send_buffer);
    }

    /// Gives back to the connection's receive window `released` bytes that a stream has read or
    /// discarded.
    fn give_back(&mut self, released: u64) {
        self.receive_window.on_read(released);
        self.max_data_due |= self.receive_window.wants_update();
    }

    fn send_half(&mut self, id: StreamId) -> Result<&mut SendHalf, StreamError> {
        self.streams.get_mut(&id).and_then(|s| s.send.as_mut()).ok_or(StreamError::Unknown)
    }

    /// Like [`Streams::send_half`], for operations that change how many bytes of the stream wait.
    fn with_send_half<O>(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut SendHalf) -> O,
    ) -> Result<O, StreamError> {
        let half = self.send_half(id)?;
        let before = half.buffered();
        let outcome = change(half);
        let after = half.buffered();
        self.buffered = (self.buffered + after).saturating_sub(before);
        self.count_unsent(id);
        if after < before {
            self.wake_waiting();
        }
        Ok(outcome)
    }

    /// Notifies all streams in `waiting` that data can be sent.
    fn wake_waiting(&mut self) {
        while let Some(id) = self.waiting.pop_first() {
            self.events.insert(StreamEvent::Writable(id));
        }
    }

    /// Returns how many more bytes a stream may buffer that already holds `waiting` bytes, so that
    /// there is room for other streams.
    fn shared_room(&self, waiting: u64) -> u64 {
        self.common_room().max(own_room(waiting))
    }

    /// Returns how many more bytes any stream may buffer.
    fn common_room(&self) -> u64 {
        let config = &self.config.streams;
        let most = config.connection_send_buffer.max(config.send_buffer);
        most.saturating_sub(self.buffered)
    }

    /// Returns the number of bytes of all streams that wait to be sent or acknowledged.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    fn receive_half(&mut self, id: StreamId) -> Result<&mut ReceiveHalf, StreamError> {
        Ok(self.receive_half_with_pages(id)?.0)
    }

    /// Returns the receiving part of a stream, together with the pages for its data.
    fn receive_half_with_pages(
        &mut self,
        id: StreamId,
    ) -> Result<(&mut ReceiveHalf, &mut Pages), StreamError> {
        let half = self.streams.get_mut(&id).and_then(|stream| stream.receive.as_mut());
        Ok((half.ok_or(StreamError::Unknown)?, &mut self.pages))
    }

    /// Returns the states of both parts of a stream, or `None` if there is no such stream.
    #[cfg(feature = "qlog")]
    pub(crate) fn states(&self, id: StreamId) -> Option<(Option<SendState>, Option<ReceiveState>)> {
        let stream = self.streams.get(&id)?;
        let send = stream.send.as_ref().map(SendHalf::state);
        Some((send, stream.receive.as_ref().map(ReceiveHalf::state)))
    }

    /// Releases unused memory, for example the node that an empty tree keeps. Shrinks only some of
    /// the open streams, to limit the work.
    pub(crate) fn shrink(&mut self) {
        fn empty<K, V>(tree: &mut BTreeMap<K, V>) {
            if tree.is_empty() {
                *tree = BTreeMap::new();
            }
        }
        empty(&mut self.streams);
        empty(&mut self.queue);
        let sets = [&mut self.resets, &mut self.stops, &mut self.updates, &mut self.blocked];
        for set in sets.into_iter().chain([&mut self.waiting]).filter(|set| set.is_empty()) {
            *set = BTreeSet::new();
        }
        self.wanted.shrink_to_fit();
        self.pages.shrink();
        for stream in self.streams.values_mut().take(MOST_RESTING) {
            if let Some(half) = &mut stream.send {
                half.shrink();
            }
            if let Some(half) = &mut stream.receive {
                half.shrink();
            }
        }
    }

    /// Returns the memory, in bytes, that this end holds because of what the peer sends: streams,
    /// data that waits to be read, control frames and events.
    pub(crate) fn memory(&self) -> usize {
        let halves = self.streams.values().filter_map(|stream| stream.receive.as_ref());
        let waiting: usize = halves.map(ReceiveHalf::memory).sum();
        let queued: usize = self.queue.values().map(VecDeque::len).sum();
        let sets = [&self.resets, &self.stops, &self.updates, &self.blocked, &self.waiting];
        let ids = queued + sets.iter().map(|set| set.len()).sum::<usize>();
        waiting
            + self.streams.len() * size_of::<Stream>()
            + ids * size_of::<StreamId>()
            + self.events.len() * size_of::<StreamEvent>()
            + self.wanted.len() * size_of::<Control>()
    }

    /// Returns the largest number of bytes that the peer may send on all streams together.
    #[cfg(test)]
    pub fn data_limit(&self) -> u64 {
        self.receive_window.limit()
    }

    /// Returns the number of streams of a direction that the peer may open, counted from the
    /// beginning of the connection.
    pub fn peer_limit(&self, direction: Direction) -> u64 {
        self.peer_may_open[at(direction)]
    }

    /// Returns the number of streams that either end has opened.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns true if there are no streams.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    // RFC 9000 s.4.6 #6
    fn remove_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let over = stream.send.as_ref().is_none_or(SendHalf::is_done)
            && stream.receive.as_ref().is_none_or(ReceiveHalf::is_done);
        if !over {
            return;
        }
        if let Some(gone) = self.streams.remove(&id) {
            self.unsent -= gone.unsent;
        }
        let waiting = &mut self.waiting;
        for set in
            [&mut self.resets, &mut self.stops, &mut self.updates, &mut self.blocked, waiting]
        {
            set.remove(&id);
        }
        if id.initiator() != self.side {
            let direction = at(id.direction());
            self.peer_ended[direction] += 1;
            self.check_limit(direction);
        }
    }

    /// Checks whether the peer must get a higher limit on the number of streams.
    fn check_limit(&mut self, direction: usize) {
        let allowed = self.peer_ended[direction] + self.concurrency(direction);
        // Send an update only if the limit grows by half of the permitted streams, so that not
        // every stream that ends costs a frame. If the peer cannot open any stream now, growth by
        // one is enough.
        let grown = allowed - self.peer_may_open[direction];
        let out = self.peer_opened[direction] == self.peer_may_open[direction];
        self.max_streams_due[direction] |=
            grown * 2 >= self.concurrency(direction) || out && grown > 0;
    }

    fn concurrency(&self, direction: usize) -> u64 {
        [self.config.streams.max_streams_bidi, self.config.streams.max_streams_uni][direction]
    }
}

/// Number of bytes of a stream that may always wait, however many bytes of other streams wait.
const MIN_SHARE: u64 = 16 * 1024;

/// Returns how many bytes a stream may always buffer in addition to the `waiting` bytes that it
/// holds.
fn own_room(waiting: u64) -> u64 {
    MIN_SHARE.saturating_sub(waiting)
}
