//! The task of a socket. The task receives, sends and handles timers of all connections of the
//! socket.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use equic_transport::Timestamp;
use nix::errno::Errno;
use tokio::time::Sleep;

use crate::attempts::AttemptQueue;
use crate::batch::{Batch, SendLimits, Sent};
use crate::bottleneck::Turn;
use crate::contain::contain;
use crate::driver_handle::ForwardedDatagram;
use crate::icmp::{IcmpWatch, end_unsendable};
use crate::incoming::Incoming;
use crate::renew::Renewal;
use crate::route::Route;
use crate::send_sockets::{LocalSocket, SendSockets};
use crate::shared::{SharedConnection, State};
use crate::socket::{Inner, Socket};
use crate::udp::{Buffers, Message, Udp};

/// Number of rounds (receive, timers, send) before the task yields to other tasks.
const MAX_ROUNDS: usize = 16;

/// Number of bytes to receive before the task yields to other tasks, such as those that read the
/// data. The unread data then stays in the CPU's cache, and its memory is reused soon.
const RECEIVE_QUANTUM: usize = 256 << 10;

/// Maximum number of times that the buffers are filled with small messages before anything is sent.
const MAX_SMALL_BATCHES: usize = 8;

/// Maximum size in bytes of a small message. An acknowledgement has about 40 bytes.
const SMALL_MESSAGE: usize = 200;

/// Maximum number of messages to send for one connection before the next connection gets its turn.
const MAX_MESSAGES: usize = 32;

/// Number of bytes to send for one connection before the next connection gets its turn, and before
/// the task receives again. A request that arrives during a bulk download waits while these bytes
/// are made: about 0.1 ms.
const SEND_QUANTUM: usize = 256 << 10;

/// Replaces [`SEND_QUANTUM`] for a connection whose application was recently notified of data,
/// because more data may arrive soon. A lower value would reduce the latency of that data. But it
/// would slow the download, because each check for datagrams is a system call.
const SHORT_SEND_QUANTUM: usize = 128 << 10;

/// Maximum number of connections to send for in one round.
const MAX_CONNECTIONS: usize = 256;

/// Number of turns that other tasks get between the notification of applications and sending. Their
/// answers then go into the same packets as the acknowledgements. The first turn is for the task
/// that reads a stream. The second is for the task that it notifies in turn, as with HTTP/3
/// requests.
const TURNS_TO_ANSWER: u8 = 2;

pub(crate) struct Driver {
    socket: Arc<Socket>,
    /// All sockets of the endpoint, including this one, or empty if there is only one. One byte of
    /// a connection ID is the index of its socket (`EndpointShared::ids`).
    siblings: Vec<Arc<Socket>>,
    index: usize,
    attempts: Arc<AttemptQueue<Incoming>>,
    buffers: Buffers,
    batch: Batch,
    /// Connections to handle.
    work: VecDeque<Arc<SharedConnection>>,
    response: Vec<u8>,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Timestamp>,
    /// Number of turns that other tasks still get before this task sends.
    turns: u8,
    /// Number of bytes after which the task checks for datagrams: [`SEND_QUANTUM`] or
    /// [`SHORT_SEND_QUANTUM`], depending on the connection that sent last.
    receive_after: usize,
    /// True if this round calls the system to receive even if the runtime reports no datagrams.
    /// This is set after much was sent.
    asks_system: bool,
    /// True if an application was notified of data that arrived in this round.
    notified: bool,
    /// Replaces outdated connection IDs. `None` if connection IDs never become outdated.
    renewal: Option<Renewal>,
    icmp: IcmpWatch,
}

impl Driver {
    /// Creates the task. Must be called inside a tokio runtime.
    pub(crate) fn new(
        socket: Arc<Socket>,
        siblings: Vec<Arc<Socket>>,
        index: usize,
        attempts: Arc<AttemptQueue<Incoming>>,
    ) -> Driver {
        let (buffers, renewal) = {
            let inner = socket.lock();
            (inner.udp.buffers(), Renewal::of(&inner))
        };
        Driver {
            socket,
            siblings,
            index,
            attempts,
            buffers,
            batch: Batch::new(),
            work: VecDeque::new(),
            response: Vec::new(),
            sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
            armed: None,
            turns: 0,
            receive_after: SEND_QUANTUM,
            asks_system: false,
            notified: false,
            renewal,
            icmp: IcmpWatch::default(),
        }
    }

    /// Receives datagrams, up to a limit. Returns the number of bytes, or `None` if nothing was
    /// waiting.
    ///
    /// If small messages fill all buffers, more are probably waiting, and they are received at
    /// once. Otherwise acknowledgements of many connections could fill the socket's receive buffer:
    /// the task would receive fewer of them than the sent data causes.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        udp: &Udp,
        inner: &mut Inner,
    ) -> io::Result<Option<usize>> {
        let mut all = None;
        for _ in 0..MAX_SMALL_BATCHES {
            let Some((count, bytes)) = self.receive_batch(cx, udp, inner)? else { break };
            all = Some(all.unwrap_or(0) + bytes);
            if count < self.buffers.count() || bytes > SMALL_MESSAGE * count || self.notified {
                break;
            }
        }
        Ok(all)
    }

    /// Receives once into the buffers. Returns the number of messages and of bytes, or `None` if
    /// nothing was waiting.
    fn receive_batch(
        &mut self,
        cx: &mut Context<'_>,
        udp: &Udp,
        inner: &mut Inner,
    ) -> io::Result<Option<(usize, usize)>> {
        let count = match udp.poll_receive(cx, &mut self.buffers, self.asks_system) {
            Poll::Ready(Ok(count)) => count,
            Poll::Pending => return Ok(None),
            Poll::Ready(Err(error)) if is_fatal(&error) => return Err(error),
            // The error is about an earlier datagram. QUIC's timers handle ICMP errors.
            Poll::Ready(Err(_)) => return Ok(Some((0, 0))),
        };
        let mut bytes = 0;
        let now = self.socket.now();
        let route = Route {
            socket: &self.socket,
            siblings: &self.siblings,
            index: self.index,
            attempts: &self.attempts,
            udp,
            now,
        };
        for message in self.buffers.messages(count) {
            bytes += message.bytes.len();
            self.notified |= route.take(inner, message, &mut self.response, &mut self.work);
        }
        Ok(Some((count, bytes)))
    }

    /// Receives from the socket that was replaced: see [`Driver::receive`].
    fn receive_late(&mut self, cx: &mut Context<'_>, inner: &mut Inner) -> Option<usize> {
        inner.before.take_if(|(_, until)| *until <= self.socket.now());
        let (udp, _) = inner.before.clone()?;
        // Errors of the replaced socket are ignored, and the socket is closed.
        self.receive(cx, &udp, inner).unwrap_or_else(|_| {
            inner.before = None;
            None
        })
    }

    /// Receives from the sockets of further addresses: see [`Driver::receive`]. A socket that fails
    /// is closed. Paths that use it end when QUIC's timers expire.
    fn receive_others(
        &mut self,
        cx: &mut Context<'_>,
        others: &[Arc<LocalSocket>],
        inner: &mut Inner,
    ) -> Option<usize> {
        let mut bytes = None;
        for local in others {
            match self.receive(cx, &local.udp, inner) {
                Ok(Some(received)) => bytes = Some(bytes.unwrap_or(0) + received),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, address = %local.address, "the socket of a path failed");
                    inner.remove_local(local.address);
                }
            }
        }
        bytes
    }

    /// Handles datagrams that other sockets of the endpoint have received.
    fn take_forwarded(
        &mut self,
        forwarded: VecDeque<ForwardedDatagram>,
        udp: &Udp,
        inner: &mut Inner,
    ) {
        let now = self.socket.now();
        let route = Route {
            socket: &self.socket,
            siblings: &[],
            index: self.index,
            attempts: &self.attempts,
            udp,
            now,
        };
        for ForwardedDatagram { arrival, mut bytes } in forwarded {
            let message = Message { arrival, bytes: &mut bytes, segment: usize::MAX };
            // The result is ignored, because few datagrams are forwarded: the task does not wait
            // for the application's answer.
            route.take(inner, message, &mut self.response, &mut self.work);
        }
    }

    /// Handles the timers that have expired.
    fn time(&mut self, inner: &mut Inner) {
        let now = self.socket.now();
        while let Some((at, handle)) = inner.timers.first().copied()
            && at <= now
        {
            inner.timers.pop_first();
            if let Some(Some(conn)) = inner.connections.get(handle.0) {
                let was_queued = contain(|| {
                    let mut state = conn.lock();
                    state.timer = None;
                    state.connection.handle_timeout(now);
                    std::mem::replace(&mut state.queued, true)
                });
                // If this panicked, `drive` ends the connection.
                if was_queued != Some(true) {
                    self.work.push_back(Arc::clone(conn));
                }
            }
        }
    }

    /// Sends for the connections in the work list, and then for connections that wait for their
    /// turn. Returns `false` if the socket is blocked. Each of the two phases ends when
    /// [`SEND_QUANTUM`] bytes were sent. The task then receives the acknowledgements that have
    /// arrived, of which ten thousand fill a socket's receive buffer.
    fn work(&mut self, sockets: SendSockets<'_>, inner: &mut Inner) -> bool {
        if self.batch.flush(sockets).is_err() {
            return false;
        }
        let before = self.batch.sent();
        for _ in 0..MAX_CONNECTIONS.min(self.work.len()) {
            if self.batch.sent() >= before + SEND_QUANTUM {
                break;
            }
            let Some(conn) = self.work.pop_front() else { break };
            if !self.drive(conn, false, sockets, inner) {
                return false;
            }
        }
        let before = self.batch.sent();
        for _ in 0..MAX_CONNECTIONS {
            if self.batch.sent() >= before + SEND_QUANTUM {
                break;
            }
            let Some(conn) = inner.bottlenecks.next(self.socket.now()) else { break };
            conn.lock().membership.waits = false;
            if !self.drive(conn, true, sockets, inner) {
                return false;
            }
        }
        true
    }

    /// Handles one connection, and sends its data. `first` is true if the connection comes from the
    /// front of its group's waiting list. Returns `false` if the socket is blocked.
    fn drive(
        &mut self,
        conn: Arc<SharedConnection>,
        first: bool,
        sockets: SendSockets<'_>,
        inner: &mut Inner,
    ) -> bool {
        // A panic may have happened earlier, for example in an application's task.
        let sound = !conn.is_broken();
        let worked = sound.then(|| contain(|| self.send_for(&conn, first, sockets, inner)));
        let Some(sent) = worked.flatten() else {
            inner.break_off(&self.socket, &conn);
            // The batch holds only whole datagrams. They are sent before those of the next
            // connection.
            return self.batch.flush(sockets).is_ok();
        };
        if sent != Sent::All {
            let queued = std::mem::replace(&mut conn.lock().queued, true);
            if sent == Sent::Blocked {
                self.work.push_front(conn);
                return false;
            }
            if !queued {
                self.work.push_back(conn);
            }
        }
        true
    }

    fn send_for(
        &mut self,
        conn: &Arc<SharedConnection>,
        first: bool,
        sockets: SendSockets<'_>,
        inner: &mut Inner,
    ) -> Sent {
        let now = self.socket.now();
        let mut state = conn.lock();
        // A connection from the waiting list may still be in the work list, where it stays.
        state.queued &= first;
        let handle = state.handle;
        if state.removed {
            return Sent::All;
        }
        // The token is for the validated address. The current remote address may be forged.
        if state.token_due
            && state.connection.is_connected()
            && let Some(address) = state.connection.validated_address()
        {
            state.token_due = false;
            let (client, version) = (address.ip(), state.connection.version());
            if let Some(token) = inner.endpoint.new_token(now, client, version) {
                // This is the connection's only token. If it is too long, it is not sent.
                state.connection.send_token(token);
            }
        }
        let State { connection, membership, grouping, .. } = &mut *state;
        let turn = inner.bottlenecks.begin(connection, membership, now, first);
        self.receive_after =
            if grouping.was_recently_notified() { SHORT_SEND_QUANTUM } else { SEND_QUANTUM };
        let limits = match turn {
            Turn::Alone => SendLimits { messages: MAX_MESSAGES, bytes: self.receive_after },
            Turn::Now(bytes) => {
                SendLimits { messages: MAX_MESSAGES, bytes: bytes.min(SEND_QUANTUM) }
            }
            Turn::Later => SendLimits { messages: 1, bytes: SEND_QUANTUM },
        };
        let mut sent = self.batch.send(connection, grouping, now, sockets, limits);
        if turn != Turn::Alone {
            let more = turn != Turn::Later && sent == Sent::Some;
            inner.bottlenecks.end(conn, connection, membership, now, turn, more);
            if more {
                sent = Sent::All;
            }
        }
        while let Some(change) = state.connection.poll_endpoint_event() {
            inner.endpoint.handle_endpoint_event(handle, change);
        }
        state.take_events();
        let timer = state.connection.poll_timeout();
        if timer != state.timer {
            if let Some(old) = state.timer {
                inner.timers.remove(&(old, handle));
            }
            inner.timers.extend(timer.map(|at| (at, handle)));
            state.timer = timer;
        }
        if !state.connection.is_drained() {
            state.count_buffered(&self.socket.shared.send_memory);
            return sent;
        }
        inner.retire(&mut state, &self.socket.shared.send_memory);
        drop(state);
        inner.remove(handle);
        self.socket.shared.gone.notify_waiters();
        Sent::All
    }

    /// Arms the sleep for the next timer. Returns `true` if that timer has already expired.
    fn arm(&mut self, cx: &mut Context<'_>, inner: &Inner) -> bool {
        let Some((next, _)) = inner.timers.first().copied() else {
            self.armed = None;
            return false;
        };
        if self.armed != Some(next) {
            let Some(instant) = self.socket.driver.instant(next) else { return false };
            self.sleep.as_mut().reset(instant.into());
            self.armed = Some(next);
        }
        let due = self.sleep.as_mut().poll(cx).is_ready();
        if due {
            self.armed = None;
        }
        due
    }
}

/// Returns `true` if the socket itself is unusable. All other errors are temporary: an ICMP message
/// can cause many of them (Linux, `icmp_err_convert` and `icmpv6_err_convert`), and anyone can send
/// ICMP messages.
fn is_fatal(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, None | Some(Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT | Errno::EINVAL))
}

impl Future for Driver {
    /// The error that made the socket fail, or `None` if the application has dropped the endpoint.
    type Output = Option<io::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Error>> {
        let this = self.get_mut();
        if this.turns > 1 {
            this.turns -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let socket = Arc::clone(&this.socket);
        let mut inner = socket.lock();
        let mut bytes = 0;
        for _ in 0..MAX_ROUNDS {
            if bytes >= RECEIVE_QUANTUM {
                break;
            }
            let (udp, others) = (Arc::clone(&inner.udp), Arc::clone(&inner.others));
            let sockets = SendSockets { first: &udp, others: &others };
            // After other tasks had their turns, the connections are handled before more is
            // received.
            let has_waited = std::mem::take(&mut this.turns) > 0;
            let received = if has_waited {
                true
            } else {
                this.asks_system = this.batch.has_sent(this.receive_after);
                let received = match this.receive(cx, &udp, &mut inner) {
                    Ok(received) => [
                        received,
                        this.receive_late(cx, &mut inner),
                        this.receive_others(cx, &others, &mut inner),
                    ],
                    Err(error) => return Poll::Ready(Some(error)),
                };
                bytes += received.iter().flatten().sum::<usize>();
                if std::mem::take(&mut this.notified) {
                    this.turns = TURNS_TO_ANSWER;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                received.iter().any(Option::is_some)
            };
            let any_icmp =
                !inner.unanswered.is_empty() && this.icmp.poll(cx, &socket, &udp, &mut inner);
            let forwarded = socket.driver.take_work(&mut this.work, cx.waker());
            let any_forwarded = !forwarded.is_empty();
            this.take_forwarded(forwarded, &udp, &mut inner);
            this.time(&mut inner);
            if let Some(renewal) = &mut this.renewal {
                renewal.poll(cx, &inner, &mut this.work);
            }
            let blocked = !this.work(sockets, &mut inner);
            end_unsendable(this.batch.failed(), &socket, &mut inner);
            if inner.released && inner.open == 0 {
                return Poll::Ready(None);
            }
            if blocked {
                match this.batch.next_socket(sockets).poll_send_ready(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
                    // The task continues to receive, so that the receive buffer does not fill up.
                    Poll::Pending if received => continue,
                    Poll::Pending => {}
                }
            } else if received
                || any_icmp
                || any_forwarded
                || !this.work.is_empty()
                || inner.bottlenecks.may_go()
            {
                continue;
            }
            if this.arm(cx, &inner) {
                continue;
            }
            return Poll::Pending;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;

impl Drop for Driver {
    fn drop(&mut self) {
        self.work.clear();
        self.socket.die();
        // A socket without a task receives no more attempts.
        self.attempts.close(Incoming::refuse);
    }
}
