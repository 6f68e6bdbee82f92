//! The state of a connection, which the socket's task and the application share.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use equic_transport::operation::HookError;
use equic_transport::{Connection, DatagramError, Event, Handle, StreamEvent, Timestamp};
use equic_wire::{Direction, StreamId, VarInt};
use tokio::sync::Notify;

use crate::crowd::Member;
use crate::early::EarlyData;
use crate::error::ConnectionError;
use crate::grouping::Grouping;
use crate::memory::SendMemory;
use crate::notices::{Notices, shown};
use crate::socket::Socket;
use crate::tokens::Home;

/// Number of the peer's streams that an application accepts in a row before it yields to other
/// tasks, such as the socket's. Answers to the first streams are then sent while the application
/// handles the others.
const ACCEPTED: u8 = 8;

/// A connection, and the tasks that wait for its events.
pub(crate) struct Cell {
    pub socket: Arc<Socket>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub connection: Connection,
    pub handle: Handle,
    /// True if the connection is in the wake list or in the task's work list.
    pub queued: bool,
    /// True if the socket's task has removed the connection.
    pub removed: bool,
    /// Time of the connection's entry in the socket's timers, or `None` if it has no timer.
    pub timer: Option<Timestamp>,
    pub closed: Option<ConnectionError>,
    /// True if a task was woken since the last call of [`State::tell`] because the handshake is
    /// complete or because there is something to read or accept.
    told: bool,
    /// Number of times that the active path has changed.
    pub moves: u64,
    /// Number of paths that were opened plus number of paths that were closed, so far.
    pub path_changes: u64,
    /// Error of the first hook that failed and was detached.
    pub failed_hook: Option<Box<HookError>>,
    /// Limit on log lines that the connection's hooks cause.
    notices: Notices,
    /// Outcome of the early data.
    pub early: EarlyData,
    /// Incremented when early data is rejected. Earlier streams then no longer exist, and new
    /// streams reuse their IDs.
    pub epoch: u8,
    /// Stores the tokens that the server sends. `None` on servers.
    pub home: Option<Box<Home>>,
    /// Number of this connection's bytes that are counted in [`SendMemory`].
    pub counted: u64,
    /// The connection's membership among the connections to the same address.
    pub member: Member,
    /// Decides whether messages are sent to the system one by one or in groups.
    pub grouping: Grouping,
    /// True if the server must still send a NEW_TOKEN frame once the handshake is complete.
    pub token_due: bool,
    pub wakers: Wakers,
    /// Notifies tasks that wait for the end of the connection. `None` if no task has waited yet.
    /// `Notify` removes a task that stops waiting, so that the list does not grow.
    over: Option<Arc<Notify>>,
    pub streams: StreamMap,
    /// Number of streams of each direction that were accepted in a row.
    accepted: [u8; 2],
}

/// State of the streams for which the application has a handle.
pub(crate) type StreamMap = HashMap<StreamId, StreamState, BuildHasherDefault<StreamHasher>>;

/// Hashes stream IDs with one multiplication. The peer cannot cause collisions: streams have
/// consecutive numbers (RFC 9000 s.2.1), and our limit on streams bounds how many are open at a
/// time.
#[derive(Default)]
pub(crate) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        // The map selects buckets by the lowest bits, but the highest bits of the product are the
        // best.
        self.0.swap_bytes()
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // This is 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The state of a stream for which the application has a handle.
#[derive(Default)]
pub(crate) struct StreamState {
    /// Number of the stream's halves for which the application has a handle: 0 to 2.
    pub halves: u8,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// True if the peer has acknowledged all data of the stream.
    pub finished: bool,
    /// The error code of the peer's STOP_SENDING frame, or `None` if the peer sent none.
    pub stopped: Option<u64>,
}

/// Events of a connection that an application's task can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Connected,
    /// The peer has opened a stream of this direction.
    Accept(Direction),
    /// The peer permits one more stream of this direction.
    Open(Direction),
    Datagrams,
    /// The queue has room for a datagram to send.
    Room,
    /// A path was opened or closed, or a datagram was received. The state of a path may have
    /// changed.
    Paths,
    /// The peer's last validated address may have changed.
    Address,
}

/// Tasks that wait for events of the connection. Usually there is at most one, so that a single
/// list takes less memory than one field for each event.
#[derive(Default)]
pub(crate) struct Wakers(Vec<(Wait, Waker)>);

impl Wakers {
    pub(crate) fn register(&mut self, wait: Wait, cx: &Context<'_>) {
        let is_it = |(own, waker): &(Wait, Waker)| *own == wait && waker.will_wake(cx.waker());
        if !self.0.iter().any(is_it) {
            // By default, a `Vec` would reserve room for four entries.
            self.0.reserve_exact(1);
            self.0.push((wait, cx.waker().clone()));
        }
    }

    /// Wakes the tasks that wait for an event. Returns `true` if there was one.
    pub(crate) fn wake(&mut self, wait: Wait) -> bool {
        if !self.0.iter().any(|(own, _)| *own == wait) {
            return false;
        }
        // The memory of the list is freed, because most connections never wait again.
        for (own, waker) in std::mem::take(&mut self.0) {
            if own == wait {
                waker.wake();
            } else {
                self.0.push((own, waker));
            }
        }
        true
    }

    /// Wakes all tasks, because the connection is closed and no event follows.
    fn wake_all(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(|(_, waker)| waker.wake());
    }
}

pub(crate) fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bidirectional => 0,
        Direction::Unidirectional => 1,
    }
}

impl Cell {
    pub(crate) fn new(socket: Arc<Socket>, connection: Connection, handle: Handle) -> Arc<Cell> {
        let state = State {
            connection,
            handle,
            queued: false,
            removed: false,
            timer: None,
            closed: None,
            told: false,
            moves: 0,
            path_changes: 0,
            failed_hook: None,
            notices: Notices::default(),
            early: EarlyData::None,
            epoch: 0,
            home: None,
            counted: 0,
            member: Member::default(),
            grouping: Grouping::default(),
            token_due: false,
            wakers: Wakers::default(),
            over: None,
            streams: StreamMap::default(),
            accepted: [0; 2],
        };
        Arc::new(Cell { socket, state: Mutex::new(state) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a task panicked while it had the connection locked. The connection's state
    /// may then be inconsistent.
    pub(crate) fn is_broken(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Schedules the connection with the socket's task, because it may have something to send.
    pub(crate) fn touch(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.queued, true) {
            self.socket.touch(Arc::clone(self));
        }
    }

    /// Closes the connection, if it is open.
    pub(crate) fn close(self: &Arc<Self>, code: VarInt, reason: &str) {
        let now = self.socket.now();
        let mut state = self.lock();
        if state.removed {
            return;
        }
        // The endpoint removes a broken connection without using its inconsistent state.
        if !self.is_broken() {
            state.connection.close(now, code, reason);
            // Tasks that wait are notified now. The peer is notified when the task handles the
            // connection.
            state.take_events();
        }
        self.touch(&mut state);
    }
}

impl State {
    /// Updates the number of bytes that wait to be sent.
    pub(crate) fn settle(&mut self, memory: &SendMemory) {
        let waiting = self.connection.streams().buffered();
        memory.settle(&mut self.counted, waiting);
    }

    /// Returns the connection's error if it is closed, and `rejected` if a stream of this epoch no
    /// longer exists.
    pub(crate) fn check<E: From<ConnectionError>>(&self, epoch: u8, rejected: E) -> Result<(), E> {
        match &self.closed {
            Some(error) => Err(error.clone().into()),
            None if epoch != self.epoch => Err(rejected),
            None => Ok(()),
        }
    }

    /// True if streams of this epoch still exist: the connection is open and no early data was
    /// rejected since.
    pub(crate) fn is_open(&self, epoch: u8) -> bool {
        self.closed.is_none() && epoch == self.epoch
    }

    /// RFC 9001 s.4.6.2: the application must send rejected early data again.
    fn on_early_data_rejected(&mut self) {
        self.early = EarlyData::Rejected;
        self.epoch = self.epoch.wrapping_add(1);
        for stream in std::mem::take(&mut self.streams).into_values() {
            stream.reader.into_iter().chain(stream.writer).for_each(Waker::wake);
        }
        self.wakers.wake(Wait::Open(Direction::Bidirectional));
        self.wakers.wake(Wait::Open(Direction::Unidirectional));
    }

    /// Wakes tasks that wait for data or for the end of the handshake. This is called before
    /// anything is sent. The tasks' answers can then go into the same packets as the
    /// acknowledgements or the last flight of the handshake. Returns `true` if a task was woken,
    /// for whose answer the caller should wait.
    pub(crate) fn tell(&mut self) -> bool {
        if !self.connection.is_connected() {
            return false;
        }
        self.told = false;
        self.take_events();
        if self.told {
            self.grouping.heard();
        }
        self.told
    }

    /// Handles the connection's events: updates the state and wakes tasks.
    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Connected => self.told |= self.wakers.wake(Wait::Connected),
                Event::Stream(event) => self.on_stream_event(event),
                Event::Closed(reason) => self.on_closed(reason.into()),
                Event::HookFailed(hook, error) => {
                    if tracing::enabled!(tracing::Level::WARN) && self.notices.admit() {
                        tracing::warn!(
                            ?hook,
                            ?error,
                            "a hook of a connection failed and was detached"
                        );
                    }
                    self.failed_hook.get_or_insert(Box::new(error));
                }
                Event::ChoiceOverruled(operation, why)
                    if tracing::enabled!(tracing::Level::WARN) && self.notices.admit() =>
                {
                    tracing::warn!(%operation, %why, "the path that a hook chose was not used");
                }
                Event::HookMessage(hook, message)
                    if tracing::enabled!(tracing::Level::INFO) && self.notices.admit() =>
                {
                    tracing::info!(?hook, message = %shown(&message), "message from a hook of a connection");
                }
                Event::Moved(_) => {
                    self.moves += 1;
                    self.wakers.wake(Wait::Address);
                }
                Event::PathValidated(_) => {
                    self.wakers.wake(Wait::Address);
                }
                Event::DatagramsReadable => self.told |= self.wakers.wake(Wait::Datagrams),
                Event::EarlyDataAccepted => self.early = EarlyData::Accepted,
                Event::EarlyDataRejected => self.on_early_data_rejected(),
                Event::NewToken(token) => {
                    if let Some(home) = &self.home {
                        home.keep(self.connection.version(), token);
                    }
                }
                Event::DatagramsWritable => {
                    self.wakers.wake(Wait::Room);
                }
                Event::PathOpened(_) | Event::PathClosed(..) => {
                    self.path_changes += 1;
                    self.wakers.wake(Wait::Paths);
                    self.wakers.wake(Wait::Address);
                }
                // `Event::Confirmed` needs no action, nor does an event that was added later.
                _ => {}
            }
        }
    }

    fn on_stream_event(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Opened(direction) => {
                self.told |= self.wakers.wake(Wait::Accept(direction));
            }
            StreamEvent::Available(direction) => {
                self.wakers.wake(Wait::Open(direction));
            }
            StreamEvent::Readable(id) => {
                if let Some(reader) = self.streams.get_mut(&id).and_then(|s| s.reader.take()) {
                    reader.wake();
                    self.told = true;
                }
            }
            StreamEvent::Writable(id) => self.wake_writer(id, |_| {}),
            StreamEvent::Finished(id) => self.wake_writer(id, |stream| stream.finished = true),
            StreamEvent::Stopped(id, code) => {
                self.wake_writer(id, |stream| stream.stopped = Some(code))
            }
            // No task waits for an event that was added later.
            _ => {}
        }
    }

    fn wake_writer(&mut self, id: StreamId, note: impl FnOnce(&mut StreamState)) {
        if let Some(stream) = self.streams.get_mut(&id) {
            note(stream);
            if let Some(writer) = stream.writer.take() {
                writer.wake();
            }
        }
    }

    /// Marks the connection as closed, and wakes all tasks that wait.
    pub(crate) fn on_closed(&mut self, error: ConnectionError) {
        self.closed.get_or_insert(error);
        self.notices.finish();
        if let Some(over) = &self.over {
            over.notify_waiters();
        }
        self.wakers.wake_all();
        for stream in self.streams.values_mut() {
            stream.reader.take().into_iter().chain(stream.writer.take()).for_each(Waker::wake);
        }
    }

    /// Returns the `Notify` that is notified when the connection is closed.
    pub(crate) fn over(&mut self) -> Arc<Notify> {
        Arc::clone(self.over.get_or_insert_default())
    }

    pub(crate) fn poll_connected(&mut self, cx: &Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if let Some(error) = &self.closed {
            return Poll::Ready(Err(error.clone()));
        }
        if self.connection.is_connected() {
            return Poll::Ready(Ok(()));
        }
        self.wakers.register(Wait::Connected, cx);
        Poll::Pending
    }

    /// Waits until the peer's last validated address is not `seen`, and returns the address.
    pub(crate) fn poll_validated(
        &mut self,
        seen: Option<SocketAddr>,
        cx: &Context<'_>,
    ) -> Poll<Result<SocketAddr, ConnectionError>> {
        if let Some(error) = &self.closed {
            return Poll::Ready(Err(error.clone()));
        }
        match self.connection.validated_address() {
            Some(address) if Some(address) != seen => Poll::Ready(Ok(address)),
            _ => {
                self.wakers.register(Wait::Address, cx);
                Poll::Pending
            }
        }
    }

    /// Waits for the next stream of the peer.
    pub(crate) fn poll_accept(
        &mut self,
        direction: Direction,
        cx: &Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        if let Some(error) = &self.closed {
            return Poll::Ready(Err(error.clone()));
        }
        let accepted = &mut self.accepted[at(direction)];
        if *accepted == ACCEPTED {
            *accepted = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(id) = self.connection.accept(direction) {
            *accepted += 1;
            return Poll::Ready(Ok(id));
        }
        *accepted = 0;
        self.wakers.register(Wait::Accept(direction), cx);
        Poll::Pending
    }

    pub(crate) fn poll_open(
        &mut self,
        direction: Direction,
        cx: &Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        if let Some(error) = &self.closed {
            return Poll::Ready(Err(error.clone()));
        }
        if let Some(id) = self.connection.open(direction) {
            return Poll::Ready(Ok(id));
        }
        self.wakers.register(Wait::Open(direction), cx);
        Poll::Pending
    }

    /// Waits for the next datagram of the peer. Datagrams that arrived before the connection was
    /// closed can still be read afterwards.
    pub(crate) fn poll_datagram(
        &mut self,
        cx: &Context<'_>,
    ) -> Poll<Result<Bytes, ConnectionError>> {
        if let Some(data) = self.connection.read_datagram() {
            return Poll::Ready(Ok(data));
        }
        if let Some(error) = &self.closed {
            return Poll::Ready(Err(error.clone()));
        }
        self.wakers.register(Wait::Datagrams, cx);
        Poll::Pending
    }

    /// Waits until there is room for a datagram, and queues it.
    pub(crate) fn poll_send_datagram(
        &mut self,
        cx: &Context<'_>,
        data: &Bytes,
    ) -> Poll<Result<(), DatagramError>> {
        match self.connection.send_datagram(data.clone()) {
            Err(DatagramError::Full) => {
                self.wakers.register(Wait::Room, cx);
                Poll::Pending
            }
            outcome => Poll::Ready(outcome),
        }
    }

    /// Records that the application has dropped one half of a stream.
    pub(crate) fn drop_half(&mut self, id: StreamId, epoch: u8) {
        if epoch != self.epoch {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.halves -= 1;
            if stream.halves == 0 {
                self.streams.remove(&id);
            }
        }
    }
}
