//! The task of a socket: receives, times and sends for all its connections.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use equic_transport::Timestamp;
use nix::errno::Errno;
use tokio::time::Sleep;

use crate::batch::{Batch, Sent};
use crate::cell::{Cell, State};
use crate::contain::contain;
use crate::crowd::Turn;
use crate::outlets::{Local, Outlets};
use crate::renew::Renewal;
use crate::route::Route;
use crate::socket::{Inner, Passed, Socket};
use crate::udp::{Buffers, Message, Udp};
use crate::unreachable::IcmpErrors;

/// Rounds of receiving, timing and sending before other tasks have their turn.
const ROUNDS: usize = 16;

/// Bytes that are received before other tasks have their turn, among them whoever reads them: what waits
/// for them stays in the CPU's cache, and the memory it is in goes round.
const RECEIVED: usize = 256 << 10;

/// Times that the buffers are filled with small messages before anything is sent.
const SMALL_BATCHES: usize = 8;

/// Bytes of a small message: an acknowledgement has some forty.
const SMALL: usize = 200;

/// Messages of one connection before others of the socket have their turn.
const TURNS: usize = 32;

/// Bytes of one connection before others have theirs, and before what has come is received: a request that comes beside
/// a bulk download waits as long as these take to make, a tenth of a millisecond.
const SENT: usize = 256 << 10;

/// As [`SENT`], of a connection whose application was told of something a short while ago: more may come. Fewer would be
/// better for what comes, and is worse for the download: each time the system is asked for what may not be there.
const SENT_BESIDE: usize = 128 << 10;

/// Connections that are sent for in a round.
const CONNECTIONS: usize = 256;

/// Turns that other tasks have between what applications are told of and sending, so that answers go with the
/// acknowledgements: one for whoever reads a stream, one for whom that one tells (HTTP/3's requests).
const TURNS_TO_ANSWER: u8 = 2;

pub(crate) struct Driver {
    pub(crate) socket: Arc<Socket>,
    /// All of the endpoint, this one among them; which one a connection ID belongs to is one of
    /// its bytes (`Shared::ids`). Alone: empty.
    siblings: Vec<Arc<Socket>>,
    index: usize,
    buffers: Buffers,
    pub(crate) batch: Batch,
    /// Connections to look at.
    work: VecDeque<Arc<Cell>>,
    response: Vec<u8>,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Timestamp>,
    /// Turns that other tasks are still to have before this one sends.
    turns: u8,
    /// Bytes sent after which the system is asked for datagrams, [`SENT`] or [`SENT_BESIDE`]: by the connection that sent last.
    look: usize,
    /// The system is asked for datagrams in this round, whatever the runtime knows: much was sent meanwhile.
    asks: bool,
    /// An application was told of data that came in this round.
    told: bool,
    /// None where connection IDs are never out of date.
    renewal: Option<Renewal>,
    /// Waits for ICMP errors, while any are wanted.
    pub(crate) errors: Option<IcmpErrors>,
}

impl Driver {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(socket: Arc<Socket>, siblings: Vec<Arc<Socket>>, index: usize) -> Driver {
        let (buffers, renewal) = {
            let inner = socket.lock();
            (inner.udp.buffers(), Renewal::of(&inner))
        };
        Driver {
            socket,
            siblings,
            index,
            buffers,
            batch: Batch::new(),
            work: VecDeque::new(),
            response: Vec::new(),
            sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
            armed: None,
            turns: 0,
            look: SENT,
            asks: false,
            told: false,
            renewal,
            errors: None,
        }
    }

    /// Receives what waits, some of it if it is much; returns the number of bytes, none if nothing was waiting. As many small
    /// messages as there are buffers are likely not all that wait: acknowledgements of many connections, a message each, fill the
    /// socket's buffer if less is received of them than what they acknowledge is sent.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        udp: &Udp,
        inner: &mut Inner,
    ) -> io::Result<Option<usize>> {
        let mut all = None;
        for _ in 0..SMALL_BATCHES {
            let Some((count, bytes)) = self.receive_batch(cx, udp, inner)? else { break };
            all = Some(all.unwrap_or(0) + bytes);
            if count < self.buffers.count() || bytes > SMALL * count || self.told {
                break;
            }
        }
        Ok(all)
    }

    /// Receives into the buffers; returns the number of messages and their bytes, none if nothing was waiting.
    fn receive_batch(
        &mut self,
        cx: &mut Context<'_>,
        udp: &Udp,
        inner: &mut Inner,
    ) -> io::Result<Option<(usize, usize)>> {
        let count = match udp.poll_receive(cx, &mut self.buffers, self.asks) {
            Poll::Ready(Ok(count)) => count,
            Poll::Pending => return Ok(None),
            Poll::Ready(Err(error)) if is_fatal(&error) => return Err(error),
            // What an earlier datagram met: ICMP errors are for QUIC's timers to judge.
            Poll::Ready(Err(_)) => return Ok(Some((0, 0))),
        };
        let mut bytes = 0;
        let now = self.socket.now();
        let route =
            Route { socket: &self.socket, siblings: &self.siblings, index: self.index, udp, now };
        for Message { arrival, bytes: all, segment } in self.buffers.messages(count) {
            bytes += all.len();
            let datagrams = (all, segment);
            self.told |= route.take(inner, &arrival, datagrams, &mut self.response, &mut self.work);
        }
        Ok(Some((count, bytes)))
    }

    /// As [`Driver::receive`], of the socket that was there before.
    fn receive_late(&mut self, cx: &mut Context<'_>, inner: &mut Inner) -> Option<usize> {
        inner.before.take_if(|(_, until)| *until <= self.socket.now());
        let (udp, _) = inner.before.clone()?;
        // What is wrong with it is nobody's concern any more.
        self.receive(cx, &udp, inner).unwrap_or_else(|_| {
            inner.before = None;
            None
        })
    }

    /// As [`Driver::receive`], of the sockets of further addresses; one that fails is closed, and the paths that lead
    /// there end by QUIC's timers.
    fn receive_others(
        &mut self,
        cx: &mut Context<'_>,
        others: &[Arc<Local>],
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

    fn take_passed(&mut self, passed: VecDeque<Passed>, udp: &Udp, inner: &mut Inner) {
        let now = self.socket.now();
        let route = Route { socket: &self.socket, siblings: &[], index: self.index, udp, now };
        for Passed { arrival, mut bytes } in passed {
            let one = (&mut bytes[..], usize::MAX);
            // Its application is not waited for: what is passed on is not much.
            route.take(inner, &arrival, one, &mut self.response, &mut self.work);
        }
    }

    /// Connections whose time has come.
    fn time(&mut self, inner: &mut Inner) {
        let now = self.socket.now();
        while let Some((at, handle)) = inner.timers.first().copied()
            && at <= now
        {
            inner.timers.pop_first();
            if let Some(Some(cell)) = inner.cells.get(handle.0) {
                let was_queued = contain(|| {
                    let mut state = cell.lock();
                    state.timer = None;
                    state.connection.handle_timeout(now);
                    std::mem::replace(&mut state.queued, true)
                });
                // If this panicked, `look_at` ends the connection.
                if was_queued != Some(true) {
                    self.work.push_back(Arc::clone(cell));
                }
            }
        }
    }

    /// Looks at the connections that were touched, and has those that wait for their turn send; false: the socket takes no more
    /// now. Both end when [`SENT`] bytes have been sent: acknowledgements that come meanwhile, of which ten thousand fill a
    /// socket's buffer, are received then.
    fn work(&mut self, outlets: Outlets<'_>, inner: &mut Inner) -> bool {
        if self.batch.flush(outlets).is_err() {
            return false;
        }
        let before = self.batch.sent();
        for _ in 0..CONNECTIONS.min(self.work.len()) {
            if self.batch.sent() >= before + SENT {
                break;
            }
            let Some(cell) = self.work.pop_front() else { break };
            if !self.look_at(cell, false, outlets, inner) {
                return false;
            }
        }
        let before = self.batch.sent();
        for _ in 0..CONNECTIONS {
            if self.batch.sent() >= before + SENT {
                break;
            }
            let Some(cell) = inner.crowds.next(self.socket.now()) else { break };
            cell.lock().member.waits = false;
            if !self.look_at(cell, true, outlets, inner) {
                return false;
            }
        }
        true
    }

    /// Sends what a connection has to send. `first`: it comes from the front of its crowd's waiting list. False: the socket
    /// takes no more now.
    fn look_at(
        &mut self,
        cell: Arc<Cell>,
        first: bool,
        outlets: Outlets<'_>,
        inner: &mut Inner,
    ) -> bool {
        // A panic may have happened earlier, for example in an application's task.
        let sound = !cell.is_broken();
        let worked = sound.then(|| contain(|| self.work_on(&cell, first, outlets, inner)));
        let Some(sent) = worked.flatten() else {
            inner.break_off(&self.socket, &cell);
            // The batch holds only whole datagrams. They are sent before those of the next
            // connection.
            return self.batch.flush(outlets).is_ok();
        };
        if sent != Sent::All {
            let queued = std::mem::replace(&mut cell.lock().queued, true);
            if sent == Sent::Blocked {
                self.work.push_front(cell);
                return false;
            }
            if !queued {
                self.work.push_back(cell);
            }
        }
        true
    }

    fn work_on(
        &mut self,
        cell: &Arc<Cell>,
        first: bool,
        outlets: Outlets<'_>,
        inner: &mut Inner,
    ) -> Sent {
        let now = self.socket.now();
        let mut state = cell.lock();
        // One that is waited for in the list of those to look at stays there.
        state.queued &= first;
        let handle = state.handle;
        if state.removed {
            return Sent::All;
        }
        // For the address that the client has proved: the one that is sent to may be forged by now.
        if state.token_due
            && state.connection.is_connected()
            && let Some(address) = state.connection.validated_address()
        {
            state.token_due = false;
            let (client, version) = (address.ip(), state.connection.version());
            if let Some(token) = inner.endpoint.new_token(now, client, version) {
                // The only one; a token that is too long goes nowhere.
                state.connection.send_token(token);
            }
        }
        let turn = inner.crowds.begin(&mut state, now, first);
        self.look = if state.grouping.has_heard() { SENT_BESIDE } else { SENT };
        let limits = match turn {
            Turn::Alone => (TURNS, self.look),
            Turn::Now(bytes) => (TURNS, bytes.min(SENT)),
            Turn::Later => (1, SENT),
        };
        let State { connection, grouping, .. } = &mut *state;
        let mut sent = self.batch.send(connection, grouping, now, outlets, limits);
        if turn != Turn::Alone {
            let more = turn != Turn::Later && sent == Sent::Some;
            inner.crowds.end(cell, &mut state, now, (turn, more));
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
            state.settle(&self.socket.shared.send_memory);
            return sent;
        }
        state.removed = true;
        inner.crowds.leave(&mut state);
        self.socket.shared.send_memory.settle(&mut state.counted, 0);
        if let Some(timer) = state.timer.take() {
            inner.timers.remove(&(timer, handle));
        }
        drop(state);
        inner.remove(handle);
        self.socket.shared.gone.notify_waiters();
        Sent::All
    }

    /// Waits for the next timer; true if it has come already.
    fn arm(&mut self, cx: &mut Context<'_>, inner: &Inner) -> bool {
        let Some((next, _)) = inner.timers.first().copied() else {
            self.armed = None;
            return false;
        };
        if self.armed != Some(next) {
            let Some(instant) = self.socket.instant(next) else { return false };
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

/// Returns true if the socket itself is unusable. Every other error passes: an ICMP message becomes one of
/// many (Linux, `icmp_err_convert` and `icmpv6_err_convert`), and anyone can send ICMP messages.
fn is_fatal(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, None | Some(Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT | Errno::EINVAL))
}

impl Future for Driver {
    /// Error that made the socket fail; none if the application has let go of it.
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
        for _ in 0..ROUNDS {
            if bytes >= RECEIVED {
                break;
            }
            let (udp, others) = (Arc::clone(&inner.udp), Arc::clone(&inner.others));
            let outlets = Outlets { first: &udp, others: &others };
            // What came before the turns of others is worked at before more is received.
            let has_waited = std::mem::take(&mut this.turns) > 0;
            let received = if has_waited {
                true
            } else {
                this.asks = this.batch.has_sent(this.look);
                let received = match this.receive(cx, &udp, &mut inner) {
                    Ok(received) => [
                        received,
                        this.receive_late(cx, &mut inner),
                        this.receive_others(cx, &others, &mut inner),
                    ],
                    Err(error) => return Poll::Ready(Some(error)),
                };
                bytes += received.iter().flatten().sum::<usize>();
                if std::mem::take(&mut this.told) {
                    this.turns = TURNS_TO_ANSWER;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                received.iter().any(Option::is_some)
            };
            let heeded = !inner.unanswered.is_empty() && this.heed_errors(cx, &udp, &mut inner);
            let passed = socket.take_touched(&mut this.work, cx.waker());
            let any_passed = !passed.is_empty();
            this.take_passed(passed, &udp, &mut inner);
            this.time(&mut inner);
            if let Some(renewal) = &mut this.renewal {
                renewal.look(cx, &inner, &mut this.work);
            }
            let blocked = !this.work(outlets, &mut inner);
            this.end_unsendable(&mut inner);
            if inner.released && inner.open == 0 {
                return Poll::Ready(None);
            }
            if blocked {
                match this.batch.outlet(outlets).poll_send_ready(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
                    // Received is still what comes, lest it pile up.
                    Poll::Pending if received => continue,
                    Poll::Pending => {}
                }
            } else if received
                || heeded
                || any_passed
                || !this.work.is_empty()
                || inner.crowds.may_go()
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
    }
}
