//! The state of a connection, which the socket's task and the application share.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use equic_transport::operation::HookError;
use equic_transport::{Connection, DatagramError, Event, Handle, StreamEvent, Timestamp};
use equic_wire::{Direction, StreamId, VarInt};
use tokio::sync::Notify;

use crate::bottleneck::Membership;
use crate::driver_handle::DriverHandle;
use crate::early::EarlyData;
use crate::error::ConnectionError;
use crate::grouping::Grouping;
use crate::memory::SendMemory;
use crate::notices::{Notices, shown};
use crate::tokens::ServerTokens;
use crate::wakers::{StreamMap, StreamState, Wait, Wakers};

/// Number of the peer's streams that an application accepts in a row before it yields to other
/// tasks, such as the socket's. Answers to the first streams are then sent while the application
/// handles the others.
const ACCEPTED: u8 = 8;

/// A connection, and the tasks that wait for its events.
pub(crate) struct SharedConnection {
    /// The task of the connection's socket.
    pub driver: Arc<DriverHandle<SharedConnection>>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub connection: Connection,
    pub handle: Handle,
    /// True if the connection is scheduled with the task, or is in the task's work list.
    pub queued: bool,
    /// True if the socket's task has removed the connection.
    pub removed: bool,
    /// Time of the connection's entry in the socket's timers, or `None` if it has no timer.
    pub timer: Option<Timestamp>,
    pub closed: Option<ConnectionError>,
    /// True if a task was woken since the last call of [`State::notify_application`] because the
    /// handshake is complete or because there is something to read or accept.
    notified: bool,
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
    pub server_tokens: Option<Box<ServerTokens>>,
    /// Number of this connection's bytes that are counted in [`SendMemory`].
    pub counted: u64,
    /// The connection's membership in the group of connections to the same address.
    pub membership: Membership,
    /// Decides whether messages are sent to the system one by one or in groups.
    pub grouping: Grouping,
    /// True if the server must still send a NEW_TOKEN frame once the handshake is complete.
    pub token_due: bool,
    pub wakers: Wakers,
    /// Notifies tasks that wait for the end of the connection. `None` if no task has waited yet.
    /// `Notify` removes a task that stops waiting, so that the list does not grow.
    close_notify: Option<Arc<Notify>>,
    pub streams: StreamMap,
    /// Number of streams of each direction that were accepted in a row.
    accepted: [u8; 2],
}

fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bidirectional => 0,
        Direction::Unidirectional => 1,
    }
}

impl SharedConnection {
    pub(crate) fn new(
        driver: Arc<DriverHandle<SharedConnection>>,
        connection: Connection,
        handle: Handle,
    ) -> Arc<SharedConnection> {
        let state = State {
            connection,
            handle,
            queued: false,
            removed: false,
            timer: None,
            closed: None,
            notified: false,
            moves: 0,
            path_changes: 0,
            failed_hook: None,
            notices: Notices::default(),
            early: EarlyData::None,
            epoch: 0,
            server_tokens: None,
            counted: 0,
            membership: Membership::default(),
            grouping: Grouping::default(),
            token_due: false,
            wakers: Wakers::default(),
            close_notify: None,
            streams: StreamMap::default(),
            accepted: [0; 2],
        };
        Arc::new(SharedConnection { driver, state: Mutex::new(state) })
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
    pub(crate) fn wake_driver(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.queued, true) {
            self.driver.schedule(Arc::clone(self));
        }
    }

    /// Closes the connection, if it is open.
    pub(crate) fn close(self: &Arc<Self>, code: VarInt, reason: &str) {
        let now = self.driver.now();
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
        self.wake_driver(&mut state);
    }
}

/// Closes the connection when the application has dropped all its handles.
pub(crate) struct Guard(pub(crate) Arc<SharedConnection>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close(VarInt::ZERO, "");
    }
}

impl State {
    /// Updates the number of bytes that wait to be sent.
    pub(crate) fn count_buffered(&mut self, memory: &SendMemory) {
        let waiting = self.connection.streams().buffered();
        memory.update(&mut self.counted, waiting);
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
    pub(crate) fn notify_application(&mut self) -> bool {
        if !self.connection.is_connected() {
            return false;
        }
        self.notified = false;
        self.take_events();
        if self.notified {
            self.grouping.on_application_notified();
        }
        self.notified
    }

    /// Handles the connection's events: updates the state and wakes tasks.
    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Connected => self.notified |= self.wakers.wake(Wait::Connected),
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
                Event::DatagramsReadable => self.notified |= self.wakers.wake(Wait::Datagrams),
                Event::EarlyDataAccepted => self.early = EarlyData::Accepted,
                Event::EarlyDataRejected => self.on_early_data_rejected(),
                Event::NewToken(token) => {
                    if let Some(tokens) = &self.server_tokens {
                        tokens.keep(self.connection.version(), token);
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
                self.notified |= self.wakers.wake(Wait::Accept(direction));
            }
            StreamEvent::Available(direction) => {
                self.wakers.wake(Wait::Open(direction));
            }
            StreamEvent::Readable(id) => {
                if let Some(reader) = self.streams.get_mut(&id).and_then(|s| s.reader.take()) {
                    reader.wake();
                    self.notified = true;
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
        if let Some(close_notify) = &self.close_notify {
            close_notify.notify_waiters();
        }
        self.wakers.wake_all();
        for stream in self.streams.values_mut() {
            stream.reader.take().into_iter().chain(stream.writer.take()).for_each(Waker::wake);
        }
    }

    /// Returns the `Notify` that is notified when the connection is closed.
    pub(crate) fn close_notify(&mut self) -> Arc<Notify> {
        Arc::clone(self.close_notify.get_or_insert_default())
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
