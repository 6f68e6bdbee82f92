//! All streams of a connection: opening, limits, flow control of the connection, and the order of sending (RFC 9000
//! s.2.1, s.4).
//!
//! * `application.rs`: the application's calls;
//! * `events.rs`: events for the application;
//! * `peer.rs`: received frames; `placed.rs`: packets that are decrypted into the stream's buffer;
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

/// A place for each direction.
type PerDirection<T> = [T; 2];

const DIRECTIONS: [Direction; 2] = [Direction::Bidirectional, Direction::Unidirectional];

fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bidirectional => 0,
        Direction::Unidirectional => 1,
    }
}

/// Limits that this endpoint sets for streams; the initial values go into its transport parameters.
#[derive(Debug, Clone)]
pub struct StreamConfig {
    /// Bidirectional streams the peer may have open at a time.
    pub max_streams_bidi: u64,
    /// Unidirectional streams the peer may have open at a time.
    pub max_streams_uni: u64,
    /// The first receive window of a stream, in bytes. Default: 256 KiB.
    pub stream_window: u64,
    /// The largest receive window that a stream's may grow to, in bytes. A window grows with the rate at which the
    /// application reads. Default: 64 MiB, which carries 1 Gb/s over a round trip of 300 ms: while a higher limit is
    /// under way to the sender, it needs three quarters of the window.
    pub max_stream_window: u64,
    /// The first receive window of the connection, in bytes. Default: 512 KiB.
    pub connection_window: u64,
    /// Limit up to which the connection's receive window may grow, in bytes. A peer cannot make this end keep more.
    /// Only a peer whose data is read at a high rate gets this much. Default: 64 MiB.
    pub max_connection_window: u64,
    /// Bytes that may wait in a stream to be sent or acknowledged. Default: 1 MiB.
    pub send_buffer: u64,
    /// The most that `send_buffer` grows to where the path holds more, since a stream can send no more than its
    /// buffer in a round trip. Up to this much is also kept where acknowledged data follows lost data. Default: 64
    /// MiB.
    pub max_send_buffer: u64,
    /// Bytes that may wait so in all streams of the connection together, but that a stream with fewer
    /// than 16 KiB may always have those: a peer that does not read some of its streams holds up the
    /// others no more than that. No less than `send_buffer`.
    pub connection_send_buffer: u64,
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
    /// The most bytes that a stream may keep for the network, whatever the path holds.
    fn most_of_a_stream(&self) -> u64 {
        self.max_send_buffer.min(self.connection_send_buffer).max(self.send_buffer)
    }
}

/// Limits that the peer sets for streams, from its transport parameters (RFC 9000 s.18.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PeerLimits {
    /// `initial_max_data`.
    pub max_data: u64,
    /// `initial_max_stream_data_bidi_local`: on bidirectional streams that the peer opens.
    pub max_stream_data_bidi_local: u64,
    /// `initial_max_stream_data_bidi_remote`: on bidirectional streams that we open.
    pub max_stream_data_bidi_remote: u64,
    /// `initial_max_stream_data_uni`.
    pub max_stream_data_uni: u64,
    /// `initial_max_streams_bidi`.
    pub max_streams_bidi: u64,
    /// `initial_max_streams_uni`.
    pub max_streams_uni: u64,
}

/// Something the application may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamEvent {
    /// The peer opened a stream; [`Connection::accept`](crate::Connection::accept) gives it.
    Opened(Direction),
    /// There is something to read, or its end.
    Readable(StreamId),
    /// There is room to write again.
    Writable(StreamId),
    /// The peer has all that was written, and the end.
    Finished(StreamId),
    /// The peer wants no more, with this application error code.
    Stopped(StreamId, u64),
    /// More streams can be opened.
    Available(Direction),
}

/// Reason for which a stream cannot be used as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// It is over, was never opened, or has no such part.
    Unknown,
    /// See [`WriteError`].
    Write(WriteError),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Unknown => {
                f.write_str("the stream is over, was never opened, or has no such direction")
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

/// Error of the peer in a frame: the error to close with, or a packet to be treated as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// A connection error.
    Close(Violation),
    /// See [`ReceiveError::TooFragmented`].
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

/// A frame of a stream other than STREAM, which waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Control {
    /// RESET_STREAM with code and final size.
    Reset(StreamId, u64, u64),
    /// STOP_SENDING with a code.
    Stop(StreamId, u64),
    /// MAX_DATA.
    MaxData(u64),
    /// MAX_STREAM_DATA.
    MaxStreamData(StreamId, u64),
    /// MAX_STREAMS.
    MaxStreams(Direction, u64),
    /// DATA_BLOCKED.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked(StreamId, u64),
    /// STREAMS_BLOCKED.
    StreamsBlocked(Direction, u64),
}

#[derive(Debug)]
struct Stream {
    send: Option<SendHalf>,
    receive: Option<ReceiveHalf>,
    /// Higher goes first; those of the same priority take turns.
    priority: i32,
    /// In the queue of those that want to send.
    queued: bool,
    /// Bytes of the stream in [`Streams::unsent`].
    unsent: u64,
    /// True if a write was blocked, so that the application must be notified when it can write.
    wants_room: bool,
}

/// Most streams that are looked through when their connection comes to rest.
const MOST_RESTING: usize = 16;

/// The streams of a connection.
#[derive(Debug)]
pub struct Streams {
    side: Side,
    config: Arc<TransportConfig>,
    /// Pages for received data.
    pages: Pages,
    peer: PeerLimits,
    /// Each in a box: a node of the tree has room for eleven, even of a connection with one stream, and moves those
    /// behind one that goes.
    streams: BTreeMap<StreamId, Box<Stream>>,
    /// Streams that we have opened, and that we may open.
    opened: PerDirection<u64>,
    may_open: PerDirection<u64>,
    told_blocked: PerDirection<Option<u64>>,
    /// STREAMS_BLOCKED to send: at most one for each limit that the peer has set.
    wanted: Vec<Control>,
    /// Streams that the peer has opened, that it may open, and of those it opened how many ended.
    peer_opened: PerDirection<u64>,
    peer_may_open: PerDirection<u64>,
    peer_ended: PerDirection<u64>,
    accepted: PerDirection<u64>,
    receive_window: ReceiveWindow,
    /// Number of bytes of the connection's window that the peer has used.
    received: u64,
    /// The expected form of the next packet.
    expected: Expected,
    send_window: SendWindow,
    /// Bytes that may wait in a stream: at least `send_buffer` of the config.
    send_capacity: u64,
    /// Bytes that wait in all streams to be sent or acknowledged.
    buffered: u64,
    /// Bytes that the application has written since [`Streams::take_written`] was called last.
    written: u64,
    /// Streams whose application waits until something can be sent: see [`Streams::sendable`].
    waiting: BTreeSet<StreamId>,
    /// Waiting streams are notified when at most this many bytes wait.
    waiting_for: u64,
    /// Those that want to send, by priority, the highest first, taking turns.
    queue: BTreeMap<Reverse<i32>, VecDeque<StreamId>>,
    /// Bytes of the streams in the queue that were written and never sent. The sum is kept, because
    /// plugins may read it many times for each packet.
    unsent: u64,
    /// The stream that has sent last, and bytes that it may send until it is another's turn.
    turn: Option<(StreamId, u64)>,
    /// Bytes that may be in flight on the path, as far as that is known.
    in_flight_room: u64,
    /// Streams with a control frame to send.
    resets: BTreeSet<StreamId>,
    stops: BTreeSet<StreamId>,
    updates: BTreeSet<StreamId>,
    blocked: BTreeSet<StreamId>,
    max_data_due: bool,
    max_streams_due: PerDirection<bool>,
    events: Events,
}

impl Streams {
    /// Streams have their memory from this pool from now on.
    pub(crate) fn set_pages(&mut self, pages: Pages) {
        self.pages = pages;
    }

    /// Takes out the pages of these streams, for streams that take their place.
    pub(crate) fn take_pages(&mut self) -> Pages {
        std::mem::take(&mut self.pages)
    }

    /// Without any; the peer's limits come with its transport parameters.
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

    /// The peer's transport parameters are known, those remembered for 0-RTT or its real ones, which
    /// are never less (RFC 9000 s.7.4.1; the caller checks).
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

    /// Sets how many bytes may be in flight. As many may wait in a stream, so that the path limits its rate and not the
    /// buffer.
    pub(crate) fn set_in_flight_room(&mut self, bytes: u64) {
        let config = &self.config.streams;
        self.in_flight_room = bytes;
        self.send_capacity = bytes.min(config.most_of_a_stream()).max(config.send_buffer);
    }

    /// Returns bytes that a stream no longer needs to the connection's window.
    fn give_back(&mut self, released: u64) {
        self.receive_window.on_read(released);
        self.max_data_due |= self.receive_window.wants_update();
    }

    fn send_half(&mut self, id: StreamId) -> Result<&mut SendHalf, StreamError> {
        self.streams.get_mut(&id).and_then(|s| s.send.as_mut()).ok_or(StreamError::Unknown)
    }

    /// As [`Streams::send_half`], for what changes how much waits there.
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

    /// Something has changed for those that wait until they can send.
    fn wake_waiting(&mut self) {
        while let Some(id) = self.waiting.pop_first() {
            self.events.insert(StreamEvent::Writable(id));
        }
    }

    /// Returns the bytes that a stream with `waiting` bytes may add, so that others have room.
    fn shared_room(&self, waiting: u64) -> u64 {
        self.common_room().max(own_room(waiting))
    }

    /// Bytes that any stream may add.
    fn common_room(&self) -> u64 {
        let config = &self.config.streams;
        let most = config.connection_send_buffer.max(config.send_buffer);
        most.saturating_sub(self.buffered)
    }

    /// Bytes that wait in all streams to be sent or acknowledged.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    fn receive_half(&mut self, id: StreamId) -> Result<&mut ReceiveHalf, StreamError> {
        Ok(self.receive_half_with_pages(id)?.0)
    }

    /// The receiving part of a stream, and the pages for its data.
    fn receive_half_with_pages(
        &mut self,
        id: StreamId,
    ) -> Result<(&mut ReceiveHalf, &mut Pages), StreamError> {
        let half = self.streams.get_mut(&id).and_then(|stream| stream.receive.as_mut());
        Ok((half.ok_or(StreamError::Unknown)?, &mut self.pages))
    }

    /// Returns the states of both halves of a stream, or `None` if there is no such stream.
    #[cfg(feature = "qlog")]
    pub(crate) fn states(&self, id: StreamId) -> Option<(Option<SendState>, Option<ReceiveState>)> {
        let stream = self.streams.get(&id)?;
        let send = stream.send.as_ref().map(SendHalf::state);
        Some((send, stream.receive.as_ref().map(ReceiveHalf::state)))
    }

    /// Gives back memory that nothing is in: a tree that is empty keeps its first node. Of streams that are open, a
    /// few.
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

    /// Bytes of memory that the peer has us hold: streams, what waits to be read, control frames and
    /// events.
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

    /// Most bytes that the peer may send on all streams together.
    #[cfg(test)]
    pub fn data_limit(&self) -> u64 {
        self.receive_window.limit()
    }

    /// Number of streams of a direction that the peer may open, counted from the beginning of the connection.
    pub fn peer_limit(&self, direction: Direction) -> u64 {
        self.peer_may_open[at(direction)]
    }

    /// Number of streams, opened by either side.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// True if there are no streams.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

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

    /// Checks whether the peer must get a higher stream limit.
    fn check_limit(&mut self, direction: usize) {
        let allowed = self.peer_ended[direction] + self.concurrency(direction);
        // Half of what may be open, lest each stream's end cost a frame; one, if it has no other.
        let grown = allowed - self.peer_may_open[direction];
        let out = self.peer_opened[direction] == self.peer_may_open[direction];
        self.max_streams_due[direction] |=
            grown * 2 >= self.concurrency(direction) || out && grown > 0;
    }

    fn concurrency(&self, direction: usize) -> u64 {
        [self.config.streams.max_streams_bidi, self.config.streams.max_streams_uni][direction]
    }
}

/// Bytes that may always wait in a stream, however many wait in others.
const MIN_SHARE: u64 = 16 * 1024;

/// Returns the bytes that a stream with `waiting` bytes may always add.
fn own_room(waiting: u64) -> u64 {
    MIN_SHARE.saturating_sub(waiting)
}
